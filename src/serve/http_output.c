/* Answers: whole ones and streams, and what a slow reader leaves behind. */
#include <stdlib.h>
#include <string.h>

#include "serve/http_connection.h"

/* A write that libuv has taken. */
typedef struct output {
    uv_write_t request;
    by__exchange *exchange;
    size_t length;
    char data[];
} output;

static void on_written(uv_write_t *request, int status)
{
    output *o = (output *)(void *)request;
    by__exchange *x = o->exchange;
    x->pending -= o->length;
    x->since = by__now();
    free(o);
    if (status < 0) {
        by__connection_hang_up(x);
    } else if (x->last && x->pending == 0) {
        by__connection_written_out(x);
    } else if (x->pending == 0) {
        by__connection_resume(x);
    }
}

bool by__connection_put(by__exchange *x, const char *data, size_t length)
{
    if (x->pending == 0) {
        uv_buf_t now = uv_buf_init((char *)(uintptr_t)data, (unsigned)length);
        int n = uv_try_write(&x->uv.stream, &now, 1);
        if (n > 0) {
            x->since = by__now();
            data += n;
            length -= (size_t)n;
        } else if (n < 0 && n != UV_EAGAIN) {
            by__connection_hang_up(x);
            return false;
        }
    }
    if (length == 0) {
        return true;
    }
    output *o = malloc(sizeof *o + length);
    if (o == NULL) {
        by__connection_hang_up(x);
        return false;
    }
    memcpy(o->data, data, length);
    o->exchange = x;
    o->length = length;
    uv_buf_t later = uv_buf_init(o->data, (unsigned)length);
    if (uv_write(&o->request, &x->uv.stream, &later, 1, on_written) < 0) {
        free(o);
        by__connection_hang_up(x);
        return false;
    }
    x->pending += length;
    x->given += length;
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
                   {304, "Not Modified"},
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

void by__exchange_note(by__exchange *exchange, void *note)
{
    exchange->note = note;
}

void *by__exchange_noted(const by__exchange *exchange)
{
    return exchange->note;
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
    x->status = status;
    by__text_format(text, "HTTP/1.1 %d %s\r\n", status, by__http_reason(status));
    if (x->headers.data != NULL) {
        by__text_add(text, x->headers.data);
    }
    if (type != NULL) {
        by__text_format(text, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    }
    by__text_add(text, x->keep_alive ? "" : "Connection: close\r\n");
    by__text_free(&x->headers);
    x->headers = (by__text){0};
}

void by__exchange_reply(by__exchange *exchange, int status, const char *type, const char *body,
                        size_t length)
{
    by__exchange *x = exchange;
    by__text text = {0};
    x->keep_alive = x->keep_alive && !x->server->draining;
    add_head(&text, x, status, type);
    if (status != 204 && status != 304) { /* these have no body, and say no length of one */
        by__text_format(&text, "Content-Length: %zu\r\n", length);
    }
    by__text_add(&text, "\r\n");
    by__text_add_bytes(&text, body, length);
    x->bytes = length;
    /* From here on the handler is not told of the client any more. */
    x->stage = BY__READING;
    if (text.failed) {
        by__connection_hang_up(x);
    } else if (by__connection_put(x, text.data, text.length)) {
        by__connection_finish(x);
    }
    by__text_free(&text);
}

bool by__exchange_stream(by__exchange *exchange)
{
    by__exchange *x = exchange;
    by__text text = {0};
    x->keep_alive = x->keep_alive && !x->server->draining;
    x->stage = BY__STREAMING;
    add_head(&text, x, 200, "text/event-stream; charset=utf-8");
    by__text_add(&text, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n");
    bool sent = !text.failed && by__connection_put(x, text.data, text.length);
    if (text.failed) {
        by__connection_hang_up(x);
    }
    by__text_free(&text);
    return sent;
}

bool by__exchange_send(by__exchange *exchange, const char *data, size_t length)
{
    by__exchange *x = exchange;
    by__text text = {0};
    if (x->stage == BY__CLOSING) {
        return false;
    }
    if (x->pending > x->server->options.output) {
        by__connection_hang_up(x);
        return false;
    }
    by__text_format(&text, "%zx\r\n", length);
    by__text_add_bytes(&text, data, length);
    by__text_add(&text, "\r\n");
    x->bytes += length;
    bool sent = !text.failed && by__connection_put(x, text.data, text.length);
    if (text.failed) {
        by__connection_hang_up(x);
    }
    by__text_free(&text);
    return sent;
}

void by__exchange_end(by__exchange *exchange)
{
    by__exchange *x = exchange;
    x->stage = BY__READING;
    if (by__connection_put(x, "0\r\n\r\n", 5)) {
        by__connection_finish(x);
    }
}

const char *by__exchange_peer(const by__exchange *exchange)
{
    return exchange->peer[0] == '\0' && exchange->server->path != NULL ? "unix" : exchange->peer;
}
