/* Incremental, strict parser of HTTP/1.1 requests (RFC 9110, RFC 9112).
 *
 * Everything that two programs could read in two ways is refused, since such differences let
 * requests be smuggled past a proxy: lines end with CR LF only, no space before the colon of a
 * header, no folded lines, a content length is one number of digits and never comes together with
 * chunks, chunks have no extensions and no trailers, a header that has one value comes once, Host
 * is a name or an address with a port or without, and a query has no name twice. Head, headers,
 * chunks and body are bounded before memory is allocated for them. */
#ifndef BY_SERVE_HTTP_HTTP_PARSE_H
#define BY_SERVE_HTTP_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct by__http_limits {
    size_t head;   /* bytes of the request line and headers */
    size_t body;   /* bytes */
    size_t chunks; /* number of chunks of a body */
} by__http_limits;

#define BY__HTTP_HEADERS 64

typedef struct by__http_header {
    const char *name; /* in lower case */
    const char *value;
} by__http_header;

/* Strings end with NUL and contain no control bytes. The parser owns all of them. */
typedef struct by__http_request {
    const char *method;
    /* percent-decoded once; begins with '/', contains no "..", no '\' and no '%' */
    const char *path;
    size_t plain;      /* bytes of the path before the first that was encoded */
    const char *query; /* not decoded, without '?'; "" for none; valid (query.h) */
    by__http_header headers[BY__HTTP_HEADERS];
    size_t header_count;
    const char *body; /* followed by a NUL that is not counted */
    size_t body_length;
    bool keep_alive; /* the connection may bring another request */
    bool old;        /* of HTTP/1.0: its client knows no chunks */
} by__http_request;

typedef enum by__http_state {
    BY__HTTP_MORE, /* more input is needed */
    /* the head is complete and a body follows: call again with the remaining bytes, even if there
     * are none (once for each request with a body) */
    BY__HTTP_HEAD,
    /* as MORE, and the client waits for "100 Continue" (once for each request) */
    BY__HTTP_CONTINUE,
    BY__HTTP_DONE, /* by__http_parser_request returns the request */
    BY__HTTP_BAD   /* malformed: by__http_parser_status and _reason say why; the connection must
                        * be closed */
} by__http_state;

typedef struct by__http_parser by__http_parser;

/* NULL when memory is exhausted. */
by__http_parser *by__http_parser_open(const by__http_limits *limits);
void by__http_parser_close(by__http_parser **parser);
/* Consumes bytes up to the end of a request; *used is set to their number. After DONE or BAD
 * nothing is consumed until by__http_parser_next. */
by__http_state by__http_parser_feed(by__http_parser *parser, const char *data, size_t length,
                                    size_t *used);
/* The request in state HEAD (without its body) or DONE; valid until the parser continues or is
 * closed. */
const by__http_request *by__http_parser_request(const by__http_parser *parser);
/* In state BAD: the status of the answer (400, 408, 413, 414, 417, 431, 501, 505, or 500 if memory
 * is exhausted), and a sentence that contains nothing sent by the client. */
int by__http_parser_status(const by__http_parser *parser);
const char *by__http_parser_reason(const by__http_parser *parser);
/* Prepares for the next request; releases memory beyond the initial size. */
void by__http_parser_next(by__http_parser *parser);
/* Bytes of memory that it holds. */
size_t by__http_parser_held(const by__http_parser *parser);
/* Returns true if no byte of a request has arrived. */
bool by__http_parser_idle(const by__http_parser *parser);
/* Returns true if the head is complete and the body is not. */
bool by__http_parser_in_body(const by__http_parser *parser);

/* The value of a header (name in lower case); NULL if it is missing, or came twice where only one
 * is allowed (the parser itself refuses duplicates of those that frame a message). */
const char *by__http_header_of(const by__http_request *request, const char *name);
/* Returns true if the Content-Type is `type`, ignoring parameters; a type that ends with '/'
 * matches all its subtypes. */
bool by__http_is_type(const by__http_request *request, const char *type);

#endif
