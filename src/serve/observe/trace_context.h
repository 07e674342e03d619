/* W3C Trace Context (https://www.w3.org/TR/trace-context/): which trace a request belongs to, as
 * the headers traceparent and tracestate tell it. */
#ifndef BY_SERVE_TRACE_CONTEXT_H
#define BY_SERVE_TRACE_CONTEXT_H

#include "serve/serve.h"

#define BY__TRACE_ID_BYTES    33
#define BY__SPAN_ID_BYTES     17
#define BY__TRACEPARENT_BYTES 56

/* Identifiers in lower-case hexadecimal digits. */
typedef struct by__trace_context {
    char trace[BY__TRACE_ID_BYTES];
    char parent[BY__SPAN_ID_BYTES]; /* the caller's span; "": the trace begins here */
    char span[BY__SPAN_ID_BYTES];   /* of the request itself */
    bool sampled;                   /* spans are exported */
} by__trace_context;

/* Reads a header of version 00: "00-", 32 digits, "-", 16 digits, "-", 2 digits, in lower case, and
 * neither identifier all zeros. False: it is none, and *out is as it was. Sets all but `span`. */
bool by__trace_read(by__trace_context *out, const char *header);
/* The context of a request with this header, or (NULL, or an invalid one) of a new trace. A
 * caller's flag says whether the trace is sampled; of new ones the fraction (0 to 1) is, by their
 * identifiers. BY_EIO: the system has no random numbers. */
by_status by__trace_begin(by__trace_context *out, const char *header, double fraction,
                          by_error *error);
/* Copies the identifier of a trace, or of what is none "". text may be NULL. */
void by__trace_take(char out[BY__TRACE_ID_BYTES], const char *text);
/* A new span's identifier. */
by_status by__span_id(char out[BY__SPAN_ID_BYTES], by_error *error);
/* The header that names the request's own span as the parent. */
void by__trace_print(char out[BY__TRACEPARENT_BYTES], const by__trace_context *context);

#endif
