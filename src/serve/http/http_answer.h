/* An answer of HTTP/1.1, read piece by piece: its status, and the bytes of its body without chunks.
 * For the load generator: a client of servers that are trusted to frame what they send. */
#ifndef BY_SERVE_HTTP_ANSWER_H
#define BY_SERVE_HTTP_ANSWER_H

#include "serve/serve.h"

typedef struct by__answer {
    int status; /* 0: the head is not complete */
    bool chunked;
    bool done;       /* the body is complete */
    size_t left;     /* bytes of the body or of the chunk */
    int chunk_phase; /* where in the frame of a chunk it is */
    char line[512];  /* of the head, or the size of a chunk */
    size_t line_length;
} by__answer;

/* Takes bytes; calls `body` for pieces of the body. False: it is no answer of HTTP/1.1. Bytes
 * behind the end are left out: a client has one request at a time. */
bool by__answer_take(by__answer *answer, const char *data, size_t length,
                     void (*body)(void *user, const char *data, size_t length), void *user);

#endif
