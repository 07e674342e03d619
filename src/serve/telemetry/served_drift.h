/* Drift of served requests relative to the training data: counted in a worker, which has their
 * tokens, and exported as gauges by gateways. */
#ifndef BY_SERVE_TELEMETRY_SERVED_DRIFT_H
#define BY_SERVE_TELEMETRY_SERVED_DRIFT_H

#include "banyan/drift.h"
#include "banyan/table.h"
#include "serve/telemetry/log.h"

typedef struct by__telemetry_served_drift by__telemetry_served_drift;

/* Opens the reference in a directory of weights. *out is NULL if there is none; every function here
 * accepts that and counts nothing. `log` gets windows with drift, and must outlive it. BY_EFORMAT:
 * the file is damaged. */
by_status by__telemetry_served_drift_open(by__telemetry_served_drift **out, const char *directory,
                                          const by_drift_options *options,
                                          const by__telemetry_log *log, by_error *error);
void by__telemetry_served_drift_close(by__telemetry_served_drift **drift);
/* Counts a request by the tokens of its prompt, */
void by__telemetry_served_drift_tokens(by__telemetry_served_drift *drift, const int32_t *ids,
                                       size_t count);
/* or a row by the names of its fields with its prediction as in an answer of /v1/predict ("label"
 * or "value", "probability"); either may be NULL. In a row, null and the absence of a column that
 * the model reads count as missing cells, as the model reads them; other absent fields, and those
 * that are not in the reference, are ignored. */
void by__telemetry_served_drift_example(by__telemetry_served_drift *drift, const json_t *row,
                                        const json_t *predicted);
/* Counts a request for predictions: its rows (NULL: images), of which objects have field names, and
 * its answer in the same order. Ignored for models that predict nothing. */
void by__telemetry_served_drift_answer(by__telemetry_served_drift *drift, const json_t *rows,
                                       const json_t *answer);
/* Whether a feature is an input rather than a prediction; whether the reference has features of
 * predictions. */
bool by__telemetry_served_drift_is_input(const by__telemetry_served_drift *drift, size_t index);
bool by__telemetry_served_drift_predicts(const by__telemetry_served_drift *drift);
/* Returns true if the reference has a field of the row. */
bool by__telemetry_served_drift_knows(const by__telemetry_served_drift *drift, const json_t *row);
/* At the end of a file: compares the remaining incomplete window if it is large enough. */
void by__telemetry_served_drift_end(by__telemetry_served_drift *drift);
/* The last window that was compared, the requests that one needs at least, and the features of the
 * reference. drift is not NULL. */
const by_drift_window *by__telemetry_served_drift_last(const by__telemetry_served_drift *drift);
size_t by__telemetry_served_drift_least(const by__telemetry_served_drift *drift);
size_t by__telemetry_served_drift_features(const by__telemetry_served_drift *drift);
/* How the model reads tables; NULL: it reads none. */
const by_encoding *by__telemetry_served_drift_encoding(const by__telemetry_served_drift *drift);
const char *by__telemetry_served_drift_feature(const by__telemetry_served_drift *drift,
                                               size_t index, by_drift_kind *kind);
/* {"windows", "alarms", "filled", "requests", "detected", "features": [...]}, of the last window;
 * NULL if nothing is counted. */
json_t *by__telemetry_served_drift_state(const by__telemetry_served_drift *drift);

/* Prints gauges of all workers in the broker's state whose "engine" has "drift". */
void by__telemetry_served_drift_print(by_string *out, const json_t *workers);

#endif
