/* The memory of a trainer: allocated at once, then bound to the programs. */
#include <stdlib.h>
#include <string.h>

#include "trainer/state/trainer.h"

by_memory by__trainer_group(const by_trainer *t, int flat, size_t unit)
{
    return by__store_group(t->store, flat, t->units.group_of_unit[unit]);
}

by_memory by__trainer_flat(const by_trainer *t, int flat)
{
    by_memory all = by__trainer_group(t, flat, 0);
    for (size_t i = 1; i < t->units.trained_groups; i++) {
        all.bytes += by__trainer_group(t, flat, i).bytes;
    }
    return all;
}

by_memory by__trainer_set(const by_trainer *t, int set)
{
    return by__trainer_flat(t, t->flats.gradient_sets[set]);
}

by_memory by__trainer_unit_memory(const by_trainer *t, int flat, size_t i)
{
    return t->units.slices != NULL
               ? by__store_memory(t->store, flat, t->units.slices[i].part)
               : by__store_buffer(t->store, flat,
                                  by__store_find(t->store, t->units.updated[i].name));
}

static by_status bind_gradient(by__exec_program_row *row, const by_update_unit *unit,
                               by_memory memory, by_error *error)
{
    char name[300];
    (void)snprintf(name, sizeof name, "grad.%s", unit->name);
    return by__exec_row_bind(row, name, memory, error);
}

by_status by__trainer_bind_sum(by_trainer *t, int set, by_error *error)
{
    int flat = t->flats.gradient_sets[set];
    t->flats.sum_set = set;
    for (size_t i = 0; i < t->units.trained_groups && t->norm.squares == NULL; i++) {
        BY_TRY(
            bind_gradient(t->norm.row, &t->units.groups[i], by__trainer_group(t, flat, i), error));
    }
    for (size_t i = 0; i < t->units.updated_count; i++) {
        BY_TRY(bind_gradient(t->update.row, &t->units.updated[i],
                             by__trainer_unit_memory(t, flat, i), error));
    }
    return BY_OK;
}

by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error)
{
    if (t->feed.inputs.bytes == 0) {
        return by_error_set(error, BY_ESTATE,
                            "the trainer has no memory yet: by_trainer_allocate comes first");
    }
    if (training && t->flats.sets == 0) {
        return by_error_set(error, BY_ESTATE, "this trainer was opened for losses only");
    }
    return BY_OK;
}
