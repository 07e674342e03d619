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
/* Tells it to close, waits for its end, and gives back what it had. */
void by__thread_end(by__thread *thread);

#endif
