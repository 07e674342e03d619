/* Cells of rows that are JSON: in requests, and in lines of a file. */
#ifndef BY_DATA_TABLE_ROW_CELL_H
#define BY_DATA_TABLE_ROW_CELL_H

#include "base/json.h"

#define BY__CELL_DIGITS 40

/* Returns the text that a CSV file would have for a cell: that of a string, of a truth value, or of
 * a number, whose text, as it is spelled if it is beyond int64 or double, may be in `digits` and
 * converts back to the same bits. NULL: it is none of these. */
const char *by__table_row_cell_text(char digits[BY__CELL_DIGITS], const json_t *value);
/* Converts a cell to the text that a CSV file would have; numbers convert back to the same bits.
 * Freed with free(). *out is NULL if the cell is missing, or (BY_EARG, naming the row) not a valid
 * cell. */
by_status by__table_row_cell(char **out, const json_t *value, size_t row, by_error *error);

#endif
