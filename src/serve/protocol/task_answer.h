/* Gathers the answer of a task from its events, since no client is connected to receive them. */
#ifndef BY_SERVE_PROTOCOL_TASK_ANSWER_H
#define BY_SERVE_PROTOCOL_TASK_ANSWER_H

#include "serve/base/serve.h"

typedef struct by__protocol_gather by__protocol_gather;

by_status by__protocol_gather_open(by__protocol_gather **out, by_error *error);
void by__protocol_gather_close(by__protocol_gather **gather);
/* Adds the text of "text", and the reason and score of "stop"; other events are ignored. NULL is an
 * event for which memory was exhausted: the answer is then incomplete. */
void by__protocol_gather_add(by__protocol_gather *gather, const json_t *event);
/* Discards the answer so far: the request is run again. */
void by__protocol_gather_clear(by__protocol_gather *gather);
/* Builds the result. For the event "end": {"choices": [{"text", "reason", and perhaps "score"},
 * ...], "usage"}; for the event "result": {"result", "usage"}. A new reference; NULL: memory is
 * exhausted, or was when events were added. */
json_t *by__protocol_gather_result(const by__protocol_gather *gather, const json_t *end);
/* Builds the failure of the event "error": {"status", "code", "message"}, a new reference. */
json_t *by__protocol_gather_failure(const json_t *event);

#endif
