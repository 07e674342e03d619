#include "device/cpu/collective_queue.h"

#include <stdlib.h>
#include <string.h>

#include "base/worker_thread.h"

/* Polls of a counter before a thread sleeps: some microseconds. */
#define LOOKS 500

/* A run of a program, shared by both threads. */
typedef struct queued_program {
    by__cpu_two_queues *state;
    const by__device_command_list *list;
    const by__device_context *context;
    bool timed;
} queued_program;

struct by__cpu_collective_queue {
    by__base_worker thread;
    atomic_int sleepers;
    queued_program now;
    atomic_uint_fast64_t given; /* number of jobs given to the thread, and done by it */
    atomic_uint_fast64_t done;
    atomic_bool closed;
    atomic_bool failed; /* a call of the job failed on either thread: the other one stops */
    by_status status;   /* of the thread's part of the job */
    by_error error;
};

static void yield_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wakes a sleeping thread. The condition was stored before the call; both sides store, then load
 * what the other one stores, so at least one of them sees the other. */
static void wake(by__cpu_collective_queue *q)
{
    if (atomic_load(&q->sleepers) > 0) {
        by__base_worker_lock(&q->thread);
        by__base_worker_notify(&q->thread);
        by__base_worker_unlock(&q->thread);
    }
}

/* Waits until *counter is at least `least`, or *stop is set. Returns true in the first case. */
static bool wait_for(by__cpu_collective_queue *q, _Atomic uint64_t *counter, uint64_t least,
                     atomic_bool *stop)
{
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load(counter) >= least) {
            return true;
        }
        if (stop != NULL && atomic_load(stop)) {
            return false;
        }
        yield_core();
    }
    by__base_worker_lock(&q->thread);
    atomic_fetch_add(&q->sleepers, 1);
    while (atomic_load(counter) < least && (stop == NULL || !atomic_load(stop))) {
        by__base_worker_wait(&q->thread);
    }
    atomic_fetch_sub(&q->sleepers, 1);
    by__base_worker_unlock(&q->thread);
    return atomic_load(counter) >= least;
}

static by_status run_call(const queued_program *j, size_t call, by_error *error)
{
    by_status status = j->list->kernels[call]->run(&j->list->calls[call], j->context);
    return status == BY_OK ? BY_OK
                           : by__device_call_failed(j->list, call, j->context, status, error);
}

static void stop_both(by__cpu_collective_queue *q)
{
    atomic_store(&q->failed, true);
    wake(q);
}

/* Runs the part of the collective queue. */
static by_status run_collectives(by__cpu_collective_queue *q, const queued_program *j,
                                 by_error *error)
{
    for (size_t i = 0; i < j->list->command_count; i++) {
        const by__device_command *c = &j->list->commands[i];
        if (c->queue != BY__QUEUE_COLLECTIVE) {
            continue;
        }
        if (c->kind == BY__COMMAND_RECORD) {
            atomic_store(&j->state->reached[c->index], j->state->run);
            wake(q);
        } else if (c->kind == BY__COMMAND_ORDER) {
            if (!wait_for(q, &j->state->reached[c->index], j->state->run, &q->failed)) {
                return BY_OK; /* the error is the other thread's */
            }
        } else {
            j->state->begin[c->index] = j->timed ? by__now() : 0.0;
            BY_TRY(run_call(j, c->index, error));
            j->state->end[c->index] = j->timed ? by__now() : 0.0;
        }
    }
    return BY_OK;
}

static void *serve(void *argument)
{
    by__cpu_collective_queue *q = argument;
    for (uint64_t number = 1; wait_for(q, &q->given, number, &q->closed); number++) {
        queued_program now = q->now;
        q->error = (by_error){0};
        q->status = run_collectives(q, &now, &q->error);
        if (q->status != BY_OK) {
            stop_both(q);
        }
        atomic_store(&q->done, number);
        wake(q);
    }
    return NULL;
}

/* Waits on behalf of the compute queue, and counts the time that it was stalled. */
static bool stand(by__cpu_collective_queue *q, const by__device_context *context,
                  _Atomic uint64_t *counter, uint64_t least, atomic_bool *stop)
{
    if (atomic_load(counter) >= least) {
        return true;
    }
    double began = by__now();
    bool reached = wait_for(q, counter, least, stop);
    if (context->collectives != NULL) {
        context->collectives->wait_seconds += by__now() - began;
    }
    return reached;
}

/* Runs the part of the compute queue. */
static by_status run_compute(by__cpu_collective_queue *q, const queued_program *j,
                             by__device_call_hook *hook, void *user, by_error *error)
{
    for (size_t i = 0; i < j->list->command_count; i++) {
        const by__device_command *c = &j->list->commands[i];
        size_t told = c->kind == BY__COMMAND_CALL    ? c->index
                      : c->kind == BY__COMMAND_ORDER ? c->call
                                                     : SIZE_MAX;
        double begin = hook != NULL ? by__now() : 0.0;
        if (c->queue == BY__QUEUE_COLLECTIVE) {
            continue;
        }
        if (c->kind == BY__COMMAND_RECORD) {
            atomic_store(&j->state->reached[c->index], j->state->run);
            wake(q);
        } else if (c->kind == BY__COMMAND_ORDER) {
            if (!stand(q, j->context, &j->state->reached[c->index], j->state->run, &q->failed)) {
                return BY_OK;
            }
        } else {
            BY_TRY(run_call(j, c->index, error));
        }
        if (hook != NULL && told != SIZE_MAX) {
            hook(user, (int)told, begin, by__now());
        }
    }
    return BY_OK;
}

static void report_collectives(const queued_program *j, by__device_call_hook *hook, void *user)
{
    for (size_t i = 0; i < j->list->command_count; i++) {
        const by__device_command *c = &j->list->commands[i];
        if (c->queue == BY__QUEUE_COLLECTIVE && c->kind == BY__COMMAND_CALL) {
            hook(user, (int)c->index, j->state->begin[c->index], j->state->end[c->index]);
        }
    }
}

by_status by__cpu_collective_queue_run(by__cpu_collective_queue *queue, by__cpu_two_queues *state,
                                       const by__device_command_list *list,
                                       const by__device_context *context,
                                       by__device_call_hook *hook, void *user, by_error *error)
{
    state->run++;
    queued_program now = {state, list, context, hook != NULL};
    uint64_t number = atomic_load(&queue->given) + 1;
    queue->now = now;
    atomic_store(&queue->failed, false);
    atomic_store(&queue->given, number);
    wake(queue);
    by_status status = run_compute(queue, &now, hook, user, error);
    if (status != BY_OK) {
        /* A collective in progress may wait for other ranks, which may wait for this one. */
        (void)by__device_report(context->device, status, error);
        stop_both(queue);
    }
    (void)stand(queue, context, &queue->done, number, NULL);
    if (status == BY_OK && queue->status != BY_OK) {
        return by_error_set(error, queue->status, "%s", queue->error.message);
    }
    if (status == BY_OK && hook != NULL) {
        report_collectives(&now, hook, user);
    }
    return status;
}

/* ---- opening and closing ---- */

bool by__cpu_uses_two_queues(const by__device_command_list *list)
{
    for (size_t i = 0; i < list->command_count; i++) {
        if (list->commands[i].queue == BY__QUEUE_COLLECTIVE) {
            return true;
        }
    }
    return false;
}

by_status by__cpu_two_queues_open(by__cpu_two_queues *out, const by__device_command_list *list,
                                  by_error *error)
{
    by__cpu_two_queues state = {0};
    by_status status = by__alloc((void **)&state.reached, list->event_count, sizeof *state.reached,
                                 "program", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&state.begin, list->call_count, sizeof *state.begin, "program",
                           error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&state.end, list->call_count, sizeof *state.end, "program", error);
    }
    if (status != BY_OK) {
        by__cpu_two_queues_close(&state);
        return status;
    }
    *out = state;
    return BY_OK;
}

void by__cpu_two_queues_close(by__cpu_two_queues *state)
{
    free((void *)state->reached);
    free(state->begin);
    free(state->end);
    *state = (by__cpu_two_queues){0};
}

by_status by__cpu_collective_queue_open(by__cpu_collective_queue **out, by_error *error)
{
    by__cpu_collective_queue *q;
    BY_TRY(by__alloc((void **)&q, 1, sizeof *q, "collective queue", error));
    by_status status =
        by__base_worker_start(&q->thread, serve, q, "the thread of the collective queue", error);
    if (status != BY_OK) {
        free(q);
        return status;
    }
    *out = q;
    return BY_OK;
}

void by__cpu_collective_queue_close(by__cpu_collective_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    atomic_store(&queue->closed, true);
    by__base_worker_close(&queue->thread);
    free(queue);
}
