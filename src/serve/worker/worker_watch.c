/* The thread that detects a hanging worker: its engine completes no step, or its loop does not
 * turn. It counts its own short waits instead of reading a clock, so that time in which the machine
 * or the process was stopped does not count. */
#include <stdlib.h>

#include "serve/worker/worker.h"

/* Number of waits after which a worker counts as hanging. */
#define WAITS 20

struct by__worker_hang_watch {
    double seconds;
    void (*hangs)(void *user, double seconds);
    void *user;
    by__serve_thread thread;
    unsigned waits; /* under the lock: waits since the worker last made progress */
};

static void watch_progress(void *user)
{
    by__worker_hang_watch *h = user;
    uint64_t wait = (uint64_t)(h->seconds * 1e9 / WAITS);
    uv_mutex_lock(&h->thread.lock);
    while (!h->thread.closing) {
        if (uv_cond_timedwait(&h->thread.changed, &h->thread.lock, wait) == UV_ETIMEDOUT &&
            ++h->waits == WAITS) {
            h->hangs(h->user, h->seconds);
        }
    }
    uv_mutex_unlock(&h->thread.lock);
}

by_status by__worker_hang_watch_open(by__worker_hang_watch **out, double seconds,
                                     void (*hangs)(void *user, double seconds), void *user,
                                     by_error *error)
{
    by__worker_hang_watch *h = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&h, 1, sizeof *h, "a thread", error));
    h->seconds = seconds;
    h->hangs = hangs;
    h->user = user;
    by_status status = by__serve_thread_start(&h->thread, watch_progress, h, "a thread", error);
    if (status != BY_OK) {
        free(h);
        return status;
    }
    *out = h;
    return BY_OK;
}

void by__worker_hang_watch_moved(by__worker_hang_watch *watch)
{
    if (watch != NULL) {
        uv_mutex_lock(&watch->thread.lock);
        watch->waits = 0;
        uv_mutex_unlock(&watch->thread.lock);
    }
}

void by__worker_hang_watch_close(by__worker_hang_watch **watch)
{
    by__worker_hang_watch *h = *watch;
    *watch = NULL;
    if (h == NULL) {
        return;
    }
    by__serve_thread_end(&h->thread);
    free(h);
}
