/* Updates of weights and states that are in memory: the update of all units, and the compute copies
 * of new weights. trainer_average.c has the moving average. */
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/step/trainer_step.h"

/* ---- the plan ---- */

static by_status add_flat(by_trainer *t, by__store_flat_spec spec, unsigned divided, unsigned apart,
                          int *out, by_error *error)
{
    BY_UNUSED(apart);
    return by__trainer_shard_add_flat(t, spec, divided, out, error);
}

static by_status build_update(const by_trainer *t, by_graph *graph, by_error *error)
{
    return by_optimizer_update_graph(graph, &t->config->optimizer, t->units.updated,
                                     t->units.updated_count, error);
}

static by_status add_update(by_trainer *t, by_error *error)
{
    return by__trainer_add_update(t, "update", build_update, &t->update.row, error);
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
    for (size_t i = t->units.trained_groups; i < t->units.group_count; i++) {
        const by_update_unit *unit = &t->units.groups[i];
        if (unit->copy != BY_F32) {
            add_copy(graph, unit->name, unit->shape, unit->copy);
        }
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__trainer_slice *own = &t->shard.own[i];
        if ((own->part.group & BY__GROUP_WIDE) == 0) {
            add_copy(graph, own->name, BY_SHAPE(own->part.count),
                     by__trainer_copies_dtype(t->config));
        }
    }
    return by_graph_check(graph, error);
}

static by_status add_copies(by_trainer *t, by_error *error)
{
    return t->flats.copies == t->flats.masters
               ? BY_OK
               : by__trainer_add_update(t, "compute copies", build_copy, &t->update.copy_row,
                                        error);
}

/* ---- memory ---- */

/* Binds the update's values of one unit, except its gradient. */
static by_status bind_unit(by_trainer *t, const by_update_unit *unit, size_t i, by_error *error)
{
    char name[300];
    BY_TRY(by__exec_row_bind(t->update.row, unit->name,
                             by__trainer_unit_memory(t, t->flats.masters, i), error));
    for (int s = 0; s < t->flats.state_count; s++) {
        (void)snprintf(name, sizeof name, "%s.%s",
                       by__store_flat_name(t->store, t->flats.states[s]), unit->name);
        BY_TRY(by__exec_row_bind(t->update.row, name,
                                 by__trainer_unit_memory(t, t->flats.states[s], i), error));
    }
    if (unit->copy == BY_F32) {
        return BY_OK;
    }
    (void)snprintf(name, sizeof name, "copy.%s", unit->name);
    return by__exec_row_bind(t->update.row, name, by__trainer_unit_memory(t, t->flats.copies, i),
                             error);
}

static by_status bind_one_copy(by_trainer *t, const char *unit, by_memory master, by_memory copy,
                               by_error *error)
{
    char name[64];
    (void)snprintf(name, sizeof name, "copy.%s", unit);
    BY_TRY(by__exec_row_bind(t->update.copy_row, unit, master, error));
    return by__exec_row_bind(t->update.copy_row, name, copy, error);
}

static by_status bind_copy(by_trainer *t, by_error *error)
{
    for (size_t i = t->units.trained_groups; i < t->units.group_count; i++) {
        BY_TRY(bind_one_copy(t, t->units.groups[i].name, by__trainer_group(t, t->flats.masters, i),
                             by__trainer_group(t, t->flats.copies, i), error));
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__trainer_slice *own = &t->shard.own[i];
        if ((own->part.group & BY__GROUP_WIDE) != 0) {
            continue;
        }
        BY_TRY(bind_one_copy(t, own->name, by__store_memory(t->store, t->flats.masters, own->part),
                             by__store_memory(t->store, t->flats.copies, own->part), error));
    }
    return BY_OK;
}

static by_status open(by_trainer *t, by_error *error)
{
    BY_TRY(t->update.copy_row != NULL ? bind_copy(t, error) : BY_OK);
    for (size_t i = 0; i < t->units.updated_count && t->update.row != NULL; i++) {
        BY_TRY(bind_unit(t, &t->units.updated[i], i, error));
    }
    return by__trainer_average_open(t, error);
}

/* ---- a step ---- */

static by_status update(by_trainer *t, by_error *error)
{
    return by_program_submit(t->update.row->program, error);
}

static by_status copy(by_trainer *t, by_error *error)
{
    return by_program_run(t->update.copy_row->program, error);
}

const by__trainer_updater by__step_update_in_memory = {.in_memory = true,
                                                       .plan = by__trainer_do_nothing,
                                                       .add_flat = add_flat,
                                                       .add_update = add_update,
                                                       .add_average = by__trainer_average_plan,
                                                       .add_copies = add_copies,
                                                       .bytes = by__trainer_no_bytes,
                                                       .open = open,
                                                       .update = update,
                                                       .average = by__trainer_average_update,
                                                       .copy = copy,
                                                       .swap = by__trainer_average_swap,
                                                       .waited = by__trainer_no_seconds,
                                                       .close = by__trainer_close_nothing};
