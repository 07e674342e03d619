#include "serve/http_server.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Connections that wait to be taken. */
#define BACKLOG 1024
/* Milliseconds between two looks at what has waited too long. */
#define SWEEP 500
/* Bytes that are read at once, one buffer for all connections. */
#define READ ((size_t)64 << 10)

typedef enum stage {
    READING,   /* a request, or between two */
    HANDLING,  /* the handler has the exchange */
    STREAMING, /* and has begun a stream */
    CLOSING
} stage;

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
    by__text headers; /* of the answer */
    char peer[INET6_ADDRSTRLEN];
    void *user;
    size_t held;    /* bytes of the parser's body, as the server counts them */
    double since;   /* the stage began, or a reader last took something */
    size_t pending; /* bytes that libuv has to write */
    stage stage;
    bool keep_alive;
    bool handling; /* inside the handler: its answer does not start the next request yet */
    bool last;     /* close when all is written */
};

struct by__http_server {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } uv;
    uv_timer_t timer;
    by__http_options options;
    char *listen;
    char *path; /* of a socket in the file system, NULL for none */
    char *url;
    by__exchange *first;
    size_t connections;
    size_t held;    /* bytes of bodies */
    size_t handles; /* of libuv that are still open */
    bool draining;
    bool closing;
    char buffer[READ];
};

/* A write that libuv has taken. */
typedef struct output {
    uv_write_t request;
    by__exchange *exchange;
    size_t length;
    char data[];
} output;

static void take(by__exchange *x, const char *data, size_t length);

/* ---- the end of a connection ---- */

static void free_server(by__http_server *s)
{
    if (s->handles == 0 && s->connections == 0) {
        free(s->listen);
        free(s->path);
        free(s->url);
        free(s);
    }
}

/* Counts what a parser holds of a body. */
static void count_held(by__exchange *x)
{
    size_t held = x->parser == NULL ? 0 : by__http_parser_held(x->parser);
    x->server->held += held - x->held;
    x->held = held;
}

static void close_parser(by__exchange *x)
{
    by__http_parser_close(&x->parser);
    count_held(x);
}

static void on_closed(uv_handle_t *handle)
{
    by__exchange *x = handle->data;
    by__http_server *s = x->server;
    if (x->previous != NULL) {
        x->previous->next = x->next;
    } else {
        s->first = x->next;
    }
    if (x->next != NULL) {
        x->next->previous = x->previous;
    }
    close_parser(x);
    by__text_free(&x->headers);
    free(x->early);
    free(x);
    s->connections--;
    if (s->closing) {
        free_server(s);
    }
}

/* Ends a connection now; the handler hears of it if it still has the exchange. */
static void hang_up(by__exchange *x)
{
    if (x->stage == CLOSING) {
        return;
    }
    bool told = x->stage == HANDLING || x->stage == STREAMING;
    x->stage = CLOSING;
    if (told) {
        x->server->options.gone(x->server->options.user, x);
    }
    uv_close(&x->uv.handle, on_closed);
}

/* ---- output ---- */

static void on_written(uv_write_t *request, int status)
{
    output *o = (output *)(void *)request;
    by__exchange *x = o->exchange;
    x->pending -= o->length;
    x->since = by__now();
    free(o);
    if (x->stage != CLOSING && (status < 0 || (x->last && x->pending == 0))) {
        hang_up(x);
    }
}

/* What the socket does not take at once is kept. False: the connection has ended. */
static bool put(by__exchange *x, const char *data, size_t length)
{
    if (x->pending == 0) {
        uv_buf_t now = uv_buf_init((char *)(uintptr_t)data, (unsigned)length);
        int n = uv_try_write(&x->uv.stream, &now, 1);
        if (n > 0) {
            x->since = by__now();
            data += n;
            length -= (size_t)n;
        } else if (n < 0 && n != UV_EAGAIN) {
            hang_up(x);
            return false;
        }
    }
    if (length == 0) {
        return true;
    }
    output *o = malloc(sizeof *o + length);
    if (o == NULL) {
        hang_up(x);
        return false;
    }
    memcpy(o->data, data, length);
    o->exchange = x;
    o->length = length;
    uv_buf_t later = uv_buf_init(o->data, (unsigned)length);
    if (uv_write(&o->request, &x->uv.stream, &later, 1, on_written) < 0) {
        free(o);
        hang_up(x);
        return false;
    }
    x->pending += length;
    return true;
}

const char *by__http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{100, "Continue"},
                   {200, "OK"},
                   {202, "Accepted"},
                   {204, "No Content"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {413, "Content Too Large"},
                   {414, "URI Too Long"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Unknown";
}

void by__exchange_set(by__exchange *exchange, void *user)
{
    exchange->user = user;
}

void *by__exchange_get(const by__exchange *exchange)
{
    return exchange->user;
}

void by__exchange_header(by__exchange *exchange, const char *name, const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return;
        }
    }
    by__text_format(&exchange->headers, "%s: %s\r\n", name, value);
}

/* Status line and headers, up to those that frame the body. */
static void add_head(by__text *text, by__exchange *x, int status, const char *type)
{
    by__text_format(text, "HTTP/1.1 %d %s\r\n", status, by__http_reason(status));
    if (x->headers.data != NULL) {
        by__text_add(text, x->headers.data);
    }
    if (type != NULL) {
        by__text_format(text, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    }
    by__text_add(text, x->keep_alive ? "" : "Connection: close\r\n");
}

/* The answer is whole: the connection goes on with its next request, or ends. */
static void finish(by__exchange *x)
{
    by__http_server *s = x->server;
    by__text_free(&x->headers);
    x->headers = (by__text){0};
    x->user = NULL;
    x->stage = READING;
    x->since = by__now();
    if (!x->handling) { /* else the request is still being read */
        close_parser(x);
    }
    if (!x->keep_alive || s->draining) {
        x->last = true;
        if (x->pending == 0) {
            hang_up(x);
        }
    } else if (x->early != NULL && !x->handling) {
        char *early = x->early;
        size_t length = x->early_length;
        x->early = NULL;
        x->early_length = 0;
        take(x, early, length);
        free(early);
    }
}

void by__exchange_reply(by__exchange *exchange, int status, const char *type, const char *body,
                        size_t length)
{
    by__exchange *x = exchange;
    by__text text = {0};
    x->keep_alive = x->keep_alive && !x->server->draining;
    add_head(&text, x, status, type);
    by__text_format(&text, "Content-Length: %zu\r\n\r\n", length);
    by__text_add_bytes(&text, body, length);
    /* From here on the handler is not told of the client any more. */
    x->stage = READING;
    if (text.failed) {
        hang_up(x);
    } else if (put(x, text.data, text.length)) {
        finish(x);
    }
    by__text_free(&text);
}

bool by__exchange_stream(by__exchange *exchange)
{
    by__exchange *x = exchange;
    by__text text = {0};
    x->keep_alive = x->keep_alive && !x->server->draining;
    x->stage = STREAMING;
    add_head(&text, x, 200, "text/event-stream; charset=utf-8");
    by__text_add(&text, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n");
    bool sent = !text.failed && put(x, text.data, text.length);
    if (text.failed) {
        hang_up(x);
    }
    by__text_free(&text);
    return sent;
}

bool by__exchange_send(by__exchange *exchange, const char *data, size_t length)
{
    by__exchange *x = exchange;
    by__text text = {0};
    if (x->stage == CLOSING) {
        return false;
    }
    if (x->pending > x->server->options.output) {
        hang_up(x);
        return false;
    }
    by__text_format(&text, "%zx\r\n", length);
    by__text_add_bytes(&text, data, length);
    by__text_add(&text, "\r\n");
    bool sent = !text.failed && put(x, text.data, text.length);
    if (text.failed) {
        hang_up(x);
    }
    by__text_free(&text);
    return sent;
}

void by__exchange_end(by__exchange *exchange)
{
    by__exchange *x = exchange;
    x->stage = READING;
    if (put(x, "0\r\n\r\n", 5)) {
        finish(x);
    }
}

const char *by__exchange_peer(const by__exchange *exchange)
{
    return exchange->server->path != NULL ? "unix" : exchange->peer;
}

/* ---- input ---- */

/* A request that is none: the reason, and the end of the connection. */
static void refuse(by__exchange *x, int status, const char *reason)
{
    char body[256];
    int n = snprintf(body, sizeof body,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"invalid_request_error\","
                     "\"param\":null,\"code\":\"bad_http\"}}",
                     reason);
    x->keep_alive = false;
    by__exchange_reply(x, status, "application/json", body, (size_t)n);
}

static bool keep_early(by__exchange *x, const char *data, size_t length)
{
    size_t total;
    if (!by__size_add(x->early_length, length, &total) || total > x->server->options.limits.head) {
        return false;
    }
    char *grown = realloc(x->early, total);
    if (grown == NULL) {
        return false;
    }
    memcpy(grown + x->early_length, data, length);
    x->early = grown;
    x->early_length = total;
    return true;
}

/* Bytes of a client. Requests that come before the present one is answered wait. */
static void take(by__exchange *x, const char *data, size_t length)
{
    by__http_server *s = x->server;
    while (length > 0 && x->stage != CLOSING && !x->last) {
        size_t used;
        if (x->stage != READING) {
            if (!keep_early(x, data, length)) {
                hang_up(x);
            }
            return;
        }
        if (x->parser == NULL) {
            x->parser = by__http_parser_open(&s->options.limits);
            x->since = by__now();
        }
        if (x->parser == NULL) {
            hang_up(x);
            return;
        }
        by__http_state state = by__http_parser_take(x->parser, data, length, &used);
        data += used;
        length -= used;
        count_held(x);
        if (state != BY__HTTP_BAD && s->held > s->options.bodies) {
            refuse(x, 503, "too many requests are being received");
            return;
        }
        if (state == BY__HTTP_BAD) {
            refuse(x, by__http_parser_status(x->parser), by__http_parser_reason(x->parser));
            return;
        }
        if (state == BY__HTTP_CONTINUE && !put(x, "HTTP/1.1 100 Continue\r\n\r\n", 25)) {
            return;
        }
        if (state == BY__HTTP_DONE) {
            const by__http_request *request = by__http_parser_request(x->parser);
            x->stage = HANDLING;
            x->keep_alive = request->keep_alive;
            x->handling = true;
            s->options.request(s->options.user, x, request);
            x->handling = false;
            close_parser(x);
        }
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    by__exchange *x = handle->data;
    BY_UNUSED(suggested);
    *buffer = uv_buf_init(x->server->buffer, READ);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    by__exchange *x = stream->data;
    if (n < 0) {
        hang_up(x);
    } else if (n > 0) {
        take(x, buffer->base, (size_t)n);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    by__http_server *s = listener->data;
    by__exchange *x = status < 0 ? NULL : calloc(1, sizeof *x);
    if (x == NULL) {
        return;
    }
    int code = s->path != NULL ? uv_pipe_init(listener->loop, &x->uv.pipe, 0)
                               : uv_tcp_init(listener->loop, &x->uv.tcp);
    if (code < 0) {
        free(x);
        return;
    }
    x->uv.handle.data = x;
    x->server = s;
    x->since = by__now();
    x->next = s->first;
    if (x->next != NULL) {
        x->next->previous = x;
    }
    s->first = x;
    s->connections++;
    if (uv_accept(listener, &x->uv.stream) < 0 || s->connections > s->options.connections) {
        hang_up(x);
        return;
    }
    if (s->path == NULL) {
        struct sockaddr_storage address;
        int length = sizeof address;
        (void)uv_tcp_nodelay(&x->uv.tcp, 1);
        if (uv_tcp_getpeername(&x->uv.tcp, (struct sockaddr *)&address, &length) == 0) {
            (void)uv_ip_name((struct sockaddr *)&address, x->peer, sizeof x->peer);
        }
    }
    if (uv_read_start(&x->uv.stream, on_alloc, on_read) < 0) {
        hang_up(x);
    }
}

/* ---- time ---- */

static void on_sweep(uv_timer_t *timer)
{
    by__http_server *s = timer->data;
    const by__http_options *o = &s->options;
    double now = by__now();
    for (by__exchange *x = s->first, *next; x != NULL; x = next) {
        double waited = now - x->since;
        next = x->next;
        if (x->stage == CLOSING) {
            continue;
        }
        if (x->pending > 0) {
            if (waited > o->output_seconds) {
                hang_up(x);
            }
        } else if (x->stage == READING && x->parser == NULL) {
            if (waited > o->idle_seconds) {
                hang_up(x);
            }
        } else if (x->stage == READING) {
            bool body = by__http_parser_in_body(x->parser);
            if (waited > (body ? o->body_seconds : o->head_seconds)) {
                refuse(x, 408,
                       body ? "the body did not come in time" : "the head did not come in time");
            }
        }
    }
}

/* ---- the server ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    by__http_server *s = handle->data;
    s->handles--;
    free_server(s);
}

/* Cuts "HOST:PORT"; brackets around an address of IPv6 are taken off. */
static by_status parse_address(char *text, char **host, int *port, by_error *error)
{
    char *colon = strrchr(text, ':');
    char *end = NULL;
    long number = colon == NULL ? -1 : strtol(colon + 1, &end, 10);
    if (colon == NULL || end == colon + 1 || *end != '\0' || number < 0 || number > 65535) {
        return by_error_set(error, BY_EARG, "%s is not HOST:PORT, [ADDRESS]:PORT or unix:PATH",
                            text);
    }
    *colon = '\0';
    *port = (int)number;
    *host = text;
    if (text[0] == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        *host = text + 1;
    }
    return BY_OK;
}

static by_status bind_tcp(by__http_server *s, by_error *error)
{
    struct sockaddr_storage address;
    int length = sizeof address;
    char name[INET6_ADDRSTRLEN];
    char *host;
    int port;
    char *text = by__strdup(s->listen);
    if (text == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: the server's address");
    }
    by_status status = parse_address(text, &host, &port, error);
    if (status == BY_OK && strcmp(host, "localhost") == 0) {
        strcpy(host, "127.0.0.1");
    }
    if (status == BY_OK && uv_ip4_addr(host, port, (struct sockaddr_in *)&address) < 0 &&
        uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address) < 0) {
        status = by_error_set(error, BY_EARG, "%s is not an address of this machine", host);
    }
    free(text);
    BY_TRY(status);
    int code = uv_tcp_bind(&s->uv.tcp, (struct sockaddr *)&address, 0);
    if (code == 0) {
        code = uv_listen(&s->uv.stream, BACKLOG, on_connection);
    }
    if (code == 0) {
        code = uv_tcp_getsockname(&s->uv.tcp, (struct sockaddr *)&address, &length);
    }
    if (code < 0 || uv_ip_name((struct sockaddr *)&address, name, sizeof name) < 0) {
        return by__uv_error(error, "listen on", s->listen, code);
    }
    bool six = address.ss_family == AF_INET6;
    by__text url = {0};
    by__text_format(&url, "http://%s%s%s:%d", six ? "[" : "", name, six ? "]" : "",
                    ntohs(six ? ((struct sockaddr_in6 *)&address)->sin6_port
                              : ((struct sockaddr_in *)&address)->sin_port));
    return by__text_take(&url, &s->url, error);
}

static by_status bind_pipe(by__http_server *s, by_error *error)
{
    struct stat info;
    /* What is left of a server that was killed; never a file. */
    if (lstat(s->path, &info) == 0 && S_ISSOCK(info.st_mode)) {
        (void)unlink(s->path);
    }
    int code = uv_pipe_bind(&s->uv.pipe, s->path);
    if (code == 0) {
        code = uv_listen(&s->uv.stream, BACKLOG, on_connection);
    }
    if (code < 0) {
        return by__uv_error(error, "listen on", s->path, code);
    }
    s->url = by__strdup(s->listen);
    return s->url != NULL ? BY_OK
                          : by_error_set(error, BY_EMEMORY, "out of memory: the server's address");
}

static void set_defaults(by__http_options *o)
{
    o->connections = o->connections > 0 ? o->connections : 20000;
    o->bodies = o->bodies > 0 ? o->bodies : (size_t)256 << 20;
    o->output = o->output > 0 ? o->output : (size_t)256 << 10;
    o->head_seconds = o->head_seconds > 0.0 ? o->head_seconds : 10.0;
    o->body_seconds = o->body_seconds > 0.0 ? o->body_seconds : 60.0;
    o->idle_seconds = o->idle_seconds > 0.0 ? o->idle_seconds : 75.0;
    o->output_seconds = o->output_seconds > 0.0 ? o->output_seconds : 30.0;
}

by_status by__http_server_open(by__http_server **out, uv_loop_t *loop,
                               const by__http_options *options, by_error *error)
{
    by__http_server *s = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a server", error));
    s->options = *options;
    set_defaults(&s->options);
    s->listen = by__strdup(options->listen);
    bool local = strncmp(options->listen, "unix:", 5) == 0;
    s->path = local ? by__strdup(options->listen + 5) : NULL;
    if (s->listen == NULL || (local && s->path == NULL)) {
        free_server(s);
        return by_error_set(error, BY_EMEMORY, "out of memory: a server");
    }
    int code = local ? uv_pipe_init(loop, &s->uv.pipe, 0) : uv_tcp_init(loop, &s->uv.tcp);
    if (code < 0) {
        free_server(s);
        return by__uv_error(error, "open", "a socket", code);
    }
    s->uv.handle.data = s;
    s->handles = 1;
    (void)uv_timer_init(loop, &s->timer); /* cannot fail */
    s->timer.data = s;
    s->handles++;
    by_status status = local ? bind_pipe(s, error) : bind_tcp(s, error);
    if (status != BY_OK) {
        by__http_server_close(&s);
        return status;
    }
    (void)uv_timer_start(&s->timer, on_sweep, SWEEP, SWEEP);
    *out = s;
    return BY_OK;
}

const char *by__http_server_url(const by__http_server *server)
{
    return server->url;
}

size_t by__http_server_connections(const by__http_server *server)
{
    return server->connections;
}

void by__http_server_drain(by__http_server *server)
{
    by__http_server *s = server;
    if (s->draining) {
        return;
    }
    s->draining = true;
    for (by__exchange *x = s->first, *next; x != NULL; x = next) {
        next = x->next;
        if (x->stage == READING && x->pending == 0 && x->parser == NULL) {
            hang_up(x);
        }
    }
}

bool by__http_server_busy(const by__http_server *server)
{
    for (const by__exchange *x = server->first; x != NULL; x = x->next) {
        if (x->stage == HANDLING || x->stage == STREAMING ||
            (x->stage == READING && x->pending > 0)) {
            return true;
        }
    }
    return false;
}

void by__http_server_close(by__http_server **server)
{
    by__http_server *s = *server;
    if (s == NULL) {
        return;
    }
    *server = NULL;
    s->closing = true;
    s->draining = true;
    for (by__exchange *x = s->first, *next; x != NULL; x = next) {
        next = x->next;
        hang_up(x);
    }
    uv_close(&s->uv.handle, on_handle_closed);
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
}
