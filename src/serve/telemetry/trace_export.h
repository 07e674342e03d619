/* Exports spans to a collector of OpenTelemetry: OTLP over HTTP, in JSON
 * (https://opentelemetry.io/docs/specs/otlp/).
 *
 * A separate thread sends them in batches, so that a slow or unreachable collector never delays a
 * request: spans wait in a bounded queue; those that find it full, or that the collector does not
 * accept in three attempts, are dropped and counted. */
#ifndef BY_SERVE_TELEMETRY_TRACE_EXPORT_H
#define BY_SERVE_TELEMETRY_TRACE_EXPORT_H

#include "serve/telemetry/log.h"
#include "serve/telemetry/trace_context.h"

typedef struct by__telemetry_trace_export by__telemetry_trace_export;

/* Kinds of spans, as OTLP numbers them. */
typedef enum by__telemetry_span_kind {
    BY__SPAN_INTERNAL = 1,
    BY__SPAN_SERVER = 2
} by__telemetry_span_kind;

typedef struct by__telemetry_span {
    const char *trace; /* identifiers as in by__telemetry_trace_context */
    const char *id;
    const char *parent; /* "": none */
    const char *state;  /* value of the header tracestate; NULL: none */
    const char *name;
    by__telemetry_span_kind kind;
    double begin; /* seconds since 1970 */
    double end;
    bool failed;
    const json_t *attributes; /* an object of strings and numbers; NULL: none */
} by__telemetry_span;

/* Starts the thread. *out is NULL if `url` is "". queue: most spans that wait; service: the name
 * shown by the collector; both strings are copied. */
by_status by__telemetry_trace_export_open(by__telemetry_trace_export **out, const char *url,
                                          const char *service, size_t queue, by_error *error);
/* Sends pending spans, for about two seconds at most, ends the thread, and logs a failure that
 * by__telemetry_trace_export_log has not logged yet. */
void by__telemetry_trace_export_close(by__telemetry_trace_export **traces,
                                      const by__telemetry_log *log);
/* Called at intervals by the thread that the log belongs to: logs `traces_unavailable` with the
 * reason when a batch is not taken, again each minute while it lasts, and `traces_available` when
 * one is. traces may be NULL: nothing is done. */
void by__telemetry_trace_export_log(by__telemetry_trace_export *traces,
                                    const by__telemetry_log *log);
/* Queues a span; never waits for the collector. traces may be NULL: nothing is done. */
void by__telemetry_trace_export_add(by__telemetry_trace_export *traces,
                                    const by__telemetry_span *span);
/* Prints its counters. traces may be NULL. */
void by__telemetry_trace_export_print(by__telemetry_trace_export *traces, by_string *out);

#endif
