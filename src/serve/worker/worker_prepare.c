/* The thread that parses requests: it renders conversations, encodes prompts and compiles
 * constraints, which may take seconds, while the loop keeps beating and delivering tokens. */
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

struct by__worker_preparer {
    by__worker_prepare *prepare;
    void *user;
    size_t most;
    uv_async_t *wake;
    by__serve_thread thread;
    /* Under its lock: */
    by__worker_job *queued; /* queued requests, oldest first */
    by__worker_job *current;
    by__worker_job *done; /* oldest first */
    size_t count;         /* number of all of them */
    uint64_t ended;
    bool smallest; /* the last one was the smallest, not the oldest */
};

/* Images count by what they become. */
static size_t size_of(const by__worker_job *job)
{
    return job->bytes > job->rest ? job->bytes : job->rest;
}

/* The link to the next request: in turn the oldest and the smallest, so that a few large ones do
 * not hold up all others. */
static by__worker_job **choose_next(by__worker_preparer *p)
{
    by__worker_job **best = &p->queued;
    p->smallest = !p->smallest;
    for (by__worker_job **at = &p->queued; *at != NULL && p->smallest; at = &(*at)->next) {
        best = size_of(*at) < size_of(*best) ? at : best;
    }
    return best;
}

/* ---- the thread ---- */

static void prepare_jobs(void *user)
{
    by__worker_preparer *p = user;
    uv_mutex_lock(&p->thread.lock);
    for (;;) {
        while (!p->thread.closing && p->queued == NULL) {
            uv_cond_wait(&p->thread.changed, &p->thread.lock);
        }
        if (p->thread.closing) {
            break;
        }
        by__worker_job *job = p->current = by__worker_jobs_remove(choose_next(p));
        uv_mutex_unlock(&p->thread.lock);
        job->status = p->prepare(p->user, job, &job->error);
        uv_mutex_lock(&p->thread.lock);
        p->current = NULL;
        p->ended++;
        bool more = job->status == BY_OK && job->more && !job->cancelled;
        by__worker_jobs_append(more ? &p->queued : &p->done, job);
        (void)uv_async_send(p->wake);
    }
    uv_mutex_unlock(&p->thread.lock);
}

/* ---- the loop's side ---- */

by_status by__worker_preparer_open(by__worker_preparer **out, size_t most,
                                   by__worker_prepare *prepare, void *user, uv_async_t *wake,
                                   by_error *error)
{
    by__worker_preparer *p = NULL;
    *out = NULL;
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "a thread", error));
    p->prepare = prepare;
    p->user = user;
    p->most = most;
    p->wake = wake;
    by_status status = by__serve_thread_start(&p->thread, prepare_jobs, p,
                                              "the thread that prepares requests", error);
    if (status != BY_OK) {
        free(p);
        return status;
    }
    *out = p;
    return BY_OK;
}

void by__worker_preparer_close(by__worker_preparer **preparer)
{
    by__worker_preparer *p = *preparer;
    if (p == NULL) {
        return;
    }
    *preparer = NULL;
    by__serve_thread_end(&p->thread);
    by__worker_jobs_free(p->queued);
    by__worker_jobs_free(p->done);
    free(p);
}

by_status by__worker_preparer_submit(by__worker_preparer *p, by__worker_job *job, by_error *error)
{
    uv_mutex_lock(&p->thread.lock);
    bool full = p->count >= p->most;
    if (!full) {
        by__worker_jobs_append(&p->queued, job);
        p->count++;
        uv_cond_signal(&p->thread.changed);
    }
    uv_mutex_unlock(&p->thread.lock);
    return full ? by_error_set(error, BY_ESTATE, "%zu requests are being read; try again later",
                               p->most)
                : BY_OK;
}

static bool matches(const by__worker_job *job, const char *id)
{
    return id == NULL || strcmp(job->id, id) == 0;
}

void by__worker_preparer_cancel(by__worker_preparer *p, const char *id)
{
    by__worker_job *dropped = NULL;
    uv_mutex_lock(&p->thread.lock);
    for (by__worker_job **at = &p->queued; *at != NULL;) {
        if (matches(*at, id)) {
            by__worker_jobs_append(&dropped, by__worker_jobs_remove(at));
            p->count--;
        } else {
            at = &(*at)->next;
        }
    }
    if (p->current != NULL && matches(p->current, id)) {
        p->current->cancelled = true;
    }
    for (by__worker_job *job = p->done; job != NULL; job = job->next) {
        job->cancelled = job->cancelled || matches(job, id);
    }
    uv_mutex_unlock(&p->thread.lock);
    by__worker_jobs_free(dropped);
}

by__worker_job *by__worker_preparer_next(by__worker_preparer *p)
{
    uv_mutex_lock(&p->thread.lock);
    by__worker_job *job = by__worker_jobs_remove(&p->done);
    p->count -= job != NULL;
    uv_mutex_unlock(&p->thread.lock);
    return job;
}

void by__worker_preparer_count(by__worker_preparer *p, size_t *count, uint64_t *ended)
{
    uv_mutex_lock(&p->thread.lock);
    *count = p->count;
    *ended = p->ended;
    uv_mutex_unlock(&p->thread.lock);
}
