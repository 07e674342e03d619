/* The layout of a trainer's storage: its parameters in groups, the flat buffers that this rank
 * holds, and the units that the update programs work on. */
#include <string.h>

#include "trainer/exchange/exchange.h"
#include "trainer/step/trainer_step.h"

/* Lists what this rank updates as units. */
static void list_slices(by_trainer *t)
{
    t->units.slices = t->shard.own;
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__trainer_slice *own = &t->shard.own[i];
        t->units.updated[t->units.updated_count++] =
            by__trainer_unit(t, own->name, BY_SHAPE(own->part.count), own->part.group);
    }
}

/* Adds the pieces of tensors in a part of a group, whose elements' positions are known. */
static void add_pieces(by_trainer *t, by__store_part all)
{
    by__store_part part;
    for (by__store_handle i = 0; (part = by__store_next_entry(t->store, all, &i)).count > 0; i++) {
        by__trainer_slice *piece = &t->units.pieces[t->units.updated_count];
        piece->part = part;
        (void)snprintf(piece->name, sizeof piece->name, "piece.%zu", t->units.updated_count);
        by_update_unit unit = by__trainer_unit(t, piece->name, BY_SHAPE(part.count), part.group);
        by__trainer_set_random(t, &unit, by__store_entry(t->store, i),
                               part.first - by__store_entry_part(t->store, i).first);
        t->units.updated[t->units.updated_count++] = unit;
    }
}

/* Lists what this rank updates, divided at tensors. */
static by_status list_pieces(by_trainer *t, size_t most, by_error *error)
{
    BY_TRY(by__alloc((void **)&t->units.pieces, most, sizeof *t->units.pieces, "update", error));
    t->units.slices = t->units.pieces;
    for (size_t i = 0; i < t->shard.own_count; i++) {
        add_pieces(t, t->shard.own[i].part);
    }
    return BY_OK;
}

/* Lists the tensors of which this rank updates all. */
static void list_tensors(by_trainer *t)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        if (entry->trainable && by__trainer_shard_owns(t, (by__store_handle)i)) {
            t->units.updated[t->units.updated_count++] =
                by__trainer_tensor_unit(t, entry->name, entry);
        }
    }
}

/* Lists the units of norm and update: whole groups; for the update, each tensor if the optimizer
 * needs its shape, pieces of tensors if rounding depends on an element's position, else what this
 * rank updates. */
static by_status list_units(by_trainer *t, by_error *error)
{
    for (int group = 0; group < BY__GROUPS; group++) {
        int64_t elements = by__store_group_elements(t->store, t->flats.masters, group);
        if (elements > 0) {
            t->units.group_of_unit[t->units.group_count] = group;
            t->units.trained_groups += group < BY__TRAINED_GROUPS;
            t->units.groups[t->units.group_count++] =
                by__trainer_unit(t, by__trainer_group_name(group), BY_SHAPE(elements), group);
        }
    }
    if (t->flats.sets > 0 && t->units.trained_groups == 0) {
        return by_error_set(error, BY_EARG, "all parameters are frozen: there is nothing to train");
    }
    size_t most = by__store_count(t->store) + t->shard.own_count;
    BY_TRY(by__alloc((void **)&t->units.updated, most, sizeof *t->units.updated, "update", error));
    if (by_optimizer_needs_tensors(t->config)) {
        list_tensors(t);
        return BY_OK;
    }
    if (by__trainer_rounds_stochastically(t->config)) {
        return list_pieces(t, most, error);
    }
    list_slices(t);
    return BY_OK;
}

uint64_t by__trainer_spared(const by_trainer *t, int64_t *elements)
{
    uint64_t bytes = 0;
    uint64_t owners = t->shard.states != 0 ? (uint64_t)t->layout.size[BY_MESH_SHARD] : 1;
    /* Without the buffers of exchanges (trainer_sync.c), which t->flats.state_count includes. */
    int states = by_optimizer_state_count(&t->config->optimizer);
    *elements = 0;
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        by_value value = by_graph_find(t->model.forward, entry->name);
        if (entry->trainable || value == BY_NONE || !t->model.forward->values[value].frozen) {
            continue; /* a stage of a pipeline only reads it */
        }
        int64_t count = by_shape_count(&entry->local);
        uint64_t sets = (uint64_t)t->flats.sets * (uint64_t)count * sizeof(float);
        bytes += t->shard.gradients != 0 ? sets / owners : sets;
        for (int s = 0; s < states; s++) {
            by_optimizer_state state = by_optimizer_state_at(&t->config->optimizer, s);
            by_shape shape = entry->local;
            bool has = state.shape == NULL || state.shape(&entry->local, entry->axes, &shape);
            bytes +=
                has ? (uint64_t)by_shape_count(&shape) * by_dtype_size(state.dtype) / owners : 0;
        }
        *elements += count;
    }
    return bytes;
}

uint64_t by__trainer_coded(const by_trainer *t)
{
    uint64_t bytes = 0;
    by_dtype copied = by__trainer_copies_dtype(t->config);
    size_t each = by_dtype_size(by__trainer_weights_dtype(t->config)) +
                  (copied != BY_F32 ? by_dtype_size(copied) : 0);
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        by_shape codes = by__store_shape(t->store, t->flats.masters, (by__store_handle)i);
        if (entry->group == BY__GROUP_CODES) {
            uint64_t plain = (uint64_t)by_shape_count(&entry->shape) * each;
            uint64_t held = (uint64_t)by_shape_count(&codes);
            bytes += plain > held ? plain - held : 0;
        }
    }
    return bytes;
}

/* Statistics are averages over the micro-batches of a step. Exchanges that are rounded, rare or
 * late would make other numbers of them, and an outer optimizer's momentum negative variances. */
static by_status check_statistics(const by_trainer *t, by_error *error)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        const by__store_tensor *entry = by__store_entry(t->store, (by__store_handle)i);
        if (entry->group == BY__GROUP_STATISTIC && t->sync.is_on) {
            return by_error_set(error, BY_ECONFIG,
                                "sync: %.100s is a statistic of the micro-batches of each step, "
                                "which rare, late or compressed exchanges cannot keep: remove the "
                                "keys of sync, or use a model without batch norm",
                                entry->name);
        }
    }
    return BY_OK;
}

by_status by__trainer_lay_out(by_trainer *t, by_error *error)
{
    const unsigned all = (1u << BY__GROUPS) - 1;
    const unsigned trained = (1u << BY__TRAINED_GROUPS) - 1;
    unsigned narrow = 0;
    by_dtype weights = by__trainer_weights_dtype(t->config);
    by_dtype copied = by__trainer_copies_dtype(t->config);
    for (int group = 0; group < BY__GROUPS; group++) {
        narrow |= (group & BY__GROUP_WIDE) == 0 ? 1u << group : 0u;
    }
    BY_TRY(by__nn_declare_parameters(t->store, t->model.parameters, error));
    if (by__store_count(t->store) == 0) {
        return by_error_set(error, BY_EARG, "the model has no parameters to train");
    }
    BY_TRY(check_statistics(t, error));
    BY_TRY(by__trainer_buckets_plan(t, error));
    BY_TRY(by__trainer_shard_plan(t, error));
    BY_TRY(t->updater->plan(t, error));
    by__store_flat_spec masters = {.role = BY__MASTER,
                                   .dtype = weights,
                                   .wide = ~narrow,
                                   .groups = all,
                                   .packed = 1u << BY__GROUP_CODES};
    BY_TRY(t->updater->add_flat(t, masters, by__trainer_shard_masters(t),
                                copied != BY_F32 ? narrow : 0, &t->flats.masters, error));
    t->flats.copies = t->flats.masters;
    if (copied != BY_F32) {
        by__store_flat_spec copies = {.role = BY__COPY, .dtype = copied, .groups = narrow};
        BY_TRY(by__trainer_shard_add_flat(t, copies, t->shard.parameters & narrow, &t->flats.copies,
                                          error));
    }
    for (int i = 0; i < t->flats.sets; i++) {
        by__store_flat_spec set = {
            .role = BY__GRADIENT, .name = "grad", .dtype = BY_F32, .groups = trained};
        BY_TRY(by__trainer_shard_add_flat(t, set, t->shard.gradients, &t->flats.gradient_sets[i],
                                          error));
    }
    t->flats.state_count = t->flats.sets > 0 ? by_optimizer_state_count(&t->config->optimizer) : 0;
    for (int i = 0; i < t->flats.state_count; i++) {
        by_optimizer_state state = by_optimizer_state_at(&t->config->optimizer, i);
        by__store_flat_spec spec = {.role = BY__STATE,
                                    .name = state.name,
                                    .dtype = state.dtype == BY_F32 && !state.wide ? weights
                                                                                  : state.dtype,
                                    .wide = state.dtype == BY_F32 ? ~narrow : 0,
                                    .groups = trained,
                                    .shape = state.shape};
        BY_TRY(t->updater->add_flat(t, spec, trained, trained, &t->flats.states[i], error));
    }
    BY_TRY(by__trainer_sync_lay_out(t, error));
    return list_units(t, error);
}
