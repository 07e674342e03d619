/* Batches that the trainer makes itself. */
#include <stdlib.h>

#include "train/trainer.h"

#define PURPOSE_BATCH 0x62746368u /* "btch" in ASCII */

struct by_random_batch {
    by_batch batch;
    by_array *arrays;
    void **data;
};

/* An example's part of a feed, number `row` of the global batch. */
static void fill(void *data, const by__feed *feed, size_t row, size_t count, int64_t limit,
                 uint32_t stream)
{
    const uint32_t key[2] = {PURPOSE_BATCH, stream};
    for (size_t i = 0; i < count; i++) {
        uint32_t random[4];
        uint64_t at = (uint64_t)row * count + i;
        by__philox(random, key, (uint32_t[4]){(uint32_t)at, (uint32_t)(at >> 32)});
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
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < t->programs.count; i++) {
        const by__program_row *row = &t->programs.rows[i];
        by_value value = by_graph_find(row->graph, name);
        if (value != BY_NONE && row->graph->values[value].role == BY_ROLE_INPUT) {
            int64_t limit = by_program_limit(row->program, value);
            least = limit < least ? limit : least;
        }
    }
    return least > INT32_MAX ? 1 : least;
}

static by_status make_array(by_random_batch *b, size_t i, const by_trainer *t, by_error *error)
{
    const by__feed *feed = &t->feeds[i];
    const by_batch_part part = by_trainer_part(t);
    by_array *array = &b->arrays[i];
    *array = (by_array){.name = feed->name, .dtype = feed->dtype, .shape = feed->shape};
    array->shape.dim[0] = (int64_t)part.count;
    if (feed->dtype != BY_I32 && feed->dtype != BY_F32) {
        return by_error_set(error, BY_EARG, "a random batch: '%s' is neither i32 nor f32",
                            feed->name);
    }
    size_t count = (size_t)by_shape_count(&array->shape);
    BY_TRY(by__alloc(&b->data[i], count, by_dtype_size(feed->dtype), "a random batch", error));
    size_t bytes = count / part.count * by_dtype_size(feed->dtype);
    for (size_t k = 0; k < part.count; k++) {
        fill((char *)b->data[i] + k * bytes, feed,
             part.first + k / part.block * part.stride + k % part.block, count / part.count,
             limit_of(t, feed->name), (uint32_t)i);
    }
    array->data = b->data[i];
    return BY_OK;
}

by_status by_random_batch_open(by_random_batch **out, const by_trainer *t, by_error *error)
{
    by_random_batch *b;
    const by_batch_part part = by_trainer_part(t);
    uint64_t each = (uint64_t)by__per_sample(t->task, t->config);
    BY_TRY(by__alloc((void **)&b, 1, sizeof *b, "a random batch", error));
    b->batch = (by_batch){.array_count = t->feed_count,
                          .batch = part.count,
                          .first_sample = part.first,
                          .valid_targets = part.count * each,
                          .global_targets = (uint64_t)t->config->train.batch * each};
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
