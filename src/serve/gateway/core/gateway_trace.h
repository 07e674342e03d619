/* Tracing of requests in the gateway, the only process that exports spans: one for the request, and
 * below it those for queueing and for the worker's phases, whose durations arrive with its last
 * event. */
#ifndef BY_SERVE_GATEWAY_CORE_GATEWAY_TRACE_H
#define BY_SERVE_GATEWAY_CORE_GATEWAY_TRACE_H

#include "serve/http/http_server.h"
#include "serve/telemetry/trace_export.h"

typedef struct by__gateway_tracing {
    by__telemetry_trace_export *exports; /* NULL: spans are not exported */
    double fraction;                     /* share of new traces that is sampled */
} by__gateway_tracing;

typedef struct by__gateway_request_trace {
    by__telemetry_trace_context context;
    char *state; /* the header tracestate; NULL: none */
    /* seconds to add to by__now to get seconds since 1970, the same for all its spans */
    double clock;
} by__gateway_request_trace;

/* Refuses an address of a collector, "" or a URL, that spans cannot be sent to. BY_ECONFIG. */
by_status by__gateway_trace_endpoint_check(const char *url, by_error *error);
/* Reads the request's trace headers and adds those of the answer. */
by_status by__gateway_request_trace_begin(by__gateway_request_trace *trace,
                                          const by__gateway_tracing *tracing,
                                          by__http_connection *x, const by__http_request *r,
                                          by_error *error);
void by__gateway_request_trace_free(by__gateway_request_trace *trace);
/* Adds the spans of one answered prompt: `since` is by__now when it was submitted, `timing` a
 * worker's object of durations. */
void by__gateway_request_trace_part(const by__gateway_request_trace *trace,
                                    const by__gateway_tracing *tracing, double since,
                                    const json_t *timing);
/* Adds a span for anything else that a request waited for. */
void by__gateway_request_trace_span(const by__gateway_request_trace *trace,
                                    const by__gateway_tracing *tracing, const char *name,
                                    double begin, double end);
/* The outcome of a request. */
typedef struct by__gateway_traced_answer {
    double since; /* by__now at its arrival */
    const char *method;
    const char *route; /* the matching row of the table of routes; it names the span */
    const char *path;
    const char *peer;
    int status;
    const json_t *details; /* details of the access log; NULL: no work was done */
} by__gateway_traced_answer;

void by__gateway_request_trace_end(const by__gateway_request_trace *trace,
                                   const by__gateway_tracing *tracing,
                                   const by__gateway_traced_answer *answer);

#endif
