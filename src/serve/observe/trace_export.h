/* Spans on their way to a collector of OpenTelemetry: OTLP over HTTP, in JSON
 * (https://opentelemetry.io/docs/specs/otlp/).
 *
 * A thread of its own sends them in batches, so that a collector which is slow or down never holds
 * up a request: spans wait in a queue of bounded length, and those that find it full, or that the
 * collector does not take after three attempts, are dropped and counted. */
#ifndef BY_SERVE_TRACE_EXPORT_H
#define BY_SERVE_TRACE_EXPORT_H

#include "serve/observe/trace_context.h"

typedef struct by__trace_export by__trace_export;

/* Kinds of spans, as OTLP numbers them. */
typedef enum by__span_kind { BY__SPAN_INTERNAL = 1, BY__SPAN_SERVER = 2 } by__span_kind;

typedef struct by__span {
    const char *trace; /* identifiers as in by__trace_context */
    const char *id;
    const char *parent; /* "": none */
    const char *state;  /* of the header tracestate; NULL: none */
    const char *name;
    by__span_kind kind;
    double begin; /* seconds since 1970 */
    double end;
    bool failed;
    const json_t *attributes; /* an object of texts and numbers; NULL: none */
} by__span;

/* Starts the thread. *out is NULL where `url` is "". queue: spans that may wait; service: the name
 * that the collector shows; both texts are copied. */
by_status by__trace_export_open(by__trace_export **out, const char *url, const char *service,
                                size_t queue, by_error *error);
/* Sends what waits, for about two seconds at most, and ends the thread. */
void by__trace_export_close(by__trace_export **traces);
/* Adds a span; never waits for the collector. traces may be NULL: nothing is done. */
void by__trace_export_add(by__trace_export *traces, const by__span *span);
/* Counters of it. traces may be NULL. */
void by__trace_export_print(by__trace_export *traces, by__text *out);

#endif
