#include "base/worker_thread.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

by_status by__thread_create(pthread_t *out, void *(*run)(void *), void *user, const char *name,
                            by_error *error)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(out, NULL, run, user);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure == 0
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "cannot start %s: %s", name, strerror(failure));
}

by_status by__base_worker_start(by__base_worker *w, void *(*run)(void *), void *user,
                                const char *name, by_error *error)
{
    pthread_condattr_t monotonic; /* so that adjusting the clock does not affect waits */
    *w = (by__base_worker){.is_open = true, .is_running = true};
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->changed, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    by_status status = by__thread_create(&w->id, run, user, name, error);
    if (status != BY_OK) {
        w->is_running = false;
        by__base_worker_close(w);
    }
    return status;
}

void by__base_worker_lock(by__base_worker *w)
{
    (void)pthread_mutex_lock(&w->lock);
}

void by__base_worker_unlock(by__base_worker *w)
{
    (void)pthread_mutex_unlock(&w->lock);
}

void by__base_worker_wait(by__base_worker *w)
{
    (void)pthread_cond_wait(&w->changed, &w->lock);
}

bool by__base_worker_wait_seconds(by__base_worker *w, double seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + (int64_t)(1e9 * seconds);
    until.tv_sec += (time_t)(nanoseconds / 1000000000);
    until.tv_nsec = (long)(nanoseconds % 1000000000);
    return pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT;
}

void by__base_worker_notify(by__base_worker *w)
{
    (void)pthread_cond_broadcast(&w->changed);
}

void by__base_worker_stop(by__base_worker *w)
{
    if (w->is_running) {
        by__base_worker_lock(w);
        w->stop = true;
        by__base_worker_notify(w);
        by__base_worker_unlock(w);
        (void)pthread_join(w->id, NULL);
        w->is_running = false;
    }
}

void by__base_worker_close(by__base_worker *w)
{
    by__base_worker_stop(w);
    if (w->is_open) {
        (void)pthread_cond_destroy(&w->changed);
        (void)pthread_mutex_destroy(&w->lock);
        w->is_open = false;
    }
}
