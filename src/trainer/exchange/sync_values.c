/* The values that replicas exchange: sums of them, the step of the outer optimizer, the anchor. */
#include <string.h>

#include "trainer/exchange/exchange.h"

by_memory by__exchange_unit_memory(const by_trainer *t, int flat, size_t i)
{
    return by__store_memory(t->store, flat, t->shard.own[i].part);
}

size_t by__exchange_elements(const by_trainer *t)
{
    int64_t elements = 0;
    for (size_t i = 0; i < t->units.trained_groups; i++) {
        elements += by_shape_count(&t->units.groups[i].shape);
    }
    return (size_t)elements;
}

by_status by__exchange_begin(by_trainer *t, by_memory memory, float **out, by_error *error)
{
    void *copy;
    BY_TRY(by__device_staging_begin(&t->ranks.staging, t->device, error));
    BY_TRY(by__device_stage(&t->ranks.staging, memory, true, &copy, error));
    *out = copy;
    return by__device_staging_wait(&t->ranks.staging, error);
}

by_status by__exchange_end(by_trainer *t, by_memory memory, const float *values, by_error *error)
{
    BY_TRY(by__device_unstage(&t->ranks.staging, memory, values, error));
    return by__device_staging_wait(&t->ranks.staging, error);
}

void by__trainer_sync_clear_gaps(const by__trainer_sync *s, float *values)
{
    for (size_t i = 0; i < s->gap_count; i++) {
        memset(values + s->gaps[i].first, 0, s->gaps[i].rows * sizeof *values);
    }
}

by_status by__trainer_sync_add_up(by_trainer *t, float *data, bool exact, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    const char *what = s->is_local ? "weights since the last exchange" : "gradients";
    if (exact) {
        return by_comm_all_reduce(s->peers, data, by__exchange_elements(t), BY_F32, what, error);
    }
    BY_TRY(s->is_power ? by__comm_power_sum_run(s->power, data, what, error) : BY_OK);
    for (int k = 0; k < BY__SPLITS; k++) {
        const by__trainer_sync_codes *codes = &s->codes[k];
        BY_TRY(codes->sum == NULL
                   ? BY_OK
                   : by__comm_coded_sum_run(codes->sum, data + codes->first, what, error));
    }
    by__trainer_sync_clear_gaps(s, data);
    by__trainer_sync_clear_gaps(s, by__sync_values(by__trainer_flat(t, s->residual)));
    return BY_OK;
}

by_status by__exchange_copy(by_trainer *t, int to, int from, by_error *error)
{
    for (size_t i = 0; i < t->shard.own_count; i++) {
        BY_TRY(by__device_copy(BY__QUEUE_COMPUTE, by__exchange_unit_memory(t, to, i),
                               by__exchange_unit_memory(t, from, i), error));
    }
    return BY_OK;
}

by_status by__trainer_sync_outer_step(by_trainer *t, by_error *error)
{
    by__trainer_sync *s = &t->sync;
    float hyper[BY_HYPER_COUNT];
    float scale = 1.0f / (float)by_comm_size(s->peers);
    by_optimizer_hyper(hyper, &s->outer->optimizer, 0, t->config->sync.outer_lr);
    BY_TRY(by_device_write(by_memory_at(s->numbers, 0, sizeof hyper), hyper, error));
    BY_TRY(by_device_write(by_memory_at(s->numbers, s->numbers.bytes / 2, sizeof scale), &scale,
                           error));
    return by_program_submit(s->outer_update->program, error);
}

by_status by__trainer_sync_load_anchor(by_trainer *t, by_error *error)
{
    BY_TRY(by__exchange_copy(t, t->flats.masters, t->sync.anchor, error));
    BY_TRY(t->update.copy_row == NULL ? BY_OK
                                      : by_program_submit(t->update.copy_row->program, error));
    BY_TRY(by__trainer_shard_gather(t, error));
    return t->strategy->share(t, error);
}
