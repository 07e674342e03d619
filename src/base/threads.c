#include "base/threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct thread_task {
    by_status (*work)(void *context, size_t i, by_error *error);
    void *context;
    size_t index;
    by_status status;
    by_error error;
    pthread_t thread;
} thread_task;

/* Returns the lowest CPU number of the core that `cpu` belongs to, or `cpu` itself if the system
 * does not tell. */
static size_t first_of_core(size_t cpu)
{
    char path[96];
    size_t first = cpu;
    (void)snprintf(path, sizeof path,
                   "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        first = fscanf(file, "%zu", &first) == 1 ? first : cpu;
        (void)fclose(file);
    }
    return first;
}

bool by__cores_usable(by__cores *out)
{
    cpu_set_t usable;
    by__cores cores = {{0}};
    if (sched_getaffinity(0, sizeof usable, &usable) != 0) {
        return false;
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE && cpu < BY__MAX_CPUS; cpu++) {
        size_t first = CPU_ISSET(cpu, &usable) ? first_of_core(cpu) : (size_t)BY__MAX_CPUS;
        if (first < BY__MAX_CPUS) {
            cores.bits[first / 32] |= 1u << first % 32;
        }
    }
    *out = cores;
    return true;
}

int by__cores_count(const by__cores *cores)
{
    int count = 0;
    for (size_t cpu = 0; cpu < BY__MAX_CPUS; cpu++) {
        count += (int)(cores->bits[cpu / 32] >> cpu % 32 & 1u);
    }
    return count;
}

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

static void *thread_main(void *argument)
{
    thread_task *w = argument;
    w->status = w->work(w->context, w->index, &w->error);
    return NULL;
}

by_status by__threads_run(size_t count, by_status (*work)(void *context, size_t i, by_error *error),
                          void *context, by_error *error)
{
    thread_task *workers;
    size_t started = 1;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&workers, count, sizeof *workers, "threads", error));
    for (size_t i = 0; i < count; i++) {
        workers[i].work = work;
        workers[i].context = context;
        workers[i].index = i;
    }
    while (started < count &&
           pthread_create(&workers[started].thread, NULL, thread_main, &workers[started]) == 0) {
        started++;
    }
    (void)thread_main(&workers[0]);
    for (size_t i = started; i < count; i++) {
        (void)thread_main(&workers[i]);
    }
    for (size_t i = 1; i < started; i++) {
        (void)pthread_join(workers[i].thread, NULL);
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = workers[i].status;
        if (status != BY_OK && error != NULL) {
            *error = workers[i].error;
        }
    }
    free(workers);
    return status;
}
