/* Which part of a step each rank has: its micro-batches, the ranks whose gradients are summed, and
 * what of weights, gradients and states is divided. */

#include "trainer/state/trainer.h"

int64_t by__trainer_leaf(const by_trainer *t, int64_t i)
{
    return t->part.first_micro_batch + i * by__trainer_replica_leaves(t, t->layout.replica).stride;
}

int by__trainer_ranks_members(const by_trainer *t)
{
    bool all = (t->summation->axes >> BY_MESH_DATA & 1u) != 0;
    return all ? t->layout.replicas : t->layout.size[BY_MESH_SHARD];
}

by__trainer_leaves by__trainer_sum_leaves(const by_trainer *t, int replica)
{
    by__trainer_leaves all = {.stride = 1};
    int members = by__trainer_ranks_members(t);
    by__sum_tree_block(t->part.all_micro_batches, t->layout.replicas / members, replica / members,
                       &all.first, &all.count);
    return all;
}

by__trainer_leaves by__trainer_replica_leaves(const by_trainer *t, int replica)
{
    const by__trainer_leaves all = by__trainer_sum_leaves(t, replica);
    int members = by__trainer_ranks_members(t);
    return t->summation->leaves(all, members, replica % members);
}

int by__trainer_ranks_parts(const by_trainer *t)
{
    bool keep = (t->summation->axes >> BY_MESH_SEQUENCE & 1u) != 0;
    return keep ? t->layout.size[BY_MESH_SEQUENCE] : 1;
}

int by__trainer_ranks_adders(const by_trainer *t)
{
    return by__trainer_ranks_members(t) * by__trainer_ranks_parts(t);
}

unsigned by__trainer_ranks_adding_axes(const by_trainer *t)
{
    unsigned peers = 1u << BY_MESH_SHARD | t->summation->axes;
    return by__trainer_ranks_parts(t) > 1 ? peers : peers & ~(1u << BY_MESH_SEQUENCE);
}

bool by__trainer_has_average(const by_trainer *t)
{
    return t->flats.sets > 0 && t->config->optimizer.ema != 0.0;
}
