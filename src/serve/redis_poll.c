#include "serve/redis_poll.h"

#include <stdlib.h>

typedef struct poller {
    uv_poll_t handle;
    redisAsyncContext *context; /* NULL: it is gone */
    int events;
} poller;

static void on_event(uv_poll_t *handle, int status, int events)
{
    poller *p = handle->data;
    /* A read of a socket in error tells hiredis which. */
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

by_status by__redis_attach(redisAsyncContext *context, uv_loop_t *loop, by_error *error)
{
    poller *p = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a connection to Redis", error));
    int code = uv_poll_init(loop, &p->handle, context->c.fd);
    if (code < 0) {
        free(p);
        return by__uv_error(error, "watch", "a connection to Redis", code);
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
