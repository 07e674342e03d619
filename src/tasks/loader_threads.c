/* How many threads a loader gets. */
#include "base/threads.h"
#include "tasks/tasks.h"

/* The most that is chosen for data.threads: more would mostly sleep. */
#define LOADER_THREADS 16

size_t by__task_loader_threads(const by_config *config)
{
    if (config->data.threads > 0) {
        return (size_t)config->data.threads;
    }
    int left = by__thread_count(0) - by__thread_count((int)config->train.threads);
    return left < 1 ? 1 : left > LOADER_THREADS ? LOADER_THREADS : (size_t)left;
}
