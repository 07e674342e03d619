/* A server of HTTP/1.1 on a loop of libuv: connections, time limits, answers and streams.
 *
 * A connection has one request at a time. The handler gets an exchange, and answers at once or
 * later; until it has answered, `gone` tells it when the client goes away, which a server that
 * keeps reading sees at once. Frames that a client does not read are kept within bounds for one
 * stream and for all: who reads too slowly, or nothing for a time, is cut off. An idle connection
 * holds a few hundred bytes: buffers exist while something is in them. */
#ifndef BY_SERVE_HTTP_SERVER_H
#define BY_SERVE_HTTP_SERVER_H

#include "serve/http/client_address.h"
#include "serve/http/http_parse.h"
#include "serve/serve.h"

/* Connections at a time, where no option says how many. */
#define BY__HTTP_CONNECTIONS ((size_t)20000)

typedef struct by__http_server by__http_server;
typedef struct by__exchange by__exchange;

typedef struct by__http_options {
    const char *listen; /* "HOST:PORT", "[::1]:PORT", port 0: any; or "unix:PATH" */
    by__http_limits limits;
    size_t connections; /* at most; more are closed at once; 0: BY__HTTP_CONNECTIONS */
    /* Counts what each address has; lives longer than the server. NULL: nothing is counted. */
    by__addresses *addresses;
    size_t bodies;         /* bytes of all requests at a time; one above is refused; 0: 256 MiB */
    size_t output;         /* bytes that a stream may hold back for a slow reader; 0: 256 KiB */
    size_t output_total;   /* bytes that all of them may, about; 0: 16 MiB */
    double head_seconds;   /* for a whole head; 0: 10 */
    double body_seconds;   /* for a whole body; 0: 60 */
    double idle_seconds;   /* between requests; 0: 75 */
    double output_seconds; /* without a byte that a reader takes; 0: 30 */
    /* The head of a request is there, and perhaps a body still to come. False: it was answered (and
     * refused), and the body is not read. May be NULL. */
    bool (*head)(void *user, by__exchange *exchange, const by__http_request *request);
    /* A request; it and its strings are valid during the call. The exchange is valid until it has
     * been answered whole, or `gone` was called for it. */
    void (*request)(void *user, by__exchange *exchange, const by__http_request *request);
    /* The client went away, or read too slowly, before its answer was whole. */
    void (*gone)(void *user, by__exchange *exchange);
    /* The exchange has ended, behind all other calls: the answer's status (0: the client went
     * before there was one) and the bytes of its body. Also of requests that could not be read,
     * for which no `head` was called. May be NULL. */
    void (*done)(void *user, by__exchange *exchange, int status, size_t bytes);
    void *user;
} by__http_options;

/* What a server has done, for tests. */
typedef struct by__http_counts {
    uint64_t frames; /* of streams */
    uint64_t writes; /* calls of the system for answers, without those that libuv makes later */
    uint64_t cut;    /* streams whose readers were too slow */
    size_t slow;     /* bytes that streams held back at a time, at most */
} by__http_counts;

/* Of "HOST:PORT", "[ADDRESS]:PORT" or "unix:PATH", whose family is AF_UNIX and which has no path
 * there. BY_ECONFIG: the text is none of them. */
by_status by__listen_address(struct sockaddr_storage *out, const char *listen, by_error *error);
/* Listens. BY_ECONFIG: somebody else listens there, or it is no address of this machine or none for
 * this user; BY_EIO, BY_EARG: it cannot be had otherwise. */
by_status by__http_server_open(by__http_server **out, uv_loop_t *loop,
                               const by__http_options *options, by_error *error);
/* "http://127.0.0.1:8080" or "unix:PATH". */
const char *by__http_server_url(const by__http_server *server);
size_t by__http_server_connections(const by__http_server *server);
by__http_counts by__http_server_counts(const by__http_server *server);
/* Connections that were closed since there were too many; connections, and requests behind proxies,
 * that were refused since their address had too many. */
typedef struct by__http_refusals {
    uint64_t connections;
    uint64_t addresses;
} by__http_refusals;
by__http_refusals by__http_server_refusals(const by__http_server *server);
/* Ends each connection once its present answer is whole; new ones have one request each. */
void by__http_server_drain(by__http_server *server);
/* A request has no whole answer, or one that is not written yet. */
bool by__http_server_busy(const by__http_server *server);
/* Ends everything; `gone` is called for exchanges. The memory is freed by the loop's next turns. */
void by__http_server_close(by__http_server **server);

/* ---- answers ---- */

/* The handler's own pointer for an exchange. */
void by__exchange_set(by__exchange *exchange, void *user);
void *by__exchange_get(const by__exchange *exchange);
/* The server's user's pointer for an exchange, from `head` to `done`, who frees what it points to
 * and sets NULL. */
void by__exchange_note(by__exchange *exchange, void *note);
void *by__exchange_noted(const by__exchange *exchange);
/* Adds a header to the answer, before it begins. Values with control bytes are left out. */
void by__exchange_header(by__exchange *exchange, const char *name, const char *value);
/* A whole answer. The exchange is gone afterwards. */
void by__exchange_reply(by__exchange *exchange, int status, const char *type, const char *body,
                        size_t length);
/* The same; the text is taken and, where it is long, not copied. */
void by__exchange_reply_text(by__exchange *exchange, int status, const char *type, by__text *body);
/* Begins a stream of server-sent events. False: the client is gone (`gone` was called). */
bool by__exchange_stream(by__exchange *exchange);
/* Sends one frame of it whole: "data: ...\n\n". What is sent in one turn of the loop is written
 * together, at its end. False: the client is gone (`gone` was called), or it was cut off: it holds
 * back more than `output`, or than what `output_total` leaves. */
bool by__exchange_send(by__exchange *exchange, const char *data, size_t length);
/* The same of frames in a text, which may be empty; where its memory was exhausted the client is
 * cut off: what it lacks could not be told from an answer without it. */
bool by__exchange_send_text(by__exchange *exchange, const by__text *frames);
/* Ends the stream. The exchange is gone afterwards. */
void by__exchange_end(by__exchange *exchange);
/* "127.0.0.1", "::1" or "unix": the client's address where a listed proxy tells it. */
const char *by__exchange_peer(const by__exchange *exchange);
const char *by__http_reason(int status);

#endif
