/* W3C Trace Context (https://www.w3.org/TR/trace-context/): the trace that a request belongs to,
 * from the headers traceparent and tracestate. */
#ifndef BY_SERVE_TELEMETRY_TRACE_CONTEXT_H
#define BY_SERVE_TELEMETRY_TRACE_CONTEXT_H

#include "serve/base/serve.h"

#define BY__TRACE_ID_BYTES    33
#define BY__SPAN_ID_BYTES     17
#define BY__TRACEPARENT_BYTES 56

/* Identifiers are lower-case hexadecimal digits. */
typedef struct by__telemetry_trace_context {
    char trace[BY__TRACE_ID_BYTES];
    char parent[BY__SPAN_ID_BYTES]; /* the caller's span; "": the trace begins here */
    char span[BY__SPAN_ID_BYTES];   /* the span of the request itself */
    bool sampled;                   /* spans are exported */
} by__telemetry_trace_context;

/* Parses a header of version 00: "00-", 32 digits, "-", 16 digits, "-", 2 digits, in lower case,
 * with neither identifier all zeros. Returns false, leaving *out unchanged, if it is malformed.
 * Sets all but `span`. */
bool by__telemetry_trace_read(by__telemetry_trace_context *out, const char *header);
/* Makes the context of a request from its header or, if that is NULL or invalid, of a new trace. A
 * caller's flag decides whether the trace is sampled; of new ones `fraction` (0 to 1) are, by their
 * identifiers. BY_EIO: the system has no random numbers. */
by_status by__telemetry_trace_begin(by__telemetry_trace_context *out, const char *header,
                                    double fraction, by_error *error);
/* Copies the identifier of a trace, or "" if it is malformed. text may be NULL. */
void by__telemetry_trace_copy(char out[BY__TRACE_ID_BYTES], const char *text);
/* Generates the identifier of a span. */
by_status by__telemetry_span_id(char out[BY__SPAN_ID_BYTES], by_error *error);
/* Prints the header that names the request's own span as the parent. */
void by__telemetry_trace_print(char out[BY__TRACEPARENT_BYTES],
                               const by__telemetry_trace_context *context);

#endif
