/* http: an HTTP/1.1 server on a loop of libuv: connections, time limits, answers and streams.
 *
 * A connection has one request at a time. The handler gets it with the connection, and answers at
 * once or later; until then `disconnected` tells it when the client disconnects, which the server
 * notices at once because it keeps reading. Frames that a client does not read are buffered up to a
 * limit for each stream and one for all: a client that reads too slowly, or not at all for a time,
 * is cut off. An idle connection holds a few hundred bytes: buffers exist only while they contain
 * data.
 *
 * Types: by__http_server; by__http_connection, a connection and its current request;
 * by__http_request (http_parse.h), a parsed request.
 *
 * Who owns what: the server owns connections, and a handler's is valid until its request has been
 * answered completely or `disconnected` was called. A request and its strings are valid during the
 * callback. Handlers own what their pointers of a connection refer to.
 *
 * Never put here: paths and their meaning, keys, JSON, anything of the broker. */
#ifndef BY_SERVE_HTTP_HTTP_SERVER_H
#define BY_SERVE_HTTP_HTTP_SERVER_H

#include "serve/base/serve.h"
#include "serve/http/client_address.h"
#include "serve/http/http_parse.h"

/* Connections at a time, where no option says how many. */
#define BY__HTTP_CONNECTIONS ((size_t)20000)

typedef struct by__http_server by__http_server;
typedef struct by__http_connection by__http_connection;

typedef struct by__http_options {
    const char *listen; /* "HOST:PORT", "[::1]:PORT", port 0: any; or "unix:PATH" */
    by__http_limits limits;
    size_t connections; /* at most; more are closed at once; 0: BY__HTTP_CONNECTIONS */
    /* Counts what each address has; lives longer than the server. NULL: nothing is counted. */
    by__http_addresses *addresses;
    /* most bytes of all requests together; a request above it is refused; 0: 256 MiB */
    size_t bodies;
    size_t output;         /* most bytes held back by one stream for a slow reader; 0: 256 KiB */
    size_t output_total;   /* most bytes held back by all of them, approximately; 0: 16 MiB */
    double head_seconds;   /* to receive a whole head; 0: 10 */
    double body_seconds;   /* to receive a whole body; 0: 60 */
    double idle_seconds;   /* idle between requests; 0: 75 */
    double output_seconds; /* without the client taking a byte; 0: 30 */
    /* The head of a request is complete; a body may follow. Returns false if it has answered the
     * request, which refuses it: the body is not read. May be NULL. */
    bool (*head)(void *user, by__http_connection *connection, const by__http_request *request);
    /* A request that could not be read, or a connection above a limit, is about to be answered with
     * an error; code: its name, reason: a sentence. `head` was called for it only if it had come
     * that far. It may add headers. May be NULL. */
    void (*refused)(void *user, by__http_connection *connection, const char *code,
                    const char *reason);
    /* A complete request; it and its strings are valid during the call. The connection is valid
     * until it has been answered completely, or `disconnected` was called for it. */
    void (*request)(void *user, by__http_connection *connection, const by__http_request *request);
    /* The client disconnected, or read too slowly, before its answer was complete. */
    void (*disconnected)(void *user, by__http_connection *connection);
    /* The request has ended, after all other calls: the status of the answer (0: the client
     * disconnected before there was one) and the bytes of its body. Also called for requests that
     * could not be parsed, for which `head` was not called. May be NULL. */
    void (*done)(void *user, by__http_connection *connection, int status, size_t bytes);
    void *user;
} by__http_options;

/* Counters of a server, for tests. */
typedef struct by__http_counts {
    uint64_t frames; /* frames of streams */
    uint64_t writes; /* system calls that wrote answers, without those that libuv makes later */
    uint64_t cut;    /* streams cut off because of slow readers */
    size_t slow;     /* peak of the bytes held back by streams */
} by__http_counts;

/* Parses "HOST:PORT", "[ADDRESS]:PORT" or "unix:PATH"; for the last the family is AF_UNIX, without
 * a path. BY_ECONFIG: the text is none of these. */
by_status by__http_listen_address(struct sockaddr_storage *out, const char *listen,
                                  by_error *error);
/* Returns true if such an address is reachable from this machine only. */
bool by__http_listens_locally(const char *listen);
/* Starts to listen. BY_ECONFIG: the address is in use, is not one of this machine, or not permitted
 * for this user; BY_EIO, BY_EARG: other failures. */
by_status by__http_server_open(by__http_server **out, uv_loop_t *loop,
                               const by__http_options *options, by_error *error);
/* "http://127.0.0.1:8080" or "unix:PATH". */
const char *by__http_server_url(const by__http_server *server);
size_t by__http_server_connections(const by__http_server *server);
by__http_counts by__http_server_counts(const by__http_server *server);
/* Refused because of a limit: connections above the total, and connections or requests through
 * proxies above the limit of their address. */
typedef struct by__http_refusals {
    uint64_t connections;
    uint64_t addresses;
} by__http_refusals;
by__http_refusals by__http_server_refusals(const by__http_server *server);
/* Closes each connection once its current answer is complete; new ones may send one request
 * each. */
void by__http_server_drain(by__http_server *server);
/* Returns true if a request is not answered completely, or an answer is not written yet. */
bool by__http_server_busy(const by__http_server *server);
/* Closes everything; `disconnected` is called for requests that are open. The memory is freed in
 * the next turns of the loop. */
void by__http_server_close(by__http_server **server);

/* ---- answers ---- */

/* Sets the handler's own pointer of a connection. */
void by__http_connection_set(by__http_connection *connection, void *user);
void *by__http_connection_get(const by__http_connection *connection);
/* A second pointer, for the user of the server, from `head` to `done`, which must free its target
 * and set NULL. */
void by__http_connection_note(by__http_connection *connection, void *note);
void *by__http_connection_noted(const by__http_connection *connection);
/* Adds a header to the answer, before it begins. Values with control bytes are skipped. */
void by__http_connection_header(by__http_connection *connection, const char *name,
                                const char *value);
/* Returns true if a header, spelled in the same way, was added to the answer. */
bool by__http_connection_has_header(const by__http_connection *connection, const char *name);
/* Sends a whole answer. The connection is invalid afterwards. */
void by__http_connection_reply(by__http_connection *connection, int status, const char *type,
                               const char *body, size_t length);
/* The same; takes the text and, if it is long, does not copy it. */
void by__http_connection_reply_text(by__http_connection *connection, int status, const char *type,
                                    by_string *body);
/* Begins a stream of server-sent events. Returns false if the client is gone (`disconnected` was
 * called). */
bool by__http_connection_stream(by__http_connection *connection);
/* Sends a complete frame, "data: ...\n\n". Frames sent in one turn of the loop are written together
 * at its end. Returns false if the client is gone (`disconnected` was called), or was cut off
 * because it holds back more than `output`, or than `output_total` leaves. */
bool by__http_connection_send(by__http_connection *connection, const char *data, size_t length);
/* Sends the frames in a text, which may be empty. If the text's memory was exhausted the client is
 * cut off, because it could not otherwise notice what is missing. */
bool by__http_connection_send_text(by__http_connection *connection, const by_string *frames);
/* Ends the stream. The connection is invalid afterwards. */
void by__http_connection_end(by__http_connection *connection);
/* "127.0.0.1", "::1" or "unix"; if a listed proxy sent the request, the client's address. */
const char *by__http_connection_peer(const by__http_connection *connection);
const char *by__http_reason(int status);

#endif
