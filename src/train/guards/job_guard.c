/* What a running job does about steps that are not applied. */
#include "train/guards/guard.h"
#include "train/loop.h"

by_status by__job_skipped(by__job *job, const by_step_result *result, by_error *error)
{
    uint64_t behind = job->behind[result->step % BY_STEPS_AHEAD];
    uint64_t batch = (uint64_t)job->config->train.batch;
    by__job_note(job,
                 "step %lld was not applied: the loss is %g and the gradient norm %g; samples %llu "
                 "to %llu are passed over (skipped so far: %lld)",
                 (long long)result->step, result->loss, result->norm,
                 (unsigned long long)(behind - batch), (unsigned long long)(behind - 1),
                 (long long)by__trainer_guard(job->trainer)->skipped);
    if (by__job_leads(job)) {
        by__track_begin(job->tracker, BY__EVENT_ALERT, "skip", (uint64_t)result->step);
        by__track_text(job->tracker, "reason", "nonfinite");
        by__track_number(job->tracker, "loss", result->loss);
        by__track_number(job->tracker, "norm", result->norm);
        by__track_integer(job->tracker, "first_sample", (int64_t)(behind - batch));
        by__track_integer(job->tracker, "samples", (int64_t)batch);
        by__track_integer(job->tracker, "skipped", by__trainer_guard(job->trainer)->skipped);
        by__track_end(job->tracker);
    }
    /* Steps that were submitted behind it are forgotten, so their batches are taken again. */
    return by_loader_position(job->loader) == behind ? BY_OK
                                                     : by_loader_seek(job->loader, behind, error);
}

void by__job_diverged(by__job *job, const by_error *verdict)
{
    if (by__job_leads(job)) {
        by__track_begin(job->tracker, BY__EVENT_ALERT, "diverged", (uint64_t)job->done_step + 1);
        by__track_text(job->tracker, "verdict", verdict->message);
        by__track_end(job->tracker);
    }
}
