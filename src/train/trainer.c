#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "train/trainer.h"

/* ---- the programs ---- */

/* This rank's place on the axes that divide the work of a graph. */
static void set_shards(const by_trainer *t, by_shard_axis shards[BY_SHARD_KINDS])
{
    static const by_mesh_axis axes[BY_SHARD_KINDS] = {[BY_SHARD_SEQUENCE] = BY_MESH_SEQUENCE,
                                                      [BY_SHARD_TENSOR] = BY_MESH_TENSOR,
                                                      [BY_SHARD_EXPERT] = BY_MESH_EXPERT};
    for (int kind = 0; kind < BY_SHARD_KINDS; kind++) {
        shards[kind] = (by_shard_axis){.ranks = t->layout.size[axes[kind]],
                                       .rank = t->layout.place[axes[kind]],
                                       .mesh = 1u << axes[kind]};
    }
    shards[BY_SHARD_SEQUENCE].addends = by__ranks_parts(t) > 1;
    shards[BY_SHARD_TENSOR].sequence = t->config->parallel.sequence_parallel != 0;
}

by_pass_options by__trainer_pass_options(const by_trainer *t, const by_model *model)
{
    by_pass_options options = by__pass_options(t->config, model);
    set_shards(t, options.shard);
    return options;
}

static by_status add_model(by_trainer *t, const by_trainer_options *o, bool training,
                           by_error *error)
{
    by_graph *graph;
    by_model_mode mode = training ? BY_MODEL_TRAIN : BY_MODEL_LOSS;
    const by__recipe recipe = {o->builder, o->user, t->task};
    BY_TRY(by__train_forward(&graph, &t->model, t->config, &recipe, mode, error));
    by_pass_options options = by__trainer_pass_options(t, &t->model);
    by__gathered_options(t, graph, &options);
    return by__set_add(&t->programs, training ? "gradients" : "loss", graph,
                       training ? BY_PURPOSE_TRAIN : BY_PURPOSE_LOSS, &options, error);
}

/* All elements of a gradient set. */
static int64_t set_elements(const by_trainer *t)
{
    int64_t elements = 0;
    for (int group = 0; group < BY__TRAINED_GROUPS; group++) {
        elements += by__store_group_elements(t->store, t->masters, group);
    }
    return elements;
}

/* y = a + b over whole gradient sets. */
static by_status build_sum(const by_trainer *t, by_graph *graph, by_error *error)
{
    int64_t size = set_elements(t);
    by_value a = by_graph_input(graph, "a", BY_F32, BY_SHAPE(size));
    by_value b = by_graph_input(graph, "b", BY_F32, BY_SHAPE(size));
    by_graph_output(graph, by_add(graph, a, b), "sum");
    return by_graph_check(graph, error);
}

static by_status build_norm(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_norm_graph(graph, &t->config->optimizer, t->groups, t->trained_groups,
                                   t->all_micro_batches, error);
}

static by_status build_update(const by_trainer *t, by_graph *graph, by_error *error)
{
    return t->tensors != NULL ? by_optimizer_update_graph(graph, &t->config->optimizer, t->tensors,
                                                          t->tensor_count, error)
                              : by_optimizer_update_graph(graph, &t->config->optimizer, t->groups,
                                                          t->trained_groups, error);
}

/* Whether a rank has slices of a group, not all of it, to update. */
static bool is_divided(const by_trainer *t, int group)
{
    return by__is_sharded(t) && group < BY__TRAINED_GROUPS;
}

static void add_copy(by_graph *graph, const char *unit, by_shape shape, by_dtype copy)
{
    char name[300];
    by_value master = by_graph_input(graph, unit, BY_F32, shape);
    (void)snprintf(name, sizeof name, "copy.%s", unit);
    by_graph_output(graph, by_cast(graph, master, copy), name);
}

/* The masters of every group that has copies, rounded. */
static by_status build_copy(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->group_count; i++) {
        const by_update_unit *unit = &t->groups[i];
        if (unit->copy != BY_F32 && !is_divided(t, t->group_of_unit[i])) {
            add_copy(graph, unit->name, unit->shape, unit->copy);
        }
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__slice *own = &t->shard.own[i];
        if ((own->group & BY__GROUP_WIDE) == 0) {
            add_copy(graph, own->name, BY_SHAPE(own->count), by__compute_dtype(t->config));
        }
    }
    return by_graph_check(graph, error);
}

by_status by__trainer_add_update(by_trainer *t, const char *name, by__update_builder *build,
                                 by_error *error)
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

static void find_rows(by_trainer *t)
{
    t->loss = by__set_row(&t->programs, "loss");
    t->gradients = by__set_row(&t->programs, "gradients");
    t->last = by__set_row(&t->programs, BY__LAST_GRADIENTS);
    t->norm = by__set_row(&t->programs, "gradient norm");
    t->sum = by__set_row(&t->programs, "gradient sum");
    t->update = by__set_row(&t->programs, "update");
    t->copy = by__set_row(&t->programs, "compute copies");
    t->shard.norm.squares = by__set_row(&t->programs, "gradient squares");
    if (t->pipe != NULL) {
        by__pipe_find_rows(t);
    }
}

/* ---- the store ---- */

static const char *const group_names[BY__GROUPS] = {
    "matrices",
    "vectors",
    "wide.matrices",
    "wide.vectors",
    "split.matrices",
    "split.vectors",
    "split.wide.matrices",
    "split.wide.vectors",
    "experts.matrices",
    "experts.vectors",
    "experts.wide.matrices",
    "experts.wide.vectors",
    "experts.split.matrices",
    "experts.split.vectors",
    "experts.split.wide.matrices",
    "experts.split.wide.vectors",
    "frozen.matrices",
    "frozen.vectors",
    "frozen.wide.matrices",
    "frozen.wide.vectors",
};

by_update_unit by__trainer_unit(const by_trainer *t, const char *name, by_shape shape, int group)
{
    uint32_t mesh = by__group_mesh(group);
    int ranks = 1;
    for (int axis = 0; axis < BY_MESH_AXES; axis++) {
        ranks *= (mesh >> axis & 1u) != 0 ? t->layout.size[axis] : 1;
    }
    return (by_update_unit){.name = name,
                            .ranks = mesh != 0 ? ranks : 0,
                            .mesh = mesh,
                            .shape = shape,
                            .decay = (group & BY__GROUP_VECTOR) == 0,
                            .copy = (group & BY__GROUP_WIDE) == 0 ? by__compute_dtype(t->config)
                                                                  : BY_F32};
}

/* The i-th of the logical axes of a tensor is that of experts. */
static bool is_of_experts(const by__stored_tensor *entry, int i)
{
    const char *name = entry->axes;
    for (; i > 0 && *name != '\0'; i--) {
        name += strcspn(name, " ");
        name += strspn(name, " ");
    }
    return strcspn(name, " ") == strlen("expert") && strncmp(name, "expert", 6) == 0;
}

by_update_unit by__trainer_tensor_unit(const by_trainer *t, const char *name,
                                       const by__stored_tensor *entry)
{
    by_update_unit unit = by__trainer_unit(t, name, entry->local, entry->group);
    unit.whole = entry->shape;
    for (int i = 0; i < entry->shape.rank && unit.ranks > 1; i++) {
        if (entry->local.dim[i] != entry->shape.dim[i]) {
            int mesh = is_of_experts(entry, i) ? BY_MESH_EXPERT : BY_MESH_TENSOR;
            unit.axis_mesh[i] = 1u << mesh;
            unit.axis_ranks[i] = t->layout.size[mesh];
        }
    }
    return unit;
}

/* This rank's slices. */
static by_status list_slices(by_trainer *t, by_error *error)
{
    by__shard *s = &t->shard;
    BY_TRY(by__alloc((void **)&t->tensors, s->own_count + 1, sizeof *t->tensors, "update", error));
    for (size_t i = 0; i < s->own_count; i++) {
        const by__slice *own = &s->own[i];
        t->tensors[t->tensor_count++] =
            by__trainer_unit(t, own->name, BY_SHAPE(own->count), own->group);
    }
    return BY_OK;
}

/* What norm and update work on: whole groups; the update on each tensor where the optimizer needs
 * its shape, and on this rank's slices where ranks divide the state. */
static by_status list_units(by_trainer *t, by_error *error)
{
    for (int group = 0; group < BY__GROUPS; group++) {
        int64_t elements = by__store_group_elements(t->store, t->masters, group);
        if (elements > 0) {
            t->group_of_unit[t->group_count] = group;
            t->trained_groups += group < BY__TRAINED_GROUPS;
            t->groups[t->group_count++] =
                by__trainer_unit(t, group_names[group], BY_SHAPE(elements), group);
        }
    }
    if (t->sets > 0 && t->trained_groups == 0) {
        return by_error_set(error, BY_EARG, "all parameters are frozen: there is nothing to train");
    }
    if (t->offload != NULL) {
        return BY_OK;
    }
    if (!by_optimizer_needs_tensors(&t->config->optimizer)) {
        return by__is_sharded(t) ? list_slices(t, error) : BY_OK;
    }
    size_t count = by__store_count(t->store);
    BY_TRY(by__alloc((void **)&t->tensors, count, sizeof *t->tensors, "update", error));
    for (size_t i = 0; i < count; i++) {
        const by__stored_tensor *entry = by__store_entry(t->store, (by__handle)i);
        if (entry->trainable && by__shard_owns(t, (by__handle)i)) {
            t->tensors[t->tensor_count++] = by__trainer_tensor_unit(t, entry->name, entry);
        }
    }
    return BY_OK;
}

/* Declares a flat buffer of which this rank holds its slices of the groups in `divided`; with
 * offload, those in `on_disk` are on disk. */
static by_status add_flat(by_trainer *t, by__flat_spec spec, unsigned divided, unsigned on_disk,
                          int *out, by_error *error)
{
    if (t->offload == NULL || on_disk == 0) {
        return by__shard_add_flat(t, spec, divided, out, error);
    }
    spec.on_disk = on_disk;
    return by__offload_add_flat(t, spec, divided, out, error);
}

/* Declares parameters, and the flat buffers of masters, copies, gradient sets and states. */
static by_status lay_out(by_trainer *t, by_error *error)
{
    const unsigned all = (1u << BY__GROUPS) - 1;
    const unsigned trained = (1u << BY__TRAINED_GROUPS) - 1;
    const unsigned gathered = by__gathered_groups(t);
    unsigned narrow = 0;
    by_dtype compute = by__compute_dtype(t->config);
    for (int group = 0; group < BY__GROUPS; group++) {
        narrow |= (group & BY__GROUP_WIDE) == 0 ? 1u << group : 0u;
    }
    BY_TRY(by__declare_parameters(t->store, t->parameters, error));
    if (by__store_count(t->store) == 0) {
        return by_error_set(error, BY_EARG, "the model has no parameters to train");
    }
    BY_TRY(by__ranks_plan_buckets(t, error));
    BY_TRY(by__shard_plan(t, error));
    BY_TRY(by__offload_plan(t, error));
    by__flat_spec masters = {.role = BY__MASTER, .dtype = BY_F32, .groups = all};
    BY_TRY(add_flat(t, masters, gathered | (compute != BY_F32 ? trained & narrow : 0),
                    compute != BY_F32 ? narrow : 0, &t->masters, error));
    t->copies = t->masters;
    if (compute != BY_F32) {
        by__flat_spec copies = {.role = BY__COPY, .dtype = compute, .groups = narrow};
        BY_TRY(by__shard_add_flat(t, copies, gathered & narrow, &t->copies, error));
    }
    for (int i = 0; i < t->sets; i++) {
        by__flat_spec set = {
            .role = BY__GRADIENT, .name = "grad", .dtype = BY_F32, .groups = trained};
        BY_TRY(by__shard_add_flat(t, set, by__is_in_turn(t) ? trained : 0, &t->gradient_sets[i],
                                  error));
    }
    t->state_count = t->sets > 0 ? by_optimizer_state_count(&t->config->optimizer) : 0;
    for (int i = 0; i < t->state_count; i++) {
        by_optimizer_state state = by_optimizer_state_at(&t->config->optimizer, i);
        by__flat_spec spec = {.role = BY__STATE,
                              .name = state.name,
                              .dtype = BY_F32,
                              .groups = trained,
                              .shape = state.shape};
        BY_TRY(add_flat(t, spec, trained, trained, &t->states[i], error));
    }
    BY_TRY(by__sync_lay_out(t, error));
    return list_units(t, error);
}

/* ---- the plan ---- */

/* FLOPs of the products and of attention in one forward pass of a micro-batch. */
static by_status count_forward(double *flops, const by_graph *graph, by_error *error)
{
    *flops = 0.0;
    for (size_t n = 0; n < graph->node_count; n++) {
        by__cost cost;
        const by__op_row *row = by__op_row_of(graph->nodes[n].op);
        if (row->factors != 0 || row->attention != NULL) {
            BY_TRY(by__node_cost(graph, n, &cost, error));
            *flops += cost.flops;
        }
    }
    return BY_OK;
}

/* FLOPs a token. Attention's share is read off the graph. */
static by_status measure_tokens(by_trainer *t, const by_graph *graph, by_error *error)
{
    double seen = 0.0; /* of attention, forward and twice that backward */
    double full = 0.0;
    for (size_t n = 0; n < graph->node_count; n++) {
        by__attention_cost cost;
        BY_TRY(by__node_attention(graph, n, &cost, error));
        full += 3.0 * cost.token_flops;
        seen += 3.0 * cost.token_flops * cost.seen;
    }
    /* The graph has a rank's heads, and attention to its slice of the sequence. */
    double shares = (double)(t->layout.size[BY_MESH_TENSOR] * t->layout.size[BY_MESH_SEQUENCE]);
    double products = 6.0 * (double)t->size.in_products;
    full *= shares;
    seen *= shares;
    t->size.flops_per_example = products + seen;
    t->size.flops_per_example_full = products + full;
    return BY_OK;
}

/* Products that read what was gathered do not show which parameter it is: a graph without that
 * does. */
static by_status count_parameters(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    by_graph *graph = NULL;
    by_model model;
    const by__recipe recipe = {o->builder, o->user, t->task};
    if (!by__is_gathered(t)) {
        return by_model_count(t->forward, &t->size.parameters, &t->size.in_products, error);
    }
    BY_TRY(by__train_forward(&graph, &model, t->config, &recipe, BY_MODEL_LOSS, error));
    by_pass_options options = by__trainer_pass_options(t, &model);
    by_status status = by_passes_run(graph, BY_PURPOSE_LOSS, &options, NULL, error);
    if (status == BY_OK) {
        status = by_model_count(graph, &t->size.parameters, &t->size.in_products, error);
    }
    by_graph_close(&graph);
    return status;
}

/* See by_model_size. */
static by_status measure_size(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    const by_graph *graph = t->forward;
    double forward;
    BY_TRY(count_parameters(t, o, error));
    if (t->task->per_sample != NULL) {
        return measure_tokens(t, graph, error);
    }
    BY_TRY(count_forward(&forward, graph, error));
    t->size.flops_per_example = 3.0 * forward / (double)t->config->train.micro_batch;
    t->size.flops_per_example_full = t->size.flops_per_example;
    return BY_OK;
}

static void plan_memory(by_trainer *t)
{
    by_memory_report *m = &t->memory;
    m->parameters = by__store_bytes(t->store, BY__MASTER) + by__store_bytes(t->store, BY__COPY);
    m->gradients = by__store_bytes(t->store, BY__GRADIENT);
    m->optimizer = by__store_bytes(t->store, BY__STATE) + by__offload_bytes(t);
    m->on_disk = by__store_disk_bytes(t->store);
    m->activations =
        by__set_arena_bytes(&t->programs) + (t->pipe == NULL ? 0 : by__pipe_bytes(t->pipe));
    m->workspace = by__set_workspace_bytes(&t->programs) + by__sync_bytes(t) +
                   by__shard_norm_bytes(t) + by__turns_bytes(t);
    m->data = by__trainer_feed_bytes(t);
    m->total = m->parameters + m->gradients + m->optimizer + m->activations + m->workspace +
               m->data + m->process;
}

/* The programs of the model, and the graphs that say what it is. */
static by_status add_models(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    if (t->sets > 0 && t->layout.size[BY_MESH_PIPELINE] > 1) {
        return by__pipe_open(t, o, error);
    }
    if (t->sets > 0) {
        BY_TRY(by__is_in_turn(t) ? by__turns_build(t, o, error) : add_model(t, o, true, error));
    }
    BY_TRY(add_model(t, o, false, error));
    find_rows(t);
    t->forward = t->loss->graph;
    t->parameters = by__is_in_turn(t)      ? t->shard.turns.graph
                    : t->gradients != NULL ? t->gradients->graph
                                           : t->forward;
    return BY_OK;
}

/* The programs of a step behind the gradients. */
static by_status add_updates(by_trainer *t, by_error *error)
{
    if (t->sets == 0) {
        return BY_OK;
    }
    if (t->pipe != NULL) {
        BY_TRY(by__pipe_plan_sums(t, error));
    } else {
        BY_TRY(t->sets > 1 && !by__is_in_turn(t)
                   ? by__trainer_add_update(t, "gradient sum", build_sum, error)
                   : BY_OK);
        BY_TRY(by__is_scattered(t) ? by__shard_norm_plan(t, error)
                                   : by__trainer_add_update(t, "gradient norm", build_norm, error));
    }
    BY_TRY(t->offload != NULL ? by__offload_add_programs(t, error)
                              : by__trainer_add_update(t, "update", build_update, error));
    return by__sync_add_programs(t, error);
}

static by_status build(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    const by_train_config *train = &t->config->train;
    BY_TRY(by__ranks_plan(t, o, error));
    BY_TRY(by__sync_plan(t, error));
    t->threads = by__thread_count((int)train->threads);
    t->device = o->device;
    if (t->device == NULL) {
        BY_TRY(by_device_open(&t->device, "cpu", (int)train->threads, error));
        t->owns_device = true;
    }
    t->programs.device = t->device;
    t->task = o->task;
    if (t->task == NULL) {
        BY_TRY(by_task_find(&t->task, t->config, error));
    }
    BY_TRY(by__store_open(&t->store, t->device, error));
    if (o->mode == BY_TRAINER_FULL) {
        t->sets = by__is_in_turn(t) ? by__reducer_sets(t->all_micro_batches, t->layout.replicas)
                                    : by__sum_tree_sets(t->first_leaf, t->micro_batches, t->leaves);
    }
    BY_TRY(add_models(t, o, error));
    BY_TRY(lay_out(t, error));
    BY_TRY(by__is_in_turn(t) ? by__turns_plan(t, error) : by__overlap_plan(t, o, error));
    BY_TRY(add_updates(t, error));
    if (t->copies != t->masters && t->offload == NULL) {
        BY_TRY(by__trainer_add_update(t, "compute copies", build_copy, error));
    }
    find_rows(t); /* adding may have moved them */
    BY_TRY(by__trainer_plan_feeds(t, error));
    BY_TRY(measure_size(t, o, error));
    t->memory.process = by__resident_bytes();
    plan_memory(t);
    return BY_OK;
}

by_status by_trainer_open(by_trainer **out, const by_config *config,
                          const by_trainer_options *options, by_error *error)
{
    by_trainer *t;
    by_trainer_options defaults = {0};
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "trainer", error));
    t->config = config;
    by_status status = build(t, options == NULL ? &defaults : options, error);
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
    if (t->device != NULL) {
        (void)by_device_finish(t->device, NULL);
    }
    by__sync_close(t);
    by__ranks_close(t);
    by__set_close(&t->programs);
    by__pipe_close(t);
    by__trainer_close_feeds(t);
    by__offload_close(t);
    by__store_close(&t->store);
    if (t->owns_device) {
        by_device_close(&t->device);
    }
    free(t->tensors);
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

const by_task *by_trainer_task(const by_trainer *trainer)
{
    return trainer->task;
}

void by_trainer_plan_data(by_trainer *trainer, uint64_t bytes)
{
    trainer->memory.data += bytes;
    trainer->memory.total += bytes;
}

/* ---- memory ---- */

by_memory by__trainer_group(const by_trainer *t, int flat, size_t unit)
{
    return by__store_group(t->store, flat, t->group_of_unit[unit]);
}

by_memory by__trainer_flat(const by_trainer *t, int flat)
{
    by_memory all = by__trainer_group(t, flat, 0);
    for (size_t i = 1; i < t->trained_groups; i++) {
        all.bytes += by__trainer_group(t, flat, i).bytes;
    }
    return all;
}

/* Memory of a unit of the update in a flat buffer. */
static by_memory unit_memory(const by_trainer *t, int flat, size_t i)
{
    return t->tensors != NULL && !by_optimizer_needs_tensors(&t->config->optimizer)
               ? by__shard_memory(t, flat, &t->shard.own[i])
           : t->tensors != NULL
               ? by__store_buffer(t->store, flat, by__store_find(t->store, t->tensors[i].name))
               : by__trainer_group(t, flat, i);
}

/* Binds the update's values of one unit but for its gradient. */
static by_status bind_unit(by_trainer *t, const by_update_unit *unit, size_t i, by_error *error)
{
    char name[300];
    BY_TRY(by__row_bind(t->update, unit->name, unit_memory(t, t->masters, i), error));
    for (int s = 0; s < t->state_count; s++) {
        (void)snprintf(name, sizeof name, "%s.%s", by__store_flat_name(t->store, t->states[s]),
                       unit->name);
        BY_TRY(by__row_bind(t->update, name, unit_memory(t, t->states[s], i), error));
    }
    if (unit->copy == BY_F32) {
        return BY_OK;
    }
    (void)snprintf(name, sizeof name, "copy.%s", unit->name);
    return by__row_bind(t->update, name, unit_memory(t, t->copies, i), error);
}

static by_status bind_one_copy(by_trainer *t, const char *unit, by_memory master, by_memory copy,
                               by_error *error)
{
    char name[64];
    (void)snprintf(name, sizeof name, "copy.%s", unit);
    BY_TRY(by__row_bind(t->copy, unit, master, error));
    return by__row_bind(t->copy, name, copy, error);
}

static by_status bind_copy(by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < t->group_count; i++) {
        BY_TRY(bind_one_copy(t, t->groups[i].name, by__trainer_group(t, t->masters, i),
                             by__trainer_group(t, t->copies, i), error));
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__slice *own = &t->shard.own[i];
        if ((own->group & BY__GROUP_WIDE) != 0) {
            continue;
        }
        BY_TRY(bind_one_copy(t, own->name, by__shard_memory(t, t->masters, own),
                             by__shard_memory(t, t->copies, own), error));
    }
    return BY_OK;
}

static by_status bind_gradient(by__program_row *row, const by_update_unit *unit, by_memory memory,
                               by_error *error)
{
    char name[300];
    (void)snprintf(name, sizeof name, "grad.%s", unit->name);
    return by__row_bind(row, name, memory, error);
}

/* What the update works on one by one: tensors where the optimizer needs whole ones, else
 * groups. */
static const by_update_unit *update_units(const by_trainer *t, size_t *count)
{
    *count = t->tensors != NULL ? t->tensor_count : t->trained_groups;
    return t->tensors != NULL ? t->tensors : t->groups;
}

by_status by__trainer_bind_sum(by_trainer *t, int set, by_error *error)
{
    int flat = t->gradient_sets[set];
    size_t count;
    const by_update_unit *units = update_units(t, &count);
    t->sum_set = set;
    if (by__is_scattered(t)) {
        BY_TRY(by__shard_norm_bind(t, set, error));
    }
    for (size_t i = 0; i < t->trained_groups && !by__is_scattered(t); i++) {
        BY_TRY(bind_gradient(t->norm, &t->groups[i], by__trainer_group(t, flat, i), error));
    }
    for (size_t i = 0; i < count; i++) {
        BY_TRY(bind_gradient(t->update, &units[i], unit_memory(t, flat, i), error));
    }
    return BY_OK;
}

static by_status bind_all(by_trainer *t, by_error *error)
{
    by__program_row *models[3] = {t->gradients, t->last, t->loss};
    for (int k = 0; k < 3; k++) {
        if (models[k] != NULL) {
            BY_TRY(by__row_link(models[k], t->store, error));
            BY_TRY(by__row_bind_flat(models[k], t->store, BY_ROLE_PARAMETER, t->copies, t->masters,
                                     error));
        }
    }
    if (t->pipe != NULL) {
        BY_TRY(by__pipe_allocate(t, error));
    }
    if (t->copy != NULL) {
        BY_TRY(bind_copy(t, error));
    }
    if (t->sets == 0) {
        return BY_OK;
    }
    size_t count;
    const by_update_unit *units = update_units(t, &count);
    for (size_t i = 0; i < count; i++) {
        BY_TRY(bind_unit(t, &units[i], i, error));
    }
    BY_TRY(by__is_scattered(t) ? by__shard_norm_open(t, error) : BY_OK);
    t->bound_set = -1;
    t->last_set = -1;
    return by__trainer_bind_sum(t, 0, error);
}

static by_status take_memory(by_trainer *t, by_error *error)
{
    BY_TRY(by__store_allocate(t->store, by__offload_path(t), error));
    BY_TRY(by__set_allocate(&t->programs, error));
    BY_TRY(by__trainer_open_feeds(t, error));
    return t->offload == NULL ? BY_OK : by__offload_open(t, error);
}

/* Adds the ways out to what there is no memory, or no room on a disk, for. */
static by_status refuse_memory(by_status status, by_error *error)
{
    by_error plain = error == NULL ? (by_error){0} : *error;
    const char *way = status == BY_EIO
                          ? "name a directory on a disk with room in offload.path, or set "
                            "offload.optimizer: none"
                          : "a smaller micro_batch, recompute: block or a smaller model needs less";
    return status == BY_OK ? BY_OK : by_error_set(error, status, "%s; %s", plain.message, way);
}

by_status by_trainer_allocate(by_trainer *t, by_error *error)
{
    if (by__store_is_allocated(t->store)) {
        return by_error_set(error, BY_ESTATE, "the trainer's memory was allocated before");
    }
    BY_TRY(refuse_memory(by__plan_fits(&t->memory, t->ranks.all, error), error));
    /* Collective: no rank takes memory before all of this host have seen how much is free. */
    BY_TRY(by__ranks_open(t, error));
    BY_TRY(refuse_memory(take_memory(t, error), error));
    BY_TRY(bind_all(t, error));
    return by__sync_open(t, error);
}

by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error)
{
    if (t->inputs.bytes == 0) {
        return by_error_set(error, BY_ESTATE,
                            "the trainer has no memory yet: by_trainer_allocate comes first");
    }
    if (training && t->sets == 0) {
        return by_error_set(error, BY_ESTATE, "this trainer was opened for losses only");
    }
    return BY_OK;
}

int64_t by_trainer_updates(const by_trainer *trainer)
{
    return trainer->updates;
}

void by_trainer_place(const by_trainer *trainer, char *text, size_t size)
{
    by__layout_describe(&trainer->layout, text, size);
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
