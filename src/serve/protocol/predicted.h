/* Predictions for examples as JSON: for answers of a worker and for reports. */
#ifndef BY_SERVE_PROTOCOL_PREDICTED_H
#define BY_SERVE_PROTOCOL_PREDICTED_H

#include <jansson.h>

#include "banyan/infer.h"
#include "banyan/predictor.h"
#include "base/base.h"

/* Encodes the fields of an example: {"index", "label", "probability", ...}; null: not a number.
 * NULL: out of memory. */
json_t *by__protocol_predicted_json(const by_field *fields, size_t count);

/* Predicts the rows of a table, one batch at a time. */
typedef struct by__protocol_predicted_rows by__protocol_predicted_rows;

/* *out is NULL if the table lacks a column that the model reads, or has cells that it cannot read,
 * and *why then says so (freed with free()). The table may be closed afterwards. */
by_status by__protocol_predicted_rows_open(by__protocol_predicted_rows **out, char **why,
                                           const by_pretrained *model, const by_table *table,
                                           by_error *error);
void by__protocol_predicted_rows_close(by__protocol_predicted_rows **rows);
/* The prediction for the next row, a new reference; its index is its place in the batch. */
by_status by__protocol_predicted_rows_next(by__protocol_predicted_rows *rows, json_t **out,
                                           by_error *error);

#endif
