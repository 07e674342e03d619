/* What is open between a run and an MLflow server, and requests to it: for mlflow_client.c, which
 * sends what the run writes, and mlflow_run.c, which makes the run there. */
#ifndef BY_TRACK_MLFLOW_CALL_H
#define BY_TRACK_MLFLOW_CALL_H

#include <curl/curl.h>
#include <jansson.h>

#include "track/mlflow_client.h"

struct by__mlflow {
    const by__mlflow_options *options;
    by__mlflow_state state;
    size_t skip; /* metrics of the line at state.offset that were sent */
    CURL *curl;
    struct curl_slist *headers;
    char *state_path;
    char *events_path;
    by__text reply;
    by__text body;
    char problem[CURL_ERROR_SIZE];
};

by_status by__mlflow_no_memory(by_error *error);

/* ---- requests (mlflow_call.c) ---- */

/* Sets what all requests of m->curl have in common. */
void by__mlflow_prepare(by__mlflow *m);
/* Sends m->body (empty: a GET) to an end point; *reply (may be NULL) is the caller's. `refusal`
 * receives the server's error code. */
by_status by__mlflow_request(by__mlflow *m, const char *point, json_t **reply, char refusal[64],
                             by_error *error);
/* Adds {"key": ..., "value": ...} of n bytes. */
void by__mlflow_add_pair(by__text *out, const char *key, const char *value, size_t n);
/* Adds "key":"value", behind a comma or, as the first, a brace. */
void by__mlflow_add_field(by__text *out, const char *key, const char *value);

/* Writes the state to its file in the run (mlflow_client.c). */
by_status by__mlflow_save(const by__mlflow *m, by_error *error);

/* ---- the run on the server (mlflow_run.c) ---- */

/* Makes the run on the server and says what it is; what was done is not done again. */
by_status by__mlflow_describe(by__mlflow *m, by_error *error);
/* Milliseconds since 1970 of "2026-01-31T23:59:59Z". */
long long by__mlflow_milliseconds(const char *utc);

#endif
