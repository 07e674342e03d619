/* Which examples a rank computes, and the loaders that read them. */
#include <stdlib.h>

#include "tasks/tasks.h"
#include "trainer/exchange/exchange.h"
#include "trainer/state/trainer.h"

by_batch_part by_trainer_part(const by_trainer *trainer)
{
    size_t micro_batch = (size_t)trainer->config->train.micro_batch;
    size_t count = (size_t)trainer->part.micro_batches * micro_batch;
    const by__trainer_leaves leaves = by__trainer_replica_leaves(trainer, trainer->layout.replica);
    bool in_turn = leaves.stride > 1;
    return (by_batch_part){.first = (size_t)by__trainer_leaf(trainer, 0) * micro_batch,
                           .count = count,
                           .block = in_turn ? micro_batch : count,
                           .stride = in_turn ? micro_batch * (size_t)leaves.stride : count};
}

/* This rank's part of a global batch; of held-out data, replicas take micro-batches in turn. */
static by_loader_options part_options(const by_trainer *t, bool training)
{
    size_t micro_batch = (size_t)t->config->train.micro_batch;
    by_loader_options options = {.seed = t->config->seed,
                                 .threads = by__task_loader_threads(t->config)};
    if (training) {
        const by_batch_part part = by_trainer_part(t);
        options.batch = (size_t)t->part.all_micro_batches * micro_batch;
        options.first = part.first;
        options.count = part.count;
        options.block = part.block;
        options.stride = part.stride;
    } else {
        options.batch = micro_batch * (size_t)t->layout.replicas;
        options.first = micro_batch * (size_t)t->layout.replica;
        options.count = micro_batch;
    }
    return options;
}

by_status by_trainer_loader(by_loader **out, const by_trainer *trainer, by_task_data *data,
                            bool training, by_error *error)
{
    by_source *source;
    const by_loader_options options = part_options(trainer, training);
    BY_TRY(data->task->source(&source, data, trainer->config, training, error));
    return by_loader_open(out, source, &options, error);
}

by_status by_trainer_begin_step(by_trainer *t, by_loader *loader, by_error *error)
{
    int64_t batch = by_config_batch(t->config, t->steps.updates);
    int64_t count = batch / t->config->train.micro_batch;
    if (count == t->part.all_micro_batches) {
        return BY_OK;
    }
    if (t->steps.submitted != t->steps.collected) {
        return by_error_set(error, BY_ESTATE,
                            "a batch of %lld behind steps of %lld: collect these first",
                            (long long)batch,
                            (long long)(t->part.all_micro_batches * t->config->train.micro_batch));
    }
    BY_TRY(by__trainer_clear_losses(t, error));
    BY_TRY(by__trainer_ranks_set_micro_batches(t, count, error));
    const by_loader_options options = part_options(t, true);
    return loader == NULL ? BY_OK : by_loader_resize(loader, &options, error);
}

by_status by_trainer_plan_loaders(by_trainer *t, bool held_out, by_error *error)
{
    by_array *arrays;
    uint64_t bytes = 0;
    uint64_t valid = 0;
    by_loader_options options = part_options(t, true);
    BY_TRY(by__alloc((void **)&arrays, t->feed.count, sizeof *arrays, "arrays", error));
    for (size_t i = 0; i < t->feed.count; i++) {
        const by__trainer_feed *feed = &t->feed.list[i];
        arrays[i] = (by_array){.name = feed->name, .dtype = feed->dtype};
        arrays[i].shape.rank = feed->shape.rank - 1;
        for (int k = 0; k < arrays[i].shape.rank; k++) {
            arrays[i].shape.dim[k] = feed->shape.dim[k + 1];
        }
    }
    by_status status = by_loader_bytes(&bytes, arrays, t->feed.count, &options, error);
    if (status == BY_OK && held_out) {
        options = part_options(t, false);
        status = by_loader_bytes(&valid, arrays, t->feed.count, &options, error);
    }
    free(arrays);
    if (status == BY_OK) {
        by_trainer_plan_data(t, bytes + valid);
    }
    return status;
}
