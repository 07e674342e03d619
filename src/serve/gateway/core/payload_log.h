/* A sample of requests and their answers to train on later, as JSON lines that `banyan pack` and
 * drift reports read. Fields that must not be kept are dropped, hashed or redacted. */
#ifndef BY_SERVE_GATEWAY_CORE_PAYLOAD_LOG_H
#define BY_SERVE_GATEWAY_CORE_PAYLOAD_LOG_H

#include "serve/gateway/core/gateway.h"

typedef struct by__gateway_payload_log by__gateway_payload_log;

/* *out is NULL if the config names no directory. The config must outlive it. BY_EIO: the directory
 * cannot be opened. */
by_status by__gateway_payload_log_open(by__gateway_payload_log **out, uv_loop_t *loop,
                                       const by_serve_payload_config *config, by_error *error);
void by__gateway_payload_log_close(by__gateway_payload_log **log);
/* Returns true if the request with this id is in the sample, which depends on the id alone. log may
 * be NULL. */
bool by__gateway_payload_wants(const by__gateway_payload_log *log, const char *id);
/* Adds a record: the fields of `body` dropped, hashed and redacted at all depths, and those of
 * `head` dropped and hashed, but not redacted. A record is dropped whole when memory is exhausted.
 * Takes both; NULL, a value for which memory was exhausted, counts as lost. */
void by__gateway_payload_log_add(by__gateway_payload_log *log, json_t *head, json_t *body);
/* Adds records of a completed request:
 *
 * - one for each sequence of a text, whose choices have theirs: "prompt" or "messages",
 *   "completion", and "text", which is made of those of these fields that are kept unchanged;
 * - one for each row of /v1/predict, {"row", "prediction"}, for each image without its row, and for
 *   each text of /v1/embeddings, "prompt" and "text"; the first 256 of a request. */
void by__gateway_payload_log_request(by__gateway_payload_log *log,
                                     const by__gateway_request *request);
/* Prints its counters. log may be NULL. */
void by__gateway_payload_log_print(const by__gateway_payload_log *log, by_string *out);

#endif
