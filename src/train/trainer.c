#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "train/trainer.h"

/* Elements between parameters of a bucket are rounded up to this: 64 bytes of bf16, so that
 * masters, copies and gradients of every parameter are aligned. */
#define PARAMETER_ALIGNMENT 32

/* Small buffers that programs read and write, each at a fixed offset of one block. */
enum { IO_RNG, IO_SEED, IO_HYPER, IO_NORM, IO_SCALE, IO_LOSS, IO_SCALARS };

/* Lists parameters in graph order, matrices first, and lays them out in the two buckets. */
static by_status lay_out(by_trainer *t, by_error *error)
{
    const by_graph *graph = by__trainer_graph(t);
    int64_t next[2] = {0, 0};
    for (size_t v = 0; v < graph->value_count; v++) {
        t->parameter_count += graph->values[v].role == BY_ROLE_PARAMETER;
    }
    if (t->parameter_count == 0) {
        return by_error_set(error, BY_EARG, "the model has no parameters to train");
    }
    BY_TRY(by__alloc((void **)&t->parameters, t->parameter_count, sizeof *t->parameters,
                     "parameters", error));
    size_t i = 0;
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__value *value = &graph->values[v];
        if (value->role != BY_ROLE_PARAMETER) {
            continue;
        }
        char name[200];
        int bucket = value->shape.rank >= 2 ? 0 : 1;
        if (snprintf(name, sizeof name, "grad.%s", value->name) >= (int)sizeof name) {
            return by_error_set(error, BY_EARG,
                                "the name of parameter '%.40s...' has over %zu bytes", value->name,
                                sizeof name - sizeof "grad.");
        }
        t->parameters[i++] = (by__parameter){.value = (by_value)v,
                                             .gradient = by_graph_find(graph, name),
                                             .name = value->name,
                                             .shape = value->shape,
                                             .is_vocabulary = value->axes != NULL &&
                                                              strncmp(value->axes, "vocab", 5) == 0,
                                             .bucket = bucket,
                                             .offset = next[bucket],
                                             .count = by_shape_count(&value->shape)};
        next[bucket] +=
            (int64_t)by__round_up((size_t)by_shape_count(&value->shape), PARAMETER_ALIGNMENT);
    }
    t->buckets = (by_buckets){
        .matrices = next[0], .vectors = next[1], .copies = by__compute_dtype(t->config) != BY_F32};
    for (i = 0; i < t->parameter_count; i++) {
        by__parameter *p = &t->parameters[i];
        p->flat = p->offset + (p->bucket == 0 ? 0 : next[0]);
    }
    return BY_OK;
}

static by_status add_loss(by_trainer *t, by_model_builder *builder, void *user, by_error *error)
{
    by_graph *graph;
    by_model model;
    BY_TRY(by__train_forward(&graph, &model, t->config, builder, user, BY_MODEL_LOSS, error));
    by_pass_options options = by__pass_options(t->config, &model);
    return by__set_add(&t->programs, "loss", graph, BY_PURPOSE_LOSS, &options, error);
}

static by_status add_gradients(by_trainer *t, by_model_builder *builder, void *user,
                               by_error *error)
{
    by_graph *graph;
    BY_TRY(by__train_forward(&graph, &t->model, t->config, builder, user, BY_MODEL_TRAIN, error));
    by_pass_options options = by__pass_options(t->config, &t->model);
    return by__set_add(&t->programs, "gradients", graph, BY_PURPOSE_TRAIN, &options, error);
}

/* The graphs of a step behind the gradients. */
typedef by_status update_builder(const by_trainer *t, by_graph *graph, by_error *error);

/* y = a + b over whole gradient sets. */
static by_status build_sum(const by_trainer *t, by_graph *graph, by_error *error)
{
    int64_t size = t->buckets.matrices + t->buckets.vectors;
    by_value a = by_graph_input(graph, "a", BY_F32, BY_SHAPE(size));
    by_value b = by_graph_input(graph, "b", BY_F32, BY_SHAPE(size));
    by_graph_output(graph, by_add(graph, a, b), "sum");
    return by_graph_check(graph, error);
}

static by_status build_norm(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_norm_graph(graph, &t->config->optimizer, &t->buckets, error);
}

static by_status build_update(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_update_graph(graph, &t->config->optimizer, &t->buckets, error);
}

static by_status add_update(by_trainer *t, const char *name, update_builder *build, by_error *error)
{
    by_graph *graph;
    BY_TRY(by_graph_open(&graph, error));
    by_status status = build(t, graph, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    return by__set_add(&t->programs, name, graph, BY_PURPOSE_UPDATE, NULL, error);
}

/* FLOPs a token (see by_model_size). Attention's share is read off the graph. */
static by_status measure_size(by_trainer *t, by_error *error)
{
    const by_graph *graph = t->loss->graph;
    double seen = 0.0; /* of attention, forward and twice that backward */
    double full = 0.0;
    BY_TRY(by_model_count(graph, &t->size.parameters, &t->size.in_products, error));
    for (size_t n = 0; n < graph->node_count; n++) {
        by__attention_cost cost;
        BY_TRY(by__node_attention(graph, n, &cost, error));
        full += 3.0 * cost.token_flops;
        seen += 3.0 * cost.token_flops * cost.seen;
    }
    double products = 6.0 * (double)t->size.in_products;
    t->size.flops_per_token = products + seen;
    t->size.flops_per_token_full = products + full;
    return BY_OK;
}

static void plan_memory(by_trainer *t)
{
    uint64_t flat = (uint64_t)(t->buckets.matrices + t->buckets.vectors);
    uint64_t tokens = (uint64_t)(t->config->train.micro_batch * t->config->model.context);
    by_memory_report *m = &t->memory;
    m->parameters = flat * sizeof(float) +
                    (t->buckets.copies ? (uint64_t)t->buckets.matrices * sizeof(uint16_t) : 0);
    m->gradients = flat * sizeof(float) * (uint64_t)t->sets;
    m->optimizer = t->sets > 0 ? 2 * flat * sizeof(float) : 0;
    m->activations = by__set_arena_bytes(&t->programs);
    m->workspace = by__set_workspace_bytes(&t->programs);
    m->data =
        2 * by__round_up(tokens * sizeof(int32_t), BY_CACHE_LINE) + IO_SCALARS * BY_CACHE_LINE;
    m->total = m->parameters + m->gradients + m->optimizer + m->activations + m->workspace +
               m->data + m->process;
}

static void find_rows(by_trainer *t)
{
    t->loss = by__set_row(&t->programs, "loss");
    t->gradients = by__set_row(&t->programs, "gradients");
    t->norm = by__set_row(&t->programs, "gradient norm");
    t->sum = by__set_row(&t->programs, "gradient sum");
    t->update = by__set_row(&t->programs, "update");
}

static by_status add_programs(by_trainer *t, by_trainer_mode mode, by_model_builder *builder,
                              void *user, by_error *error)
{
    if (mode == BY_TRAINER_FULL) {
        t->sets = by__tree_sets(t->micro_batches);
        BY_TRY(add_gradients(t, builder, user, error));
    }
    BY_TRY(add_loss(t, builder, user, error));
    find_rows(t);
    BY_TRY(lay_out(t, error));
    if (t->sets > 1) {
        BY_TRY(add_update(t, "gradient sum", build_sum, error));
    }
    if (t->sets > 0) {
        BY_TRY(add_update(t, "gradient norm", build_norm, error));
        BY_TRY(add_update(t, "update", build_update, error));
    }
    find_rows(t); /* adding may have moved them */
    return BY_OK;
}

static by_status build(by_trainer *t, by_trainer_mode mode, by_model_builder *builder, void *user,
                       by_error *error)
{
    const by_train_config *train = &t->config->train;
    t->micro_batches = train->batch / train->micro_batch;
    BY_TRY(by_device_open(&t->device, "cpu", (int)train->threads, error));
    t->programs.device = t->device;
    BY_TRY(add_programs(t, mode, builder, user, error));
    BY_TRY(measure_size(t, error));
    t->memory.process = by__resident_bytes();
    plan_memory(t);
    return BY_OK;
}

by_status by_trainer_open(by_trainer **out, const by_config *config, by_trainer_mode mode,
                          by_model_builder *builder, void *user, by_error *error)
{
    by_trainer *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "trainer", error));
    t->config = config;
    by_status status = build(t, mode, builder, user, error);
    if (status != BY_OK) {
        by_trainer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

void by_trainer_close(by_trainer **trainer)
{
    if (trainer == NULL || *trainer == NULL) {
        return;
    }
    by_trainer *t = *trainer;
    by__set_close(&t->programs);
    by__pages *blocks[] = {&t->masters, &t->copies, &t->gradient_sets, &t->moments, &t->io};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(blocks); i++) {
        by__pages_close(blocks[i]);
    }
    by_device_close(&t->device);
    free(t->parameters);
    free(t);
    *trainer = NULL;
}

const by_memory_report *by_trainer_memory(const by_trainer *trainer)
{
    return &trainer->memory;
}

const by_model_size *by_trainer_size(const by_trainer *trainer)
{
    return &trainer->size;
}

void by_trainer_plan_data(by_trainer *trainer, uint64_t bytes)
{
    trainer->memory.data += bytes;
    trainer->memory.total += bytes;
}

float *by__trainer_master(const by_trainer *t, const by__parameter *p)
{
    return (float *)t->masters.data + p->flat;
}

float *by__trainer_gradient(const by_trainer *t, const by__parameter *p, int set)
{
    size_t flat = (size_t)(t->buckets.matrices + t->buckets.vectors);
    return (float *)t->gradient_sets.data + flat * (size_t)set + p->flat;
}

static float *flat_set(const by_trainer *t, int set)
{
    size_t flat = (size_t)(t->buckets.matrices + t->buckets.vectors);
    return (float *)t->gradient_sets.data + flat * (size_t)set;
}

void *by__trainer_compute(const by_trainer *t, const by__parameter *p)
{
    return p->bucket == 0 && t->buckets.copies ? (void *)((uint16_t *)t->copies.data + p->offset)
                                               : (void *)by__trainer_master(t, p);
}

static void *io_at(const by_trainer *t, int slot)
{
    return (char *)t->io.data + (size_t)slot * BY_CACHE_LINE;
}

static by_status bind_host(by__program_row *row, const char *name, void *data, by_error *error)
{
    by_value value = row == NULL ? BY_NONE : by_graph_find(row->graph, name);
    if (value == BY_NONE) {
        return BY_OK;
    }
    by_memory memory = by_host_memory(data, by__value_bytes(&row->graph->values[value]));
    return by_program_bind(row->program, value, memory, error);
}

/* Points the gradient program's outputs at one gradient set. */
static by_status bind_gradients(by_trainer *t, int set, by_error *error)
{
    for (size_t i = 0; i < t->parameter_count && set != t->bound_set; i++) {
        const by__parameter *p = &t->parameters[i];
        by_memory memory =
            by_host_memory(by__trainer_gradient(t, p, set), (size_t)p->count * sizeof(float));
        BY_TRY(by_program_bind(t->gradients->program, p->gradient, memory, error));
    }
    t->bound_set = set;
    return BY_OK;
}

/* Points norm and update at the set that holds the sum. */
static by_status bind_sum(by_trainer *t, int set, by_error *error)
{
    by__program_row *rows[2] = {t->norm, t->update};
    t->sum_set = set;
    for (int i = 0; i < 2; i++) {
        BY_TRY(bind_host(rows[i], "grad.matrices", flat_set(t, set), error));
        BY_TRY(bind_host(rows[i], "grad.vectors", flat_set(t, set) + t->buckets.matrices, error));
    }
    return BY_OK;
}

static by_status bind_all(by_trainer *t, by_error *error)
{
    by__program_row *models[2] = {t->gradients, t->loss};
    float *masters = t->masters.data;
    float *moments = t->moments.data;
    int64_t flat = t->buckets.matrices + t->buckets.vectors;
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < t->parameter_count; i++) {
            const by__parameter *p = &t->parameters[i];
            BY_TRY(bind_host(models[k], p->name, by__trainer_compute(t, p), error));
        }
        BY_TRY(bind_host(models[k], "tokens", t->tokens, error));
        BY_TRY(bind_host(models[k], "targets", t->targets, error));
        BY_TRY(bind_host(models[k], "loss", io_at(t, IO_LOSS), error));
    }
    BY_TRY(bind_host(t->gradients, "rng", io_at(t, IO_RNG), error));
    BY_TRY(bind_host(t->gradients, "loss_scale", io_at(t, IO_SEED), error));
    BY_TRY(bind_host(t->norm, "norm", io_at(t, IO_NORM), error));
    BY_TRY(bind_host(t->norm, "scale", io_at(t, IO_SCALE), error));
    BY_TRY(bind_host(t->update, "scale", io_at(t, IO_SCALE), error));
    BY_TRY(bind_host(t->update, "hyper", io_at(t, IO_HYPER), error));
    BY_TRY(bind_host(t->update, "matrices", masters, error));
    BY_TRY(bind_host(t->update, "vectors", masters + t->buckets.matrices, error));
    BY_TRY(bind_host(t->update, "m.matrices", moments, error));
    BY_TRY(bind_host(t->update, "m.vectors", moments + t->buckets.matrices, error));
    BY_TRY(bind_host(t->update, "v.matrices", moments + flat, error));
    BY_TRY(bind_host(t->update, "v.vectors", moments + flat + t->buckets.matrices, error));
    BY_TRY(bind_host(t->update, "copy.matrices", t->copies.data, error));
    if (t->sets == 0) {
        return BY_OK;
    }
    t->bound_set = -1;
    BY_TRY(bind_gradients(t, 0, error));
    return bind_sum(t, 0, error);
}

by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error)
{
    if (t->io.data == NULL) {
        return by_error_set(error, BY_ESTATE,
                            "the trainer has no memory yet: by_trainer_allocate comes first");
    }
    if (training && t->sets == 0) {
        return by_error_set(error, BY_ESTATE, "this trainer was opened for losses only");
    }
    return BY_OK;
}

static by_status take_memory(by_trainer *t, size_t token_bytes, by_error *error)
{
    uint64_t flat_bytes = (uint64_t)(t->buckets.matrices + t->buckets.vectors) * sizeof(float);
    size_t copy_bytes = t->buckets.copies ? (size_t)t->buckets.matrices * sizeof(uint16_t) : 0;
    BY_TRY(by__pages_open(&t->masters, flat_bytes, "the parameters", error));
    BY_TRY(by__pages_open(&t->copies, copy_bytes, "the bf16 parameters", error));
    BY_TRY(by__pages_open(&t->gradient_sets, t->memory.gradients, "the gradients", error));
    BY_TRY(by__pages_open(&t->moments, t->memory.optimizer, "the optimizer's moments", error));
    BY_TRY(by__set_allocate(&t->programs, 0, error));
    return by__pages_open(&t->io, 2 * token_bytes + IO_SCALARS * BY_CACHE_LINE, "inputs", error);
}

by_status by_trainer_allocate(by_trainer *t, by_error *error)
{
    if (t->masters.data != NULL) {
        return by_error_set(error, BY_ESTATE, "the trainer's memory was allocated before");
    }
    uint64_t tokens = (uint64_t)(t->config->train.micro_batch * t->config->model.context);
    size_t token_bytes = by__round_up(tokens * sizeof(int32_t), BY_CACHE_LINE);
    by_status status = by__plan_fits(&t->memory, error);
    if (status == BY_OK) {
        status = take_memory(t, token_bytes, error);
    }
    if (status != BY_OK) {
        by_error plain = error == NULL ? (by_error){0} : *error;
        return by_error_set(
            error, status,
            "%s; a smaller micro_batch, recompute: block or a smaller model needs less",
            plain.message);
    }
    t->tokens = (int32_t *)((char *)t->io.data + IO_SCALARS * BY_CACHE_LINE);
    t->targets = (int32_t *)((char *)t->tokens + token_bytes);
    return bind_all(t, error);
}

/* ---- steps ---- */

static by_status add_sets(by_trainer *t, int earlier, int set, by_error *error)
{
    BY_TRY(bind_host(t->sum, "a", flat_set(t, earlier), error));
    BY_TRY(bind_host(t->sum, "b", flat_set(t, set), error));
    BY_TRY(bind_host(t->sum, "sum", flat_set(t, set), error));
    return by_program_run(t->sum->program, error);
}

/* Forward and backward of micro-batch `index` into gradient set `set`; adds its loss sum to
 * *loss. */
static by_status run_micro_batch(by_trainer *t, const by_batch *batch, int64_t index, int set,
                                 double *loss, by_error *error)
{
    size_t count = (size_t)(t->config->train.micro_batch * t->config->model.context);
    size_t first = count * (size_t)index;
    uint64_t seed = t->config->seed;
    int32_t *rng = io_at(t, IO_RNG);
    float *scale = io_at(t, IO_SEED);
    const int32_t *tokens = by_batch_array(batch, "tokens")->data;
    const int32_t *targets = by_batch_array(batch, "targets")->data;
    memcpy(t->tokens, tokens + first, count * sizeof *t->tokens);
    memcpy(t->targets, targets + first, count * sizeof *t->targets);
    rng[0] = (int32_t)(uint32_t)seed;
    rng[1] = (int32_t)(uint32_t)(seed >> 32);
    rng[2] = (int32_t)t->updates;
    rng[3] = (int32_t)(index * t->config->train.micro_batch);
    *scale = batch->global_targets > 0 ? 1.0f / (float)batch->global_targets : 0.0f;
    BY_TRY(bind_gradients(t, set, error));
    BY_TRY(by_program_run(t->gradients->program, error));
    *loss += (double)*(const float *)io_at(t, IO_LOSS);
    return BY_OK;
}

static by_status check_array(const by_trainer *t, const by_batch *batch, const char *name,
                             by_error *error)
{
    by_shape shape = BY_SHAPE(t->config->train.batch, t->config->model.context);
    const by_array *array = by_batch_array(batch, name);
    char have[128];
    char want[128];
    if (array == NULL || array->dtype != BY_I32 || !by_shape_equal(&array->shape, &shape)) {
        return by_error_set(error, BY_EARG,
                            "step: the batch has %s %s '%s', the config wants i32 %s",
                            array == NULL ? "no" : by_dtype_name(array->dtype),
                            array == NULL ? "array" : by_shape_print(&array->shape, have), name,
                            by_shape_print(&shape, want));
    }
    return BY_OK;
}

by_status by_trainer_gradients(by_trainer *t, const by_batch *batch, double *loss, by_error *error)
{
    by__tree tree;
    double sum = 0.0;
    int other;
    BY_TRY(by__trainer_ready(t, true, error));
    BY_TRY(check_array(t, batch, "tokens", error));
    BY_TRY(check_array(t, batch, "targets", error));
    by__tree_begin(&tree, t->sets);
    for (int64_t i = 0; i < t->micro_batches; i++) {
        int set = by__tree_take(&tree);
        int height = 0;
        BY_TRY(run_micro_batch(t, batch, i, set, &sum, error));
        for (int waiting; (waiting = by__tree_put(&tree, set, &height)) >= 0;) {
            BY_TRY(add_sets(t, waiting, set, error));
        }
    }
    int total = by__tree_finish(&tree, &other);
    while (other >= 0) {
        BY_TRY(add_sets(t, other, total, error));
        total = by__tree_finish(&tree, &other);
    }
    *loss = batch->global_targets > 0 ? sum / (double)batch->global_targets : 0.0;
    return bind_sum(t, total, error);
}

by_status by_trainer_step(by_trainer *t, const by_batch *batch, by_step_result *out,
                          by_error *error)
{
    const by_config *c = t->config;
    by_step_result result = {.tokens = c->train.batch * c->model.context};
    BY_TRY(by_trainer_gradients(t, batch, &result.loss, error));
    BY_TRY(by_program_run(t->norm->program, error));
    result.norm = (double)*(const float *)io_at(t, IO_NORM);
    result.lr = by_learning_rate(&c->optimizer, t->updates, c->train.steps);
    if (!isfinite(result.loss) || !isfinite(result.norm)) {
        return by_error_set(
            error, BY_ESTATE,
            "step %lld: the loss is %g and the gradient norm %g; the weights were not "
            "changed; try a lower optimizer.lr, more warmup, or clip",
            (long long)t->updates + 1, result.loss, result.norm);
    }
    by_optimizer_hyper(io_at(t, IO_HYPER), &c->optimizer, t->updates, result.lr);
    BY_TRY(by_program_run(t->update->program, error));
    t->updates++;
    *out = result;
    return BY_OK;
}

by_status by_trainer_loss(by_trainer *t, const int32_t *tokens, const int32_t *targets, double *sum,
                          by_error *error)
{
    size_t count = (size_t)(t->config->train.micro_batch * t->config->model.context);
    BY_TRY(by__trainer_ready(t, false, error));
    memcpy(t->tokens, tokens, count * sizeof *tokens);
    memcpy(t->targets, targets, count * sizeof *targets);
    BY_TRY(by_program_run(t->loss->program, error));
    *sum = (double)*(const float *)io_at(t, IO_LOSS);
    return BY_OK;
}

int64_t by_trainer_updates(const by_trainer *trainer)
{
    return trainer->updates;
}

const char *by_trainer_program_name(const by_trainer *trainer, size_t i)
{
    return i < trainer->programs.count ? trainer->programs.rows[i].name : NULL;
}

by_program *by_trainer_program(const by_trainer *trainer, const char *name)
{
    const by__program_row *row = by__set_row(&trainer->programs, name);
    return row == NULL ? NULL : row->program;
}
