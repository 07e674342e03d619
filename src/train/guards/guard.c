#include "train/guards/guard.h"

#include <string.h>

#include "train/trainer.h"

/* Forgets the steps that were submitted behind the one that was collected, which changed nothing
 * either, and lets updates change weights again. */
static by_status forget_later(by_trainer *t, int64_t updates, by_error *error)
{
    BY_TRY(by_device_finish(t->device, error));
    BY_TRY(by__trainer_reset_failure(t, error));
    t->collected = t->submitted;
    t->updates = updates;
    return BY_OK;
}

static by_status diverged(const by_trainer *t, const by_step_result *result, by_error *error)
{
    char row[64] = "";
    if (t->guard.in_row > 0) {
        (void)snprintf(row, sizeof row, ", behind %lld steps in a row that were skipped",
                       (long long)t->guard.in_row);
    }
    return by_error_set(error, BY_EDIVERGED,
                        "step %lld: the loss is %g and the gradient norm %g%s; the weights were "
                        "not changed; try a lower optimizer.lr, more warmup, or clip",
                        (long long)result->step, result->loss, result->norm, row);
}

by_status by__guard_collected(by_trainer *t, by_step_result *result, bool failed, by_error *error)
{
    const by_guard_config *c = &t->config->guard;
    if (!failed) {
        t->guard.in_row = 0;
        return BY_OK;
    }
    if (strcmp(c->nonfinite, "stop") == 0 || t->guard.in_row == c->max_skips) {
        BY_TRY(forget_later(t, result->step - 1, error));
        return diverged(t, result, error);
    }
    BY_TRY(forget_later(t, result->step, error));
    t->guard.skipped++;
    t->guard.in_row++;
    result->skipped = BY_SKIP_NONFINITE;
    return BY_OK;
}

const by__guard *by__trainer_guard(const by_trainer *trainer)
{
    return &trainer->guard;
}

void by__trainer_set_guard(by_trainer *trainer, const by__guard *guard)
{
    trainer->guard = *guard;
}
