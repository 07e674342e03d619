/* The trainer's inputs and results: what is sent to the device with a micro-batch, and what comes
 * back.
 *
 * The inputs are contiguous in one buffer on the device and in two staging buffers of pinned host
 * memory, so that a micro-batch is one copy, and the next one can be assembled while it is in
 * flight. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/state/trainer.h"

/* Values of a step other than the batch, in the buffer of outputs on the device, in units of the
 * device (by__device_unit). What the host reads of a step begins at OUT_RESULTS and is one copy. */
enum {
    OUT_LOSS = 0, /* of a micro-batch */
    OUT_SCALE,
    OUT_HYPER,
    OUT_RESULTS,
    OUT_NORM = OUT_RESULTS, /* of the gradient */
    OUT_FAILED,
    OUT_MICRO, /* squares of the gradient of a micro-batch */
    OUT_LOSSES /* of all micro-batches, and of an evaluation */
};

/* The offset of that many units. */
static size_t at(const by_trainer *t, size_t units)
{
    return units * by__device_unit(t->device);
}

static size_t rounded(const by_trainer *t, size_t bytes)
{
    return by__round_up(bytes, by__device_unit(t->device));
}

static bool is_own_input(const char *name)
{
    return strcmp(name, "rng") == 0 || strcmp(name, "loss_scale") == 0 ||
           strcmp(name, "loss_factor") == 0;
}

static by_status add_feeds(by_trainer *t, const by_graph *graph, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        bool known = value->role != BY_ROLE_INPUT || is_own_input(value->name);
        if (!known && value->constant) {
            BY_TRY(by__trainer_plan_constant(t, value, error));
            known = true;
        }
        for (size_t i = 0; i < t->feed.count && !known; i++) {
            known = strcmp(t->feed.list[i].name, value->name) == 0;
        }
        if (known) {
            continue;
        }
        if (value->shape.rank < 1 || value->shape.dim[0] != t->config->train.micro_batch) {
            return by_error_set(error, BY_EARG,
                                "the model's input '%s' has no axis of train.micro_batch (%lld) "
                                "examples in front",
                                value->name, (long long)t->config->train.micro_batch);
        }
        BY_TRY(by__reserve((void **)&t->feed.list, &t->feed.capacity, t->feed.count + 1,
                           sizeof *t->feed.list, error));
        t->feed.list[t->feed.count++] = (by__trainer_feed){.name = value->name,
                                                           .dtype = value->dtype,
                                                           .shape = value->shape,
                                                           .offset = t->feed.input_bytes,
                                                           .bytes = by__graph_value_bytes(value)};
        if (!by__size_add(t->feed.input_bytes, by__graph_value_bytes(value) + at(t, 1),
                          &t->feed.input_bytes)) {
            return by_error_set(error, BY_EMEMORY, "the inputs' size overflows");
        }
        t->feed.input_bytes &= ~(at(t, 1) - 1);
    }
    return BY_OK;
}

static size_t result_bytes(const by_trainer *t)
{
    return at(t, OUT_LOSSES - OUT_RESULTS) +
           rounded(t, (size_t)(t->part.most_micro_batches + 1) * sizeof(float));
}

static size_t evaluated_offset(const by_trainer *t)
{
    return at(t, OUT_RESULTS) + result_bytes(t);
}

static size_t output_bytes(const by_trainer *t)
{
    return evaluated_offset(t) + rounded(t, t->feed.evaluated_bytes);
}

static size_t staging_bytes(const by_trainer *t)
{
    return BY__STAGES * t->feed.input_bytes + BY_STEPS_AHEAD * (result_bytes(t) + at(t, 1)) +
           rounded(t, t->feed.evaluated_bytes);
}

/* Pinned memory of a step: results, then "hyper". */
static char *host_of_step(const by_trainer *t, unsigned slot)
{
    return (char *)t->feed.staging.data + BY__STAGES * t->feed.input_bytes +
           slot * (result_bytes(t) + at(t, 1));
}

/* Plans the values of a micro-batch that the task's metrics read. */
static by_status plan_evaluated(by_trainer *t, by_error *error)
{
    by_value found = by_graph_find(t->model.forward, "evaluated");
    if (found == BY_NONE) {
        return BY_OK;
    }
    const by__graph_value *value = &t->model.forward->values[found];
    if (value->dtype != BY_F32 || value->shape.rank < 1 ||
        value->shape.dim[0] != t->config->train.micro_batch) {
        return by_error_set(error, BY_EARG,
                            "task %s: the evaluated values must be f32, with an axis of "
                            "train.micro_batch (%lld) examples in front",
                            t->task->name, (long long)t->config->train.micro_batch);
    }
    t->feed.evaluated_bytes = by__graph_value_bytes(value);
    return BY_OK;
}

by_status by__trainer_plan_feeds(by_trainer *t, by_error *error)
{
    BY_TRY(plan_evaluated(t, error));
    BY_TRY(add_feeds(t, t->model.parameters, error)); /* those of training first */
    BY_TRY(add_feeds(t, t->model.forward, error));
    t->feed.rng_offset = t->feed.input_bytes;
    t->feed.seed_offset = t->feed.rng_offset + at(t, 1);
    t->feed.input_bytes += at(t, 3);
    return BY_OK;
}

uint64_t by__trainer_feed_bytes(const by_trainer *t)
{
    return t->feed.constant_bytes + t->feed.input_bytes + output_bytes(t) + staging_bytes(t);
}

static by_status bind_model(by_trainer *t, by__exec_program_row *row, by_error *error)
{
    by_memory rng = by_memory_at(t->feed.inputs, t->feed.rng_offset, 4 * sizeof(int32_t));
    by_memory seed = by_memory_at(t->feed.inputs, t->feed.seed_offset, sizeof(float));
    for (size_t i = 0; i < t->feed.count; i++) {
        const by__trainer_feed *feed = &t->feed.list[i];
        BY_TRY(by__exec_row_bind(row, feed->name,
                                 by_memory_at(t->feed.inputs, feed->offset, feed->bytes), error));
    }
    BY_TRY(by__trainer_bind_constants(t, row, error));
    BY_TRY(by__exec_row_bind(row, "rng", rng, error));
    by_memory factor = by_memory_at(t->feed.inputs, t->feed.seed_offset + at(t, 1), sizeof(float));
    BY_TRY(by__exec_row_bind(row, "loss_scale", seed, error));
    BY_TRY(by__exec_row_bind(row, "loss_factor", factor, error));
    if (t->feed.evaluated_bytes > 0) {
        BY_TRY(by__exec_row_bind(
            row, "evaluated",
            by_memory_at(t->feed.outputs, evaluated_offset(t), t->feed.evaluated_bytes), error));
    }
    return by__exec_row_bind(row, "loss",
                             by_memory_at(t->feed.outputs, at(t, OUT_LOSS), sizeof(float)), error);
}

static by_status open_events(by_trainer *t, by_error *error)
{
    for (int i = 0; i < BY__STAGES; i++) {
        BY_TRY(by__device_event_open(&t->feed.copied[i], t->device, false, error));
    }
    for (int i = 0; i < BY_STEPS_AHEAD; i++) {
        BY_TRY(by__device_event_open(&t->steps.pending[i].read, t->device, false, error));
    }
    return by__device_event_open(&t->feed.computed, t->device, false, error);
}

by_status by__trainer_open_feeds(by_trainer *t, by_error *error)
{
    BY_TRY(by_device_alloc(&t->feed.inputs, t->device, t->feed.input_bytes, "the inputs", error));
    BY_TRY(by_device_alloc(&t->feed.outputs, t->device, output_bytes(t), "the outputs", error));
    BY_TRY(
        by_device_pin(&t->feed.staging, t->device, staging_bytes(t), "the staging memory", error));
    BY_TRY(open_events(t, error));
    BY_TRY(by__trainer_open_constants(t, error));
    for (size_t i = 0; i < t->programs.count; i++) {
        BY_TRY(bind_model(t, t->programs.rows[i], error));
    }
    by_memory scale = by_memory_at(t->feed.outputs, at(t, OUT_SCALE), sizeof(float));
    BY_TRY(by__exec_row_bind(t->norm.row, "norm",
                             by_memory_at(t->feed.outputs, at(t, OUT_NORM), sizeof(float)), error));
    size_t losses = (size_t)t->part.most_micro_batches * sizeof(float);
    if (t->norm.micro != NULL) {
        BY_TRY(by__exec_row_bind(t->norm.micro, "squares",
                                 by_memory_at(t->feed.outputs, at(t, OUT_MICRO), sizeof(float)),
                                 error));
    }
    BY_TRY(by__exec_row_bind(t->norm.row, "scale", scale, error));
    BY_TRY(by__exec_row_bind(t->norm.row, "failed",
                             by_memory_at(t->feed.outputs, at(t, OUT_FAILED), sizeof(float)),
                             error));
    BY_TRY(by__exec_row_bind(t->norm.row, "losses",
                             by_memory_at(t->feed.outputs, at(t, OUT_LOSSES), losses), error));
    return by__trainer_bind_update(t, t->update.row, error);
}

by_status by__trainer_bind_update(by_trainer *t, by__exec_program_row *row, by_error *error)
{
    size_t numbers = BY_HYPER_COUNT * sizeof(float);
    BY_TRY(by__exec_row_bind(
        row, "scale", by_memory_at(t->feed.outputs, at(t, OUT_SCALE), sizeof(float)), error));
    return by__exec_row_bind(row, "hyper", by_memory_at(t->feed.outputs, at(t, OUT_HYPER), numbers),
                             error);
}

void by__trainer_close_feeds(by_trainer *t)
{
    for (int i = 0; i < BY__STAGES; i++) {
        by__device_event_close(&t->feed.copied[i]);
    }
    for (int i = 0; i < BY_STEPS_AHEAD; i++) {
        by__device_event_close(&t->steps.pending[i].read);
    }
    by__device_event_close(&t->feed.computed);
    by_device_unpin(&t->feed.staging);
    by__trainer_close_constants(t);
    by_device_free(&t->feed.inputs);
    by_device_free(&t->feed.outputs);
    free(t->feed.list);
}

/* ---- to the device ---- */

/* Finds the batch's array for a feed, which must have `examples` examples. */
static by_status find_array(const by_trainer *t, const by__trainer_feed *feed,
                            const by_batch *batch, int64_t examples, const by_array **out,
                            by_error *error)
{
    const by_array *array = by_batch_array(batch, feed->name);
    by_shape want = feed->shape;
    char have_text[128];
    char want_text[128];
    BY_UNUSED(t);
    want.dim[0] = examples;
    if (array == NULL) {
        return by_error_set(error, BY_EARG, "the batch has no array '%s', which the model reads",
                            feed->name);
    }
    if (array->dtype != feed->dtype || !by_shape_equal(&array->shape, &want)) {
        return by_error_set(error, BY_EARG, "the batch has %s %s '%s', the config wants %s %s",
                            by_dtype_name(array->dtype), by_shape_print(&array->shape, have_text),
                            feed->name, by_dtype_name(feed->dtype),
                            by_shape_print(&want, want_text));
    }
    *out = array;
    return BY_OK;
}

by_status by__trainer_feed_micro_batch(by_trainer *t, by__exec_program_row *row,
                                       const by_batch *batch, int64_t examples, int64_t index,
                                       int64_t kept_as, by_error *error)
{
    unsigned stage = t->feed.fed++ % BY__STAGES;
    char *block = (char *)t->feed.staging.data + stage * t->feed.input_bytes;
    uint64_t seed = t->config->seed;
    t->feed.leaf = by__trainer_leaf(t, index);
    BY_TRY(by__trainer_need_constants(t, error));
    /* Waits until the previous copy from this block is done. */
    BY_TRY(by__device_event_wait(t->feed.copied[stage], error));
    for (size_t i = 0; i < t->feed.count; i++) {
        const by__trainer_feed *feed = &t->feed.list[i];
        const by_array *array = NULL;
        if (by_graph_find(row->graph, feed->name) == BY_NONE) {
            continue;
        }
        BY_TRY(find_array(t, feed, batch, examples, &array, error));
        memcpy(block + feed->offset, (const char *)array->data + feed->bytes * (size_t)index,
               feed->bytes);
        BY_TRY(by__exec_row_check(row, feed->name, block + feed->offset, error));
    }
    int32_t *rng = (int32_t *)(void *)(block + t->feed.rng_offset);
    rng[0] = (int32_t)(uint32_t)seed;
    rng[1] = (int32_t)(uint32_t)(seed >> 32);
    rng[2] = (int32_t)t->steps.updates;
    rng[3] = (int32_t)(by__trainer_leaf(t, index) * t->config->train.micro_batch);
    /* Replicas that take independent steps use the mean over their own part. */
    double weight = t->sync.is_local ? t->steps.own_weight : by__trainer_weight(batch, true);
    float factor = (float)t->probes.guard.loss_scale.scale;
    *(float *)(void *)(block + t->feed.seed_offset) =
        (weight > 0.0 ? 1.0f / (float)weight : 0.0f) * factor;
    *(float *)(void *)(block + t->feed.seed_offset + at(t, 1)) = factor;
    /* The device's inputs may be overwritten when the previous program has run. */
    BY_TRY(by__device_event_order(t->feed.computed, BY__QUEUE_COPY_IN, error));
    BY_TRY(by__device_copy_in(BY__QUEUE_COPY_IN, t->feed.inputs, block, error));
    BY_TRY(by__device_event_record(t->feed.copied[stage], BY__QUEUE_COPY_IN, error));
    BY_TRY(by__device_event_order(t->feed.copied[stage], BY__QUEUE_COMPUTE, error));
    BY_TRY(by_program_submit(row->program, error));
    by_memory loss = by_memory_at(t->feed.outputs, at(t, OUT_LOSS), sizeof(float));
    by_memory kept = by_memory_at(
        t->feed.outputs, at(t, OUT_LOSSES) + (size_t)kept_as * sizeof(float), sizeof(float));
    BY_TRY(by__device_copy(BY__QUEUE_COMPUTE, kept, loss, error));
    return by__device_event_record(t->feed.computed, BY__QUEUE_COMPUTE, error);
}

/* ---- and back ---- */

by_memory by__trainer_evaluated(const by_trainer *t)
{
    return by_memory_at(t->feed.outputs, evaluated_offset(t), t->feed.evaluated_bytes);
}

by_memory by__trainer_losses(const by_trainer *t)
{
    return by_memory_at(t->feed.outputs, at(t, OUT_LOSSES),
                        (size_t)(t->part.most_micro_batches + 1) * sizeof(float));
}

by_status by__trainer_fetch(by_trainer *t, unsigned slot, by_error *error)
{
    BY_TRY(by__device_copy_out(BY__QUEUE_COMPUTE, host_of_step(t, slot),
                               by_memory_at(t->feed.outputs, at(t, OUT_RESULTS), result_bytes(t)),
                               error));
    return by__device_event_record(t->steps.pending[slot].read, BY__QUEUE_COMPUTE, error);
}

by_status by__trainer_wait_results(by_trainer *t, unsigned slot, by__trainer_results *out,
                                   by_error *error)
{
    const char *host = host_of_step(t, slot);
    BY_TRY(by__device_event_wait(t->steps.pending[slot].read, error));
    out->norm = *(const float *)(const void *)(host + at(t, OUT_NORM - OUT_RESULTS));
    out->failed = *(const float *)(const void *)(host + at(t, OUT_FAILED - OUT_RESULTS));
    out->micro = *(const float *)(const void *)(host + at(t, OUT_MICRO - OUT_RESULTS));
    out->losses = (const float *)(const void *)(host + at(t, OUT_LOSSES - OUT_RESULTS));
    return BY_OK;
}

by_status by__trainer_fetch_evaluated(by_trainer *t, const float **out, by_error *error)
{
    char *host = host_of_step(t, BY_STEPS_AHEAD); /* after those of all steps */
    *out = NULL;
    if (t->feed.evaluated_bytes == 0) {
        return BY_OK;
    }
    *out = (const float *)(const void *)host;
    return by__device_copy_out(
        BY__QUEUE_COMPUTE, host,
        by_memory_at(t->feed.outputs, evaluated_offset(t), t->feed.evaluated_bytes), error);
}

by_status by__trainer_send_hyper(by_trainer *t, unsigned slot, const float *hyper, by_error *error)
{
    char *host = host_of_step(t, slot) + result_bytes(t);
    memcpy(host, hyper, BY_HYPER_COUNT * sizeof *hyper);
    return by__device_copy_in(
        BY__QUEUE_COMPUTE,
        by_memory_at(t->feed.outputs, at(t, OUT_HYPER), BY_HYPER_COUNT * sizeof(float)), host,
        error);
}

by_status by__trainer_veto(by_trainer *t, by_error *error)
{
    const float failed = 1.0f;
    const float scale = NAN;
    BY_TRY(by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error));
    BY_TRY(by_device_write(by_memory_at(t->feed.outputs, at(t, OUT_FAILED), sizeof failed), &failed,
                           error));
    return by_device_write(by_memory_at(t->feed.outputs, at(t, OUT_SCALE), sizeof scale), &scale,
                           error);
}

by_status by__trainer_clear_losses(by_trainer *t, by_error *error)
{
    char *zeros;
    size_t bytes = (size_t)t->part.most_micro_batches * sizeof(float);
    BY_TRY(by__alloc((void **)&zeros, bytes, 1, "losses", error));
    by_status status = by__device_queue_finish(t->device, BY__QUEUE_COMPUTE, error);
    if (status == BY_OK) {
        status =
            by_device_write(by_memory_at(t->feed.outputs, at(t, OUT_LOSSES), bytes), zeros, error);
    }
    free(zeros);
    return status;
}

by_status by__trainer_reset_failure(by_trainer *t, by_error *error)
{
    const float none = 0.0f;
    return by_device_write(by_memory_at(t->feed.outputs, at(t, OUT_FAILED), sizeof none), &none,
                           error);
}
