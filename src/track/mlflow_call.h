/* The connection of a run to an MLflow server and requests over it, for mlflow_client.c, which
 * sends events, and mlflow_run.c, which creates the run on the server. */
#ifndef BY_TRACK_MLFLOW_CALL_H
#define BY_TRACK_MLFLOW_CALL_H

#include <curl/curl.h>
#include <jansson.h>

#include "base/wire/http_client.h"
#include "track/mlflow_client.h"

struct by__track_mlflow {
    const by__track_mlflow_options *options;
    by__track_mlflow_state state;
    size_t skip; /* metrics sent already of the line at state.offset */
    CURL *curl;
    CURLM *multi; /* runs its requests */
    struct curl_slist *headers;
    char *state_path;
    char *events_path;
    by_string reply;
    by_string body;
    char problem[CURL_ERROR_SIZE];
};

by_status by__track_mlflow_no_memory(by_error *error);

/* ---- requests (mlflow_call.c) ---- */

/* Sets the options that all requests of m->curl share. */
void by__track_mlflow_prepare(by__track_mlflow *m);
/* Sends m->body (empty: a GET) to an endpoint. *reply (`reply` may be NULL) is owned by the caller.
 * `refusal` receives the server's error code. */
by_status by__track_mlflow_request(by__track_mlflow *m, const char *point, json_t **reply,
                                   char refusal[64], by_error *error);
/* Appends {"key": ..., "value": ...} with a value of n bytes. */
void by__track_mlflow_add_pair(by_string *out, const char *key, const char *value, size_t n);
/* Appends "key":"value" after a comma or, as the first field, after a brace. */
void by__track_mlflow_add_field(by_string *out, const char *key, const char *value);

/* Writes the state to its file in the run directory (mlflow_client.c). */
by_status by__track_mlflow_save(const by__track_mlflow *m, by_error *error);

/* ---- the run on the server (mlflow_run.c) ---- */

/* Creates the run on the server and sends its description. Steps done before are not repeated. */
by_status by__track_mlflow_describe(by__track_mlflow *m, by_error *error);
/* Deletes runs on the server that were created for this one, but whose IDs did not arrive in time:
 * nobody would ever end them. */
by_status by__track_mlflow_sweep(by__track_mlflow *m, by_error *error);
/* Parses "2026-01-31T23:59:59Z" to milliseconds since 1970. */
long long by__track_mlflow_milliseconds(const char *utc);

#endif
