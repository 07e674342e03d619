/* What a worker's loop does with the output of the threads: passes prepared jobs to the engine or
 * the batcher, and their tokens and results to the broker. */
#include <stdlib.h>

#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

static void on_due(uv_timer_t *timer);

static void drop_job(by__worker *w, by__worker_job *job)
{
    for (size_t i = 0; i < w->job_count; i++) {
        if (w->jobs[i] == job) {
            w->jobs[i] = w->jobs[--w->job_count];
            by__worker_job_free(job);
            return;
        }
    }
}

void by__worker_finish_leaving(by__worker *w)
{
    size_t preparing;
    uint64_t prepared;
    by__worker_preparer_count(w->preparer, &preparing, &prepared);
    if (w->leaving && w->job_count == 0 && preparing == 0 &&
        by__worker_batcher_statistics(w->batcher).jobs == 0 &&
        by__link_broker_unsent(&w->broker) == 0) {
        uv_stop(&w->loop);
    }
}

/* Passes jobs that are due to the engine, in order, and schedules the next. */
static void submit_due(by__worker *w)
{
    double now = by__now();
    size_t i = 0;
    while (i < w->job_count) {
        by__worker_job *job = w->jobs[i];
        by_error error = {0};
        if (!job->generation->delayed || job->generation->due > now) {
            i++;
            continue;
        }
        job->generation->delayed = false;
        if (job->cancelled) {
            drop_job(w, job);
        } else if (by__worker_engine_submit(w->thread, job, &error) != BY_OK) {
            by__worker_fail(w, job, 503, "out_of_memory", error.message);
            drop_job(w, job);
        } else {
            i++;
        }
    }
    double first = 0.0;
    for (i = 0; i < w->job_count; i++) {
        const by__worker_generation *g = w->jobs[i]->generation;
        first = g->delayed && (first == 0.0 || g->due < first) ? g->due : first;
    }
    if (first > 0.0) {
        (void)uv_timer_start(&w->due, on_due, (uint64_t)((first - now) * 1000.0) + 1, 0);
    }
    by__worker_flush(w);
    by__worker_finish_leaving(w);
}

static void on_due(uv_timer_t *timer)
{
    submit_due(timer->data);
}

/* Delays a job until max_rate allows it. */
static void delay(by__worker *w, by__worker_job *job)
{
    double now = by__now();
    w->next_due = w->next_due > now ? w->next_due : now;
    job->generation->due = w->next_due;
    job->generation->delayed = true;
    w->next_due += 1.0 / w->options.max_rate;
}

/* Passes a prepared job to the engine, now or when it is due. */
static by_status submit_prepared(by__worker *w, by__worker_job *job, by_error *error)
{
    BY_TRY(by__reserve((void **)&w->jobs, &w->job_capacity, w->job_count + 1,
                       sizeof(by__worker_job *), error));
    if (w->options.max_rate > 0.0) {
        delay(w, job);
    } else {
        BY_TRY(by__worker_engine_submit(w->thread, job, error));
    }
    w->jobs[w->job_count++] = job;
    by__telemetry_served_drift_tokens(w->model.drift, job->generation->request.prompt,
                                      job->generation->request.prompt_count);
    return BY_OK;
}

/* Passes prepared jobs to the engine or the batcher. */
static void submit_all_prepared(by__worker *w)
{
    by__worker_job *job;
    while ((job = by__worker_preparer_next(w->preparer)) != NULL) {
        bool accepted = job->status == BY_OK && !job->cancelled;
        if (accepted && job->generation == NULL) {
            job->rows =
                json_incref(json_object_get(json_object_get(job->message, "request"), "rows"));
        }
        json_decref(job->message);
        job->message = NULL;
        if (accepted && job->generation == NULL) {
            by__worker_batcher_submit(w->batcher, job);
            continue;
        }
        if (accepted) {
            job->status = submit_prepared(w, job, &job->error);
        }
        if (job->status != BY_OK && !job->cancelled) {
            by__worker_refuse(w, job->id, job->attempt, job->code, job->param, &job->error);
        }
        if (job->status != BY_OK || job->cancelled) {
            by__worker_job_free(job);
        }
    }
    if (w->options.max_rate > 0.0) {
        submit_due(w);
    }
}

static void send_all_results(by__worker *w)
{
    by__worker_job *job;
    while ((job = by__worker_batcher_next(w->batcher)) != NULL) {
        by__worker_send_results(w, job);
        if (job->status == BY_OK && !job->cancelled && !job->late) {
            by__telemetry_served_drift_answer(w->model.drift, job->rows, job->results);
        }
        by__worker_job_free(job);
    }
}

void by__worker_on_wake(uv_async_t *async)
{
    by__worker *w = async->data;
    const by__worker_out *outs;
    size_t count;
    by_engine_statistics statistics;
    bool busy;
    submit_all_prepared(w);
    send_all_results(w);
    by__worker_engine_outs(w->thread, &outs, &count);
    for (size_t i = 0; i < count; i++) {
        by__worker_job *job = outs[i].job;
        switch (outs[i].kind) {
        case BY__OUT_BEGUN: {
            job->generation->accepted = by__now();
            json_t *event = by__protocol_event_new(job->id, "begin");
            (void)json_object_set_new(
                event, "prompt_tokens",
                json_integer((json_int_t)job->generation->request.prompt_count));
            (void)json_object_set_new(event, "version", json_string(w->version));
            (void)json_object_set_new(event, "run", json_string(w->run));
            by__worker_add_event(w, job, event);
            break;
        }
        case BY__OUT_TOKEN:
            by__worker_handle_token(w, job, &outs[i]);
            break;
        case BY__OUT_REFUSED:
            by__worker_fail(w, job, 400, "invalid_request", outs[i].error.message);
            break;
        case BY__OUT_LAST:
            drop_job(w, job);
            break;
        }
    }
    by__worker_flush(w);
    if (by__worker_engine_state(w->thread, &statistics, &busy, &w->failure) != BY_OK) {
        uv_stop(&w->loop);
    }
    by__worker_finish_leaving(w);
}
