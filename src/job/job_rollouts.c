/* Batches that the weights make themselves (by_task.rolls_out): hands those of the loader to the
 * maker that the caller named, and adds up what it reports. */
#include "job/job.h"

by_status by__job_rollouts_open(by__job *job, by_error *error)
{
    const by_rollout_maker *maker = job->options->rollouts;
    const by_rollout_request request = {
        .trainer = job->trainer, .data = job->data, .config = job->config, .comm = job->comm};
    uint64_t bytes;
    if (!job->data->task->rolls_out) {
        return BY_OK;
    }
    if (maker == NULL) {
        return by_error_set(error, BY_EARG,
                            "task %s learns from what its model writes: give "
                            "by_train_options.rollouts",
                            job->data->task->name);
    }
    BY_TRY(maker->open(&job->rollouts, &bytes, &request, error));
    by_trainer_plan_data(job->trainer, bytes);
    return BY_OK;
}

void by__job_rollouts_close(by__job *job)
{
    if (job->rollouts != NULL) {
        job->options->rollouts->close(&job->rollouts);
    }
}

static void alive(void *user)
{
    by__job_progress(user, "rollouts");
}

/* Adds the sums behind the means of a report. */
static void add_report(by_rollout_report *sum, const by_rollout_report *r)
{
    double completions = (double)r->completions;
    sum->steps += r->steps;
    sum->group = r->group;
    sum->completions += r->completions;
    sum->reward += r->reward * completions;
    sum->pass += r->pass * completions;
    sum->flat += r->flat * completions;
    sum->tokens += r->tokens * completions;
    sum->cut += r->cut * completions;
    sum->kl += r->kl * completions;
    sum->seconds += r->seconds;
}

by_status by__job_next_batch(by__job *job, by_batch *batch, by_error *error)
{
    by_rollout_report report = {0};
    BY_TRY(by_loader_next(job->loader, batch, error));
    BY_TRY(by__job_fetch_batch(job->data, batch, error));
    if (job->rollouts == NULL) {
        return BY_OK;
    }
    double began = by_clock();
    by__job_moment moment = by__job_moment_now(job);
    BY_TRY(job->options->rollouts->make(job->rollouts, batch, &report, alive, job, error));
    report.seconds = by_clock() - began;
    add_report(&job->log.rollouts, &report);
    job->timing.evaluating += by__job_own_since(job, &moment);
    return BY_OK;
}

bool by__job_rollouts_report(by__job *job, by_rollout_report *out)
{
    by_rollout_report *sum = &job->log.rollouts;
    double completions = (double)sum->completions;
    *out = *sum;
    if (sum->completions == 0) {
        return false;
    }
    out->reward /= completions;
    out->pass /= completions;
    out->flat /= completions;
    out->tokens /= completions;
    out->cut /= completions;
    out->kl /= completions;
    out->seconds /= (double)sum->steps;
    *sum = (by_rollout_report){0};
    return true;
}
