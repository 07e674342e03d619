/* Output of answers: complete ones and streams, and buffering for slow readers. */
#include <stdlib.h>
#include <string.h>

#include "serve/http/http_connection.h"

/* Bytes that a stream may always hold back: some frames of this turn, which no reader could have
 * taken yet. */
#define MIN_COMPRESSED ((size_t)2 << 10)

/* Size from which a body gets a write of its own. */
#define MIN_SHARED ((size_t)64 << 10)

/* A write request of libuv. */
typedef struct http_write {
    uv_write_t request;
    by__http_connection *connection;
    by_string text;
    size_t length; /* length of its end that is written */
} http_write;

/* `pending` has changed, or is about to. */
static void count(by__http_connection *x)
{
    by__http_server *s = x->server;
    x->pending = x->out.length + x->writing;
    size_t now = x->streams ? x->pending : 0;
    s->slow += now - x->slow;
    x->slow = now;
    s->counts.slow = s->slow > s->counts.slow ? s->slow : s->counts.slow;
}

static void on_written(uv_write_t *request, int status)
{
    http_write *o = (http_write *)(void *)request;
    by__http_connection *x = o->connection;
    x->writing -= o->length;
    count(x);
    x->since = by__now();
    by_string_free(&o->text);
    free(o);
    if (status < 0) {
        by__http_connection_hang_up(x);
    } else if (!by__http_connection_flush(x)) {
        return;
    } else if (x->last && x->pending == 0) {
        by__http_connection_written_out(x);
    } else if (x->pending == 0) {
        by__http_connection_resume(x);
    }
}

bool by__http_connection_put(by__http_connection *x, const char *data, size_t length)
{
    by_string_add(&x->out, data, length);
    if (x->out.failed) {
        by__http_connection_hang_up(x);
        return false;
    }
    count(x);
    return true;
}

/* Passes the end of a text, which is taken, to libuv. */
static bool write_later(by__http_connection *x, by_string *text, size_t begin)
{
    http_write *o = malloc(sizeof *o);
    if (o == NULL) {
        by_string_free(text);
        by__http_connection_hang_up(x);
        return false;
    }
    *o = (http_write){.connection = x, .text = *text, .length = text->length - begin};
    uv_buf_t later = uv_buf_init(text->data + begin, (unsigned)o->length);
    if (uv_write(&o->request, &x->uv.stream, &later, 1, on_written) < 0) {
        by_string_free(&o->text);
        free(o);
        by__http_connection_hang_up(x);
        return false;
    }
    x->writing += o->length;
    x->given += o->length;
    count(x);
    return true;
}

bool by__http_connection_flush(by__http_connection *x)
{
    by_string text = x->out;
    if (x->stage == BY__CLOSING || x->writing > 0 || text.length == 0) {
        return x->stage != BY__CLOSING;
    }
    x->out = (by_string){0};
    x->server->counts.writes++;
    uv_buf_t now = uv_buf_init(text.data, (unsigned)text.length);
    int n = uv_try_write(&x->uv.stream, &now, 1);
    if (n < 0 && n != UV_EAGAIN) {
        by_string_free(&text);
        count(x);
        by__http_connection_hang_up(x);
        return false;
    }
    if (n > 0) {
        x->since = by__now();
    }
    if (n > 0 && (size_t)n == text.length) {
        by_string_free(&text);
        count(x);
        return true;
    }
    return write_later(x, &text, n > 0 ? (size_t)n : 0);
}

void by__http_connections_flush(by__http_server *s)
{
    while (s->gathered != NULL) {
        by__http_connection *x = s->gathered;
        s->gathered = x->gathered;
        x->gathers = false;
        (void)by__http_connection_flush(x);
    }
}

/* Schedules a write at the end of this turn. Connections are not freed before: libuv calls closing
 * ones after both places where the list is processed. */
static void gather(by__http_connection *x)
{
    by__http_server *s = x->server;
    if (!x->gathers) {
        x->gathers = true;
        x->gathered = s->gathered;
        s->gathered = x;
    }
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
                   {422, "Unprocessable Content"},
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

void by__http_connection_set(by__http_connection *connection, void *user)
{
    connection->user = user;
}

void *by__http_connection_get(const by__http_connection *connection)
{
    return connection->user;
}

void by__http_connection_note(by__http_connection *connection, void *note)
{
    connection->note = note;
}

void *by__http_connection_noted(const by__http_connection *connection)
{
    return connection->note;
}

void by__http_connection_header(by__http_connection *connection, const char *name,
                                const char *value)
{
    for (const char *c = value; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return;
        }
    }
    by_string_format(&connection->headers, "%s: %s\r\n", name, value);
}

bool by__http_connection_has_header(const by__http_connection *connection, const char *name)
{
    size_t length = strlen(name);
    const char *line = connection->headers.data;
    while (line != NULL) {
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            return true;
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return false;
}

/* Prints the status line and headers, except those that frame the body. */
static void add_head(by_string *text, by__http_connection *x, int status, const char *type)
{
    x->status = status;
    by_string_format(text, "HTTP/1.1 %d %s\r\n", status, by__http_reason(status));
    if (x->headers.data != NULL) {
        by__string_append(text, x->headers.data);
    }
    text->failed = text->failed || x->headers.failed;
    if (type != NULL) {
        by_string_format(text, "Content-Type: %s\r\nX-Content-Type-Options: nosniff\r\n", type);
    }
    by__string_append(text, x->keep_alive ? "" : "Connection: close\r\n");
    by_string_free(&x->headers);
    x->headers = (by_string){0};
}

/* Writes the head of an answer and, if it is not NULL, its body, but no body in answer to HEAD: the
 * client would read it as the next answer (RFC 9112, section 6.3). Returns false if the connection
 * has ended. */
static bool put_reply(by__http_connection *x, int status, const char *type, const char *body,
                      size_t length)
{
    by_string text = {0};
    x->keep_alive = x->keep_alive && !x->server->draining;
    add_head(&text, x, status, type);
    if (status != 204 && status != 304) { /* these have no body and no length */
        by_string_format(&text, "Content-Length: %zu\r\n", length);
    }
    by__string_append(&text, "\r\n");
    x->bytes = x->bodyless ? 0 : length;
    /* From here on the handler is not told of the client any more. */
    x->stage = BY__READING;
    x->streams = false;
    bool sent = !text.failed && by__http_connection_put(x, text.data, text.length) &&
                (body == NULL || by__http_connection_put(x, body, x->bytes)) &&
                by__http_connection_flush(x);
    if (text.failed) {
        by__http_connection_hang_up(x);
    }
    by_string_free(&text);
    return sent;
}

void by__http_connection_reply(by__http_connection *connection, int status, const char *type,
                               const char *body, size_t length)
{
    if (put_reply(connection, status, type, body, length)) {
        by__http_connection_finish(connection);
    }
}

void by__http_connection_reply_text(by__http_connection *connection, int status, const char *type,
                                    by_string *body)
{
    by_string text = *body;
    *body = (by_string){0};
    if (text.length < MIN_SHARED || connection->bodyless) {
        by__http_connection_reply(connection, status, type, text.data, text.length);
        by_string_free(&text);
    } else if (!put_reply(connection, status, type, NULL, text.length)) {
        by_string_free(&text);
    } else if (write_later(connection, &text, 0)) { /* libuv writes at once what the socket takes */
        by__http_connection_finish(connection);
    }
}

bool by__http_connection_stream(by__http_connection *connection)
{
    by__http_connection *x = connection;
    by_string text = {0};
    x->keep_alive = x->keep_alive && !x->server->draining;
    x->stage = BY__STREAMING;
    x->streams = true;
    add_head(&text, x, 200, "text/event-stream; charset=utf-8");
    by__string_append(&text, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    by__string_append(&text, x->old ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n");
    bool sent = !text.failed && by__http_connection_put(x, text.data, text.length);
    if (text.failed) {
        by__http_connection_hang_up(x);
    }
    by_string_free(&text);
    gather(x);
    return sent;
}

/* Bytes that a stream may hold back now: as many as all others leave free, so that many slow
 * readers get equal shares and a single one has enough. (The rule of shared buffers in switches,
 * with factor one: Choudhury and Hahne, Dynamic queue length thresholds, 1998.) */
static size_t most_pending(const by__http_server *s)
{
    const by__http_options *o = &s->options;
    size_t left = s->slow < o->output_total ? o->output_total - s->slow : 0;
    left = left < MIN_COMPRESSED ? MIN_COMPRESSED : left;
    return left < o->output ? left : o->output;
}

/* "LENGTH in hexadecimal\r\n". */
static void put_chunk_head(by_string *out, size_t length)
{
    char head[2 * sizeof length + 2];
    size_t at = sizeof head;
    head[--at] = '\n';
    head[--at] = '\r';
    do {
        head[--at] = "0123456789abcdef"[length & 15];
        length >>= 4;
    } while (length > 0);
    by_string_add(out, head + at, sizeof head - at);
}

bool by__http_connection_send(by__http_connection *connection, const char *data, size_t length)
{
    by__http_connection *x = connection;
    by__http_server *s = x->server;
    if (x->stage == BY__CLOSING) {
        return false;
    }
    if (x->pending > most_pending(s)) {
        s->counts.cut++;
        by__http_connection_hang_up(x);
        return false;
    }
    x->bytes += length;
    s->counts.frames++;
    gather(x);
    if (x->old) {
        return by__http_connection_put(x, data, length);
    }
    /* A text that has failed stays as it is, and by__http_connection_put tells. */
    put_chunk_head(&x->out, length);
    by_string_add(&x->out, data, length);
    return by__http_connection_put(x, "\r\n", 2);
}

bool by__http_connection_send_text(by__http_connection *connection, const by_string *frames)
{
    if (frames->failed) {
        by__http_connection_hang_up(connection);
        return false;
    }
    return frames->length == 0 ||
           by__http_connection_send(connection, frames->data, frames->length);
}

void by__http_connection_end(by__http_connection *connection)
{
    by__http_connection *x = connection;
    x->stage = BY__READING;
    if (by__http_connection_put(x, "0\r\n\r\n", x->old ? 0 : 5) && by__http_connection_flush(x)) {
        by__http_connection_finish(x);
    }
}

const char *by__http_connection_peer(const by__http_connection *connection)
{
    return connection->peer[0] == '\0' && connection->server->path != NULL ? "unix"
                                                                           : connection->peer;
}
