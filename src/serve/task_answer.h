/* The answer of a task, gathered from its events: nobody waits for them at a connection. */
#ifndef BY_SERVE_TASK_ANSWER_H
#define BY_SERVE_TASK_ANSWER_H

#include "serve/serve.h"

typedef struct by__gather by__gather;

by_status by__gather_open(by__gather **out, by_error *error);
void by__gather_close(by__gather **gather);
/* Takes the text of "text", the reason of "stop" and its score; other events have nothing for it.
 * NULL is an event for which no memory was left: the answer then lacks something. */
void by__gather_add(by__gather *gather, const json_t *event);
/* Forgets what has come: the request begins again. */
void by__gather_clear(by__gather *gather);
/* With the event "end": {"choices": [{"text", "reason", and perhaps "score"}, ...], "usage"}; with
 * the event "result": {"result", "usage"}. A new reference; NULL: memory is exhausted,
 * now or when texts came. */
json_t *by__gather_result(const by__gather *gather, const json_t *end);
/* Of the event "error": {"status", "code", "message"}, a new reference. */
json_t *by__gather_failure(const json_t *event);

#endif
