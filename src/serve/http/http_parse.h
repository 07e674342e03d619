/* A request of HTTP/1.1 (RFC 9110, RFC 9112), taken in piece by piece, strictly.
 *
 * What two programs could read in two ways is refused, since that is how requests are smuggled
 * past a proxy: lines end with CR LF alone, a header's name touches its colon, lines are not
 * folded, a length is one number of digits, and never comes together with chunks; chunks have no
 * extensions and no trailers. Head, headers, chunks and body are bounded before memory is taken
 * for them. */
#ifndef BY_SERVE_HTTP_PARSE_H
#define BY_SERVE_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct by__http_limits {
    size_t head;   /* bytes of request line and headers */
    size_t body;   /* bytes */
    size_t chunks; /* of a body */
} by__http_limits;

#define BY__HTTP_HEADERS 64

typedef struct by__http_header {
    const char *name; /* in lower case */
    const char *value;
} by__http_header;

/* Strings end with NUL and hold no control bytes. All of it is the parser's. */
typedef struct by__http_request {
    const char *method;
    const char *path;  /* decoded once; begins with '/', has no "..", no '\' and no '%' */
    const char *query; /* as it came, without '?'; "" for none */
    by__http_header headers[BY__HTTP_HEADERS];
    size_t header_count;
    const char *body; /* with a NUL behind it that is not counted */
    size_t body_length;
    bool keep_alive; /* the connection may bring another request */
    bool old;        /* of HTTP/1.0: its client knows no chunks */
} by__http_request;

typedef enum by__http_state {
    BY__HTTP_MORE, /* more bytes are to come */
    BY__HTTP_HEAD, /* the head is there, and a body is to come: the parser is to be called again,
                          with what is left, be it nothing (once a request that has a body) */
    BY__HTTP_CONTINUE, /* as MORE, and the client waits for "100 Continue" (once a request) */
    BY__HTTP_DONE,     /* by__http_parser_request has the request */
    BY__HTTP_BAD       /* by__http_parser_status and _reason say why: the connection is of no use */
} by__http_state;

typedef struct by__http_parser by__http_parser;

/* NULL when memory is exhausted. */
by__http_parser *by__http_parser_open(const by__http_limits *limits);
void by__http_parser_close(by__http_parser **parser);
/* Takes bytes up to the end of a request; *used says how many. After DONE or BAD it takes nothing
 * until by__http_parser_next. */
by__http_state by__http_parser_take(by__http_parser *parser, const char *data, size_t length,
                                    size_t *used);
/* Of a state of HEAD (without its body) or DONE; valid until the parser goes on or is closed. */
const by__http_request *by__http_parser_request(const by__http_parser *parser);
/* Of a state of BAD: an answer's status (400, 408, 413, 414, 417, 431, 501, 505 or 500 for want of
 * memory), and a sentence without anything that the client sent. */
int by__http_parser_status(const by__http_parser *parser);
const char *by__http_parser_reason(const by__http_parser *parser);
/* Forgets the request; memory beyond the least is given back. */
void by__http_parser_next(by__http_parser *parser);
/* Bytes of memory. */
size_t by__http_parser_held(const by__http_parser *parser);
/* Nothing of a request has come. */
bool by__http_parser_idle(const by__http_parser *parser);
/* The head is complete, and the body is what is missing. */
bool by__http_parser_in_body(const by__http_parser *parser);

/* The value of a header (name in lower case), NULL for none. One that came twice is NULL too where
 * it may come only once (the parser refuses those that frame a message). */
const char *by__http_header_of(const by__http_request *request, const char *name);
/* Whether its Content-Type is `type`, whatever the parameters behind it; one that ends with '/'
 * stands for all its subtypes. */
bool by__http_is_type(const by__http_request *request, const char *type);

#endif
