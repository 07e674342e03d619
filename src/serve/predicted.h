/* What is predicted for examples, as JSON: for answers of a worker and for reports. */
#ifndef BY_SERVE_PREDICTED_H
#define BY_SERVE_PREDICTED_H

#include <jansson.h>

#include "banyan/infer.h"
#include "banyan/predictor.h"
#include "base/base.h"

/* {"index", "label", "probability", ...} of the fields of an example; null: there is no number.
 * NULL: out of memory. */
json_t *by__predicted_json(const by_field *fields, size_t count);

/* The rows of a table, predicted one batch at a time. */
typedef struct by__predicted_rows by__predicted_rows;

/* *out is NULL where the table lacks a column that the model reads: nothing is predicted. The table
 * may go afterwards. */
by_status by__predicted_rows_open(by__predicted_rows **out, const by_pretrained *model,
                                  const by_table *table, by_error *error);
void by__predicted_rows_close(by__predicted_rows **rows);
/* What is predicted for the next row, to be released; its index is the place in a batch. */
by_status by__predicted_rows_next(by__predicted_rows *rows, json_t **out, by_error *error);

#endif
