/* The server's own records, for http_server.c (listening, time, the end), http_connection.c (what
 * comes in) and http_output.c (answers). */
#ifndef BY_SERVE_HTTP_CONNECTION_H
#define BY_SERVE_HTTP_CONNECTION_H

#include <netinet/in.h>

#include "serve/http/http_server.h"

/* Bytes that are read at once, one buffer for all connections. */
#define BY__HTTP_READ ((size_t)64 << 10)

typedef enum by__stage {
    BY__READING,   /* a request, or between two */
    BY__HANDLING,  /* the handler has the exchange */
    BY__STREAMING, /* and has begun a stream */
    BY__CLOSING
} by__stage;

/* A connection. Its first member is what libuv knows. */
struct by__exchange {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    by__http_server *server;
    by__exchange *next;
    by__exchange *previous;
    by__http_parser *parser; /* NULL while nothing of a request is there */
    char *early;             /* bytes of the next request that came before the answer */
    size_t early_length;
    by__text headers;            /* of the answer */
    char peer[INET6_ADDRSTRLEN]; /* "" of a socket in the file system */
    /* What is counted: a connection, or, where it is a proxy's, the present request. */
    by__address_count *counted;
    void *user;
    void *note;
    size_t held;            /* bytes of the parser and of `early`, as the server counts them */
    double since;           /* the stage began, or a reader last took something */
    by__text out;           /* what is to be written, and libuv has not got */
    size_t writing;         /* bytes that libuv has to write */
    size_t pending;         /* the sum of both */
    size_t slow;            /* of `pending`, what the server counts as held back by streams */
    size_t given;           /* bytes that libuv was given so far */
    size_t taken;           /* of them, those that the socket had taken at the last sweep */
    by__exchange *gathered; /* the next one in the server's list */
    by__stage stage;
    bool proxied; /* the peer is a listed proxy */
    bool keep_alive;
    bool paused;   /* nothing is read until the client has taken its answers */
    bool handling; /* inside the handler: its answer does not start the next request yet */
    bool last;     /* close when all is written */
    bool bodyless; /* of a HEAD: an answer that is no stream has no body */
    bool old;      /* the client knows no chunks: the end of the connection ends a stream */
    bool streams;  /* the answer is a stream */
    bool gathers;  /* in the server's list of those whose `out` is written at the turn's end */
    bool admitted; /* the head was accepted */
    bool told;     /* `done` has been called for the present request, or there is none */
    bool lingers;  /* what comes is thrown away, so that the client reads its answer */
    int status;    /* of the answer; 0: none yet */
    size_t bytes;  /* of the answer's body */
};

struct by__http_server {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_timer_t timer;
    uv_prepare_t before; /* these two write what a turn of the loop has gathered */
    uv_check_t behind;
    by__http_options options;
    char *listen;
    char *path; /* of a socket in the file system, NULL for none */
    int lock;   /* of this path, or -1 */
    char *url;
    by__exchange *first;
    size_t connections;
    size_t held; /* bytes of requests */
    size_t slow; /* bytes that streams hold back for their readers */
    by__exchange *gathered;
    by__http_counts counts;
    size_t handles; /* of libuv that are still open */
    by__http_refusals refusals;
    bool unaccepted; /* a connection waits, for which there was no memory */
    bool draining;
    bool closing;
    char buffer[BY__HTTP_READ];
};

/* ---- http_connection.c ---- */

/* Takes a connection that waits at the listener. */
void by__connection_accept(uv_stream_t *listener, int status);
/* Bytes of the client. */
void by__connection_take(by__exchange *x, const char *data, size_t length);
/* Reads on, where that had to wait until all was written. */
void by__connection_resume(by__exchange *x);
/* Refuses what is no request, or comes too slowly, and ends the connection. */
void by__connection_refuse(by__exchange *x, int status, const char *reason);
/* Ends a connection now; the handler hears of it if it still has the exchange. */
void by__connection_hang_up(by__exchange *x);
/* All is written that is to be written. */
void by__connection_written_out(by__exchange *x);
/* The answer is whole: the connection goes on with its next request, or ends. */
void by__connection_finish(by__exchange *x);

/* ---- http_output.c ---- */

/* Adds to what is written next. False: the connection has ended. */
bool by__connection_put(by__exchange *x, const char *data, size_t length);
/* Writes it; what the socket does not take at once is kept. False: the connection has ended. */
bool by__connection_flush(by__exchange *x);
/* Writes what streams have gathered. */
void by__connections_flush(by__http_server *s);

/* ---- http_server.c ---- */

/* Frees a server that is closed and has nothing open any more. */
void by__http_server_free(by__http_server *s);

#endif
