/* thread: a thread that others give work to, with the lock and the condition for it.
 *
 * Never put here: queues; what a thread does.
 */
#ifndef BY_SERVE_THREAD_H
#define BY_SERVE_THREAD_H

#include <stdbool.h>
#include <uv.h>

#include "base/base.h"

typedef struct by__thread {
    uv_thread_t id;
    uv_mutex_t lock;
    uv_cond_t changed; /* under the lock: there is work, or `closing` */
    bool closing;      /* under the lock: it ends as soon as it can */
} by__thread;

/* Starts run(user). name: "the engine's thread", for the error; then nothing is left to end. */
by_status by__thread_start(by__thread *out, uv_thread_cb run, void *user, const char *name,
                           by_error *error);
/* The calling thread has nothing to compute for some time: its OpenMP helpers end, and its next
 * parallel region makes new ones (tens of microseconds). While there are more helpers than
 * processors, idle or not, GNU OpenMP lets all threads sleep between regions at once instead of
 * waiting awake for the next one: an engine would lose several per cent of its speed. */
void by__thread_release_helpers(void);
/* Tells it to close, waits for its end, and gives back what it had. */
void by__thread_end(by__thread *thread);

#endif
