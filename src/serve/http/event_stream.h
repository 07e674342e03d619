/* Answers that come as events (text/event-stream, HTML Living Standard, section 9.2), as OpenAI's
 * API streams them: a line "data: {...}" is an event, whatever other fields stand around it. */
#ifndef BY_SERVE_EVENT_STREAM_H
#define BY_SERVE_EVENT_STREAM_H

#include "serve/serve.h"

/* Takes bytes, and calls `event` for the object of each line that is complete. `pending` (zeros at
 * first, the caller's to free) keeps the line that is not, and is `failed` without memory. */
void by__event_stream_take(by__text *pending, const char *data, size_t length,
                           void (*event)(void *user, const char *object, size_t length),
                           void *user);

#endif
