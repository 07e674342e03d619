/* The trainer: builds its programs and plans their memory. Opening allocates nothing large;
 * trainer_memory.c does. trainer.h lists the other files. */
#include <stdlib.h>
#include <string.h>

#include "base/threads.h"
#include "comm/comm.h"
#include "device/rank_device.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/offload/offload.h"
#include "trainer/pipeline/pipe.h"
#include "trainer/probes/probes.h"
#include "trainer/step/trainer_step.h"

/* ---- the plan ---- */

static void plan_memory(by_trainer *t)
{
    by_memory_report *m = &t->plan.memory;
    const by__device_recording_bytes recordings = by__exec_set_recording_bytes(&t->programs);
    m->parameters = by__store_bytes(t->store, BY__MASTER) + by__store_bytes(t->store, BY__COPY) +
                    by__trainer_teacher_bytes(t);
    m->gradients = by__store_bytes(t->store, BY__GRADIENT);
    m->optimizer = by__store_bytes(t->store, BY__STATE) + t->updater->bytes(t);
    m->on_disk = by__store_disk_bytes(t->store);
    m->spared = by__trainer_spared(t, &t->plan.size.frozen);
    m->coded = by__trainer_coded(t);
    m->activations = by__exec_set_arena_bytes(&t->programs) + t->strategy->bytes(t);
    m->workspace = by__exec_set_workspace_bytes(&t->programs) + by__trainer_sync_bytes(t) +
                   by__trainer_norm_bytes(t) + by__trainer_zero2_bytes(t) +
                   by__trainer_layers_bytes(t) + by__trainer_activations_bytes(t) +
                   by__trainer_sampler_bytes(t) + by__trainer_abft_bytes(t) + recordings.of_device;
    m->data = by__trainer_feed_bytes(t) + by__trainer_ranks_plan_staging(t) + recordings.pinned;
    m->total = m->parameters + m->gradients + m->optimizer + m->activations + m->workspace +
               m->data + m->process;
}

/* Adds the programs of a step after the gradients. */
static by_status add_updates(by_trainer *t, by_error *error)
{
    if (t->flats.sets == 0) {
        return BY_OK;
    }
    BY_TRY(t->strategy->plan_sums(t, error));
    BY_TRY(by__trainer_norm_plan(t, error));
    BY_TRY(by__trainer_noise_plan(t, error));
    BY_TRY(t->updater->add_update(t, error));
    BY_TRY(t->updater->add_average(t, error));
    BY_TRY(by__trainer_layers_plan(t, error));
    BY_TRY(by__trainer_activations_plan(t, error));
    return by__trainer_sync_add_programs(t, error);
}

/* The ways in which this rank computes gradients and updates weights. */
static void choose_ways(by_trainer *t)
{
    bool training = t->flats.sets > 0;
    t->strategy = training && t->layout.size[BY_MESH_PIPELINE] > 1 ? &by__pipeline_strategy
                  : t->summation->in_rounds                        ? &by__step_rounds
                                                                   : &by__step_whole_model;
    t->updater = training && by__offload_is_wanted(t->config) ? &by__offload_updater
                                                              : &by__step_update_in_memory;
}

static by_status build(by_trainer *t, const by_trainer_options *o, by_error *error)
{
    const by_train_config *train = &t->config->train;
    BY_TRY(by__trainer_sync_plan(t, error));
    BY_TRY(by__trainer_ranks_plan(t, o, error));
    choose_ways(t);
    t->threads = by__thread_count((int)train->threads);
    t->device = o->device;
    if (t->device == NULL) {
        BY_TRY(by__device_open_of_rank(&t->device, t->config->device, (int)train->threads,
                                       by__comm_local_rank(o->comm), error));
        t->owns_device = true;
    }
    (void)by__device_use_tf32(t->device, t->config->precision.tf32 != 0);
    BY_TRY(by__device_take_choices(t->device, o->choices, error));
    t->programs.device = t->device;
    t->task = o->task;
    if (t->task == NULL) {
        BY_TRY(by_task_find(&t->task, t->config, error));
    }
    BY_TRY(by__store_open(&t->store, t->device, error));
    if (o->mode == BY_TRAINER_FULL) {
        t->flats.sets = by__trainer_ranks_sets(t);
    }
    BY_TRY(t->strategy->open(t, o, error));
    BY_TRY(by__trainer_teacher_plan(t, error));
    BY_TRY(by__trainer_lay_out(t, error));
    BY_TRY(t->strategy->plan(t, o, error));
    BY_TRY(add_updates(t, error));
    BY_TRY(by__trainer_sampler_plan(t, o, error));
    BY_TRY(t->updater->add_copies(t, error));
    BY_TRY(by__trainer_plan_feeds(t, error));
    BY_TRY(t->strategy->measure(t, o, error));
    t->plan.memory.process = by__trainer_settled_bytes();
    plan_memory(t);
    return BY_OK;
}

by_status by__trainer_build(by_trainer **out, const by_config *config, const by_trainer_options *o,
                            size_t arena_bytes, by_error *error)
{
    by_trainer *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "trainer", error));
    t->config = config;
    t->probes.guard.loss_scale = by__trainer_loss_scale_first(config);
    t->plan.speeds = o->speeds;
    t->plan.arena_bytes = arena_bytes;
    t->model.stages = 1;
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
    if (t->strategy != NULL) {
        t->strategy->close(t);
        t->updater->close(t);
    }
    by__trainer_close_feeds(t);
    by__trainer_layers_close(t);
    by__trainer_activations_close(t);
    by__trainer_sampler_close(t);
    by__trainer_teacher_close(t);
    by__store_close(&t->store);
    if (t->owns_device) {
        by_device_close(&t->device);
    }
    free(t->units.updated);
    free(t->units.pieces);
    free(t);
    *trainer = NULL;
}

const by_memory_report *by_trainer_memory(const by_trainer *trainer)
{
    return &trainer->plan.memory;
}

const by_model_size *by_trainer_size(const by_trainer *trainer)
{
    return &trainer->plan.size;
}

by_status by_trainer_device(by_device_info *out, const by_trainer *trainer, by_error *error)
{
    return by_device_describe(out, trainer->device, error);
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
    uint64_t sharing = t->shard.states != 0 ? 1 : (uint64_t)t->layout.replicas;
    uint64_t parts = writers < sharing ? writers : sharing;
    uint64_t own = parts > 1 ? all / parts : all;
    uint64_t bytes = own / 4 > small ? own / 4 : own < small ? own : small;
    if (c->staging > 0) {
        bytes = (uint64_t)c->staging;
        bytes = bytes < all ? bytes : all;
    }
    t->plan.memory.total -= t->plan.memory.staging;
    t->plan.memory.staging = c->async != 0 && t->flats.sets > 0 ? bytes : 0;
    t->plan.memory.total += t->plan.memory.staging;
}

void by_trainer_plan_data(by_trainer *trainer, uint64_t bytes)
{
    trainer->plan.memory.data += bytes;
    trainer->plan.memory.total += bytes;
}

int64_t by_trainer_updates(const by_trainer *trainer)
{
    return trainer->steps.updates;
}

void by_trainer_place(const by_trainer *trainer, char *text, size_t size)
{
    by__trainer_layout_describe(&trainer->layout, trainer->layout.place, text, size);
}

const char *by_trainer_program_name(const by_trainer *trainer, size_t i)
{
    return i < trainer->programs.count ? trainer->programs.rows[i]->name : NULL;
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
