#include <math.h>

#include "base/sum_tree.h"
#include "train/trainer.h"

/* Points the gradient program's outputs at one gradient set. */
static by_status bind_gradients(by_trainer *t, int set, by_error *error)
{
    if (set != t->bound_set) {
        int flat = t->gradient_sets[set];
        BY_TRY(by__row_bind_flat(t->gradients, t->store, BY_ROLE_GRADIENT, flat, flat, error));
    }
    t->bound_set = set;
    return BY_OK;
}

/* All of a gradient set: its groups are neighbours. */
static by_memory whole_set(const by_trainer *t, int set)
{
    by_memory all = by__trainer_group(t, t->gradient_sets[set], 0);
    for (size_t i = 1; i < t->group_count; i++) {
        all.bytes += by__trainer_group(t, t->gradient_sets[set], i).bytes;
    }
    return all;
}

static by_status add_sets(by_trainer *t, int earlier, int set, by_error *error)
{
    BY_TRY(by__row_bind(t->sum, "a", whole_set(t, earlier), error));
    BY_TRY(by__row_bind(t->sum, "b", whole_set(t, set), error));
    BY_TRY(by__row_bind(t->sum, "sum", whole_set(t, set), error));
    return by_program_submit(t->sum->program, error);
}

/* Submits forward and backward of all micro-batches and the sums of their gradients. */
static by_status submit_gradients(by_trainer *t, const by_batch *batch, by_error *error)
{
    by__sum_tree tree;
    by__sum_addition addition;
    by__sum_tree_begin(&tree, 0, t->micro_batches, t->sets);
    for (int64_t i = 0; i < t->micro_batches; i++) {
        int set = by__sum_tree_take(&tree);
        BY_TRY(bind_gradients(t, set, error));
        BY_TRY(by__trainer_feed(t, t->gradients, batch, t->config->train.batch, i, error));
        by__sum_tree_put(&tree, set);
        while (by__sum_tree_add(&tree, &addition)) {
            BY_TRY(add_sets(t, addition.left, addition.right, error));
        }
    }
    return by__trainer_bind_sum(t, tree.held[0].set, error);
}

/* The micro-batches' losses, added in the order of their gradients. */
static double sum_losses(const by_trainer *t, const float *losses)
{
    by__sum_tree tree;
    by__sum_addition addition;
    double sums[BY__SUM_TREE_NODES];
    by__sum_tree_begin(&tree, 0, t->micro_batches, t->sets);
    for (int64_t i = 0; i < t->micro_batches; i++) {
        int set = by__sum_tree_take(&tree);
        sums[set] = (double)losses[i];
        by__sum_tree_put(&tree, set);
        while (by__sum_tree_add(&tree, &addition)) {
            sums[addition.right] = sums[addition.left] + sums[addition.right];
        }
    }
    return sums[tree.held[0].set];
}

/* Waits, and reads the gradient norm and the batch's mean loss. */
static by_status read_step(by_trainer *t, const by_batch *batch, double *loss, double *norm,
                           by_error *error)
{
    const float *losses;
    float length;
    BY_TRY(by__trainer_read_results(t, t->micro_batches, &losses, &length, error));
    *loss = batch->global_targets > 0 ? sum_losses(t, losses) / (double)batch->global_targets : 0.0;
    *norm = (double)length;
    return BY_OK;
}

by_status by_trainer_gradients(by_trainer *t, const by_batch *batch, double *loss, by_error *error)
{
    double norm;
    BY_TRY(by__trainer_ready(t, true, error));
    BY_TRY(submit_gradients(t, batch, error));
    return read_step(t, batch, loss, &norm, error);
}

by_status by_trainer_update(by_trainer *t, double lr, double *norm, by_error *error)
{
    float hyper[BY_HYPER_COUNT];
    const float *losses;
    float length;
    BY_TRY(by__trainer_ready(t, true, error));
    BY_TRY(by_program_submit(t->norm->program, error));
    BY_TRY(by__trainer_read_results(t, 1, &losses, &length, error));
    *norm = (double)length;
    if (!isfinite(*norm)) {
        return by_error_set(error, BY_ESTATE,
                            "the gradient norm is %g; the weights were not changed", *norm);
    }
    by_optimizer_hyper(hyper, &t->config->optimizer, t->updates, lr);
    BY_TRY(by__trainer_send_hyper(t, hyper, error));
    BY_TRY(by_program_submit(t->update->program, error));
    t->updates++;
    return BY_OK;
}

by_status by_trainer_step(by_trainer *t, const by_batch *batch, by_step_result *out,
                          by_error *error)
{
    const by_config *c = t->config;
    by_step_result result = {.tokens = c->train.batch * c->model.context};
    float hyper[BY_HYPER_COUNT];
    BY_TRY(by__trainer_ready(t, true, error));
    BY_TRY(submit_gradients(t, batch, error));
    BY_TRY(by_program_submit(t->norm->program, error));
    BY_TRY(read_step(t, batch, &result.loss, &result.norm, error));
    result.lr = by_learning_rate(&c->optimizer, t->updates, c->train.steps);
    if (!isfinite(result.loss) || !isfinite(result.norm)) {
        return by_error_set(
            error, BY_ESTATE,
            "step %lld: the loss is %g and the gradient norm %g; the weights were not "
            "changed; try a lower optimizer.lr, more warmup, or clip",
            (long long)t->updates + 1, result.loss, result.norm);
    }
    by_optimizer_hyper(hyper, &c->optimizer, t->updates, result.lr);
    BY_TRY(by__trainer_send_hyper(t, hyper, error));
    BY_TRY(by_program_submit(t->update->program, error));
    t->updates++;
    *out = result;
    return BY_OK;
}

by_status by_trainer_loss(by_trainer *t, const by_batch *batch, double *sum, by_error *error)
{
    const float *losses;
    float norm;
    BY_TRY(by__trainer_ready(t, false, error));
    BY_TRY(by__trainer_feed(t, t->loss, batch, t->config->train.micro_batch, 0, error));
    BY_TRY(by__trainer_read_results(t, 1, &losses, &norm, error));
    *sum = (double)losses[0];
    return BY_OK;
}
