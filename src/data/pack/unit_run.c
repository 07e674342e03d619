#include "data/pack/unit_run.h"

#include <pthread.h>

#include "base/threads.h"

typedef struct runner {
    const by__data_unit_job *job;
    pthread_mutex_t lock; /* protects all following members */
    pthread_cond_t moved; /* turn or failed changed */
    by__data_units units;
    uint64_t next; /* number of the next unit */
    uint64_t turn; /* unit whose result is delivered next */
    bool failed;
    bool ended;
} runner;

/* Waits until it is unit `number`'s turn; returns false if an earlier one has failed. */
static bool await_turn(runner *r, uint64_t number)
{
    while (r->turn != number && !r->failed) {
        (void)pthread_cond_wait(&r->moved, &r->lock);
    }
    return !r->failed;
}

/* The next unit that is not passed over. */
static by_status find_unit(runner *r, by__data_format_unit *unit, bool *found, by_error *error)
{
    const by__data_unit_job *job = r->job;
    bool skips;
    do {
        skips = false;
        BY_TRY(by__data_units_next(&r->units, unit, found, error));
        if (*found && job->skips != NULL) {
            BY_TRY(job->skips(job->context, unit, &skips, error));
        }
    } while (skips);
    return BY_OK;
}

static by_status run_thread(void *context, size_t thread, by_error *error)
{
    runner *r = context;
    const by__data_unit_job *job = r->job;
    by_status status = BY_OK;
    (void)pthread_mutex_lock(&r->lock);
    while (!r->failed && !r->ended) {
        by__data_format_unit unit;
        bool found = false;
        status = find_unit(r, &unit, &found, error);
        if (status == BY_OK && !found) {
            r->ended = true;
            break;
        }
        uint64_t number = r->next++;
        r->ended = status != BY_OK; /* what cannot be cut ends the run */
        (void)pthread_mutex_unlock(&r->lock);
        if (status == BY_OK) {
            status = job->work(job->context, thread, &unit, error);
        }
        (void)pthread_mutex_lock(&r->lock);
        if (!await_turn(r, number)) {
            status = BY_OK; /* the earlier error is reported */
            break;
        }
        if (status == BY_OK && job->take != NULL) {
            /* No other thread delivers while it is our turn. */
            (void)pthread_mutex_unlock(&r->lock);
            status = job->take(job->context, thread, &unit, error);
            (void)pthread_mutex_lock(&r->lock);
        }
        r->failed = status != BY_OK;
        r->turn++;
        (void)pthread_cond_broadcast(&r->moved);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return status;
}

by_status by__data_unit_run(const by__data_source *source, const by__data_unit_job *job,
                            by_error *error)
{
    runner r = {.job = job,
                .lock = PTHREAD_MUTEX_INITIALIZER,
                .moved = PTHREAD_COND_INITIALIZER,
                .units = {.source = source, .wanted = job->wanted, .whole = job->whole}};
    return by__threads_run(job->threads, run_thread, &r, error);
}
