/* The trace of a request in the gateway, which alone exports spans: that of the request, and below
 * it the waiting for a worker and the worker's parts, whose durations come with its last event. */
#ifndef BY_SERVE_GATEWAY_TRACE_H
#define BY_SERVE_GATEWAY_TRACE_H

#include "serve/http/http_server.h"
#include "serve/observe/trace_export.h"

typedef struct by__gateway_tracing {
    by__trace_export *exports; /* NULL: none */
    double fraction;           /* of new traces */
} by__gateway_tracing;

typedef struct by__request_trace {
    by__trace_context context;
    char *state;  /* the header tracestate; NULL: none */
    double clock; /* what by__now lacks to the seconds since 1970, the same for all its spans */
} by__request_trace;

/* Reads the request's headers, and adds those of the answer. */
by_status by__request_trace_begin(by__request_trace *trace, const by__gateway_tracing *tracing,
                                  by__exchange *x, const by__http_request *r, by_error *error);
void by__request_trace_free(by__request_trace *trace);
/* One prompt has its answer: `since` is by__now when it was submitted, `timing` a worker's object
 * of durations. */
void by__request_trace_part(const by__request_trace *trace, const by__gateway_tracing *tracing,
                            double since, const json_t *timing);
/* Anything else that a request waited for. */
void by__request_trace_span(const by__request_trace *trace, const by__gateway_tracing *tracing,
                            const char *name, double begin, double end);
/* How a request has ended. */
typedef struct by__traced_answer {
    double since; /* by__now when it came */
    const char *method;
    const char *route; /* the row of the table of routes; it names the span */
    const char *path;
    const char *peer;
    int status;
    const json_t *details; /* of the access log; NULL: it made no work */
} by__traced_answer;

void by__request_trace_end(const by__request_trace *trace, const by__gateway_tracing *tracing,
                           const by__traced_answer *answer);

#endif
