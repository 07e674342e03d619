/* Schedules a job's saves: steps wait for them or, with checkpoint.async, only the next save and
 * the end of the run. */
#include <stdlib.h>

#include "comm/comm.h"
#include "job/job.h"
#include "trainer/exchange/exchange.h"
#include "trainer/step/trainer_step.h"

struct by__job_saving {
    by__job_held *held;
    by__checkpoint_save_plan plan; /* the same for all checkpoints of a job */
    by__checkpoint_saver *saver;   /* NULL: saves are synchronous */
};

static by_status open_saver(by__job *job, by_error *error)
{
    by_comm *comm = NULL;
    size_t staging = (size_t)by_trainer_memory(job->trainer)->staging;
    if (job->comm != NULL) {
        BY_TRY(by_comm_split(&comm, job->comm, 0, by_comm_rank(job->comm), error));
        by__comm_set_background(comm); /* it is used from the saver's thread */
    }
    return by__checkpoint_saver_open(&job->saved.saving->saver, &comm, staging, error);
}

static void wait_copied(void *user)
{
    by__checkpoint_saver_wait_copied(user);
}

by_status by__job_saving_open(by__job *job, by_error *error)
{
    by__job_saving *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "checkpoints", error));
    job->saved.saving = s;
    BY_TRY(by__job_held_open(&s->held, job->trainer, error));
    BY_TRY(by__job_held_plan(&s->plan, s->held, job, error));
    if (job->config->checkpoint.async != 0) {
        /* Otherwise ranks with a saver would wait for one without. */
        BY_TRY(by__checkpoint_follow(job->comm, open_saver(job, error), error));
        by__trainer_before_change(job->trainer, wait_copied, s->saver);
    }
    return BY_OK;
}

void by__job_saving_close(by__job *job)
{
    by__job_saving *s = job->saved.saving;
    if (s != NULL) {
        by__checkpoint_saver_close(&s->saver);
        if (job->trainer != NULL) {
            by__trainer_before_change(job->trainer, NULL, NULL);
        }
        by__checkpoint_save_plan_free(&s->plan);
        by__job_held_close(&s->held);
        free(s);
        job->saved.saving = NULL;
    }
}

static bool is_pending(const by__job *job)
{
    return job->saved.saving != NULL && job->saved.saving->saver != NULL &&
           by__checkpoint_saver_is_pending(job->saved.saving->saver);
}

/* Reports a checkpoint that is on disk. */
static void report_saved(by__job *job, const by__checkpoint_save_end *end)
{
    job->saved.interval.stalled = end->stalled;
    job->saved.interval.written = end->seconds;
    if (by__job_leads(job)) {
        by__job_run_dir_update(job, "running");
        by_train_event event = {.kind = BY_TRAIN_SAVED,
                                .path = job->dir.checkpoints,
                                .step = (int64_t)end->step,
                                .save_stalled = end->stalled,
                                .save_seconds = end->seconds};
        by__track_begin(job->tracker, BY__EVENT_CHECKPOINT, "checkpoint", end->step);
        by__track_text(job->tracker, "path", job->dir.checkpoints);
        by__track_number(job->tracker, "stalled_seconds", end->stalled);
        by__track_number(job->tracker, "seconds", end->seconds);
        by__job_report(job, &event);
        by__track_end(job->tracker);
    }
}

by_status by__job_saving_wait(by__job *job, by_error *error)
{
    by__checkpoint_save_end end;
    if (!is_pending(job)) {
        return BY_OK;
    }
    by_status status = by__checkpoint_saver_wait(job->saved.saving->saver, &end, error);
    if (status != BY_OK) {
        job->saved.step = -1;
        /* Of a directory that was moved while it was written, what is wrong is that. */
        by_error moved = {0};
        if (by__job_leads(job) && by__job_run_dir_check_exists(job, &moved) != BY_OK) {
            *error = moved;
        }
        return status;
    }
    report_saved(job, &end);
    return BY_OK;
}

bool by__job_saving_failed(const by__job *job)
{
    return is_pending(job) && by__checkpoint_saver_has_failed(job->saved.saving->saver);
}

by_status by__job_saving_poll(by__job *job, by_error *error)
{
    if (!is_pending(job) || !by__checkpoint_saver_is_done(job->saved.saving->saver)) {
        return BY_OK;
    }
    bool alone = job->comm == NULL || by__trainer_is_late(job->trainer);
    return alone || !by__job_saving_failed(job) ? by__job_saving_wait(job, error) : BY_OK;
}

static by_status begin_save(by__job *job, const by__checkpoint_save_request *request,
                            by_error *error)
{
    double began = by__now();
    by__job_saving *s = job->saved.saving;
    if (s->saver != NULL) {
        return by__checkpoint_saver_begin(s->saver, request, error);
    }
    BY_TRY(by__checkpoint_save_together(job->comm, request, error));
    double seconds = by__now() - began;
    const by__checkpoint_save_end end = {request->step, seconds, seconds};
    report_saved(job, &end);
    return BY_OK;
}

by_status by__job_save(by__job *job, bool best, by_error *error)
{
    int64_t step = by_trainer_updates(job->trainer);
    by__job_saving *s = job->saved.saving;
    const by_checkpoint_config *c = &job->config->checkpoint;
    by__checkpoint_save_request request = {
        .root = job->dir.checkpoints,
        .step = (uint64_t)step,
        .plan = &s->plan,
        .read = by__job_held_read,
        .user = s->held,
        .background = by__trainer_saves_in_background(job->trainer),
        .is_best = best,
        .loss = job->best.loss,
        .retention = {.keep = (size_t)c->keep,
                      .keep_best = c->keep_best > 1 ? (size_t)c->keep_best : 0, /* the marked one */
                      .keep_every = (uint64_t)c->keep_every,
                      /* to which a spike of the loss would return */
                      .also = job->saved.good_step > 0 ? (uint64_t)job->saved.good_step : 0,
                      .last = (uint64_t)step}};
    if (job->saved.step == step && !best) {
        return BY_OK;
    }
    BY_TRY(by__job_saving_wait(job, error));
    if (job->saved.step == step) { /* it was evaluated after that */
        return by__job_leads(job) ? by_checkpoint_mark_best(job->dir.checkpoints, (uint64_t)step,
                                                            job->best.loss, error)
                                  : BY_OK;
    }
    /* A directory made anew would have no config, and another run's lose its checkpoints. */
    BY_TRY(by__checkpoint_follow(
        job->comm, by__job_leads(job) ? by__job_run_dir_check_exists(job, error) : BY_OK, error));
    BY_TRY(by_trainer_settle(job->trainer, error));
    BY_TRY(by__job_describe(job, &request, begin_save, error));
    job->saved.step = step;
    return BY_OK;
}
