/* The thread that notices that a worker hangs: its engine makes no step, or its loop does not turn.
 * It counts its own short waits, not a clock: a machine or a process that was stopped for a while
 * hangs no longer than before. */
#include <stdlib.h>

#include "serve/worker/worker.h"

/* Waits until a worker counts as hanging. */
#define WAITS 20

struct by__hang_watch {
    double seconds;
    void (*hangs)(void *user, double seconds);
    void *user;
    uv_thread_t thread;
    uv_mutex_t lock;
    uv_cond_t changed;
    /* under the lock */
    unsigned waits; /* since the worker last moved */
    bool closing;
};

static void run(void *user)
{
    by__hang_watch *h = user;
    uint64_t wait = (uint64_t)(h->seconds * 1e9 / WAITS);
    uv_mutex_lock(&h->lock);
    while (!h->closing) {
        if (uv_cond_timedwait(&h->changed, &h->lock, wait) == UV_ETIMEDOUT && ++h->waits == WAITS) {
            h->hangs(h->user, h->seconds);
        }
    }
    uv_mutex_unlock(&h->lock);
}

by_status by__hang_watch_open(by__hang_watch **out, double seconds,
                              void (*hangs)(void *user, double seconds), void *user,
                              by_error *error)
{
    by__hang_watch *h = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&h, 1, sizeof *h, "a thread", error));
    h->seconds = seconds;
    h->hangs = hangs;
    h->user = user;
    int code = uv_mutex_init(&h->lock);
    if (code < 0) {
        free(h);
        return by__uv_error(error, "make", "a lock", code);
    }
    code = uv_cond_init(&h->changed);
    if (code == 0) {
        code = uv_thread_create(&h->thread, run, h);
        if (code < 0) {
            uv_cond_destroy(&h->changed);
        }
    }
    if (code < 0) {
        uv_mutex_destroy(&h->lock);
        free(h);
        return by__uv_error(error, "start", "a thread", code);
    }
    *out = h;
    return BY_OK;
}

void by__hang_watch_moved(by__hang_watch *watch)
{
    if (watch != NULL) {
        uv_mutex_lock(&watch->lock);
        watch->waits = 0;
        uv_mutex_unlock(&watch->lock);
    }
}

void by__hang_watch_close(by__hang_watch **watch)
{
    by__hang_watch *h = *watch;
    *watch = NULL;
    if (h == NULL) {
        return;
    }
    uv_mutex_lock(&h->lock);
    h->closing = true;
    uv_cond_signal(&h->changed);
    uv_mutex_unlock(&h->lock);
    (void)uv_thread_join(&h->thread);
    uv_cond_destroy(&h->changed);
    uv_mutex_destroy(&h->lock);
    free(h);
}
