/* The mean loss of a step. */
#include "trainer/state/trainer.h"

/* Adds the micro-batches' losses in the order of the tree, like the gradients. */
static double sum_losses(const float *losses, int64_t count)
{
    double sums[BY__MAX_SETS];
    by__sum_tree tree;
    by__sum_addition pair;
    int sets = by__sum_tree_sets(0, count, count);
    by__sum_tree_begin(&tree, 0, count, sets);
    for (int64_t i = 0; i < count; i++) {
        int set = by__sum_tree_acquire(&tree);
        sums[set] = (double)losses[i];
        by__sum_tree_release(&tree, set);
        while (by__sum_tree_add(&tree, &pair)) {
            sums[pair.right] = sums[pair.left] + sums[pair.right];
        }
    }
    return sums[tree.held[0].set];
}

double by__trainer_weight(const by_batch *batch, bool all)
{
    return batch->weighted ? (all ? batch->global_weight : batch->valid_weight)
                           : (double)(all ? batch->global_targets : batch->valid_targets);
}

double by__trainer_mean_loss(const by_trainer *t, const float *losses, double weight)
{
    double sum = t->sync.is_late
                     ? sum_losses(losses + t->part.first_micro_batch, t->part.micro_batches)
                     : sum_losses(losses, t->part.all_micro_batches);
    return weight > 0.0 ? sum / weight : 0.0;
}
