/* The state of the optimizer, and with bf16 the f32 weights, on disk (ZeRO-Offload: Ren et al.
 * 2021; ZeRO-Infinity, whose last level is the disk too: Rajbhandari et al. 2021).
 *
 * Trained parameters are divided into windows: ranges of a group, of a rank's slices of it, or
 * whole tensors if the optimizer needs these. The update proceeds window by window: while one is
 * updated, the following windows are read and the previous ones are written back, all in one
 * planned buffer. The reads of a step's first windows are started by the previous step. Elements
 * are updated by the same operations as in memory, so the bits do not depend on offloading. */
#include <stdlib.h>
#include <string.h>

#include "trainer/exchange/exchange.h"
#include "trainer/graphs/graphs.h"
#include "trainer/offload/offload.h"
#include "trainer/offload/offload_windows.h"

/* Number of windows that the buffer has room for, unless tensors are larger: one is computed,
 * others are read and written. */
#define WINDOWS_AT_ONCE 4
/* A window's number of elements is a multiple of this, so that its data in the file begin at a
 * page. */
#define WINDOW_UNIT (BY__SCRATCH_ALIGNMENT / sizeof(float))

/* ---- the plan ---- */

static bool has_copies(const by_trainer *t, int group)
{
    return by__trainer_compute_dtype(t->config) != BY_F32 && (group & BY__GROUP_WIDE) == 0;
}

static by_status add_window(by__offload *o, by__store_part part, by__store_handle tensor,
                            by_error *error)
{
    if (part.count == 0) {
        return BY_OK;
    }
    BY_TRY(
        by__reserve((void **)&o->windows, &o->capacity, o->count + 1, sizeof *o->windows, error));
    o->windows[o->count++] =
        (by__trainer_window){.part = part, .tensor = tensor, .kinds = {-1, -1, -1, -1, -1}};
    return BY_OK;
}

static by_status cut(by__offload *o, by__store_part all, by_error *error)
{
    by__store_part window = {all.group, all.first, (int64_t)o->window_elements};
    for (; window.first < all.first + all.count; window.first += window.count) {
        BY_TRY(add_window(o, by__store_part_common(window, all), BY__NO_ENTRY, error));
    }
    return BY_OK;
}

/* Frozen groups, whose copies are made from weights on disk. */
static by_status list_frozen(by_trainer *t, by_error *error)
{
    for (int group = BY__TRAINED_GROUPS; group < BY__GROUPS; group++) {
        if (has_copies(t, group)) {
            BY_TRY(cut(t->offload, by__store_group_part(t->store, group), error));
        }
    }
    return BY_OK;
}

static by_status list_trained(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    if (by_optimizer_needs_tensors(t->config)) {
        for (size_t i = 0; i < by__store_count(t->store); i++) {
            by__store_handle handle = (by__store_handle)i;
            if (by__store_entry(t->store, handle)->trainable && by__trainer_shard_owns(t, handle)) {
                BY_TRY(add_window(o, by__store_entry_part(t->store, handle), handle, error));
            }
        }
        return BY_OK;
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        BY_TRY(cut(o, t->shard.own[i].part, error));
    }
    return BY_OK;
}

/* Elements per window, such that the wanted number of windows fits into the buffer. */
static size_t window_elements(const by_trainer *t)
{
    int parts = by_optimizer_state_count(&t->config->optimizer) +
                (by__trainer_compute_dtype(t->config) != BY_F32 ? 1 : 0);
    size_t all = (size_t)(t->config->offload.buffer_mib * 0x1p20) / sizeof(float);
    size_t each = all / WINDOWS_AT_ONCE / (size_t)(parts > 0 ? parts : 1);
    return each < WINDOW_UNIT ? WINDOW_UNIT : each / WINDOW_UNIT * WINDOW_UNIT;
}

bool by__offload_is_wanted(const by_config *config)
{
    return strcmp(config->offload.optimizer, "disk") == 0 &&
           (by_optimizer_state_count(&config->optimizer) > 0 ||
            by__trainer_compute_dtype(config) != BY_F32);
}

static by_status plan(by_trainer *t, by_error *error)
{
    by_device_info info;
    BY_TRY(by_device_describe(&info, t->device, error));
    if (!info.host_memory) {
        return by_error_set(error, BY_ECONFIG,
                            "offload.optimizer: disk needs a device whose memory is the host's, "
                            "and %s has its own: set offload.optimizer: none",
                            info.name);
    }
    BY_TRY(by__alloc((void **)&t->offload, 1, sizeof *t->offload, "offload", error));
    t->offload->window_elements = window_elements(t);
    BY_TRY(list_trained(t, error));
    t->offload->trained = t->offload->count;
    return list_frozen(t, error);
}

/* Of groups in `apart`, which are on disk, the windows are held; of others this rank's slices if
 * they are in `divided`, else everything. */
static by_status add_flat(by_trainer *t, by__store_flat_spec spec, unsigned divided, unsigned apart,
                          int *out, by_error *error)
{
    const by__offload *o = t->offload;
    if (apart == 0) {
        return by__trainer_shard_add_flat(t, spec, divided, out, error);
    }
    spec.on_disk = apart;
    by__store_part *held = NULL;
    size_t capacity;
    divided &= t->shard.states & ~apart;
    BY_TRY(by__trainer_shard_list_held(t, ~(apart | divided), divided, &held, &spec.held_count,
                                       error));
    capacity = spec.held_count;
    by_status status =
        by__reserve((void **)&held, &capacity, spec.held_count + o->count + 1, sizeof *held, error);
    for (size_t i = 0; i < o->count && status == BY_OK; i++) {
        if ((apart >> o->windows[i].part.group & 1u) != 0) {
            held[spec.held_count++] = o->windows[i].part;
        }
    }
    spec.held = held;
    status = status == BY_OK ? by__store_add_flat(t->store, &spec, out, error) : status;
    free(held);
    return status;
}

/* ---- programs ---- */

/* Returns true if the rest of two units is on the same ranks. */
static bool same_ranks(const by_update_unit *a, const by_update_unit *b)
{
    return a->ranks == b->ranks && a->mesh == b->mesh && by_shape_equal(&a->whole, &b->whole) &&
           memcmp(a->axis_mesh, b->axis_mesh, sizeof a->axis_mesh) == 0 &&
           memcmp(a->axis_ranks, b->axis_ranks, sizeof a->axis_ranks) == 0;
}

static bool same_axes(const by_update_unit *a, const by_update_unit *b)
{
    return (a->axes == NULL || b->axes == NULL) ? a->axes == b->axes
                                                : strcmp(a->axes, b->axes) == 0;
}

static bool same_kind(const by__trainer_window_kind *k, by__trainer_window_use use,
                      const by_update_unit *unit)
{
    return k->purpose == use && k->unit.copy == unit->copy &&
           by_shape_equal(&k->unit.shape, &unit->shape) &&
           (use != BY__USE_UPDATE ||
            (same_axes(&k->unit, unit) && k->unit.decay == unit->decay &&
             k->unit.lr_scale == unit->lr_scale && k->unit.decay_scale == unit->decay_scale &&
             k->unit.own_decay == unit->own_decay && k->unit.inputs_first == unit->inputs_first &&
             k->unit.weight_decay == unit->weight_decay && same_ranks(&k->unit, unit)));
}

static by_status build_kind(const by_trainer *t, by_graph *graph, by_error *error)
{
    const by__trainer_window_kind *k = t->offload->building;
    if (k->purpose == BY__USE_UPDATE) {
        return by_optimizer_update_graph(graph, &t->config->optimizer, &k->unit, 1, error);
    }
    if (k->purpose == BY__USE_AVERAGE) {
        return by_optimizer_average_graph(graph, &k->unit, 1, error);
    }
    if (k->purpose != BY__USE_COPIES) {
        return by_optimizer_swap_graph(graph, &k->unit, 1, k->purpose == BY__USE_SWAP_OUT, error);
    }
    by_value master = by_graph_input(graph, BY__WINDOW_UNIT_NAME, BY_F32, k->unit.shape);
    by_graph_output(graph, by_cast(graph, master, k->unit.copy), "copy.unit");
    return by_graph_check(graph, error);
}

/* Finds the program for a unit, or adds it. */
static by_status find_kind(by_trainer *t, by__trainer_window_use use, const by_update_unit *unit,
                           int *out, by_error *error)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->kind_count; i++) {
        if (same_kind(&o->kinds[i], use, unit)) {
            *out = (int)i;
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&o->kinds, &o->kind_capacity, o->kind_count + 1, sizeof *o->kinds,
                       error));
    by__trainer_window_kind *k = &o->kinds[o->kind_count];
    *k = (by__trainer_window_kind){.purpose = use, .unit = *unit};
    *out = (int)o->kind_count++;
    return BY_OK;
}

/* Offset of a window in the scratch file; *elements 0: the optimizer keeps no such state for it. */
static bool find_place(const by_trainer *t, int flat, const by__trainer_window *w,
                       int64_t *elements, uint64_t *offset)
{
    by__store_held_piece piece = {0};
    *elements = w->part.count;
    if (w->tensor == BY__NO_ENTRY) {
        return by__store_disk_offset(t->store, flat, w->part, offset);
    }
    (void)by__store_piece(t->store, flat, w->tensor, 0, &piece);
    *elements = piece.part.count;
    *offset = piece.offset;
    return piece.on_disk || piece.part.count == 0;
}

/* Finds the parts of a window on disk, and their offsets in the file. */
static by_status find_parts(const by_trainer *t, by__trainer_window *w, by_error *error)
{
    int flats[BY__WINDOW_PARTS] = {t->flats.masters};
    int count = has_copies(t, w->part.group) ? 1 : 0;
    for (int i = 0;
         i < by_optimizer_state_count(&t->config->optimizer) && w->kinds[BY__USE_UPDATE] >= 0;
         i++) {
        flats[count++] = t->flats.states[i];
    }
    for (int i = 0; i < count; i++) {
        by__trainer_window_part p = {.flat = flats[i]};
        int64_t elements;
        if (!find_place(t, p.flat, w, &elements, &p.transfer.offset)) {
            return by_error_set(error, BY_ESTATE, "a window of '%s' is not on disk as one run",
                                by__store_flat_name(t->store, p.flat));
        }
        size_t size = w->tensor == BY__NO_ENTRY
                          ? sizeof(float)
                          : by_dtype_size(by__store_dtype(t->store, p.flat, w->tensor));
        p.transfer.bytes = by__round_up((size_t)elements * size, BY__SCRATCH_ALIGNMENT);
        w->bytes += p.transfer.bytes;
        w->parts[w->part_count] = p;
        w->part_count += elements > 0;
    }
    return BY_OK;
}

static by_status find_programs(by_trainer *t, by__trainer_window *w, bool trained, by_error *error)
{
    by_update_unit unit =
        w->tensor == BY__NO_ENTRY
            ? by__trainer_unit(t, BY__WINDOW_UNIT_NAME, BY_SHAPE(w->part.count), w->part.group)
            : by__trainer_tensor_unit(t, BY__WINDOW_UNIT_NAME,
                                      by__store_entry(t->store, w->tensor));
    bool averaged = trained && by__trainer_has_average(t);
    bool swapped = averaged && t->config->train.eval_ema != 0;
    BY_TRY(trained ? find_kind(t, BY__USE_UPDATE, &unit, &w->kinds[BY__USE_UPDATE], error) : BY_OK);
    BY_TRY(averaged ? find_kind(t, BY__USE_AVERAGE, &unit, &w->kinds[BY__USE_AVERAGE], error)
                    : BY_OK);
    BY_TRY(swapped ? find_kind(t, BY__USE_SWAP_IN, &unit, &w->kinds[BY__USE_SWAP_IN], error)
                   : BY_OK);
    BY_TRY(swapped ? find_kind(t, BY__USE_SWAP_OUT, &unit, &w->kinds[BY__USE_SWAP_OUT], error)
                   : BY_OK);
    return has_copies(t, w->part.group)
               ? find_kind(t, BY__USE_COPIES, &unit, &w->kinds[BY__USE_COPIES], error)
               : BY_OK;
}

/* Assigns places to windows: one after another, starting over at the end of the buffer. */
static void place_windows(by__offload *o, size_t wanted)
{
    size_t at = 0;
    o->buffer_bytes = wanted;
    for (size_t i = 0; i < o->count; i++) {
        o->buffer_bytes =
            o->windows[i].bytes > o->buffer_bytes ? o->windows[i].bytes : o->buffer_bytes;
    }
    for (size_t i = 0; i < o->count; i++) {
        by__trainer_window *w = &o->windows[i];
        w->at = at + w->bytes > o->buffer_bytes ? 0 : at;
        at = w->at + w->bytes;
    }
}

/* The update's, and those of averages and copies. */
static by_status add_programs(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->count; i++) {
        BY_TRY(find_programs(t, &o->windows[i], i < o->trained, error));
        BY_TRY(find_parts(t, &o->windows[i], error));
    }
    place_windows(
        o, by__round_up((size_t)(t->config->offload.buffer_mib * 0x1p20), BY__SCRATCH_ALIGNMENT));
    for (size_t i = 0; i < o->kind_count; i++) {
        by__trainer_window_kind *k = &o->kinds[i];
        o->building = k;
        static const char *const names[BY__USES] = {"update", "copies", "average", "average in",
                                                    "average out"};
        (void)snprintf(k->name, sizeof k->name, "%s %zu", names[k->purpose], i);
        BY_TRY(by__trainer_add_update(t, k->name, build_kind, &k->row, error));
    }
    return BY_OK;
}

/* Returns true if this rank has parts of tensors that axes other than `shard` split. */
static bool has_parts(const by_trainer *t)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        if (by__store_is_part(by__store_entry(t->store, (by__store_handle)i))) {
            return true;
        }
    }
    return false;
}

/* Of memory for windows and transfers. */
static uint64_t bytes(const by_trainer *t)
{
    const by__offload *o = t->offload;
    size_t most = 0; /* the largest part that is read to write a checkpoint */
    for (size_t i = 0; i < o->count; i++) {
        for (int k = 0; k < o->windows[i].part_count; k++) {
            size_t size = o->windows[i].parts[k].transfer.bytes;
            most = size > most ? size : most;
        }
    }
    /* The boxes of a part of a tensor are copied out of what was read. */
    most = has_parts(t) ? 2 * most : most;
    return o->buffer_bytes + BY__SCRATCH_ALIGNMENT + most + by__store_scratch_memory();
}

const by__trainer_updater by__offload_updater = {
    .plan = plan,
    .add_flat = add_flat,
    .add_update = add_programs,
    .add_average = by__trainer_do_nothing,
    .add_copies = by__trainer_do_nothing,
    .bytes = bytes,
    .open = by__offload_open,
    .update = by__offload_update,
    .average = by__trainer_do_nothing, /* part of the update */
    .copy = by__offload_copy,
    .swap = by__offload_swap,
    .waited = by__offload_waited,
    .close = by__offload_close};
