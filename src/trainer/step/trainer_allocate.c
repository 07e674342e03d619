/* Allocates all memory of a trainer and binds its programs. */

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/offload/offload.h"
#include "trainer/pipeline/pipe.h"
#include "trainer/probes/probes.h"
#include "trainer/step/trainer_step.h"

/* Binds the update's values of one unit, except its gradient. */
static by_status bind_unit(by_trainer *t, const by_update_unit *unit, size_t i, by_error *error)
{
    char name[300];
    BY_TRY(
        by__exec_row_bind(t->update, unit->name, by__trainer_unit_memory(t, t->masters, i), error));
    for (int s = 0; s < t->state_count; s++) {
        (void)snprintf(name, sizeof name, "%s.%s", by__store_flat_name(t->store, t->states[s]),
                       unit->name);
        BY_TRY(
            by__exec_row_bind(t->update, name, by__trainer_unit_memory(t, t->states[s], i), error));
    }
    if (unit->copy == BY_F32) {
        return BY_OK;
    }
    (void)snprintf(name, sizeof name, "copy.%s", unit->name);
    return by__exec_row_bind(t->update, name, by__trainer_unit_memory(t, t->copies, i), error);
}

static by_status bind_one_copy(by_trainer *t, const char *unit, by_memory master, by_memory copy,
                               by_error *error)
{
    char name[64];
    (void)snprintf(name, sizeof name, "copy.%s", unit);
    BY_TRY(by__exec_row_bind(t->copy, unit, master, error));
    return by__exec_row_bind(t->copy, name, copy, error);
}

static by_status bind_copy(by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < t->group_count; i++) {
        BY_TRY(bind_one_copy(t, t->groups[i].name, by__trainer_group(t, t->masters, i),
                             by__trainer_group(t, t->copies, i), error));
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__trainer_slice *own = &t->shard.own[i];
        if ((own->group & BY__GROUP_WIDE) != 0) {
            continue;
        }
        BY_TRY(bind_one_copy(t, own->name, by__trainer_shard_memory(t, t->masters, own),
                             by__trainer_shard_memory(t, t->copies, own), error));
    }
    return BY_OK;
}

static by_status bind_all(by_trainer *t, by_error *error)
{
    by__exec_program_row *models[3] = {t->gradients, t->last, t->loss};
    for (int k = 0; k < 3; k++) {
        if (models[k] != NULL) {
            BY_TRY(by__exec_row_link(models[k], t->store, error));
            BY_TRY(by__exec_row_bind_flat(models[k], t->store, BY_ROLE_PARAMETER, t->copies,
                                          t->masters, error));
        }
    }
    if (t->pipe != NULL) {
        BY_TRY(by__pipeline_allocate(t, error));
    }
    if (t->copy != NULL) {
        BY_TRY(bind_copy(t, error));
    }
    if (t->sets == 0) {
        return BY_OK;
    }
    size_t count;
    const by_update_unit *units = by__trainer_update_units(t, &count);
    for (size_t i = 0; i < count; i++) {
        BY_TRY(bind_unit(t, &units[i], i, error));
    }
    BY_TRY(by__trainer_norm_is_divided(t) ? by__trainer_norm_open(t, error) : BY_OK);
    BY_TRY(by__trainer_average_open(t, error));
    BY_TRY(by__trainer_layers_open(t, error));
    BY_TRY(by__trainer_activations_open(t, error));
    BY_TRY(by__trainer_sampler_open(t, error));
    t->bound_set = -1;
    t->last_set = -1;
    return by__trainer_bind_sum(t, 0, error);
}

static by_status take_memory(by_trainer *t, by_error *error)
{
    BY_TRY(by__store_allocate(t->store, by_config_offload_path(t->config), error));
    BY_TRY(by__exec_set_allocate(&t->programs, error));
    BY_TRY(by__trainer_open_feeds(t, error));
    return t->offload == NULL ? BY_OK : by__offload_open(t, error);
}

/* Adds to an error about memory, or space on a disk, what can be changed. */
static by_status refuse_memory(by_status status, by_error *error)
{
    by_error plain = error == NULL ? (by_error){0} : *error;
    const char *way =
        status == BY_EIO
            ? "name a directory on a disk with room in offload.path, or set "
              "offload.optimizer: none"
            : "the micro_batch that banyan info names, recompute: block or a smaller model "
              "needs less";
    return status == BY_OK ? BY_OK : by_error_set(error, status, "%s; %s", plain.message, way);
}

by_status by_trainer_allocate(by_trainer *t, by_error *error)
{
    if (by__store_is_allocated(t->store)) {
        return by_error_set(error, BY_ESTATE, "the trainer's memory was allocated before");
    }
    BY_TRY(refuse_memory(by__trainer_plan_fits(&t->memory, t->config, t->ranks.all, error), error));
    /* Collective: no rank allocates before all of this host have checked how much is free. */
    BY_TRY(by__trainer_ranks_open(t, error));
    BY_TRY(refuse_memory(take_memory(t, error), error));
    BY_TRY(bind_all(t, error));
    BY_TRY(by__trainer_teacher_open(t, error));
    BY_TRY(by__trainer_abft_open(t, error));
    return by__trainer_sync_open(t, error);
}
