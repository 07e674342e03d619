/* The tensors of a trainer: initial values, loading, and the slices that a checkpoint saves. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "config/kind.h"
#include "tasks/tasks.h"
#include "tasks/teacher.h"
#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/state/trainer.h"
#include "trainer/step/trainer_step.h"

by_status by__trainer_refresh(by_trainer *t, by_error *error)
{
    if (t->flats.copies != t->flats.masters) {
        BY_TRY(t->updater->copy(t, error));
    }
    return by__trainer_shard_gather(t, error);
}

/* Without copies, all ranks have set the weights that they hold. */
static by_status refresh_copies(by_trainer *t, by_error *error)
{
    return t->flats.copies == t->flats.masters ? BY_OK : by__trainer_refresh(t, error);
}

by_status by_trainer_initialize(by_trainer *t, by_error *error)
{
    BY_TRY(by__trainer_ready(t, false, error));
    by__trainer_changes(t);
    BY_TRY(by__nn_initialize_parameters(t->store, t->flats.masters, t->model.parameters,
                                        t->config->seed, t->threads, error));
    BY_TRY(by__store_clear(t->store, BY__STATE, error));
    by__trainer_sync_forget(t);
    t->steps.updates = 0;
    t->probes.guard = (by__trainer_guard){.loss_scale = by__trainer_loss_scale_first(t->config)};
    return refresh_copies(t, error);
}

static bool any(const char *name)
{
    BY_UNUSED(name);
    return true;
}

by_status by__trainer_load_adapter(by_trainer *t, const by_weights *weights, by_error *error)
{
    by__checkpoint_load_options options = {
        .family = by_model_name_prefix(&t->config->model), .may_lack = any, .threads = t->threads};
    BY_TRY(by__trainer_ready(t, false, error));
    by__trainer_changes(t);
    BY_TRY(by__checkpoint_store_load(t->store, t->flats.masters, weights, &options, error));
    by__trainer_sync_forget(t);
    return refresh_copies(t, error);
}

/* Returns true for parameters of tasks, which weights to start from may lack. */
static bool is_besides(const char *name)
{
    return strncmp(name, BY__DISTILL, strlen(BY__DISTILL)) == 0 || strcmp(name, BY__SCORE) == 0;
}

static bool is_added(const char *name)
{
    return is_besides(name) || by__task_is_adapter(name);
}

/* Sets what is to be interpolated because the images of `weights` have another size; grid->name
 * NULL: nothing. */
static by_status find_grid(by__checkpoint_grid *out, const by_trainer *t, const by_weights *weights,
                           by_error *error)
{
    by_config *theirs;
    const char *json = by_weights_config(weights);
    by__nn_grid to = by__nn_model_grid(&t->config->model);
    *out = (by__checkpoint_grid){0};
    if (to.name == NULL || json == NULL) {
        return BY_OK;
    }
    BY_TRY(by__config_like(&theirs, t->config, error));
    by_status status = by_model_config_from_json(&theirs->model, by_weights_path(weights), json,
                                                 strlen(json), error);
    by__nn_grid from = status == BY_OK ? by__nn_model_grid(&theirs->model) : (by__nn_grid){0};
    by_config_close(&theirs);
    if (status == BY_OK && from.name != NULL) {
        *out = (by__checkpoint_grid){.name = to.name,
                                     .before = to.before,
                                     .from = {from.sides[0], from.sides[1]},
                                     .to = {to.sides[0], to.sides[1]}};
    }
    return status;
}

static by_status load_weights(by_trainer *t, const by_weights *weights, const by_string_list *anew,
                              int64_t known_rows, by_error *error)
{
    by__checkpoint_grid grid = {0};
    /* The base weights of a run with adapters have none. */
    bool is_base = t->config->lora.rank > 0 && !by__trainer_has_adapters(weights);
    by__nn_file_names names = by__nn_model_file_names(&t->config->model);
    by__checkpoint_load_options options = {.family = names.family,
                                           .base = names.base,
                                           .heads = names.heads,
                                           .tied = names.tied,
                                           .may_lack = is_base ? is_added : is_besides,
                                           .anew = anew == NULL ? NULL : anew->items,
                                           .anew_count = anew == NULL ? 0 : anew->count,
                                           .known_rows = known_rows,
                                           .exact_codes = true,
                                           .whole = t->model.stages == 1,
                                           .threads = t->threads};
    if (anew != NULL) {
        BY_TRY(find_grid(&grid, t, weights, error));
        options.grid = grid.name == NULL ? NULL : &grid;
    }
    BY_TRY(by__trainer_ready(t, false, error));
    by__trainer_changes(t);
    BY_TRY(by__checkpoint_store_load(t->store, t->flats.masters, weights, &options, error));
    by__trainer_sync_forget(t);
    return refresh_copies(t, error);
}

by_status by_trainer_load_weights(by_trainer *t, const by_weights *weights, by_error *error)
{
    return load_weights(t, weights, NULL, 0, error);
}

by_status by__trainer_start_from(by_trainer *t, const by_weights *weights, int64_t known_tokens,
                                 by_error *error)
{
    return load_weights(t, weights, &t->config->model.new_parameters, known_tokens, error);
}

/* Returns true if a tensor is called "STATE.NAME" with a state that this optimizer keeps. */
static bool is_known_state(const by_trainer *t, const char *name)
{
    for (int i = 0; i < t->flats.state_count; i++) {
        const char *state = by__store_flat_name(t->store, t->flats.states[i]);
        size_t length = strlen(state);
        if (strncmp(name, state, length) == 0 && name[length] == '.') {
            return true;
        }
    }
    return false;
}

/* BY_ECONFIG if the file has states that this optimizer does not keep, i.e. those of another. */
static by_status check_states(const by_trainer *t, const by_weights *states, by_error *error)
{
    for (size_t i = 0; i < by_weights_count(states); i++) {
        const char *name = by_weights_name(states, i);
        if (!is_known_state(t, name)) {
            return by_error_set(error, BY_ECONFIG,
                                "%s holds '%.200s', which optimizer.kind %s does not keep: it was "
                                "trained with other keys of the section optimizer; leave them as "
                                "they were",
                                by_weights_path(states), name, t->config->optimizer.kind);
        }
    }
    return BY_OK; /* missing states are reported by name */
}

by_status by_trainer_load_optimizer(by_trainer *t, const by_weights *states, int64_t step,
                                    by_error *error)
{
    BY_TRY(by__trainer_ready(t, true, error));
    by__trainer_changes(t);
    BY_TRY(states == NULL ? BY_OK : check_states(t, states, error));
    if (states == NULL && t->flats.state_count > 0) {
        return by_error_set(error, BY_EFORMAT, "there is no optimizer state to resume from");
    }
    for (int i = 0; i < t->flats.state_count; i++) {
        char prefix[64];
        by__checkpoint_load_options options = {.prefix = prefix, .threads = t->threads};
        (void)snprintf(prefix, sizeof prefix, "%s.",
                       by__store_flat_name(t->store, t->flats.states[i]));
        BY_TRY(by__checkpoint_store_load(t->store, t->flats.states[i], states, &options, error));
    }
    t->steps.updates = step;
    t->probes.guard = (by__trainer_guard){.loss_scale = by__trainer_loss_scale_first(t->config)};
    by__trainer_sync_loaded(t);
    return BY_OK;
}

/* ---- what a trainer holds ---- */

size_t by_trainer_parameter_count(const by_trainer *trainer)
{
    return by__store_count(trainer->store);
}

int by_trainer_state_count(const by_trainer *trainer)
{
    return trainer->flats.state_count;
}

static by_tensor_view view(const by_trainer *t, int flat, size_t i)
{
    by_shape shape = by__store_shape(t->store, flat, (by__store_handle)i);
    by_tensor_view tensor = {.name = by__store_entry(t->store, (by__store_handle)i)->name,
                             .dtype = by__store_dtype(t->store, flat, (by__store_handle)i),
                             .rank = shape.rank,
                             .data = by__store_host(t->store, flat, (by__store_handle)i)};
    if (shape.rank > 0) {
        memcpy(tensor.shape, shape.dim, (size_t)shape.rank * sizeof shape.dim[0]);
    }
    return tensor;
}

/* ---- slices of what is saved ---- */

void by__trainer_before_change(by_trainer *t, void (*call)(void *user), void *user)
{
    t->before_change.call = call;
    t->before_change.user = user;
}

void by__trainer_changes(const by_trainer *t)
{
    if (t->before_change.call != NULL) {
        t->before_change.call(t->before_change.user);
    }
}

static uint64_t held_bytes(const by_trainer *t, int flat)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        by__store_held_piece piece;
        for (size_t k = 0; by__store_piece(t->store, flat, (by__store_handle)i, k, &piece); k++) {
            bytes += (uint64_t)piece.part.count *
                     by_dtype_size(by__store_dtype(t->store, flat, (by__store_handle)i));
        }
    }
    return bytes;
}

uint64_t by__trainer_saved_bytes(const by_trainer *t)
{
    uint64_t bytes = held_bytes(t, t->flats.masters);
    for (int i = 0; i < t->flats.state_count; i++) {
        bytes += held_bytes(t, t->flats.states[i]);
    }
    return bytes;
}

/* Not for state that passes through windows of memory, or that exchanges change before the
 * update. */
bool by__trainer_saves_in_background(const by_trainer *t)
{
    by_device_info info;
    return t->updater->in_memory && !t->sync.is_on &&
           by_device_describe(&info, t->device, NULL) == BY_OK && info.host_memory;
}

static int saved_flat(const by_trainer *t, int state)
{
    return state < 0 ? t->flats.masters : t->flats.states[state];
}

/* Returns true if this rank's part of a buffer is in pieces: ranks divide it, or it is on disk. */
static bool is_in_pieces(const by_trainer *t, int flat, by__store_handle handle)
{
    return by__trainer_shard_divides(t, flat, handle) || by__store_on_disk(t->store, flat, handle);
}

size_t by__trainer_slices(const by_trainer *t, size_t parameter, int state)
{
    int flat = saved_flat(t, state);
    by__store_handle handle = (by__store_handle)parameter;
    if (by__store_shape(t->store, flat, handle).rank < 0) {
        return 0;
    }
    if (is_in_pieces(t, flat, handle)) {
        return by__trainer_divided_slices(t, flat, handle);
    }
    /* A state of another shape than the entry (row sums) may be whole even if the entry is not. */
    const by__store_tensor held = by__store_held(t->store, flat, handle);
    return by__store_is_part(&held) ? (size_t)by__store_box_count(&held) : 1;
}

void by__trainer_slice_at(by__trainer_held *out, const by_trainer *t, size_t parameter, int state,
                          size_t i)
{
    int flat = saved_flat(t, state);
    by__store_handle handle = (by__store_handle)parameter;
    const by__store_tensor held = by__store_held(t->store, flat, handle);
    const by_shape shape = by__store_shape(t->store, flat, handle);
    bool part = by__store_is_part(&held);
    by_tensor_slice place;
    if (is_in_pieces(t, flat, handle)) {
        by__trainer_divided_slice(out, t, flat, handle, i);
        return;
    }
    /* A stage of a pipeline does not train parameters that it only reads, and no rank trains frozen
     * ones, of which all hold the same. */
    *out = (by__trainer_held){.whole = part ? held.shape : shape,
                              .slice = part ? by__store_box(&held, (int64_t)i, &place)
                                            : by__slice_whole(shape.rank, shape.dim),
                              .is_copy = !held.trainable};
}

/* Values that the host cannot read in place are copied. */
static by_status read_all(const by_trainer *t, int flat, by__store_handle handle, const void **data,
                          void **owned, by_error *error)
{
    by_shape shape = by__store_shape(t->store, flat, handle);
    by_memory memory = by__store_buffer(t->store, flat, handle);
    *data = by__store_host(t->store, flat, handle);
    if (*data != NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc_aligned(owned,
                             (size_t)by_shape_count(&shape) *
                                 by_dtype_size(by__store_dtype(t->store, flat, handle)),
                             "a copy of the weights", error));
    *data = *owned;
    return memory.bytes > 0 ? by_device_read(*owned, memory, error)
                            : by__store_read(t->store, flat, handle, *owned, error);
}

by_status by__trainer_read_slice(const by_trainer *t, size_t parameter, int state, size_t i,
                                 const void **data, void **owned, by_error *error)
{
    int flat = saved_flat(t, state);
    by__store_handle handle = (by__store_handle)parameter;
    const by__store_tensor held = by__store_held(t->store, flat, handle);
    void *all = NULL;
    *owned = NULL;
    if (is_in_pieces(t, flat, handle)) {
        return by__trainer_divided_read(t, flat, handle, i, data, owned, error);
    }
    BY_TRY(read_all(t, flat, handle, data, &all, error));
    if (by__trainer_slices(t, parameter, state) == 1) {
        *owned = all;
        return BY_OK;
    }
    by_tensor_slice place;
    by_tensor_slice box = by__store_box(&held, (int64_t)i, &place);
    size_t size = by_dtype_size(by__store_dtype(t->store, flat, handle));
    by_status status = by__alloc_aligned(owned, by__slice_elements(held.shape.rank, &box) * size,
                                         "a part of a tensor", error);
    if (status == BY_OK) {
        /* Copies from the part, which is not modified. */
        by__store_box_copy(&held, (int64_t)i, *owned, (void *)(uintptr_t)*data, size, false);
        *data = *owned;
    }
    free(all);
    return status;
}

by_tensor_view by_trainer_parameter(const by_trainer *trainer, size_t i)
{
    return view(trainer, trainer->flats.masters, i);
}

by_tensor_view by_trainer_gradient(const by_trainer *trainer, size_t i)
{
    return view(trainer, trainer->flats.gradient_sets[trainer->flats.sum_set], i);
}

by_tensor_view by_trainer_state(const by_trainer *trainer, size_t i, int state)
{
    return view(trainer, trainer->flats.states[state], i);
}

const char *by_trainer_state_name(const by_trainer *trainer, int state)
{
    return by__store_flat_name(trainer->store, trainer->flats.states[state]);
}

/* The flat buffer that contains `what`. */
static int flat_of(const by_trainer *t, by_trainer_tensor what, int state)
{
    return what == BY_TRAINER_PARAMETER  ? t->flats.masters
           : what == BY_TRAINER_GRADIENT ? t->flats.gradient_sets[t->flats.sum_set]
                                         : t->flats.states[state];
}

by_status by_trainer_read(const by_trainer *trainer, by_trainer_tensor what, int state, size_t i,
                          float *out, by_error *error)
{
    int flat = flat_of(trainer, what, state);
    by_shape shape = by__store_shape(trainer->store, flat, (by__store_handle)i);
    BY_TRY(by__trainer_shard_divides(trainer, flat, (by__store_handle)i)
               ? by__trainer_shard_read(trainer, flat, (by__store_handle)i, out, error)
               : by__store_read(trainer->store, flat, (by__store_handle)i, out, error));
    if (by__store_dtype(trainer->store, flat, (by__store_handle)i) == BY_U8) {
        const unsigned char *codes = (const unsigned char *)out;
        for (int64_t k = by_shape_count(&shape); k-- > 0;) { /* in place, from the end */
            out[k] = (float)codes[k];
        }
    }
    return BY_OK;
}
