/* A job's handling of steps that are not applied: finds the origin, skips the samples, or goes back
 * to a checkpoint. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "job/job.h"
#include "trainer/probes/probes.h"
#include "trainer/state/guard.h"

static uint64_t loader_after(const by__job *job, int64_t step)
{
    return job->at.loader_position[step % BY_STEPS_AHEAD];
}

/* Collective: finds the origin of the first value of a step that is not finite, as text with the
 * samples; "" if this is not possible. Leaves the loader after the step. */
static by_status locate(by__job *job, int64_t step, char *text, size_t size, by_error *error)
{
    by_batch batch;
    by__trainer_found found;
    uint64_t behind = loader_after(job, step);
    uint64_t first = behind - (uint64_t)by_config_batch(job->config, step - 1);
    uint64_t micro_batch = (uint64_t)job->config->train.micro_batch;
    text[0] = '\0';
    if (!by__job_guard_can_find(job->trainer)) {
        return BY_OK;
    }
    BY_TRY(by_loader_seek(job->loader, first, error));
    BY_TRY(by_loader_next(job->loader, &batch, error));
    BY_TRY(by__job_fetch_batch(job->data, &batch, error));
    BY_TRY(by__job_guard_find(job->trainer, &batch, step, &found, error));
    if (!found.found) {
        (void)snprintf(text, size,
                       "; computed again every value was finite: the sum of squares overflowed, or "
                       "a fault of the hardware");
        return BY_OK;
    }
    first += (uint64_t)found.leaf * micro_batch;
    (void)snprintf(text, size, "; first in %s, micro-batch %lld", found.what,
                   (long long)found.leaf);
    size_t length = strlen(text);
    if (found.row >= 0) {
        (void)snprintf(text + length, size - length, ", sample %llu, rank %d",
                       (unsigned long long)(first + (uint64_t)found.row), (int)found.rank);
    } else {
        (void)snprintf(text + length, size - length, ", samples %llu to %llu, rank %d",
                       (unsigned long long)first, (unsigned long long)(first + micro_batch - 1),
                       (int)found.rank);
    }
    return BY_OK;
}

/* Writes the note and the event for a step. */
static void report_skipped(by__job *job, const char *name, const by_step_result *result,
                           const char *where)
{
    char zscore[48] = "";
    const char *reason = result->skipped == BY_SKIP_NONFINITE ? "nonfinite" : "spike";
    uint64_t behind = loader_after(job, result->step);
    uint64_t batch = (uint64_t)by_config_batch(job->config, result->step - 1);
    if (result->skipped == BY_SKIP_OVERFLOW) {
        reason = "overflow";
        (void)snprintf(zscore, sizeof zscore, " times a scale of %g", result->loss_scale);
    } else if (result->zscore != 0.0) {
        (void)snprintf(zscore, sizeof zscore, " (z-score %.1f)", result->zscore);
    }
    by__job_note(job,
                 "step %lld %s: the loss is %g%s and the gradient norm %g, samples %llu to "
                 "%llu%s",
                 (long long)result->step,
                 result->skipped == BY_SKIP_NONE ? "was applied nevertheless" : "was not applied",
                 result->loss, zscore, result->norm, (unsigned long long)(behind - batch),
                 (unsigned long long)(behind - 1), where);
    if (!by__job_leads(job)) {
        return;
    }
    by__track_begin(job->tracker, BY__EVENT_ALERT, name, (uint64_t)result->step);
    by__track_text(job->tracker, "reason", reason);
    by__track_number(job->tracker, "loss", result->loss);
    by__track_number(job->tracker, "norm", result->norm);
    by__track_number(job->tracker, "zscore", result->zscore);
    if (result->skipped == BY_SKIP_OVERFLOW) {
        by__track_number(job->tracker, "loss_scale", result->loss_scale);
    }
    by__track_integer(job->tracker, "first_sample", (int64_t)(behind - batch));
    by__track_integer(job->tracker, "samples", (int64_t)batch);
    by__track_integer(job->tracker, "skipped", by__trainer_guard_of(job->trainer)->skipped);
    if (where[0] != '\0') {
        by__track_text(job->tracker, "where", where + 2);
    }
    by__track_end(job->tracker);
}

/* Collective: restores the newest regular checkpoint, and moves the loader past the step's
 * samples. */
static by_status roll_back(by__job *job, const by_step_result *result, by_error *error)
{
    int64_t limit = job->config->guard.max_rollbacks;
    if (job->saved.rollbacks >= limit) {
        return by_error_set(error, BY_EDIVERGED,
                            "step %lld: the loss is %g (z-score %.1f) after the run was rolled "
                            "back to step %lld %lld times (guard.max_rollbacks); try a lower "
                            "optimizer.lr, more warmup, or clip",
                            (long long)result->step, result->loss, result->zscore,
                            (long long)job->saved.good_step, (long long)limit);
    }
    BY_TRY(by__job_return(job, job->saved.good_step, error));
    /* A later checkpoint, saved because the run was stopped, must not be the newest one at a
     * resume. */
    BY_TRY(by__job_leads(job) ? by__checkpoint_root_drop_after(
                                    job->dir.checkpoints, (uint64_t)job->saved.good_step, error)
                              : BY_OK);
    job->saved.rollbacks++;
    job->at.done_step = job->saved.good_step;
    job->saved.step = job->saved.good_step;
    job->valid.step = -1;
    job->log.step = job->saved.good_step;
    job->log.system_step = job->saved.good_step;
    job->log.data_seconds = 0.0;
    job->log.examples = 0;
    job->log.time = by_clock();
    by__job_note(job,
                 "rolled back to the checkpoint of step %lld; training continues with the samples "
                 "from %llu on",
                 (long long)job->saved.good_step,
                 (unsigned long long)loader_after(job, result->step));
    if (by__job_leads(job)) {
        by__track_begin(job->tracker, BY__EVENT_ALERT, "rollback", (uint64_t)result->step);
        by__track_integer(job->tracker, "to_step", job->saved.good_step);
        by__track_integer(job->tracker, "next_sample", (int64_t)loader_after(job, result->step));
        by__track_integer(job->tracker, "rollbacks", job->saved.rollbacks);
        by__track_end(job->tracker);
    }
    return BY_OK;
}

by_status by__job_guard(by__job *job, const by_step_result *result, bool *back, by_error *error)
{
    char where[400] = "";
    const by_guard_config *c = &job->config->guard;
    uint64_t behind = loader_after(job, result->step);
    *back = false;
    if (result->skipped == BY_SKIP_NONE) {
        if (result->zscore > c->spike_zscore) {
            report_skipped(job, "spike", result, where);
        }
        return BY_OK;
    }
    if (result->skipped == BY_SKIP_OVERFLOW) {
        (void)snprintf(where, sizeof where, "; the scale of the loss becomes %g",
                       by__trainer_guard_of(job->trainer)->loss_scale.scale);
    }
    if (result->skipped == BY_SKIP_NONFINITE) {
        BY_TRY(locate(job, result->step, where, sizeof where, error));
    }
    report_skipped(job, "skip", result, where);
    /* Steps submitted after it are forgotten, so their batches are read again. */
    if (by_loader_position(job->loader) != behind) {
        BY_TRY(by_loader_seek(job->loader, behind, error));
    }
    *back = result->skipped == BY_SKIP_SPIKE && strcmp(c->spike, "rollback") == 0 &&
            job->saved.good_step >= 0;
    return *back ? roll_back(job, result, error) : BY_OK;
}

by_status by__job_diverged(by__job *job, int64_t step, by_error *verdict)
{
    char where[400] = "";
    job->saved.state_incomplete = true; /* there is nothing worth saving, on any rank */
    if (by__trainer_guard_of(job->trainer)->veto == BY_SKIP_NONFINITE) {
        by_error ignored = {0};
        (void)locate(job, step, where, sizeof where, &ignored);
    }
    const by_error plain = *verdict;
    (void)by_error_set(verdict, BY_EDIVERGED, "%s%s", plain.message, where);
    if (by__job_leads(job)) {
        by__track_begin(job->tracker, BY__EVENT_ALERT, "diverged", (uint64_t)step);
        by__track_text(job->tracker, "verdict", verdict->message);
        by__track_end(job->tracker);
    }
    return BY_EDIVERGED;
}
