/* Reads answers that are streams of events (text/event-stream, HTML Living Standard, section 9.2)
 * as OpenAI's API sends them: a line "data: {...}" is an event, whatever other fields surround
 * it. */
#ifndef BY_SERVE_HTTP_EVENT_STREAM_H
#define BY_SERVE_HTTP_EVENT_STREAM_H

#include "serve/base/serve.h"

/* Takes bytes, and calls `event` for the object of each complete line. `pending` (initially zeros,
 * freed by the caller) keeps the incomplete line, and becomes `failed` when memory is exhausted. */
void by__http_event_stream_feed(by_string *pending, const char *data, size_t length,
                                void (*event)(void *user, const char *object, size_t length),
                                void *user);

#endif
