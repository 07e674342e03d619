/* Requests of a served model, compared with what it was trained on: counted in a worker, which
 * knows their tokens, and told as gauges by gateways. */
#ifndef BY_SERVE_SERVED_DRIFT_H
#define BY_SERVE_SERVED_DRIFT_H

#include "banyan/drift.h"
#include "serve/observe/log.h"

typedef struct by__served_drift by__served_drift;

/* Opens the reference in a directory of weights. *out is NULL where there is none, which every
 * function here takes: nothing is counted. `log` hears of windows with drift, and must live as
 * long. BY_EFORMAT: the file is damaged. */
by_status by__served_drift_open(by__served_drift **out, const char *directory,
                                const by_drift_options *options, const by__log *log,
                                by_error *error);
void by__served_drift_close(by__served_drift **drift);
/* Counts a request: the tokens of its prompt, */
void by__served_drift_tokens(by__served_drift *drift, const int32_t *ids, size_t count);
/* or a row by the names of its fields and what was predicted for it, as /v1/predict says it
 * ("label" or "value", "probability"); either may be NULL. null: missing; fields that are not there
 * at all, or not in the reference, are passed over. */
void by__served_drift_example(by__served_drift *drift, const json_t *row, const json_t *predicted);
/* Counts a request for predictions: its rows (NULL: images), of which those that are objects have
 * names, and its answer in their order. Answers of models that predict nothing are passed over. */
void by__served_drift_answer(by__served_drift *drift, const json_t *rows, const json_t *answer);
/* Whether a feature is of requests, and not of predictions; whether some are of these. */
bool by__served_drift_is_input(const by__served_drift *drift, size_t index);
bool by__served_drift_predicts(const by__served_drift *drift);
/* Whether the reference has a field of a row. */
bool by__served_drift_knows(const by__served_drift *drift, const json_t *row);
/* The rest of a file: what is left is compared, if it is enough. */
void by__served_drift_end(by__served_drift *drift);
/* The window that was compared last, and the features of the reference. drift is not NULL. */
const by_drift_window *by__served_drift_last(const by__served_drift *drift);
size_t by__served_drift_features(const by__served_drift *drift);
const char *by__served_drift_feature(const by__served_drift *drift, size_t index,
                                     by_drift_kind *kind);
/* {"windows", "alarms", "filled", "requests", "detected", "features": [...]}, of the last window;
 * NULL where nothing is counted. */
json_t *by__served_drift_state(const by__served_drift *drift);

/* Gauges of all workers in the broker's state, whose "engine" has "drift". */
void by__served_drift_print(by__text *out, const json_t *workers);

#endif
