#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/base/socket_lock.h"
#include "serve/http/http_connection.h"

/* Length of the queue of connections to be accepted. */
#define BACKLOG 1024
/* Milliseconds between checks of time limits. */
#define TIMEOUT_CHECK_MS 500
/* Seconds in which a client that was refused in the middle of its request may read the answer. */
#define LINGER_SECONDS 2.0

void by__http_server_free(by__http_server *s)
{
    if (s->handles == 0 && s->connections == 0) {
        free(s->listen);
        free(s->path);
        free(s->url);
        free(s);
    }
}

/* ---- time limits ---- */

static void on_timeout_check(uv_timer_t *timer)
{
    by__http_server *s = timer->data;
    const by__http_options *o = &s->options;
    double now = by__now();
    if (s->unaccepted) {
        by__http_connection_accept(&s->uv.stream, 0);
    }
    for (by__http_connection *x = s->first, *next; x != NULL; x = next) {
        double waited = now - x->since;
        next = x->next;
        if (x->stage == BY__CLOSING) {
            continue;
        }
        if (x->lingers) {
            if (waited > LINGER_SECONDS) {
                by__http_connection_hang_up(x);
            }
        } else if (x->pending > 0) {
            /* libuv reports only the end of a long write. */
            size_t acknowledged = x->given - uv_stream_get_write_queue_size(&x->uv.stream);
            if (acknowledged != x->acknowledged) {
                x->acknowledged = acknowledged;
                x->since = now;
            } else if (waited > o->output_seconds) {
                by__http_connection_hang_up(x);
            }
        } else if (x->stage == BY__READING && x->parser == NULL) {
            if (waited > o->idle_seconds) {
                by__http_connection_hang_up(x);
            }
        } else if (x->stage == BY__READING) {
            bool body = by__http_parser_in_body(x->parser);
            if (waited > (body ? o->body_seconds : o->head_seconds)) {
                by__http_connection_refuse(x, 408,
                                           body ? "the body did not come in time"
                                                : "the head did not come in time");
            }
        }
    }
}

static void on_before(uv_prepare_t *prepare)
{
    by__http_connections_flush(prepare->data);
}

static void on_after(uv_check_t *check)
{
    by__http_connections_flush(check->data);
}

/* ---- the server ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    by__http_server *s = handle->data;
    s->handles--;
    by__http_server_free(s);
}

/* Parses "HOST:PORT"; an IPv6 address may have brackets. Returns false if it is malformed. */
static bool parse_address(struct sockaddr_storage *out, const char *text)
{
    char host[INET6_ADDRSTRLEN + 2];
    char *end = NULL;
    const char *colon = strrchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    bool six = length > 2 && text[0] == '[' && text[length - 1] == ']';
    long port = colon == NULL ? -1 : strtol(colon + 1, &end, 10);
    if (length == 0 || length >= sizeof host || end == colon + 1 || *end != '\0' || port < 0 ||
        port > 65535) {
        return false;
    }
    (void)snprintf(host, sizeof host, "%.*s", (int)length - 2 * six, text + six);
    return uv_ip4_addr(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, (int)port,
                       (struct sockaddr_in *)out) == 0 ||
           uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)out) == 0;
}

by_status by__http_listen_address(struct sockaddr_storage *out, const char *listen, by_error *error)
{
    *out = (struct sockaddr_storage){.ss_family = AF_UNIX};
    bool local = strncmp(listen, "unix:", 5) == 0;
    if (local ? listen[5] != '\0' : parse_address(out, listen)) {
        return BY_OK;
    }
    return by_error_set(error, BY_ECONFIG,
                        "'%s' is not an address to listen on: write ADDRESS:PORT, such as "
                        "127.0.0.1:8080 or [::1]:8080, or unix:PATH",
                        listen);
}

bool by__http_listens_locally(const char *listen)
{
    return strncmp(listen, "unix:", 5) == 0 || strncmp(listen, "127.", 4) == 0 ||
           strncmp(listen, "localhost:", 10) == 0 || strncmp(listen, "[::1]:", 6) == 0;
}

/* BY_ECONFIG for an address that a restart would not make available. */
static by_status cannot_listen(const char *listen, int code, by_error *error)
{
    bool local = strncmp(listen, "unix:", 5) == 0;
    const char *way = code == UV_EADDRINUSE && local
                          ? "end the program that listens there (`ss -lxp` names it), or choose "
                            "another path (--listen)"
                      : code == UV_EADDRINUSE
                          ? "end the program that listens there (`ss -ltnp` names it), or choose "
                            "another address (--listen)"
                      : code == UV_EADDRNOTAVAIL
                          ? "choose an address of this machine (`ip address` lists them)"
                      : code == UV_EACCES ? "choose a port above 1023, or a directory that this "
                                            "user may write to"
                                          : NULL;
    return way == NULL ? by__serve_uv_error(error, "listen on", listen, code)
                       : by_error_set(error, BY_ECONFIG, "cannot listen on %s: %s: %s", listen,
                                      uv_strerror(code), way);
}

static by_status bind_tcp(by__http_server *s, by_error *error)
{
    struct sockaddr_storage address;
    int length = sizeof address;
    char name[INET6_ADDRSTRLEN];
    BY_TRY(by__http_listen_address(&address, s->listen, error));
    int code = uv_tcp_bind(&s->uv.tcp, (struct sockaddr *)&address, 0);
    if (code == 0) {
        code = uv_listen(&s->uv.stream, BACKLOG, by__http_connection_accept);
    }
    if (code == 0) {
        code = uv_tcp_getsockname(&s->uv.tcp, (struct sockaddr *)&address, &length);
    }
    if (code == 0 && !by__http_network_name(name, (struct sockaddr *)&address)) {
        code = UV_EAFNOSUPPORT;
    }
    if (code < 0) {
        return cannot_listen(s->listen, code, error);
    }
    bool six = address.ss_family == AF_INET6;
    by_string url = {0};
    by_string_format(&url, "http://%s%s%s:%d", six ? "[" : "", name, six ? "]" : "",
                     ntohs(six ? ((struct sockaddr_in6 *)&address)->sin6_port
                               : ((struct sockaddr_in *)&address)->sin_port));
    return by__string_release(&url, &s->url, error);
}

static by_status bind_pipe(by__http_server *s, by_error *error)
{
    struct stat info;
    int code = by__serve_socket_lock(&s->lock, s->path);
    if (code < 0) {
        return cannot_listen(s->listen, code, error);
    }
    /* A socket left by a server that was killed; never a regular file. */
    if (lstat(s->path, &info) == 0 && S_ISSOCK(info.st_mode)) {
        (void)unlink(s->path);
    }
    code = uv_pipe_bind(&s->uv.pipe, s->path);
    /* Allows a proxy of the same group whatever the umask is: connecting needs write permission. */
    if (code == 0 && chmod(s->path, 0660) != 0) {
        code = uv_translate_sys_error(errno);
    }
    if (code == 0) {
        code = uv_listen(&s->uv.stream, BACKLOG, by__http_connection_accept);
    }
    if (code < 0) {
        return cannot_listen(s->listen, code, error);
    }
    s->url = by__strdup(s->listen);
    return s->url != NULL ? BY_OK
                          : by_error_set(error, BY_EMEMORY, "out of memory: the server's address");
}

static void set_defaults(by__http_options *o)
{
    o->connections = o->connections > 0 ? o->connections : BY__HTTP_CONNECTIONS;
    o->bodies = o->bodies > 0 ? o->bodies : (size_t)256 << 20;
    o->output = o->output > 0 ? o->output : (size_t)256 << 10;
    o->output_total = o->output_total > 0 ? o->output_total : (size_t)16 << 20;
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
    s->lock = -1;
    s->options = *options;
    set_defaults(&s->options);
    s->listen = by__strdup(options->listen);
    bool local = strncmp(options->listen, "unix:", 5) == 0;
    s->path = local ? by__strdup(options->listen + 5) : NULL;
    if (s->listen == NULL || (local && s->path == NULL)) {
        by__http_server_free(s);
        return by_error_set(error, BY_EMEMORY, "out of memory: a server");
    }
    int code = local ? uv_pipe_init(loop, &s->uv.pipe, 0) : uv_tcp_init(loop, &s->uv.tcp);
    if (code < 0) {
        by__http_server_free(s);
        return by__serve_uv_error(error, "open", "a socket", code);
    }
    s->uv.handle.data = s;
    s->handles = 1;
    (void)uv_timer_init(loop, &s->timer); /* cannot fail */
    (void)uv_prepare_init(loop, &s->before);
    (void)uv_check_init(loop, &s->after);
    s->timer.data = s->before.data = s->after.data = s;
    s->handles += 3;
    by_status status = local ? bind_pipe(s, error) : bind_tcp(s, error);
    if (status != BY_OK) {
        by__http_server_close(&s);
        return status;
    }
    (void)uv_timer_start(&s->timer, on_timeout_check, TIMEOUT_CHECK_MS, TIMEOUT_CHECK_MS);
    (void)uv_prepare_start(&s->before, on_before);
    (void)uv_check_start(&s->after, on_after);
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

by__http_counts by__http_server_counts(const by__http_server *server)
{
    return server->counts;
}

by__http_refusals by__http_server_refusals(const by__http_server *server)
{
    return server->refusals;
}

void by__http_server_drain(by__http_server *server)
{
    by__http_server *s = server;
    if (s->draining) {
        return;
    }
    s->draining = true;
    for (by__http_connection *x = s->first, *next; x != NULL; x = next) {
        next = x->next;
        if (x->stage == BY__READING && x->pending == 0 && x->parser == NULL) {
            by__http_connection_hang_up(x);
        }
    }
}

bool by__http_server_busy(const by__http_server *server)
{
    for (const by__http_connection *x = server->first; x != NULL; x = x->next) {
        if (x->stage == BY__HANDLING || x->stage == BY__STREAMING ||
            (x->stage == BY__READING && x->pending > 0)) {
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
    for (by__http_connection *x = s->first, *next; x != NULL; x = next) {
        next = x->next;
        by__http_connection_hang_up(x);
    }
    /* Removes the path, which belongs to the next process once the lock is released. */
    uv_close(&s->uv.handle, on_handle_closed);
    if (s->lock >= 0) {
        (void)close(s->lock);
    }
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->before, on_handle_closed);
    uv_close((uv_handle_t *)&s->after, on_handle_closed);
}
