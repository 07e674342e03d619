/* Events of a process as JSON lines, for by_serve_log. */
#ifndef BY_SERVE_LOG_H
#define BY_SERVE_LOG_H

#include "serve/serve.h"

typedef struct by__log {
    by_serve_log *write; /* NULL: nothing is told */
    void *user;
} by__log;

/* {"time": "...", "event": EVENT, ...}: the rest as json_pack takes an object, or NULL for none.
 * What cannot be told for want of memory is not told. */
void by__log_event(const by__log *log, const char *event, const char *format, ...);
/* The same with an object, which is taken. */
void by__log_object(const by__log *log, const char *event, json_t *object);

#endif
