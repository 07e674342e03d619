#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef struct worker {
    by_status (*work)(void *context, size_t i, by_error *error);
    void *context;
    size_t index;
    by_status status;
    by_error error;
    pthread_t thread;
} worker;

int by__thread_count(int threads)
{
    cpu_set_t set;
    if (threads >= 1) {
        return threads;
    }
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) < 1) {
        return 1;
    }
    return CPU_COUNT(&set);
}

static void *run(void *argument)
{
    worker *w = argument;
    w->status = w->work(w->context, w->index, &w->error);
    return NULL;
}

by_status by__threads_run(size_t count, by_status (*work)(void *context, size_t i, by_error *error),
                          void *context, by_error *error)
{
    worker *workers;
    size_t started = 1;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&workers, count, sizeof *workers, "threads", error));
    for (size_t i = 0; i < count; i++) {
        workers[i].work = work;
        workers[i].context = context;
        workers[i].index = i;
    }
    /* Fewer threads than asked for do the same work, only later. */
    while (started < count &&
           pthread_create(&workers[started].thread, NULL, run, &workers[started]) == 0) {
        started++;
    }
    (void)run(&workers[0]);
    for (size_t i = 1; i < started; i++) {
        (void)pthread_join(workers[i].thread, NULL);
    }
    for (size_t i = 0; i < started && status == BY_OK; i++) {
        status = workers[i].status;
        if (status != BY_OK && error != NULL) {
            *error = workers[i].error;
        }
    }
    free(workers);
    return status;
}
