/* A connection: reads its requests one after another, and ends it. */
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "serve/http/http_connection.h"

/* Seconds of silence after which the kernel probes the peer. */
#define KEEPALIVE 60

/* ---- the end ---- */

/* The request has ended, with or without an answer. */
static void report_done(by__http_connection *x)
{
    const by__http_options *o = &x->server->options;
    if (x->proxied) {
        by__http_addresses_release(o->addresses, &x->counted);
    }
    if (!x->reported) {
        x->reported = true;
        if (o->done != NULL) {
            o->done(o->user, x, x->status, x->bytes);
        }
    }
}

/* Updates the count of bytes held for requests. */
static void count_held(by__http_connection *x)
{
    size_t buffered = x->early_length + (x->parser == NULL ? 0 : by__http_parser_held(x->parser));
    x->server->buffered += buffered - x->buffered;
    x->buffered = buffered;
}

static void close_parser(by__http_connection *x)
{
    by__http_parser_close(&x->parser);
    count_held(x);
}

static void on_closed(uv_handle_t *handle)
{
    by__http_connection *x = handle->data;
    by__http_server *s = x->server;
    if (x->previous != NULL) {
        x->previous->next = x->next;
    } else {
        s->first = x->next;
    }
    if (x->next != NULL) {
        x->next->previous = x->previous;
    }
    free(x->early);
    x->early_length = 0;
    close_parser(x);
    by_string_free(&x->headers);
    by_string_free(&x->out);
    s->slow -= x->slow;
    free(x);
    s->connections--;
    if (s->closing) {
        by__http_server_free(s);
    }
}

void by__http_connection_hang_up(by__http_connection *x)
{
    const by__http_options *o = &x->server->options;
    if (x->stage == BY__CLOSING) {
        return;
    }
    bool waits = x->stage == BY__HANDLING || x->stage == BY__STREAMING;
    x->stage = BY__CLOSING;
    if (waits) {
        o->disconnected(o->user, x);
    }
    report_done(x);
    by__http_addresses_release(o->addresses, &x->counted);
    uv_close(&x->uv.handle, on_closed);
}

static void on_shutdown(uv_shutdown_t *request, int status)
{
    BY_UNUSED(status);
    free(request);
}

void by__http_connection_written_out(by__http_connection *x)
{
    uv_shutdown_t *request = NULL;
    /* Closing with unread input resets the connection, and the client would lose the answer. */
    if (x->lingers && x->stage != BY__CLOSING) {
        request = malloc(sizeof *request);
    }
    if (request == NULL || uv_shutdown(request, &x->uv.stream, on_shutdown) < 0) {
        free(request);
        by__http_connection_hang_up(x);
    }
}

/* Handles the bytes that arrived before the end of an answer. */
static void handle_early(by__http_connection *x)
{
    char *early = x->early;
    size_t length = x->early_length;
    if (early != NULL) {
        x->early = NULL;
        x->early_length = 0;
        count_held(x);
        by__http_connection_receive(x, early, length);
        free(early);
    }
}

void by__http_connection_finish(by__http_connection *x)
{
    by__http_server *s = x->server;
    report_done(x);
    x->user = NULL;
    x->admitted = false;
    x->stage = BY__READING;
    x->since = by__now();
    if (!x->handling) { /* else the request is still being read */
        close_parser(x);
    }
    if (!x->keep_alive || s->draining) {
        x->last = true;
        if (x->pending == 0) {
            by__http_connection_written_out(x);
        }
    } else if (!x->handling) {
        handle_early(x);
    }
}

/* ---- input ---- */

void by__http_connection_refuse(by__http_connection *x, int status, const char *reason)
{
    const by__http_options *o = &x->server->options;
    const char *type = status == 429   ? "rate_limit_error"
                       : status == 503 ? "unavailable_error"
                                       : "invalid_request_error";
    const char *code = status == 429   ? "too_many_connections"
                       : status == 503 ? "unavailable"
                                       : "bad_http";
    char body[256];
    int n = snprintf(body, sizeof body,
                     "{\"error\":{\"message\":\"%s\",\"type\":\"%s\","
                     "\"param\":null,\"code\":\"%s\"}}",
                     reason, type, code);
    if (o->refused != NULL) {
        o->refused(o->user, x, code, reason);
    }
    if (status == 429 || status == 503) {
        by__http_connection_header(x, "Retry-After", "1");
    }
    x->reported = false;
    x->keep_alive = false;
    x->bodyless = false;
    x->lingers = true;
    by__http_connection_reply(x, status, "application/json", body, (size_t)n);
}

/* Keeps input that arrives before the current answer is written: a few bytes, or one read. */
static bool buffer_early(by__http_connection *x, const char *data, size_t length)
{
    by__http_server *s = x->server;
    size_t most = x->paused ? BY__HTTP_READ : s->options.limits.head;
    size_t total;
    if (!by__size_add(x->early_length, length, &total) || total > most ||
        s->buffered > s->options.bodies) {
        return false;
    }
    char *grown = realloc(x->early, total);
    if (grown == NULL) {
        return false;
    }
    memcpy(grown + x->early_length, data, length);
    x->early = grown;
    x->early_length = total;
    count_held(x);
    return true;
}

/* Returns true if the next request has to wait: until the current one is answered, and until the
 * client has taken its answers, which could otherwise fill the memory, since answers are longer
 * than requests. */
static bool must_wait(by__http_connection *x)
{
    if (x->stage == BY__READING && x->pending > 0 && !x->paused) {
        x->paused = true;
        (void)uv_read_stop(&x->uv.stream);
    }
    return x->stage != BY__READING || x->pending > 0;
}

/* ---- addresses of clients ---- */

/* Finds the address of the peer. Returns false if it has none. */
static bool find_peer(by__http_connection *x, struct in6_addr *out)
{
    struct sockaddr_storage address;
    int length = sizeof address;
    x->peer[0] = '\0';
    return x->server->path == NULL &&
           uv_tcp_getpeername(&x->uv.tcp, (struct sockaddr *)&address, &length) == 0 &&
           by__http_network_name(x->peer, (struct sockaddr *)&address) &&
           by__http_network_address(out, (const struct sockaddr *)&address);
}

static void refuse_address(by__http_connection *x)
{
    x->server->refusals.addresses++;
    by__http_connection_refuse(x, 429,
                               "this address has too many connections or requests at a time");
}

/* Counts a connection, unless it is a proxy's; refuses one above the limit. */
static void count_connection(by__http_connection *x)
{
    const by__http_options *o = &x->server->options;
    struct in6_addr peer;
    bool has_peer = find_peer(x, &peer);
    if (o->addresses == NULL) {
        return;
    }
    x->proxied = by__http_addresses_trust(o->addresses, has_peer ? &peer : NULL);
    by__http_address_room room = x->proxied || !has_peer
                                     ? BY__ADDRESS_ROOM
                                     : by__http_addresses_acquire(o->addresses, &peer, &x->counted);
    if (room == BY__ADDRESS_FLOOD) {
        x->server->refusals.addresses++;
        by__http_connection_hang_up(x);
    } else if (room == BY__ADDRESS_FULL) {
        refuse_address(x);
    }
}

/* Counts a proxy's request for its client. Returns false if it was refused. */
static bool count_request(by__http_connection *x, const by__http_request *request)
{
    const by__http_options *o = &x->server->options;
    struct in6_addr client;
    if (!x->proxied) {
        return true;
    }
    if (!by__http_addresses_forwarded(o->addresses, request, &client)) {
        (void)find_peer(x, &client);
        return true;
    }
    const char *four = IN6_IS_ADDR_V4MAPPED(&client) ? (const char *)&client.s6_addr[12] : NULL;
    (void)uv_inet_ntop(four != NULL ? AF_INET : AF_INET6, four != NULL ? four : (void *)&client,
                       x->peer, sizeof x->peer);
    if (by__http_addresses_acquire(o->addresses, &client, &x->counted) != BY__ADDRESS_ROOM) {
        refuse_address(x);
        return false;
    }
    return true;
}

/* ---- requests ---- */

/* The head is complete. Returns false if it was refused, or the client is gone. */
static bool admit(by__http_connection *x, bool whole)
{
    by__http_server *s = x->server;
    const by__http_request *request = by__http_parser_request(x->parser);
    if (!count_request(x, request)) {
        return false;
    }
    x->stage = BY__HANDLING;
    x->reported = false;
    x->status = 0;
    x->bytes = 0;
    x->bodyless = strcmp(request->method, "HEAD") == 0;
    x->old = request->old;
    /* A body that is not read ends the connection. */
    x->keep_alive = whole && request->keep_alive;
    x->lingers = !whole;
    x->handling = true;
    x->admitted = s->options.head == NULL || s->options.head(s->options.user, x, request);
    x->handling = false;
    if (!x->admitted) {
        close_parser(x);
        return false;
    }
    x->stage = BY__READING;
    x->lingers = false;
    return true;
}

/* The request is complete. */
static void handle(by__http_connection *x)
{
    by__http_server *s = x->server;
    const by__http_request *request = by__http_parser_request(x->parser);
    if (!x->admitted && !admit(x, true)) {
        return;
    }
    x->stage = BY__HANDLING;
    x->keep_alive = request->keep_alive;
    x->handling = true;
    s->options.request(s->options.user, x, request);
    x->handling = false;
    close_parser(x);
}

/* Opens a parser for the next bytes. Returns false if the connection has ended. */
static bool open_parser(by__http_connection *x)
{
    if (x->parser == NULL) {
        x->parser = by__http_parser_open(&x->server->options.limits);
        x->since = by__now();
    }
    if (x->parser == NULL) {
        by__http_connection_hang_up(x);
    }
    return x->parser != NULL;
}

/* Requests that arrive before the current one is answered wait. */
void by__http_connection_receive(by__http_connection *x, const char *data, size_t length)
{
    by__http_server *s = x->server;
    bool again = false; /* the parser has stopped after a head */
    while ((length > 0 || again) && x->stage != BY__CLOSING && !x->last) {
        size_t used;
        if (must_wait(x)) {
            if (!buffer_early(x, data, length)) {
                by__http_connection_hang_up(x);
            }
            return;
        }
        if (!open_parser(x)) {
            return;
        }
        by__http_state state = by__http_parser_feed(x->parser, data, length, &used);
        data += used;
        length -= used;
        again = state == BY__HTTP_HEAD;
        count_held(x);
        if (state != BY__HTTP_BAD && s->buffered > s->options.bodies) {
            by__http_connection_refuse(x, 503, "too many requests are being received");
            return;
        }
        if (state == BY__HTTP_BAD) {
            by__http_connection_refuse(x, by__http_parser_status(x->parser),
                                       by__http_parser_reason(x->parser));
            return;
        }
        if ((state == BY__HTTP_HEAD && !admit(x, false)) ||
            (state == BY__HTTP_CONTINUE &&
             !(by__http_connection_put(x, "HTTP/1.1 100 Continue\r\n\r\n", 25) &&
               by__http_connection_flush(x)))) {
            return;
        }
        if (state == BY__HTTP_DONE) {
            handle(x);
        }
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    by__http_connection *x = handle->data;
    BY_UNUSED(suggested);
    *buffer = uv_buf_init(x->server->buffer, BY__HTTP_READ);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    by__http_connection *x = stream->data;
    if (n < 0) {
        by__http_connection_hang_up(x);
    } else if (n > 0) {
        by__http_connection_receive(x, buffer->base, (size_t)n);
    }
}

void by__http_connection_resume(by__http_connection *x)
{
    if (!x->paused || x->stage == BY__CLOSING) {
        return;
    }
    x->paused = false;
    handle_early(x);
    if (!x->paused && x->stage != BY__CLOSING) {
        /* cannot fail: reading was started before */
        (void)uv_read_start(&x->uv.stream, on_alloc, on_read);
    }
}

void by__http_connection_accept(uv_stream_t *listener, int status)
{
    by__http_server *s = listener->data;
    by__http_connection *x = status < 0 ? NULL : calloc(1, sizeof *x);
    int code = x == NULL         ? UV_ENOMEM
               : s->path != NULL ? uv_pipe_init(listener->loop, &x->uv.pipe, 0)
                                 : uv_tcp_init(listener->loop, &x->uv.tcp);
    /* libuv does not accept others until it is taken. */
    s->unaccepted = status == 0 && code < 0;
    if (code < 0) {
        free(x);
        return;
    }
    x->uv.handle.data = x;
    x->server = s;
    x->since = by__now();
    x->reported = true;
    x->next = s->first;
    if (x->next != NULL) {
        x->next->previous = x;
    }
    s->first = x;
    s->connections++;
    if (uv_accept(listener, &x->uv.stream) < 0) {
        by__http_connection_hang_up(x);
        return;
    }
    if (s->connections > s->options.connections) {
        s->refusals.connections++;
        by__http_connection_hang_up(x);
        return;
    }
    if (s->path == NULL) {
        /* Makes the kernel drop a peer that acknowledges nothing: half-open connections of vanished
         * clients would otherwise keep their streams for ever. */
        int milliseconds = (int)(s->options.output_seconds * 1e3);
        uv_os_fd_t fd;
        (void)uv_tcp_nodelay(&x->uv.tcp, 1);
        (void)uv_tcp_keepalive(&x->uv.tcp, 1, KEEPALIVE);
        if (uv_fileno(&x->uv.handle, &fd) == 0) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
        }
    }
    if (uv_read_start(&x->uv.stream, on_alloc, on_read) < 0) {
        by__http_connection_hang_up(x);
        return;
    }
    count_connection(x);
}
