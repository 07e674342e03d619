/* How many threads to use, and threads that share one piece of work and are joined before the call
 * returns. Kernels use OpenMP instead. */
#ifndef BY_BASE_THREADS_H
#define BY_BASE_THREADS_H

#include "base/base.h"

/* A set of cores; each is identified by its lowest CPU number. */
#define BY__MAX_CPUS 1024
typedef struct by__cores {
    uint32_t bits[BY__MAX_CPUS / 32];
} by__cores;

/* Finds the cores that this process may use; CPUs that are hyperthreads of one core count once.
 * Returns false if the system does not provide this. */
bool by__cores_usable(by__cores *out);
int by__cores_count(const by__cores *cores);

/* Returns `threads` if it is positive, else the number of CPUs that this process may run on. */
int by__thread_count(int threads);
/* Runs work(context, i, error) for i in [0, count) concurrently, i = 0 on the calling thread, and
 * waits for all of them. Returns the error of the lowest i that failed. If the system refuses to
 * start a thread, the calling thread does the work of those that are missing, one after the other.
 */
by_status by__threads_run(size_t count, by_status (*work)(void *context, size_t i, by_error *error),
                          void *context, by_error *error);

#endif
