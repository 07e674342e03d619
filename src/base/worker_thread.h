/* A thread that works beside its owner, with the lock and the condition that both wait for.
 *
 * What the two share is guarded by the lock and is the owner's to define; `changed` is notified of
 * every change that the other side may wait for. All signals are blocked in the thread: they are
 * for the program's own threads. Kernels use OpenMP instead; threads that are joined before a call
 * returns are in base/threads.h. */
#ifndef BY_BASE_WORKER_THREAD_H
#define BY_BASE_WORKER_THREAD_H

#include <pthread.h>

#include "base/base.h"

typedef struct by__base_worker {
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* its waits end by the monotonic clock */
    bool is_open;           /* there are lock and condition */
    bool is_running;        /* there is a thread to join */
    bool stop;              /* under the lock: the thread must end as soon as it can */
} by__base_worker;

/* Starts run(user) with signals blocked. name: "the thread of checkpoints", for the error. */
by_status by__thread_create(pthread_t *out, void *(*run)(void *), void *user, const char *name,
                            by_error *error);

/* Makes the lock and the condition, and starts run(user), which takes the lock itself. On failure
 * nothing is left; *w may be closed all the same, as {0} may. */
by_status by__base_worker_start(by__base_worker *w, void *(*run)(void *), void *user,
                                const char *name, by_error *error);
void by__base_worker_lock(by__base_worker *w);
void by__base_worker_unlock(by__base_worker *w);
/* The others are called with the lock held. Waits for a notification, in the second case for at
 * most some seconds; returns false if they have passed. */
void by__base_worker_wait(by__base_worker *w);
bool by__base_worker_wait_seconds(by__base_worker *w, double seconds);
void by__base_worker_notify(by__base_worker *w);
/* Without the lock: sets `stop`, notifies, and joins the thread, unless that was done. */
void by__base_worker_stop(by__base_worker *w);
/* The same, then frees the lock and the condition. */
void by__base_worker_close(by__base_worker *w);

#endif
