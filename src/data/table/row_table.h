/* Tables of cells in memory, such as the rows of a request. */
#ifndef BY_DATA_TABLE_ROW_TABLE_H
#define BY_DATA_TABLE_ROW_TABLE_H

#include "banyan/table.h"

/* Makes a table with columns of these types, of cells [rows][columns]; NULL: missing. `learned`:
 * the encoding that is applied to it, or NULL. BY_EFORMAT names row (from 0) and column of a text
 * in a column of numbers. */
by_status by__table_row(by_table **out, const by_column_type *types, size_t columns,
                        const by_encoding *learned, const char *const *cells, size_t rows,
                        by_error *error);

#endif
