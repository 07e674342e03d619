/* Makes the state in a checkpoint the same on every rank, even if replicas take independent steps:
 * completes pending exchanges, and replaces the optimizer's states by their mean and the residuals
 * of codes by their sum, so that any number of ranks can resume. */
#include <stdlib.h>

#include "trainer/exchange/exchange.h"
#include "trainer/state/trainer.h"

/* The mean of a part of a state over the replicas. */
static by_status average(by_trainer *t, by_memory memory, by_error *error)
{
    static const char what[] = "optimizer states";
    float share = 1.0f / (float)by_comm_size(t->sync.peers);
    float *values;
    size_t count = memory.bytes / sizeof(float);
    BY_TRY(by__exchange_begin(t, memory, &values, error));
    BY_TRY(t->sync.is_coded
               ? by__comm_rounded_sum(t->sync.peers, values, count, what, error)
               : by_comm_all_reduce(t->sync.peers, values, count, BY_F32, what, error));
    for (size_t i = 0; i < count; i++) {
        values[i] *= share;
    }
    return by__exchange_end(t, memory, values, error);
}

/* Averages what this rank holds of a state, tensor by tensor. */
static by_status average_pieces(by_trainer *t, int flat, by_error *error)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        by__store_held_piece piece;
        for (size_t k = 0; by__store_piece(t->store, flat, (by__store_handle)i, k, &piece); k++) {
            BY_TRY(average(t, piece.memory, error));
        }
    }
    return BY_OK;
}

/* Averages the optimizer's states over the replicas. */
static by_status average_states(by_trainer *t, by_error *error)
{
    for (int k = 0; k < t->flats.state_count; k++) {
        int flat = t->flats.states[k];
        if (flat != t->sync.momentum && flat != t->sync.residual) {
            BY_TRY(t->shard.states != 0 ? average_pieces(t, flat, error)
                                        : average(t, by__trainer_flat(t, flat), error));
        }
    }
    return BY_OK;
}

/* Replicas that take independent steps also skip steps independently. When the states become equal,
 * so must the number of updates behind them: the largest counts of skipped steps, in total and in a
 * row, apply to all. */
static by_status agree_on_skips(by_trainer *t, by_error *error)
{
    by__trainer_guard *g = &t->probes.guard;
    size_t peers = (size_t)by_comm_size(t->sync.peers);
    const int64_t mine[2] = {g->skipped, g->in_row};
    const size_t words = 2 * sizeof(int64_t) / sizeof(int32_t);
    int64_t(*all)[2];
    size_t *counts = NULL;
    BY_TRY(by__alloc((void **)&all, peers, sizeof *all, "skipped steps", error));
    by_status status = by__alloc((void **)&counts, peers, sizeof *counts, "skipped steps", error);
    for (size_t i = 0; i < peers && status == BY_OK; i++) {
        counts[i] = words;
    }
    if (status == BY_OK) {
        status =
            by_comm_all_gather(t->sync.peers, mine, all, counts, BY_I32, "skipped steps", error);
    }
    for (size_t i = 0; i < peers && status == BY_OK; i++) {
        g->skipped = all[i][0] > g->skipped ? all[i][0] : g->skipped;
        g->in_row = all[i][1] > g->in_row ? all[i][1] : g->in_row;
    }
    free(counts);
    free(all);
    return status;
}

by_status by_trainer_settle(by_trainer *t, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    if (!s->is_on || t->flats.sets == 0 || s->is_settled) {
        return BY_OK;
    }
    s->is_settled = true;
    BY_TRY(by__trainer_finish_exchange(t, error));
    if (s->is_local && t->steps.updates % t->config->sync.every != 0) {
        BY_TRY(by__trainer_sync_exchange(t, error));
    }
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    if (s->is_local && by_comm_size(s->peers) > 1) {
        BY_TRY(average_states(t, error));
        BY_TRY(agree_on_skips(t, error));
    }
    if (!s->is_coded) {
        return BY_OK;
    }
    BY_TRY(s->is_power ? by__comm_power_sum_settle(s->power, error) : BY_OK);
    for (int k = 0; k < BY__SPLITS; k++) {
        BY_TRY(s->codes[k].sum == NULL ? BY_OK : by__comm_coded_sum_settle(s->codes[k].sum, error));
    }
    by__trainer_sync_clear_gaps(s, by__sync_values(by__trainer_flat(t, s->residual)));
    return BY_OK;
}

void by__trainer_sync_loaded(by_trainer *t)
{
    t->sync.is_settled = true;
}
