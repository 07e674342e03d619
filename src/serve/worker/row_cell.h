/* Cells of rows in requests. */
#ifndef BY_SERVE_ROW_CELL_H
#define BY_SERVE_ROW_CELL_H

#include "serve/serve.h"

/* A cell as the text that a CSV file has, of which numbers come back with the same bits; freed with
 * free(). *out is NULL where it is missing, or (BY_EARG, which names the row) no cell. */
by_status by__row_cell(char **out, const json_t *value, size_t row, by_error *error);

#endif
