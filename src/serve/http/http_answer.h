/* Incremental parser of an HTTP/1.1 answer: its status, and its body with chunk framing removed.
 * For the load generator, a client of servers that are trusted to frame what they send. */
#ifndef BY_SERVE_HTTP_HTTP_ANSWER_H
#define BY_SERVE_HTTP_HTTP_ANSWER_H

#include "serve/base/serve.h"

typedef struct by__http_answer {
    int status; /* 0: the head is incomplete */
    bool chunked;
    bool done;       /* the body is complete */
    size_t left;     /* bytes left of the body or the chunk */
    int chunk_phase; /* position in the framing of a chunk */
    char line[512];  /* partial line of the head, or of the size of a chunk */
    size_t line_length;
} by__http_answer;

/* Takes bytes; calls `body` for pieces of the body. Returns false if it is no HTTP/1.1 answer.
 * Bytes after the end are ignored: a client has one request in flight. */
bool by__http_answer_feed(by__http_answer *answer, const char *data, size_t length,
                          void (*body)(void *user, const char *data, size_t length), void *user);

#endif
