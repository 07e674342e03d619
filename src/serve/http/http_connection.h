/* Internal records of the server, shared by http_server.c (listening, time limits, shutdown),
 * http_connection.c (input) and http_output.c (answers). */
#ifndef BY_SERVE_HTTP_HTTP_CONNECTION_H
#define BY_SERVE_HTTP_HTTP_CONNECTION_H

#include <netinet/in.h>

#include "serve/http/http_server.h"

/* Bytes read at once, into one buffer for all connections. */
#define BY__HTTP_READ ((size_t)64 << 10)

typedef enum by__http_stage {
    BY__READING,   /* reading a request, or between two */
    BY__HANDLING,  /* the handler has the request */
    BY__STREAMING, /* the handler has started a stream */
    BY__CLOSING
} by__http_stage;

/* A connection. The handle of libuv is its first member. */
struct by__http_connection {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    by__http_server *server;
    by__http_connection *next;
    by__http_connection *previous;
    by__http_parser *parser; /* NULL until a byte of a request has arrived */
    char *early; /* bytes of the next request that arrived before the answer was complete */
    size_t early_length;
    by_string headers;           /* headers of the answer */
    char peer[INET6_ADDRSTRLEN]; /* "": a socket in the file system */
    /* The address count it holds: for the connection, or, if its peer is a proxy, for the current
     * request. */
    by__http_address_count *counted;
    void *user;
    void *note;
    size_t buffered;     /* bytes of the parser and of `early`, as counted by the server */
    double since;        /* start of the stage, or the last time that the client took bytes */
    by_string out;       /* output that was not yet given to libuv */
    size_t writing;      /* bytes that libuv has still to write */
    size_t pending;      /* bytes of both */
    size_t slow;         /* bytes of `pending` that the server counts as held back by streams */
    size_t given;        /* total bytes given to libuv */
    size_t acknowledged; /* bytes of these that the socket had taken at the last sweep */
    by__http_connection *gathered; /* the next one in the server's list */
    by__http_stage stage;
    bool proxied; /* the peer is a listed proxy */
    bool keep_alive;
    bool paused;   /* nothing is read until the client has taken its answers */
    bool handling; /* inside the handler: its answer does not start the next request yet */
    bool last;     /* close when all is written */
    bool bodyless; /* of a HEAD: an answer that is no stream has no body */
    bool old;      /* the client knows no chunks: the end of the connection ends a stream */
    bool streams;  /* the answer is a stream */
    /* in the server's list of connections whose `out` is written at the end of the turn */
    bool gathers;
    bool admitted; /* the head was accepted */
    bool reported; /* `done` was called for the current request, or there is none */
    bool lingers;  /* input is discarded, so that the client can read its answer */
    int status;    /* status of the answer; 0: none yet */
    size_t bytes;  /* bytes of the answer's body */
};

struct by__http_server {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_timer_t timer;
    uv_prepare_t before; /* these two write what was gathered in a turn of the loop */
    uv_check_t after;
    by__http_options options;
    char *listen;
    char *path; /* of a socket in the file system; NULL: none */
    int lock;   /* lock of this path, or -1 */
    char *url;
    by__http_connection *first;
    size_t connections;
    size_t buffered; /* bytes held for requests */
    size_t slow;     /* bytes held back by streams for slow readers */
    by__http_connection *gathered;
    by__http_counts counts;
    size_t handles; /* handles of libuv that are still open */
    by__http_refusals refusals;
    bool unaccepted; /* a connection is waiting that could not be accepted for lack of memory */
    bool draining;
    bool closing;
    char buffer[BY__HTTP_READ];
};

/* ---- http_connection.c ---- */

/* Accepts a connection that waits at the listener. */
void by__http_connection_accept(uv_stream_t *listener, int status);
/* Handles bytes from the client. */
void by__http_connection_receive(by__http_connection *x, const char *data, size_t length);
/* Resumes reading that was paused until all output was written. */
void by__http_connection_resume(by__http_connection *x);
/* Refuses a request that is malformed or too slow, and ends the connection. */
void by__http_connection_refuse(by__http_connection *x, int status, const char *reason);
/* Closes a connection at once; the handler is told if it still has a request of it. */
void by__http_connection_hang_up(by__http_connection *x);
/* Called when all output has been written. */
void by__http_connection_written_out(by__http_connection *x);
/* The answer is complete: continues with the next request, or closes the connection. */
void by__http_connection_finish(by__http_connection *x);

/* ---- http_output.c ---- */

/* Appends to the output. Returns false if the connection has ended. */
bool by__http_connection_put(by__http_connection *x, const char *data, size_t length);
/* Writes the output; what the socket does not take at once is kept. Returns false if the connection
 * has ended. */
bool by__http_connection_flush(by__http_connection *x);
/* Writes what streams have gathered. */
void by__http_connections_flush(by__http_server *s);

/* ---- http_server.c ---- */

/* Frees a server that is closed and has no open handles. */
void by__http_server_free(by__http_server *s);

#endif
