/* The thread that runs examples of many requests in batches: it starts a batch when it is full, or
 * when its first example has waited long enough for others. */
#include <stdlib.h>
#include <string.h>

#include "serve/worker/worker.h"

/* Nanoseconds without a job after which it releases its OpenMP helpers. */
#define IDLE_NS 500000000

struct by__worker_batcher {
    by__worker_batch_options options;
    uv_async_t *wake;
    by__serve_thread thread;
    /* Under its lock: */
    by__worker_job *waiting; /* jobs with examples in no batch yet, in turn */
    by__worker_job *running; /* the other unfinished jobs */
    by__worker_job *done;    /* oldest first */
    size_t count;            /* number of jobs in the first two lists */
    uint64_t batches;
    uint64_t examples;
    /* Used by the thread only: */
    by__worker_batch_place *places;
};

/* ---- the thread ---- */

/* Ends a job that has no example in a running batch. */
static void end_waiting(by__worker_batcher *b, by__worker_job *job)
{
    (void)by__worker_jobs_remove(by__worker_jobs_find(&b->waiting, job));
    by__worker_jobs_append(&b->done, job);
    b->count--;
}

/* Takes one example of each job in turn, so that a short job does not wait for the end of a long
 * one. Jobs past their deadline before their first example, and cancelled ones, are done at once.
 * Called between batches. */
static size_t fill_batch(by__worker_batcher *b)
{
    double now = by__now();
    size_t count = 0;
    while (b->waiting != NULL && count < b->options.most) {
        by__worker_job *job = b->waiting;
        bool late = job->batched == 0 && job->deadline > 0.0 && now > job->deadline;
        if (job->cancelled || late) {
            job->late = late;
            end_waiting(b, job);
            continue;
        }
        (void)by__worker_jobs_remove(&b->waiting);
        b->places[count++] = (by__worker_batch_place){job, job->batched++};
        by__worker_jobs_append(job->batched == job->count ? &b->running : &b->waiting, job);
    }
    return count;
}

static size_t count_waiting(const by__worker_batcher *b)
{
    size_t count = 0;
    for (const by__worker_job *job = b->waiting; job != NULL && count < b->options.most;
         job = job->next) {
        count += job->count - job->batched;
    }
    return count;
}

/* Waits for a job. The OpenMP helpers are kept between jobs that follow closely. */
static void await_job(by__worker_batcher *b)
{
    bool released = false;
    while (!b->thread.closing && b->waiting == NULL) {
        if (released) {
            uv_cond_wait(&b->thread.changed, &b->thread.lock);
        } else if (uv_cond_timedwait(&b->thread.changed, &b->thread.lock, IDLE_NS) ==
                   UV_ETIMEDOUT) {
            by__serve_thread_release_helpers();
            released = true;
        }
    }
}

/* Waits until a batch is due. Returns false if the thread must end. */
static bool await_batch(by__worker_batcher *b)
{
    for (;;) {
        await_job(b);
        if (b->thread.closing) {
            return false;
        }
        double left = b->waiting->since + b->options.delay - by__now();
        if (left <= 0.0 || count_waiting(b) >= b->options.most) {
            return true;
        }
        (void)uv_cond_timedwait(&b->thread.changed, &b->thread.lock, (uint64_t)(left * 1e9));
    }
}

/* Finishes the jobs whose last example was in the batch. */
static void count_done(by__worker_batcher *b, size_t count, by_status status, const by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        by__worker_job *job = b->places[i].job;
        if (status != BY_OK && job->status == BY_OK) {
            job->status = status;
            job->error = *error;
        }
        if (++job->ended == job->count) {
            (void)by__worker_jobs_remove(by__worker_jobs_find(&b->running, job));
            by__worker_jobs_append(&b->done, job);
            b->count--;
        }
    }
    b->batches++;
    b->examples += count;
}

static void run_batches(void *user)
{
    by__worker_batcher *b = user;
    uv_mutex_lock(&b->thread.lock);
    while (await_batch(b)) {
        size_t count = fill_batch(b);
        by_error error = {0};
        uv_mutex_unlock(&b->thread.lock);
        by_status status =
            count == 0 ? BY_OK : b->options.compute(b->options.user, b->places, count, &error);
        uv_mutex_lock(&b->thread.lock);
        count_done(b, count, status, &error);
        (void)uv_async_send(b->wake);
    }
    uv_mutex_unlock(&b->thread.lock);
}

/* ---- the loop's side ---- */

by_status by__worker_batcher_open(by__worker_batcher **out, const by__worker_batch_options *options,
                                  uv_async_t *wake, by_error *error)
{
    by__worker_batcher *b = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&b, 1, sizeof *b, "a thread", error));
    b->options = *options;
    b->wake = wake;
    by_status status =
        by__alloc((void **)&b->places, options->most, sizeof *b->places, "a batch", error);
    if (status == BY_OK) {
        status = by__serve_thread_start(&b->thread, run_batches, b, "the thread that runs batches",
                                        error);
    }
    if (status != BY_OK) {
        free(b->places);
        free(b);
        return status;
    }
    *out = b;
    return BY_OK;
}

void by__worker_batcher_close(by__worker_batcher **batcher)
{
    by__worker_batcher *b = *batcher;
    if (b == NULL) {
        return;
    }
    *batcher = NULL;
    by__serve_thread_end(&b->thread);
    by__worker_jobs_free(b->waiting);
    by__worker_jobs_free(b->running);
    by__worker_jobs_free(b->done);
    free(b->places);
    free(b);
}

void by__worker_batcher_submit(by__worker_batcher *b, by__worker_job *job)
{
    uv_mutex_lock(&b->thread.lock);
    job->since = by__now();
    by__worker_jobs_append(&b->waiting, job);
    b->count++;
    uv_cond_signal(&b->thread.changed);
    uv_mutex_unlock(&b->thread.lock);
}

static void mark(by__worker_job *list, const char *id)
{
    for (; list != NULL; list = list->next) {
        list->cancelled = list->cancelled || id == NULL || strcmp(list->id, id) == 0;
    }
}

void by__worker_batcher_cancel(by__worker_batcher *b, const char *id)
{
    uv_mutex_lock(&b->thread.lock);
    mark(b->waiting, id);
    mark(b->running, id);
    mark(b->done, id);
    uv_mutex_unlock(&b->thread.lock);
}

by__worker_job *by__worker_batcher_next(by__worker_batcher *b)
{
    uv_mutex_lock(&b->thread.lock);
    by__worker_job *job = by__worker_jobs_remove(&b->done);
    uv_mutex_unlock(&b->thread.lock);
    return job;
}

by__worker_batch_statistics by__worker_batcher_statistics(by__worker_batcher *b)
{
    uv_mutex_lock(&b->thread.lock);
    by__worker_batch_statistics s = {
        .jobs = b->count + (b->done != NULL), .batches = b->batches, .examples = b->examples};
    uv_mutex_unlock(&b->thread.lock);
    return s;
}
