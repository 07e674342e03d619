/* Batches that the trainer makes itself, and what batches of loaders will take. */
#include <stdlib.h>

#include "train/trainer.h"

#define PURPOSE_BATCH 0x62746368u /* "btch" in ASCII */

struct by_random_batch {
    by_batch batch;
    by_array *arrays;
    void **data;
};

by_status by_trainer_plan_loaders(by_trainer *t, bool held_out, by_error *error)
{
    const by_train_config *train = &t->config->train;
    by_array *arrays;
    uint64_t bytes = 0;
    uint64_t valid = 0;
    by_loader_options options = {.batch = (size_t)train->batch};
    BY_TRY(by__alloc((void **)&arrays, t->feed_count, sizeof *arrays, "arrays", error));
    for (size_t i = 0; i < t->feed_count; i++) {
        const by__feed *feed = &t->feeds[i];
        arrays[i] = (by_array){.name = feed->name, .dtype = feed->dtype};
        arrays[i].shape.rank = feed->shape.rank - 1;
        for (int k = 0; k < arrays[i].shape.rank; k++) {
            arrays[i].shape.dim[k] = feed->shape.dim[k + 1];
        }
    }
    by_status status = by_loader_bytes(&bytes, arrays, t->feed_count, &options, error);
    if (status == BY_OK && held_out) {
        options.batch = (size_t)train->micro_batch;
        status = by_loader_bytes(&valid, arrays, t->feed_count, &options, error);
    }
    free(arrays);
    if (status == BY_OK) {
        by_trainer_plan_data(t, bytes + valid);
    }
    return status;
}

static void fill(void *data, const by__feed *feed, size_t count, int64_t limit, uint32_t stream)
{
    const uint32_t key[2] = {PURPOSE_BATCH, stream};
    for (size_t i = 0; i < count; i++) {
        uint32_t random[4];
        by__philox(random, key, (uint32_t[4]){(uint32_t)i, (uint32_t)(i >> 32)});
        if (feed->dtype == BY_I32) {
            ((int32_t *)data)[i] = (int32_t)((uint64_t)random[0] * (uint64_t)limit >> 32);
        } else {
            ((float *)data)[i] = (float)(int32_t)random[0] * 0x1p-31f;
        }
    }
}

/* Indices that no node limits are 0, which every table has. */
static int64_t limit_of(const by_trainer *t, const char *name)
{
    const by__program_row *row = t->gradients != NULL ? t->gradients : t->loss;
    by_value value = by_graph_find(row->graph, name);
    int64_t limit = value == BY_NONE ? 1 : by_program_limit(row->program, value);
    return limit > INT32_MAX ? 1 : limit;
}

static by_status make_array(by_random_batch *b, size_t i, const by_trainer *t, by_error *error)
{
    const by__feed *feed = &t->feeds[i];
    by_array *array = &b->arrays[i];
    *array = (by_array){.name = feed->name, .dtype = feed->dtype, .shape = feed->shape};
    array->shape.dim[0] = t->config->train.batch;
    if (feed->dtype != BY_I32 && feed->dtype != BY_F32) {
        return by_error_set(error, BY_EARG, "a random batch: '%s' is neither i32 nor f32",
                            feed->name);
    }
    size_t count = (size_t)by_shape_count(&array->shape);
    BY_TRY(by__alloc(&b->data[i], count, by_dtype_size(feed->dtype), "a random batch", error));
    fill(b->data[i], feed, count, limit_of(t, feed->name), (uint32_t)i);
    array->data = b->data[i];
    return BY_OK;
}

by_status by_random_batch_open(by_random_batch **out, const by_trainer *t, by_error *error)
{
    by_random_batch *b;
    size_t batch = (size_t)t->config->train.batch;
    uint64_t targets = (uint64_t)batch * (uint64_t)by__per_sample(t->task, t->config);
    BY_TRY(by__alloc((void **)&b, 1, sizeof *b, "a random batch", error));
    b->batch = (by_batch){.array_count = t->feed_count,
                          .batch = batch,
                          .valid_targets = targets,
                          .global_targets = targets};
    by_status status =
        by__alloc((void **)&b->arrays, t->feed_count, sizeof *b->arrays, "a random batch", error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&b->data, t->feed_count, sizeof *b->data, "a random batch", error);
    }
    b->batch.arrays = b->arrays;
    b->batch.array_count = status == BY_OK ? t->feed_count : 0;
    for (size_t i = 0; i < t->feed_count && status == BY_OK; i++) {
        status = make_array(b, i, t, error);
    }
    if (status != BY_OK) {
        by_random_batch_close(&b);
        return status;
    }
    *out = b;
    return BY_OK;
}

void by_random_batch_close(by_random_batch **batch)
{
    if (batch == NULL || *batch == NULL) {
        return;
    }
    by_random_batch *b = *batch;
    for (size_t i = 0; i < b->batch.array_count; i++) {
        free(b->data[i]);
    }
    free(b->data);
    free(b->arrays);
    free(b);
    *batch = NULL;
}

const by_batch *by_random_batch_view(const by_random_batch *batch)
{
    return &batch->batch;
}
