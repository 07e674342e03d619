/* A sample of requests and their answers, to train on later: JSON lines that `banyan pack` reads,
 * without what must not be kept. */
#ifndef BY_SERVE_PAYLOAD_LOG_H
#define BY_SERVE_PAYLOAD_LOG_H

#include "serve/gateway/gateway.h"

typedef struct by__payload_log by__payload_log;

/* *out is NULL where the config names no directory. The config must live as long. BY_EIO: the
 * directory cannot be had. */
by_status by__payload_log_open(by__payload_log **out, uv_loop_t *loop,
                               const by_serve_payload_config *config, by_error *error);
void by__payload_log_close(by__payload_log **log);
/* Whether the request of this id is in the sample: decided by its id alone. log may be NULL. */
bool by__payload_wants(const by__payload_log *log, const char *id);
/* Adds a record: the fields of `head` as they are, those of `body` dropped, hashed and redacted at
 * all depths; or none of it when memory runs out. Both are taken; NULL, what memory ran out for, is
 * counted as lost. */
void by__payload_log_add(by__payload_log *log, json_t *head, json_t *body);
/* Adds the sequences of a call that is complete, one record each; its choices have their text. The
 * field `text` is made of those of prompt, messages and completion that are kept as they are. */
void by__payload_log_call(by__payload_log *log, const by__call *call);
/* Counters of it. log may be NULL. */
void by__payload_log_print(const by__payload_log *log, by__text *out);

#endif
