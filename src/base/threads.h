/* How many threads there are to use, and threads over one piece of work that are started and joined
 * within a call. Kernels have their own (OpenMP). */
#ifndef BY_BASE_THREADS_H
#define BY_BASE_THREADS_H

#include "base/base.h"

/* Cores, by the number of the first CPU of each. */
#define BY__MOST_CPUS 1024
typedef struct by__cores {
    uint32_t bits[BY__MOST_CPUS / 32];
} by__cores;

/* The cores that this process may use: CPUs that are threads of one core count once. False where
 * the system does not say. */
bool by__cores_usable(by__cores *out);
int by__cores_count(const by__cores *cores);

/* `threads` itself when it is positive, else one for each core that this process may use. */
int by__thread_count(int threads);
/* Calls work(context, i, error) for i in [0, count) at the same time, i = 0 on the calling thread,
 * and returns when all have returned: with the error of the lowest i that failed. */
by_status by__threads_run(size_t count, by_status (*work)(void *context, size_t i, by_error *error),
                          void *context, by_error *error);

#endif
