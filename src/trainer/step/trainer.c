/* The trainer: builds its programs and plans their memory. Opening allocates nothing large;
 * trainer_memory.c does. trainer.h lists the other files. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/offload/offload.h"
#include "trainer/pipeline/pipe.h"
#include "trainer/probes/probes.h"
#include "trainer/step/trainer_step.h"

/* ---- the programs ---- */

static by_status add_model(by_trainer *t, const by_trainer_options *o, bool training,
                           by_error *error)
{
    by_graph *graph;
    by_model_mode mode = training ? BY_MODEL_TRAIN : BY_MODEL_LOSS;
    const by__trainer_recipe recipe = {o->builder, o->user, t->task};
    BY_TRY(by__trainer_forward_graph(&graph, &t->model, t->config, &recipe, mode, error));
    by_pass_options options = by__trainer_pass_options(t, &t->model);
    by__trainer_gathered_options(t, graph, &options);
    return by__exec_set_add(&t->programs, training ? "gradients" : "loss", graph,
                            training ? BY_PURPOSE_TRAIN : BY_PURPOSE_LOSS, &options, error);
}

/* Number of elements of a gradient set. */
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
                                   t->most_micro_batches, by__trainer_scales_loss(t->config),
                                   error);
}

static by_status build_update(const by_trainer *t, by_graph *graph, by_error *error)
{
    size_t count;
    const by_update_unit *units = by__trainer_update_units(t, &count);
    return by_optimizer_update_graph(graph, &t->config->optimizer, units, count, error);
}

/* Returns true if a rank updates slices of a group instead of all of it. */
static bool is_divided(const by_trainer *t, int group)
{
    return by__trainer_is_sharded(t) && group < BY__TRAINED_GROUPS;
}

static void add_copy(by_graph *graph, const char *unit, by_shape shape, by_dtype copy)
{
    char name[300];
    by_value master = by_graph_input(graph, unit, BY_F32, shape);
    (void)snprintf(name, sizeof name, "copy.%s", unit);
    by_graph_output(graph, by_cast(graph, master, copy), name);
}

/* Rounds the masters of every group that has copies. */
static by_status build_copy(const by_trainer *t, by_graph *graph, by_error *error)
{
    for (size_t i = 0; i < t->group_count; i++) {
        const by_update_unit *unit = &t->groups[i];
        if (unit->copy != BY_F32 && !is_divided(t, t->group_of_unit[i])) {
            add_copy(graph, unit->name, unit->shape, unit->copy);
        }
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__trainer_slice *own = &t->shard.own[i];
        if ((own->group & BY__GROUP_WIDE) == 0) {
            add_copy(graph, own->name, BY_SHAPE(own->count), by__trainer_copies_dtype(t->config));
        }
    }
    return by_graph_check(graph, error);
}

static void find_rows(by_trainer *t)
{
    t->loss = by__exec_set_row(&t->programs, "loss");
    t->gradients = by__exec_set_row(&t->programs, "gradients");
    t->last = by__exec_set_row(&t->programs, BY__LAST_GRADIENTS);
    t->norm = by__exec_set_row(&t->programs, "gradient norm");
    t->sum = by__exec_set_row(&t->programs, "gradient sum");
    t->update = by__exec_set_row(&t->programs, "update");
    t->copy = by__exec_set_row(&t->programs, "compute copies");
    t->divided_norm.squares = by__exec_set_row(&t->programs, "gradient squares");
    if (t->pipe != NULL) {
        by__pipeline_find_rows(t);
    }
}

/* ---- the plan ---- */

static void plan_memory(by_trainer *t)
{
    by_memory_report *m = &t->memory;
    m->parameters = by__store_bytes(t->store, BY__MASTER) + by__store_bytes(t->store, BY__COPY) +
                    by__trainer_teacher_bytes(t);
    m->gradients = by__store_bytes(t->store, BY__GRADIENT);
    m->optimizer = by__store_bytes(t->store, BY__STATE) + by__offload_bytes(t);
    m->on_disk = by__store_disk_bytes(t->store);
    m->spared = by__trainer_spared(t, &t->size.frozen);
    m->activations =
        by__exec_set_arena_bytes(&t->programs) + (t->pipe == NULL ? 0 : by__pipeline_bytes(t));
    m->workspace = by__exec_set_workspace_bytes(&t->programs) + by__trainer_sync_bytes(t) +
                   by__trainer_norm_bytes(t) + by__trainer_turns_bytes(t) +
                   by__trainer_layers_bytes(t) + by__trainer_activations_bytes(t) +
                   by__trainer_sampler_bytes(t) + by__trainer_abft_bytes(t);
    m->data = by__trainer_feed_bytes(t);
    m->total = m->parameters + m->gradients + m->optimizer + m->activations + m->workspace +
               m->data + m->process;
}

/* Adds the programs of the model, and keeps the graphs that describe it. */
static by_status add_models(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    if (t->sets > 0 && t->layout.size[BY_MESH_PIPELINE] > 1) {
        return by__pipeline_open(t, o, error);
    }
    if (t->sets > 0) {
        BY_TRY(by__trainer_is_in_turn(t) ? by__trainer_turns_build(t, o, error)
                                         : add_model(t, o, true, error));
    }
    BY_TRY(add_model(t, o, false, error));
    find_rows(t);
    t->forward = t->loss->graph;
    t->parameters = by__trainer_is_in_turn(t) ? t->shard.turns.graph
                    : t->gradients != NULL    ? t->gradients->graph
                                              : t->forward;
    return BY_OK;
}

/* Adds the programs of a step after the gradients. */
static by_status add_updates(by_trainer *t, by_error *error)
{
    if (t->sets == 0) {
        return BY_OK;
    }
    if (t->pipe != NULL) {
        BY_TRY(by__pipeline_plan_sums(t, error));
    } else {
        BY_TRY(t->sets > 1 && !by__trainer_is_in_turn(t)
                   ? by__trainer_add_update(t, "gradient sum", build_sum, error)
                   : BY_OK);
    }
    BY_TRY(by__trainer_norm_is_divided(t)
               ? by__trainer_norm_plan(t, error)
               : by__trainer_add_update(t, "gradient norm", build_norm, error));
    BY_TRY(t->offload != NULL ? by__offload_add_programs(t, error)
                              : by__trainer_add_update(t, "update", build_update, error));
    BY_TRY(by__trainer_average_plan(t, error));
    BY_TRY(by__trainer_layers_plan(t, error));
    BY_TRY(by__trainer_activations_plan(t, error));
    return by__trainer_sync_add_programs(t, error);
}

static by_status build(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    const by_train_config *train = &t->config->train;
    BY_TRY(by__trainer_sync_plan(t, error));
    BY_TRY(by__trainer_ranks_plan(t, o, error));
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
        t->sets = by__trainer_ranks_sets(t);
    }
    BY_TRY(add_models(t, o, error));
    BY_TRY(by__trainer_teacher_plan(t, error));
    BY_TRY(by__trainer_lay_out(t, error));
    BY_TRY(t->pipe != NULL             ? by__pipeline_plan(t, error)
           : by__trainer_is_in_turn(t) ? by__trainer_turns_plan(t, error)
                                       : by__trainer_overlap_plan(t, o, error));
    BY_TRY(add_updates(t, error));
    BY_TRY(by__trainer_sampler_plan(t, o, error));
    if (t->copies != t->masters && t->offload == NULL) {
        BY_TRY(by__trainer_add_update(t, "compute copies", build_copy, error));
    }
    find_rows(t); /* adding programs may have moved them */
    BY_TRY(by__trainer_plan_feeds(t, error));
    BY_TRY(by__trainer_measure(t, o, error));
    t->memory.process = by__trainer_settled_bytes();
    plan_memory(t);
    return BY_OK;
}

by_status by__trainer_build(by_trainer **out, const by_config *config, const by_trainer_options *o,
                            size_t arena_bytes, by_error *error)
{
    by_trainer *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "trainer", error));
    t->config = config;
    t->guard.loss_scale = by__trainer_loss_scale_first(config);
    t->speeds = o->speeds;
    t->arena_bytes = arena_bytes;
    by_status status = build(t, o, error);
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
    by__trainer_replay_close(t);
    by__trainer_abft_close(t);
    by__trainer_node_watch_close(t);
    by__trainer_sync_close(t);
    by__trainer_ranks_close(t);
    by__trainer_norm_close(t);
    by__exec_set_close(&t->programs);
    by__pipeline_close(t);
    by__trainer_close_feeds(t);
    by__offload_close(t);
    by__trainer_layers_close(t);
    by__trainer_activations_close(t);
    by__trainer_sampler_close(t);
    by__trainer_teacher_close(t);
    by__store_close(&t->store);
    if (t->owns_device) {
        by_device_close(&t->device);
    }
    free(t->tensors);
    free(t->pieces);
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

/* Ranks that hold the same data share the writing. */
void by_trainer_plan_staging(by_trainer *t)
{
    const by_checkpoint_config *c = &t->config->checkpoint;
    const uint64_t small = (uint64_t)64 << 20;
    uint64_t all = by__trainer_saved_bytes(t);
    uint64_t writers = 1 + all / small;
    uint64_t sharing = by__trainer_is_sharded(t) ? 1 : (uint64_t)t->layout.replicas;
    uint64_t parts = writers < sharing ? writers : sharing;
    uint64_t own = parts > 1 ? all / parts : all;
    uint64_t bytes = own / 4 > small ? own / 4 : own < small ? own : small;
    if (c->staging > 0) {
        bytes = (uint64_t)c->staging;
        bytes = bytes < all ? bytes : all;
    }
    t->memory.total -= t->memory.staging;
    t->memory.staging = c->async != 0 && t->sets > 0 ? bytes : 0;
    t->memory.total += t->memory.staging;
}

void by_trainer_plan_data(by_trainer *trainer, uint64_t bytes)
{
    trainer->memory.data += bytes;
    trainer->memory.total += bytes;
}

int64_t by_trainer_updates(const by_trainer *trainer)
{
    return trainer->updates;
}

void by_trainer_place(const by_trainer *trainer, char *text, size_t size)
{
    by__trainer_layout_describe(&trainer->layout, trainer->layout.place, text, size);
}

const char *by_trainer_program_name(const by_trainer *trainer, size_t i)
{
    return i < trainer->programs.count ? trainer->programs.rows[i].name : NULL;
}

by_program *by_trainer_program(const by_trainer *trainer, const char *name)
{
    const by__exec_program_row *row = by__exec_set_row(&trainer->programs, name);
    return row == NULL ? NULL : row->program;
}

const by_graph *by_trainer_graph(const by_trainer *trainer, const char *name)
{
    const by__exec_program_row *row = by__exec_set_row(&trainer->programs, name);
    return row == NULL ? NULL : row->graph;
}
