/* train.batch_warmup: stages of a number of steps with a smaller batch, before train.batch
 * applies. */
#include <string.h>

#include "config/schema.h"

static const by_batch_stage *stage_at(const by_config *config, size_t i)
{
    return (const by_batch_stage *)config->train.batch_warmup.items + i;
}

int64_t by_config_batch(const by_config *config, int64_t step)
{
    for (size_t i = 0; i < config->train.batch_warmup.count; i++) {
        const by_batch_stage *stage = stage_at(config, i);
        if (step < stage->steps) {
            return stage->batch;
        }
        step -= stage->steps;
    }
    return config->train.batch;
}

uint64_t by_config_samples(const by_config *config, int64_t step)
{
    uint64_t samples = 0;
    for (size_t i = 0; i < config->train.batch_warmup.count && step > 0; i++) {
        const by_batch_stage *stage = stage_at(config, i);
        int64_t steps = step < stage->steps ? step : stage->steps;
        samples += (uint64_t)steps * (uint64_t)stage->batch;
        step -= steps;
    }
    return samples + (uint64_t)step * (uint64_t)config->train.batch;
}

int64_t by__config_batch_divisor(const by_config *config)
{
    int64_t divisor = config->train.batch;
    for (size_t i = 0; i < config->train.batch_warmup.count; i++) {
        int64_t other = stage_at(config, i)->batch;
        while (other != 0) {
            int64_t rest = divisor % other;
            divisor = other;
            other = rest;
        }
    }
    return divisor;
}

by_status by__config_check_batch_warmup(const by_config *config, by_error *error)
{
    const by_train_config *train = &config->train;
    const char *where = by__config_where(config, "train.batch_warmup", "train.batch");
    int64_t before = 0;
    int64_t steps = 0;
    if (train->batch_warmup.count > BY__BATCH_STAGES) {
        return by_error_set(error, BY_ECONFIG, "%s: train.batch_warmup: %zu stages; at most %d",
                            where, train->batch_warmup.count, BY__BATCH_STAGES);
    }
    for (size_t i = 0; i < train->batch_warmup.count; i++) {
        const by_batch_stage *stage = stage_at(config, i);
        if (stage->batch <= before || stage->batch >= train->batch) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: train.batch_warmup: batch %lld follows batch %lld: batches "
                                "must grow, and stay below train.batch, %lld",
                                where, (long long)stage->batch, (long long)before,
                                (long long)train->batch);
        }
        if (stage->batch % train->micro_batch != 0) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: train.batch_warmup: micro_batch %lld does not divide batch "
                                "%lld, and micro-batches do not change while batches grow",
                                where, (long long)train->micro_batch, (long long)stage->batch);
        }
        before = stage->batch;
        steps += stage->steps;
        if (steps >= train->steps) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: train.batch_warmup: %lld steps of smaller batches leave none "
                                "of the %lld train.steps for train.batch",
                                where, (long long)steps, (long long)train->steps);
        }
    }
    if (train->batch_warmup.count > 0 &&
        (config->sync.every > 1 || strcmp(config->sync.compress, "none") != 0)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: train.batch_warmup needs an uncompressed exchange at every step: "
                            "leave out section sync, or train.batch_warmup",
                            where);
    }
    return BY_OK;
}
