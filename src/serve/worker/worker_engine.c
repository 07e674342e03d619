/* The engine's thread, the only one that calls the engine. Its input and output are two lists under
 * one lock, which is held only briefly and never during a step. */
#include <stdlib.h>
#include <string.h>

#include "serve/worker/worker.h"

typedef struct engine_order {
    by__worker_job *job;
    bool cancels;
} engine_order;

struct by__worker_engine_thread {
    by_engine *engine;
    uv_async_t *wake;
    by__serve_thread thread;
    /* Under its lock: */
    engine_order *orders;
    size_t order_count;
    size_t order_capacity;
    by__worker_out *outs;
    size_t out_count;
    size_t out_capacity;
    by_engine_statistics statistics;
    by_error failure; /* error of the engine */
    bool busy;
    /* Used by the thread only: */
    engine_order *received;
    size_t received_capacity;
    by__worker_job *live;    /* submitted and not ended */
    by__worker_job *waiting; /* waiting for room in the engine, in order */
    /* Used by the loop only: */
    by__worker_out *read;
    size_t read_capacity;
};

/* ---- the thread ---- */

static void put(by__worker_engine_thread *t, const by__worker_out *out)
{
    by_error ignored = {0};
    uv_mutex_lock(&t->thread.lock);
    if (by__reserve((void **)&t->outs, &t->out_capacity, t->out_count + 1, sizeof *t->outs,
                    &ignored) == BY_OK) {
        t->outs[t->out_count++] = *out;
    } else {
        t->failure = ignored; /* a lost event is a lost answer */
    }
    uv_mutex_unlock(&t->thread.lock);
}

/* BY_ESTATE: the engine has no room now. */
static by_status submit(by__worker_engine_thread *t, by__worker_job *job)
{
    by__worker_generation *g = job->generation;
    by__worker_out out = {.job = job};
    by_status status = by_engine_submit(t->engine, &g->request, &g->session, &out.error);
    if (status == BY_ESTATE) {
        return status;
    }
    out.kind = status == BY_OK ? BY__OUT_BEGUN : BY__OUT_REFUSED;
    if (status == BY_OK) {
        job->next = t->live;
        t->live = job;
    }
    put(t, &out);
    if (status != BY_OK) {
        put(t, &(by__worker_out){.job = job, .kind = BY__OUT_LAST});
    }
    return status;
}

static void submit_waiting(by__worker_engine_thread *t)
{
    while (t->waiting != NULL) {
        by__worker_job *job = by__worker_jobs_remove(&t->waiting);
        if (submit(t, job) == BY_ESTATE) {
            job->next = t->waiting;
            t->waiting = job;
            return;
        }
    }
}

static void carry_out(by__worker_engine_thread *t, const engine_order *o)
{
    by_error ignored = {0};
    if (!o->cancels) {
        by__worker_jobs_append(&t->waiting, o->job);
        return;
    }
    if (by__worker_jobs_remove(by__worker_jobs_find(&t->waiting, o->job)) != NULL) {
        put(t, &(by__worker_out){.job = o->job, .kind = BY__OUT_LAST});
    } else if (*by__worker_jobs_find(&t->live, o->job) != NULL) {
        /* The next step reports its end. */
        (void)by_engine_cancel(t->engine, o->job->generation->session, &ignored);
    }
}

static void put_event(by__worker_engine_thread *t, const by_event *event)
{
    by__worker_job **at = &t->live;
    while (*at != NULL && (*at)->generation->session != event->session) {
        at = &(*at)->next;
    }
    by__worker_job *job = *at;
    by__worker_out out = {.job = job, .kind = BY__OUT_TOKEN, .event = *event};
    if (job == NULL) {
        return;
    }
    for (int32_t i = 0; i < event->top_count; i++) {
        out.top[i] = event->top[i];
    }
    if (event->finish == BY_FINISH_FAILED) {
        (void)by_error_set(&out.error, event->status, "%s", event->failure);
    }
    put(t, &out);
    if (event->finish != BY_FINISH_NONE && --job->generation->open == 0) {
        (void)by__worker_jobs_remove(at);
        put(t, &(by__worker_out){.job = job, .kind = BY__OUT_LAST});
    }
}

/* Receives orders; waits for one if there is nothing to do. Returns false if the thread must
 * end. */
static bool receive_orders(by__worker_engine_thread *t, size_t *count)
{
    by_error ignored = {0};
    uv_mutex_lock(&t->thread.lock);
    t->statistics = by_engine_statistics_now(t->engine);
    t->busy = t->live != NULL || t->waiting != NULL || t->order_count > 0;
    while (!t->thread.closing && t->order_count == 0 && t->live == NULL && t->waiting == NULL) {
        uv_cond_wait(&t->thread.changed, &t->thread.lock);
    }
    t->busy = true;
    *count = 0;
    if (by__reserve((void **)&t->received, &t->received_capacity, t->order_count,
                    sizeof *t->received, &ignored) == BY_OK &&
        t->order_count > 0) {
        memcpy(t->received, t->orders, t->order_count * sizeof *t->orders);
        *count = t->order_count;
        t->order_count = 0;
    }
    bool goes_on = !t->thread.closing && t->failure.status == BY_OK;
    uv_mutex_unlock(&t->thread.lock);
    return goes_on;
}

static void run_steps(void *user)
{
    by__worker_engine_thread *t = user;
    size_t count;
    while (receive_orders(t, &count)) {
        const by_event *events;
        size_t event_count = 0;
        by_error error = {0};
        for (size_t i = 0; i < count; i++) {
            carry_out(t, &t->received[i]);
        }
        submit_waiting(t);
        by_status status = by_engine_busy(t->engine)
                               ? by_engine_step(t->engine, &events, &event_count, &error)
                               : BY_OK;
        for (size_t i = 0; i < event_count && status == BY_OK; i++) {
            put_event(t, &events[i]);
        }
        if (status != BY_OK) {
            uv_mutex_lock(&t->thread.lock);
            t->failure = error;
            uv_mutex_unlock(&t->thread.lock);
        }
        (void)uv_async_send(t->wake);
    }
}

/* ---- the loop's side ---- */

static by_status send_order(by__worker_engine_thread *t, engine_order o, by_error *error)
{
    uv_mutex_lock(&t->thread.lock);
    by_status status = by__reserve((void **)&t->orders, &t->order_capacity, t->order_count + 1,
                                   sizeof *t->orders, error);
    if (status == BY_OK) {
        t->orders[t->order_count++] = o;
        uv_cond_signal(&t->thread.changed);
    }
    uv_mutex_unlock(&t->thread.lock);
    return status;
}

by_status by__worker_engine_submit(by__worker_engine_thread *thread, by__worker_job *job,
                                   by_error *error)
{
    return send_order(thread, (engine_order){job, false}, error);
}

void by__worker_engine_cancel(by__worker_engine_thread *thread, by__worker_job *job)
{
    by_error ignored = {0};
    /* If memory is exhausted the job runs to its end; its output is ignored. */
    (void)send_order(thread, (engine_order){job, true}, &ignored);
}

void by__worker_engine_outs(by__worker_engine_thread *thread, const by__worker_out **outs,
                            size_t *count)
{
    by__worker_engine_thread *t = thread;
    *count = 0;
    if (t == NULL) {
        return;
    }
    uv_mutex_lock(&t->thread.lock);
    by__worker_out *full = t->outs;
    size_t capacity = t->out_capacity;
    *count = t->out_count;
    t->outs = t->read;
    t->out_capacity = t->read_capacity;
    t->out_count = 0;
    uv_mutex_unlock(&t->thread.lock);
    t->read = full;
    t->read_capacity = capacity;
    *outs = full;
}

by_status by__worker_engine_state(by__worker_engine_thread *thread,
                                  by_engine_statistics *statistics, bool *busy, by_error *error)
{
    *statistics = (by_engine_statistics){0};
    *busy = false;
    if (thread == NULL) {
        return BY_OK;
    }
    uv_mutex_lock(&thread->thread.lock);
    *statistics = thread->statistics;
    *busy = thread->busy;
    by_error failure = thread->failure;
    uv_mutex_unlock(&thread->thread.lock);
    if (failure.status != BY_OK && error != NULL) {
        *error = failure;
    }
    return failure.status;
}

static void release(by__worker_engine_thread *t)
{
    free(t->orders);
    free(t->outs);
    free(t->received);
    free(t->read);
    free(t);
}

by_status by__worker_engine_thread_open(by__worker_engine_thread **out, by_engine *engine,
                                        uv_async_t *wake, by_error *error)
{
    by__worker_engine_thread *t = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a thread", error));
    t->engine = engine;
    t->wake = wake;
    by_status status =
        by__serve_thread_start(&t->thread, run_steps, t, "the engine's thread", error);
    if (status != BY_OK) {
        release(t);
        return status;
    }
    *out = t;
    return BY_OK;
}

void by__worker_engine_thread_close(by__worker_engine_thread **thread)
{
    by__worker_engine_thread *t = *thread;
    if (t == NULL) {
        return;
    }
    *thread = NULL;
    by__serve_thread_end(&t->thread);
    release(t);
}
