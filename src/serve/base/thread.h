/* thread: a thread that others give work to, with the lock and the condition variable for it.
 *
 * Never put here: queues; the work of a particular thread.
 */
#ifndef BY_SERVE_BASE_THREAD_H
#define BY_SERVE_BASE_THREAD_H

#include <stdbool.h>
#include <uv.h>

#include "base/base.h"

typedef struct by__serve_thread {
    uv_thread_t id;
    uv_mutex_t lock;
    uv_cond_t changed; /* under the lock: there is work, or `closing` */
    bool closing;      /* under the lock: the thread must end as soon as it can */
} by__serve_thread;

/* Starts run(user). name: "the engine's thread", for the error; on failure there is nothing to
 * end. */
by_status by__serve_thread_start(by__serve_thread *out, uv_thread_cb run, void *user,
                                 const char *name, by_error *error);
/* Called by a thread that will not compute for some time: ends its OpenMP helper threads; its next
 * parallel region creates new ones (tens of microseconds). While there are more helpers than
 * processors, idle or not, GNU OpenMP lets all threads sleep between regions at once instead of
 * spinning for the next one, and an engine would lose several per cent of its speed. */
void by__serve_thread_release_helpers(void);
/* Tells the thread to close, joins it, and frees its resources. */
void by__serve_thread_end(by__serve_thread *thread);

#endif
