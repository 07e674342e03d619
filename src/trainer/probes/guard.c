/* Decides on the host whether a step is applied, and counts skipped steps when they are collected
 * (guard.h). */
#include "trainer/state/guard.h"

#include <math.h>
#include <string.h>

#include "trainer/probes/probes.h"
#include "trainer/state/trainer.h"

/* ---- checks by the host ---- */

static void remember(by__trainer_guard *g, double loss, int64_t window)
{
    if (g->count >= window) { /* the window may have become smaller */
        int64_t dropped = g->count - window + 1;
        g->count -= dropped;
        memmove(g->losses, g->losses + dropped, (size_t)g->count * sizeof *g->losses);
    }
    g->losses[g->count++] = loss;
}

by_status by__trainer_guard_decide(by_trainer *t, unsigned slot, double weight, by_error *error)
{
    const by_guard_config *c = &t->config->guard;
    by__trainer_guard *g = &t->probes.guard;
    by__trainer_results results;
    g->veto = BY_SKIP_NONE;
    g->zscore = 0.0;
    if (strcmp(c->spike, "off") == 0) {
        return BY_OK;
    }
    BY_TRY(by__trainer_fetch(t, slot, error));
    BY_TRY(by__trainer_wait_results(t, slot, &results, error));
    double loss = by__trainer_mean_loss(t, results.losses, weight);
    if (results.failed != 0.0f || !isfinite(loss)) {
        return BY_OK;
    }
    g->zscore = by__trainer_robust_zscore(g->losses, g->count, (c->spike_window + 1) / 2, loss);
    if (g->zscore > c->spike_zscore && strcmp(c->spike, "warn") != 0) {
        g->veto = BY_SKIP_SPIKE;
        return by__trainer_veto(t, error);
    }
    remember(g, loss, c->spike_window);
    return BY_OK;
}

/* ---- skipped steps ---- */

/* Forgets the steps submitted after the collected one, which changed nothing either, and enables
 * updates again. */
static by_status discard_later(by_trainer *t, int64_t updates, by_error *error)
{
    BY_TRY(by_device_finish(t->device, error));
    BY_TRY(by__trainer_reset_failure(t, error));
    t->steps.collected = t->steps.submitted;
    t->steps.updates = updates;
    return BY_OK;
}

static by_status diverged(const by_trainer *t, const by_step_result *result, by_error *error)
{
    char spike[48] = "";
    char row[64] = "";
    if (result->skipped == BY_SKIP_SPIKE) {
        (void)snprintf(spike, sizeof spike, " (z-score %.1f)", result->zscore);
    }
    if (t->probes.guard.in_row > 0) {
        (void)snprintf(row, sizeof row, ", behind %lld steps in a row that were skipped",
                       (long long)t->probes.guard.in_row);
    }
    return by_error_set(error, BY_EDIVERGED,
                        "step %lld: the loss is %g%s and the gradient norm %g%s; the weights were "
                        "not changed; try a lower optimizer.lr, more warmup, or clip",
                        (long long)result->step, result->loss, spike, result->norm, row);
}

by_status by__trainer_guard_collected(by_trainer *t, by_step_result *result, bool failed,
                                      by_error *error)
{
    const by_guard_config *c = &t->config->guard;
    by__trainer_guard *g = &t->probes.guard;
    bool vetoed = result->skipped != BY_SKIP_NONE; /* a veto is not related to the scale */
    bool overflows = failed && !vetoed && isfinite(result->loss) &&
                     by__trainer_loss_scale_backs_off(&g->loss_scale, t->config);
    result->loss_scale = g->loss_scale.scale;
    if (!vetoed) {
        by__trainer_loss_scale_follow(&g->loss_scale, t->config, failed);
    }
    if (!failed) {
        g->in_row = 0;
        return BY_OK;
    }
    if (!vetoed) {
        result->skipped = overflows ? BY_SKIP_OVERFLOW : BY_SKIP_NONFINITE;
    }
    g->veto = result->skipped;
    bool stops = g->veto == BY_SKIP_NONFINITE && strcmp(c->nonfinite, "stop") == 0;
    if (stops || (g->in_row >= c->max_skips && !overflows)) {
        BY_TRY(discard_later(t, result->step - 1, error));
        return diverged(t, result, error);
    }
    BY_TRY(discard_later(t, result->step, error));
    g->skipped++;
    g->in_row += overflows ? 0 : 1;
    return BY_OK;
}

const by__trainer_guard *by__trainer_guard_of(const by_trainer *trainer)
{
    return &trainer->probes.guard;
}

void by__trainer_set_guard(by_trainer *trainer, const by__trainer_guard *guard)
{
    trainer->probes.guard = *guard;
}
