/* The steps of a trainer: submits micro-batches, norm and update, and collects results; also
 * evaluation. */
#include <math.h>

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/probes/probes.h"
#include "trainer/step/trainer_step.h"

/* Number of examples in a step, over all ranks. */
static int64_t step_examples(const by_trainer *t)
{
    return t->part.all_micro_batches * t->config->train.micro_batch;
}

/* The schedule depends on the examples seen, in steps of train.batch. */
static double learning_rate(const by_trainer *t)
{
    const by_config *c = t->config;
    double batch = (double)c->train.batch;
    double step = (double)t->steps.updates;
    double steps = (double)c->train.steps;
    if (c->train.batch_warmup.count > 0) {
        step = (double)by_config_samples(c, t->steps.updates) / batch;
        steps = (double)by_config_samples(c, c->train.steps) / batch;
    }
    return by_learning_rate(&c->optimizer, step, steps) *
           by_learning_rate_scale(&c->optimizer, step_examples(t));
}

/* Adds the weights of the targets of this replica's part of the batch, which its ranks of `shard`
 * divide. */
static by_status weigh_targets(by_trainer *t, const by_batch *batch, by_error *error)
{
    int32_t count = (int32_t)batch->valid_targets;
    float weight = (float)batch->valid_weight;
    bool divided = t->sync.is_local && t->shard.states != 0;
    t->steps.own_weight = by__trainer_weight(batch, false);
    if (divided && batch->weighted) {
        BY_TRY(by_comm_all_reduce(t->shard.comm, &weight, 1, BY_F32, "weights", error));
        t->steps.own_weight = (double)weight;
    } else if (divided) {
        BY_TRY(by_comm_all_reduce(t->shard.comm, &count, 1, BY_I32, "targets", error));
        t->steps.own_weight = (double)count;
    }
    return BY_OK;
}

static by_status submit_gradients(by_trainer *t, const by_batch *batch, by_error *error)
{
    by__sum_tree tree;
    int sum;
    t->ranks.before = by__trainer_ranks_spent(t);
    t->norm.has_micro = false;
    BY_TRY(weigh_targets(t, batch, error));
    BY_TRY(by__trainer_sync_before_step(t, error));
    BY_TRY(t->strategy->step(t, batch, &tree, error));
    BY_TRY(t->summation->sum(t, &tree, &sum, error));
    return by__trainer_bind_sum(t, sum, error);
}

/* Weight of the batch, or of this rank's part if it does not know the losses of others. */
static double weight_of(const by_trainer *t, const by_batch *batch)
{
    return by__trainer_weight(batch, !t->sync.is_late);
}

static unsigned slot_of(unsigned step)
{
    return step % BY_STEPS_AHEAD;
}

/* Checks that there is a free slot for the results of one more step; also called by everything else
 * that reads results. */
static by_status check_free_slot(const by_trainer *t, bool training, by_error *error)
{
    BY_TRY(by__trainer_ready(t, training, error));
    if (t->steps.submitted - t->steps.collected == BY_STEPS_AHEAD) {
        return by_error_set(error, BY_ESTATE, "%d steps are under way: collect one first",
                            BY_STEPS_AHEAD);
    }
    return BY_OK;
}

/* Submits norm and update, and the copy of their results. */
static by_status submit_update(by_trainer *t, double lr, double weight, by_error *error)
{
    float hyper[BY_HYPER_COUNT];
    unsigned slot = slot_of(t->steps.submitted);
    by__trainer_pending *pending = &t->steps.pending[slot];
    BY_TRY(by__trainer_abft_verdict(t, error));
    by__trainer_changes(t);
    BY_TRY(by__trainer_norm_squares(t, error));
    BY_TRY(by_program_submit(t->norm.row->program, error));
    BY_TRY(by__trainer_guard_decide(t, slot, weight, error));
    by_optimizer_hyper(hyper, &t->config->optimizer, t->steps.updates - t->probes.guard.skipped,
                       lr);
    hyper[BY_HYPER_SHARE] = 1.0f / (float)t->part.all_micro_batches;
    BY_TRY(by__trainer_send_hyper(t, slot, hyper, error));
    BY_TRY(by__trainer_layers_before_update(t, slot, error));
    BY_TRY(t->updater->update(t, error));
    BY_TRY(t->updater->average(t, error));
    BY_TRY(by__trainer_layers_after_update(t, slot, error));
    BY_TRY(by__trainer_shard_gather(t, error));
    BY_TRY(t->strategy->share(t, error));
    BY_TRY(by__trainer_activations_fetch(t, slot, error));
    BY_TRY(by__trainer_fetch(t, slot, error));
    t->steps.updates++;
    t->steps.submitted++;
    pending->weight = weight;
    pending->batch = step_examples(t);
    pending->has_micro = t->norm.has_micro;
    pending->result = (by_step_result){.step = t->steps.updates,
                                       .lr = lr,
                                       .skipped = t->probes.guard.veto,
                                       .zscore = t->probes.guard.zscore};
    BY_TRY(by__trainer_sync_after_update(t, error));
    by__trainer_spent spent = by__trainer_ranks_spent(t);
    by_step_result *result = &pending->result;
    result->exchange = spent.exchange - t->ranks.before.exchange;
    result->exposed = spent.exposed - t->ranks.before.exposed;
    if (result->exchange < result->exposed) { /* the thread of the exchanges was late */
        result->exchange = result->exposed;
    }
    result->disk = t->updater->waited(t);
    return BY_OK;
}

/* Computes gradients twice; the second ones are used. */
static by_status submit_twice(by_trainer *t, const by_batch *batch, by_error *error)
{
    BY_TRY(by__trainer_replay_begin(t, error));
    BY_TRY(submit_gradients(t, batch, error));
    BY_TRY(by__trainer_replay_repeat(t, error));
    BY_TRY(submit_gradients(t, batch, error));
    return by__trainer_replay_end(t, error);
}

by_status by_trainer_submit(by_trainer *t, const by_batch *batch, by_error *error)
{
    const by_config *c = t->config;
    if (t->steps.submitted != t->steps.collected && by__trainer_scales_loss_dynamically(c)) {
        return by_error_set(error, BY_ESTATE,
                            "the scale of the loss follows from the step before: collect it first");
    }
    BY_TRY(check_free_slot(t, true, error));
    BY_TRY(by__trainer_replay_is_due(t) ? submit_twice(t, batch, error)
                                        : submit_gradients(t, batch, error));
    double lr = learning_rate(t);
    return submit_update(t, lr, weight_of(t, batch), error);
}

/* The norm of the mean gradient of one micro-batch. Sums are over losses divided by the weight of
 * the batch, of which it has its share. */
static double micro_norm(const by_trainer *t, const by__trainer_results *results)
{
    return sqrt((double)results->micro) * (double)t->part.all_micro_batches /
           t->probes.guard.loss_scale.scale;
}

by_status by_trainer_collect(by_trainer *t, bool wait, bool *got, by_step_result *out,
                             by_error *error)
{
    by__trainer_results results;
    unsigned slot = slot_of(t->steps.collected);
    by__trainer_pending *pending = &t->steps.pending[slot];
    *got = false;
    if (t->steps.submitted == t->steps.collected) {
        return BY_OK;
    }
    if (!wait) {
        bool done;
        BY_TRY(by__device_event_done(&done, pending->read, error));
        if (!done) {
            return BY_OK;
        }
    }
    BY_TRY(by__trainer_wait_results(t, slot, &results, error));
    by_step_result result = pending->result;
    result.loss = by__trainer_mean_loss(t, results.losses, pending->weight);
    result.norm = (double)results.norm;
    result.micro_norm = pending->has_micro ? micro_norm(t, &results) : 0.0;
    result.examples = pending->batch * by__trainer_per_sample(t->task, t->config);
    t->steps.collected++;
    by__trainer_layers_collect(t, slot);
    by__trainer_activations_collect(t, slot);
    BY_TRY(by__trainer_guard_collected(t, &result, results.failed != 0.0f, error));
    *out = result;
    *got = true;
    return BY_OK;
}

by_status by_trainer_step(by_trainer *t, const by_batch *batch, by_step_result *out,
                          by_error *error)
{
    bool got;
    if (t->steps.submitted != t->steps.collected) {
        return by_error_set(error, BY_ESTATE, "step: %u submitted steps were not collected",
                            t->steps.submitted - t->steps.collected);
    }
    BY_TRY(by_trainer_submit(t, batch, error));
    return by_trainer_collect(t, true, &got, out, error);
}

by_status by_trainer_gradients(by_trainer *t, const by_batch *batch, double *loss, by_error *error)
{
    by__trainer_results results;
    BY_TRY(check_free_slot(t, true, error));
    BY_TRY(submit_gradients(t, batch, error));
    BY_TRY(by__trainer_fetch(t, slot_of(t->steps.submitted), error));
    BY_TRY(by__trainer_wait_results(t, slot_of(t->steps.submitted), &results, error));
    t->steps.gradient_weight = weight_of(t, batch);
    *loss = by__trainer_mean_loss(t, results.losses, t->steps.gradient_weight);
    return BY_OK;
}

by_status by_trainer_update(by_trainer *t, double lr, by_step_result *out, by_error *error)
{
    bool got;
    BY_TRY(check_free_slot(t, true, error));
    BY_TRY(submit_update(t, lr, t->steps.gradient_weight, error));
    return by_trainer_collect(t, true, &got, out, error);
}

by_status by_trainer_evaluate(by_trainer *t, const by_batch *batch, double *sum,
                              const float **values, size_t *width, by_error *error)
{
    by__trainer_results results;
    unsigned slot = slot_of(t->steps.submitted);
    int64_t examples = t->config->train.micro_batch;
    BY_TRY(check_free_slot(t, false, error));
    BY_TRY(t->strategy->evaluate(t, batch, error));
    BY_TRY(by__trainer_fetch_evaluated(t, values, error));
    BY_TRY(by__trainer_fetch(t, slot, error));
    BY_TRY(by__trainer_wait_results(t, slot, &results, error));
    *sum = (double)results.losses[t->part.most_micro_batches];
    *width = t->feed.evaluated_bytes / sizeof(float) / (size_t)examples;
    return BY_OK;
}

by_status by_trainer_loss(by_trainer *t, const by_batch *batch, double *sum, by_error *error)
{
    const float *values;
    size_t width;
    return by_trainer_evaluate(t, batch, sum, &values, &width, error);
}
