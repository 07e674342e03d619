#include "serve/link/redis/redis_poll.h"

#include <stdlib.h>

typedef struct poller {
    uv_poll_t handle;
    redisAsyncContext *context; /* NULL: freed */
    int events;
} poller;

static void on_event(uv_poll_t *handle, int status, int events)
{
    poller *p = handle->data;
    /* Reading from a socket in error lets hiredis find the error. */
    if (p->context != NULL && (status != 0 || (events & UV_READABLE) != 0)) {
        redisAsyncHandleRead(p->context);
    }
    if (p->context != NULL && status == 0 && (events & UV_WRITABLE) != 0) {
        redisAsyncHandleWrite(p->context);
    }
}

static void watch(poller *p, int events)
{
    p->events = events;
    if (events != 0) {
        (void)uv_poll_start(&p->handle, events, on_event);
    } else {
        (void)uv_poll_stop(&p->handle);
    }
}

static void add_read(void *user)
{
    watch(user, ((poller *)user)->events | UV_READABLE);
}

static void remove_read(void *user)
{
    watch(user, ((poller *)user)->events & ~UV_READABLE);
}

static void add_write(void *user)
{
    watch(user, ((poller *)user)->events | UV_WRITABLE);
}

static void remove_write(void *user)
{
    watch(user, ((poller *)user)->events & ~UV_WRITABLE);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void end(void *user)
{
    poller *p = user;
    p->context = NULL;
    uv_close((uv_handle_t *)&p->handle, on_closed);
}

/* The loop frees the handle after hiredis has freed the context. */
static by_status attach(redisAsyncContext *context, uv_loop_t *loop, by_error *error)
{
    poller *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a connection to Redis", error));
    int code = uv_poll_init(loop, &p->handle, context->c.fd);
    if (code < 0) {
        free(p);
        return by__serve_uv_error(error, "watch", "a connection to Redis", code);
    }
    p->handle.data = p;
    p->context = context;
    context->ev.data = p;
    context->ev.addRead = add_read;
    context->ev.delRead = remove_read;
    context->ev.addWrite = add_write;
    context->ev.delWrite = remove_write;
    context->ev.cleanup = end;
    return BY_OK;
}

static by_status connect_to(redisAsyncContext **out, uv_loop_t *loop, const char *host, int port,
                            by_error *error)
{
    by_error why = {0};
    redisAsyncContext *c = redisAsyncConnect(host, port);
    if (c == NULL || c->err != 0 || attach(c, loop, &why) != BY_OK) {
        (void)by_error_set(error, BY_EIO, "cannot reach Redis: %.200s",
                           c == NULL     ? "out of memory"
                           : c->err != 0 ? c->errstr
                                         : why.message);
        if (c != NULL) {
            redisAsyncFree(c);
        }
        return BY_EIO;
    }
    *out = c;
    return BY_OK;
}

by_status by__redis_connect(redisAsyncContext **out, uv_loop_t *loop,
                            const by__link_redis_address *address, const struct addrinfo *list,
                            redisCallbackFn *login, void *user, by_error *error)
{
    const by__link_redis_address *a = address;
    char host[INET6_ADDRSTRLEN] = "";
    redisAsyncContext *c = NULL;
    const void *at = list->ai_addr;
    int code = list->ai_family == AF_INET6 ? uv_ip6_name(at, host, sizeof host)
                                           : uv_ip4_name(at, host, sizeof host);
    if (code < 0) {
        return by_error_set(error, BY_EIO, "cannot find Redis' host %.200s: %s", a->host,
                            uv_strerror(code));
    }
    BY_TRY(connect_to(&c, loop, host, a->port, error));
    c->data = user;
    (void)redisEnableKeepAlive(&c->c);
    if (a->password[0] != '\0' && a->user[0] != '\0') {
        (void)redisAsyncCommand(c, login, user, "AUTH %s %s", a->user, a->password);
    } else if (a->password[0] != '\0') {
        (void)redisAsyncCommand(c, login, user, "AUTH %s", a->password);
    }
    if (a->database != 0) {
        (void)redisAsyncCommand(c, login, user, "SELECT %d", a->database);
    }
    *out = c;
    return BY_OK;
}
