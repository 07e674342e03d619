/* Links by a socket in the file system, and the broker's listener. */
#include "serve/base/socket_lock.h"
#include "serve/link/core/link.h"
#include "serve/protocol/event_list.h"
#include "serve/protocol/messages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 128
#define READ    ((size_t)64 << 10)
#define EVENTS  ((size_t)64 << 10)
/* Milliseconds until a connection that could not be accepted for lack of memory is tried again. */
#define RETRY_MS 100

typedef struct socket_link {
    by__link base;
    uv_pipe_t pipe;
    uv_connect_t connect;
    by__link_frames frames;
    size_t pending;
    bool connected;
    char buffer[READ];
} socket_link;

struct by__link_listener {
    uv_pipe_t pipe;
    uv_timer_t again;
    unsigned handles; /* number of open handles, of the two */
    int lock;         /* held until the process ends */
    by__link_handler handler;
    void (*accepted)(void *user, by__link *link);
};

typedef struct socket_write {
    uv_write_t request;
    socket_link *link;
    size_t length;
    char data[];
} socket_write;

static void on_closed(uv_handle_t *handle)
{
    socket_link *l = handle->data;
    by__link_frames_free(&l->frames);
    free(l);
}

static void close_socket(by__link *link)
{
    uv_close((uv_handle_t *)&((socket_link *)(void *)link)->pipe, on_closed);
}

static void connection_lost(socket_link *l, const char *why)
{
    by__link_fail(&l->base, why);
}

static bool on_message(void *user, json_t *message)
{
    by__link *l = user;
    if (!l->closed) {
        l->handler.message(l->handler.user, l, message);
    }
    return !l->closed;
}

static bool on_events(void *user, const char *list, size_t length)
{
    by__link *l = user;
    if (!l->closed) {
        l->handler.events(l->handler.user, l, list, length);
    }
    return !l->closed;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    socket_link *l = handle->data;
    BY_UNUSED(suggested);
    *buffer = uv_buf_init(l->buffer, READ);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    socket_link *l = stream->data;
    by__link_frame_handler handler = {on_message, on_events, &l->base};
    if (n < 0) {
        connection_lost(l,
                        n == UV_EOF ? "the other side has closed the link" : uv_strerror((int)n));
    } else if (n > 0 && !by__link_frames_feed(&l->frames, buffer->base, (size_t)n, &handler)) {
        connection_lost(l, "a message is no JSON object and no list of events of at most 64 MiB");
    }
}

static void on_connect(uv_connect_t *request, int status)
{
    socket_link *l = request->data;
    if (l->base.closed) {
        return;
    }
    if (status == 0) {
        status = uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read);
    }
    l->connected = status == 0;
    if (status < 0) {
        connection_lost(l, uv_strerror(status));
    } else {
        l->base.handler.ready(l->base.handler.user, &l->base);
    }
}

static const by__link_kind kind;

static by_status open_link(socket_link **out, uv_loop_t *loop, const by__link_handler *handler,
                           by_error *error)
{
    socket_link *l = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "a link", error));
    int code = uv_pipe_init(loop, &l->pipe, 0);
    if (code < 0) {
        free(l);
        return by__serve_uv_error(error, "open", "a socket", code);
    }
    l->base.kind = &kind;
    l->base.handler = *handler;
    l->pipe.data = l;
    *out = l;
    return BY_OK;
}

/* Takes a connection that a dialer has opened. */
static by_status adopt_dialled(socket_link *l, const char *path, by__link_dialer *dialer,
                               by_error *error)
{
    by__link_dialled found;
    int fd;
    BY_TRY(by__link_dial(dialer, &found, &fd, error));
    int code = fd < 0 ? found.code : uv_pipe_open(&l->pipe, fd);
    if (fd >= 0 && code < 0) {
        (void)close(fd);
    }
    code = code < 0 ? code : uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read);
    l->connected = l->base.connected = code == 0;
    return code < 0 ? by__serve_uv_error(error, "connect to", path, code) : BY_OK;
}

by_status by__link_socket_connect(by__link **out, uv_loop_t *loop, const char *path,
                                  by__link_dialer *dialer, const by__link_handler *handler,
                                  by_error *error)
{
    socket_link *l = NULL;
    *out = NULL;
    by_status status = open_link(&l, loop, handler, error);
    if (l == NULL) {
        return status;
    }
    if (dialer != NULL) {
        by__link *link = &l->base;
        status = adopt_dialled(l, path, dialer, error);
        if (status != BY_OK) {
            by__link_close(&link);
        }
        *out = link;
        return status;
    }
    l->connect.data = l;
    uv_pipe_connect(&l->connect, &l->pipe, path, on_connect);
    *out = &l->base;
    return BY_OK;
}

static void on_written(uv_write_t *request, int status)
{
    socket_write *o = (socket_write *)(void *)request;
    socket_link *l = o->link;
    l->pending -= o->length;
    free(o);
    if (status < 0) {
        connection_lost(l, uv_strerror(status));
    }
}

static void put_length(char *out, size_t n)
{
    for (unsigned i = 0; i < 4; i++) {
        out[i] = (char)(unsigned char)(n >> (8 * i));
    }
}

/* Allocates a frame of n bytes, which the caller writes after the first four; NULL: the link is
 * lost. */
static socket_write *new_frame(socket_link *l, size_t n)
{
    socket_write *o = NULL;
    if (l->pending > BY__LINK_PENDING) {
        connection_lost(l, "the other side does not read");
        return NULL;
    }
    o = n == 0 || n > BY__LINK_MESSAGE ? NULL : malloc(sizeof *o + 4 + n);
    if (o == NULL) {
        connection_lost(l, "a message cannot be sent");
        return NULL;
    }
    put_length(o->data, n);
    o->link = l;
    o->length = n + 4;
    return o;
}

static bool send_frame(socket_link *l, socket_write *o)
{
    uv_buf_t buffer = uv_buf_init(o->data, (unsigned)o->length);
    l->pending += o->length;
    /* libuv writes at once what the socket takes. */
    int code = uv_write(&o->request, (uv_stream_t *)&l->pipe, &buffer, 1, on_written);
    if (code < 0) {
        l->pending -= o->length;
        free(o);
        /* If there is no connection yet, on_connect reports the reason. */
        if (l->connected) {
            connection_lost(l, uv_strerror(code));
        }
        return false;
    }
    return true;
}

/* Bytes from which a text is not written as JSON: that would read it byte by byte in each process
 * on its way. */
#define MIN_SEPARATE ((size_t)16 << 10)

/* Copies a message without its long text. NULL: it has none, or memory is exhausted. */
static json_t *without_text(const json_t *message, const json_t **text)
{
    const json_t *task = json_object_get(message, "task");
    bool inner = json_is_object(task);
    *text = json_object_get(inner ? task : message, "request");
    if (!json_is_string(*text) || json_string_length(*text) < MIN_SEPARATE) {
        return NULL;
    }
    json_t *out = by__protocol_copy_object(message);
    json_t *rest = inner ? by__protocol_copy_object(task) : json_incref(out);
    if (json_object_del(rest, "request") != 0 ||
        (inner && json_object_set(out, "task", rest) != 0)) {
        json_decref(out);
        out = NULL;
    }
    json_decref(rest);
    return out;
}

static bool send_message(by__link *link, const json_t *message)
{
    socket_link *l = (socket_link *)(void *)link;
    by_string text = {0};
    const json_t *request;
    json_t *head = without_text(message, &request);
    if (head != NULL) {
        by__json_write(&text, head, JSON_COMPACT);
        json_decref(head);
        size_t rest = json_string_length(request);
        socket_write *long_one = new_frame(l, text.failed ? 0 : 5 + text.length + rest);
        if (long_one != NULL) {
            long_one->data[4] = BY__LINK_TEXT;
            put_length(long_one->data + 5, text.length);
            memcpy(long_one->data + 9, text.data, text.length);
            memcpy(long_one->data + 9 + text.length, json_string_value(request), rest);
        }
        by_string_free(&text);
        return long_one != NULL && send_frame(l, long_one);
    }
    by__json_write(&text, message, JSON_COMPACT);
    socket_write *o = new_frame(l, text.failed ? 0 : text.length);
    if (o != NULL) {
        memcpy(o->data + 4, text.data, text.length);
    }
    by_string_free(&text);
    return o != NULL && send_frame(l, o);
}

/* Splits the list into frames of at most EVENTS bytes, unless one event is longer: a receiver
 * handles a frame without interruption. */
static bool send_events(by__link *link, const char *list, size_t length)
{
    socket_link *l = (socket_link *)(void *)link;
    by__serve_event event;
    size_t begin = 0;
    size_t at = 0;
    while (begin < length) {
        size_t end = begin;
        while (by__protocol_events_next(list, length, &at, &event) &&
               (at - begin <= EVENTS || end == begin)) {
            end = at;
        }
        socket_write *o = new_frame(l, 1 + end - begin);
        if (o == NULL) {
            return false;
        }
        o->data[4] = BY__LINK_EVENTS;
        memcpy(o->data + 5, list + begin, end - begin);
        if (!send_frame(l, o)) {
            return false;
        }
        begin = at = end;
    }
    return true;
}

static void pause_socket(by__link *link, bool pauses)
{
    socket_link *l = (socket_link *)(void *)link;
    if (pauses) {
        (void)uv_read_stop((uv_stream_t *)&l->pipe);
    } else {
        /* reading was started before */
        (void)uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read);
    }
}

static size_t count_unsent(const by__link *link)
{
    return uv_stream_get_write_queue_size(
        (const uv_stream_t *)&((const socket_link *)(const void *)link)->pipe);
}

static const by__link_kind kind = {.send = send_message,
                                   .send_events = send_events,
                                   .pause = pause_socket,
                                   .unsent = count_unsent,
                                   .close = close_socket};

/* ---- listening ---- */

static void on_again(uv_timer_t *timer);

static void on_connection(uv_stream_t *stream, int status)
{
    by__link_listener *s = stream->data;
    socket_link *l = NULL;
    by_error ignored = {0};
    if (status < 0) {
        return;
    }
    (void)open_link(&l, stream->loop, &s->handler, &ignored);
    if (l == NULL) {
        /* libuv does not accept others until it is taken. */
        (void)uv_timer_start(&s->again, on_again, RETRY_MS, 0);
        return;
    }
    l->connected = true;
    if (uv_accept(stream, (uv_stream_t *)&l->pipe) < 0 ||
        uv_read_start((uv_stream_t *)&l->pipe, on_alloc, on_read) < 0) {
        by__link *link = &l->base;
        by__link_close(&link);
        return;
    }
    s->accepted(s->handler.user, &l->base);
}

static void on_again(uv_timer_t *timer)
{
    by__link_listener *s = timer->data;
    on_connection((uv_stream_t *)&s->pipe, 0);
}

static void on_listener_closed(uv_handle_t *handle)
{
    by__link_listener *s = handle->data;
    if (--s->handles == 0) {
        free(s);
    }
}

by_status by__link_listen(by__link_listener **out, uv_loop_t *loop, const char *path,
                          void (*accepted)(void *user, by__link *link),
                          const by__link_handler *handler, by_error *error)
{
    uv_fs_t request;
    by__link_listener *s = NULL;
    int lock;
    int code = by__serve_socket_lock(&lock, path);
    if (code == UV_EADDRINUSE) {
        return by_error_set(error, BY_ECONFIG,
                            "another server listens on %s: stop it, or choose another directory",
                            path);
    }
    if (code < 0) {
        return by__serve_uv_error(error, "lock", path, code);
    }
    by_status status = by__alloc((void **)&s, 1, sizeof *s, "a listener", error);
    code = status == BY_OK ? uv_pipe_init(loop, &s->pipe, 0) : 0;
    if (status != BY_OK || code < 0) {
        free(s);
        (void)close(lock);
        return status != BY_OK ? status : by__serve_uv_error(error, "open", "a socket", code);
    }
    s->handler = *handler;
    s->accepted = accepted;
    s->lock = lock;
    *out = s;
    (void)uv_timer_init(loop, &s->again); /* cannot fail */
    s->handles = 2;
    s->pipe.data = s->again.data = s;
    (void)uv_fs_unlink(NULL, &request, path, NULL);
    uv_fs_req_cleanup(&request);
    mode_t mask = umask(0177);
    code = uv_pipe_bind(&s->pipe, path);
    (void)umask(mask);
    if (code == 0) {
        code = uv_listen((uv_stream_t *)&s->pipe, BACKLOG, on_connection);
    }
    if (code < 0) {
        by__link_listener_close(out);
        return by__serve_uv_error(error, "listen on", path, code);
    }
    return BY_OK;
}

void by__link_listener_close(by__link_listener **listener)
{
    if (*listener != NULL) {
        int lock = (*listener)->lock;
        /* Removes the path, which belongs to the next process once the lock is released. */
        uv_close((uv_handle_t *)&(*listener)->pipe, on_listener_closed);
        uv_close((uv_handle_t *)&(*listener)->again, on_listener_closed);
        (void)close(lock);
        *listener = NULL;
    }
}
