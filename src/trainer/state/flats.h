/* The flat buffers of a trainer's store, and the units that updates work on: the records of
 * step/trainer_layout.c. */
#ifndef BY_TRAINER_STATE_FLATS_H
#define BY_TRAINER_STATE_FLATS_H

#include "banyan/optimizer.h"
#include "banyan/trainer.h"
#include "base/sum_tree.h"
#include "exec/exec.h"
#include "store/store.h"
#include "trainer/state/trainer_shard.h"

#define BY__MAX_STATES (BY_MAX_STATES + 2) /* and two for exchanges */
#define BY__MAX_SETS   BY__SUM_TREE_NODES

typedef struct by__trainer_flats {
    int masters; /* flat buffers of the store; -1: none */
    int copies;
    int gradient_sets[BY__MAX_SETS];
    int states[BY__MAX_STATES];
    int sets; /* number of gradient sets; 0: the trainer only computes losses */
    int state_count;
    int sum_set; /* set that holds the sum of the last batch */
} by__trainer_flats;

typedef struct by__trainer_units {
    by_update_unit groups[BY__GROUPS]; /* groups that have entries, trained ones first */
    int group_of_unit[BY__GROUPS];
    size_t group_count;
    size_t trained_groups;
    by_update_unit *updated; /* what the update works on, one by one */
    size_t updated_count;
    const by__trainer_slice *slices; /* where that is; NULL: whole tensors */
    by__trainer_slice *pieces;       /* of tensors, if `slices` are these */
} by__trainer_units;

/* ---- trainer_units.c ---- */

/* Name of a group. */
const char *by__trainer_group_name(int group);
/* The update unit for `shape` elements of a group. */
by_update_unit by__trainer_unit(const by_trainer *t, const char *name, by_shape shape, int group);
/* The same for a whole tensor, or this rank's part of one. */
by_update_unit by__trainer_tensor_unit(const by_trainer *t, const char *name,
                                       const by__store_tensor *entry);
/* Random bits of a tensor's elements are derived from its name, so that every rank rounds an
 * element alike. Parts of a split tensor share random bits, because what they keep of the whole
 * (Adafactor's factors) must stay equal. */
void by__trainer_set_random(const by_trainer *t, by_update_unit *unit,
                            const by__store_tensor *entry, int64_t first);

/* ---- trainer_memory.c ---- */

/* BY_ESTATE before by_trainer_allocate, and with `training` for a trainer that only computes
 * losses. */
by_status by__trainer_ready(const by_trainer *t, bool training, by_error *error);
/* Memory of group `unit` in a flat buffer. */
by_memory by__trainer_group(const by_trainer *t, int flat, size_t unit);
/* Memory of all trained groups in a flat buffer, where they are contiguous. */
by_memory by__trainer_flat(const by_trainer *t, int flat);
/* The same for a gradient set. */
by_memory by__trainer_set(const by_trainer *t, int set);
/* Memory in a flat buffer of the i-th unit that is updated. */
by_memory by__trainer_unit_memory(const by_trainer *t, int flat, size_t i);
/* Binds norm and update to the set that holds the sum. */
by_status by__trainer_bind_sum(by_trainer *t, int set, by_error *error);

#endif
