/* Logging of a process: writes events as JSON lines to a by_serve_log. */
#ifndef BY_SERVE_TELEMETRY_LOG_H
#define BY_SERVE_TELEMETRY_LOG_H

#include "serve/base/serve.h"

typedef struct by__telemetry_log {
    by_serve_log *write; /* NULL: logging is off */
    void *user;
} by__telemetry_log;

/* Writes {"time": "...", "event": EVENT, ...}: `format` as for json_pack of an object, or NULL for
 * no further members. Dropped when memory is exhausted. */
void by__telemetry_log_event(const by__telemetry_log *log, const char *event, const char *format,
                             ...);
/* Seconds to log: in tenths of a millisecond, since more digits are noise. */
double by__telemetry_observe_seconds(double seconds);
/* The same with an object, which is taken. */
void by__telemetry_log_object(const by__telemetry_log *log, const char *event, json_t *object);

/* Logs `landlock_missing` if the version that by__serve_sandbox_prepare found is 0; left: what the
 * process can do with files then. */
void by__telemetry_log_landlock(const by__telemetry_log *log, int version, const char *left);

#endif
