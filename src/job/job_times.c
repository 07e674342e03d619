/* The exchange between ranks once per step: whether one must stop, and the own time of each. */
#include <stdlib.h>

#include "base/sum_tree.h"
#include "job/job.h"
#include "trainer/exchange/exchange.h"

typedef struct told {
    int32_t stop;
    int32_t lost; /* a checkpoint has failed */
    by__job_own_time own;
} told;

struct by__job_times {
    told *told; /* of all ranks, and for each: */
    size_t *counts;
    by__job_own_time *own;
    by__job_straggler *named;
    by__job_stragglers *stragglers; /* on rank 0 */
};

/* Returns true if a rank has one micro-batch more than others, for `all` in total. */
static bool has_more(const by__trainer_layout *l, int64_t all)
{
    int64_t first;
    int64_t count;
    by__sum_tree_block(all, l->replicas, l->replica, &first, &count);
    return count > all / l->replicas;
}

/* Ranks have the same work if they are at the same stage of a pipeline with the same number of
 * micro-batches, in each stage of train.batch_warmup. */
static by_status find_work(int *work, const by__job *job, int ranks, by_error *error)
{
    const by_train_config *train = &job->config->train;
    for (int r = 0; r < ranks; r++) {
        by__trainer_layout l;
        BY_TRY(by__trainer_layout_resolve(&l, job->config, ranks, r, error));
        work[r] = l.place[BY_MESH_PIPELINE];
        for (size_t i = 0; i <= train->batch_warmup.count; i++) {
            int64_t batch = i == train->batch_warmup.count
                                ? train->batch
                                : ((const by_batch_stage *)train->batch_warmup.items)[i].batch;
            work[r] = 2 * work[r] + has_more(&l, batch / train->micro_batch);
        }
    }
    return BY_OK;
}

static by_status open_stragglers(by__job_times *t, const by__job *job, by_error *error)
{
    int *work;
    int ranks = by_comm_size(job->comm);
    BY_TRY(by__alloc((void **)&work, (size_t)ranks, sizeof *work, "ranks", error));
    by_status status = find_work(work, job, ranks, error);
    if (status == BY_OK) {
        status = by__job_stragglers_open(&t->stragglers, work, ranks, error);
    }
    free(work);
    return status;
}

static by_status open_times(by__job_times *t, const by__job *job, by_error *error)
{
    size_t ranks = (size_t)by_comm_size(job->comm);
    BY_TRY(by__alloc((void **)&t->told, ranks, sizeof *t->told, "times of ranks", error));
    BY_TRY(by__alloc((void **)&t->counts, ranks, sizeof *t->counts, "times of ranks", error));
    BY_TRY(by__alloc((void **)&t->own, ranks, sizeof *t->own, "times of ranks", error));
    BY_TRY(by__alloc((void **)&t->named, ranks, sizeof *t->named, "times of ranks", error));
    for (size_t r = 0; r < ranks; r++) {
        t->counts[r] = sizeof *t->told;
    }
    return by__job_leads(job) ? open_stragglers(t, job, error) : BY_OK;
}

by_status by__job_times_open(by__job *job, by_error *error)
{
    if (job->comm == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&job->timing.times, 1, sizeof *job->timing.times, "times of ranks",
                     error));
    return open_times(job->timing.times, job, error);
}

void by__job_times_close(by__job_times **times)
{
    if (*times != NULL) {
        by__job_stragglers_close(&(*times)->stragglers);
        free((*times)->told);
        free((*times)->counts);
        free((*times)->own);
        free((*times)->named);
        free(*times);
        *times = NULL;
    }
}

by__job_moment by__job_moment_now(const by__job *job)
{
    return (by__job_moment){by__now(), by__trainer_wait_seconds(job->trainer)};
}

double by__job_own_since(const by__job *job, const by__job_moment *since)
{
    by__job_moment now = by__job_moment_now(job);
    return now.clock - since->clock - (now.wait_seconds - since->wait_seconds);
}

static void name_straggler(by__job *job, const by__job_straggler *s)
{
    const char *host = by_comm_host(job->comm, s->rank);
    by__track_begin(job->tracker, BY__EVENT_ALERT, "straggler", (uint64_t)job->at.done_step);
    by__track_integer(job->tracker, "rank", s->rank);
    by__track_text(job->tracker, "host", host);
    by__track_integer(job->tracker, "steps", s->steps);
    by__track_number(job->tracker, "seconds", s->seconds);
    by__track_number(job->tracker, "median_seconds", s->median);
    by__track_text(job->tracker, "part", s->part);
    by__track_end(job->tracker);
    by__job_note(
        job,
        "rank %d (%s) is slow: %.3g s of its own in each of the last %lld steps, %.3g s is "
        "the median of the ranks with the same work; it loses most in %s",
        s->rank, host, s->seconds, (long long)s->steps, s->median, s->part);
}

/* Counts the remaining time since the last step as computation. */
static void end_step(by__job *job)
{
    double own = by__job_own_since(job, &job->timing.step_began) - job->timing.evaluating;
    own -=
        (double)job->timing.own.part[BY__OWN_DATA] + (double)job->timing.own.part[BY__OWN_SAVING];
    job->timing.own.part[BY__OWN_COMPUTE] = (float)own;
}

by_status by__job_agree(by__job *job, bool stop, by_error *error)
{
    by__job_times *t = job->timing.times;
    job->is_stopping = stop;
    if (t == NULL) {
        return BY_OK;
    }
    bool lost = false;
    bool is_whole = job->timing.step_began.clock > 0.0; /* the same on all ranks */
    if (is_whole) {
        end_step(job);
    }
    const told mine = {stop, by__job_saving_failed(job), job->timing.own};
    BY_TRY(by_comm_all_gather(job->comm, &mine, t->told, t->counts, BY_U8, "a request to stop",
                              error));
    for (int r = 0; r < by_comm_size(job->comm); r++) {
        job->is_stopping = job->is_stopping || t->told[r].stop != 0;
        lost = lost || t->told[r].lost != 0;
        t->own[r] = t->told[r].own;
    }
    BY_TRY(lost ? by__job_saving_wait(job, error) : BY_OK);
    int named = is_whole && t->stragglers != NULL
                    ? by__job_stragglers_add(t->stragglers, t->own, t->named)
                    : 0;
    for (int i = 0; i < named; i++) {
        name_straggler(job, &t->named[i]);
    }
    job->timing.own = (by__job_own_time){{0.0f}};
    job->timing.evaluating = 0.0;
    job->timing.step_began = by__job_moment_now(job);
    return BY_OK;
}
