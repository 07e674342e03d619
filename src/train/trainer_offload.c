/* The state of the optimizer, and with bf16 the f32 weights, on disk (ZeRO-Offload: Ren et al.
 * 2021; ZeRO-Infinity, whose last level is the disk too: Rajbhandari et al. 2021).
 *
 * What is trained is cut into windows: ranges of a group, of a rank's slices of it, or whole
 * tensors where the optimizer needs these. The update goes from window to window: while one is
 * updated, the windows behind it are read and those before it are written back, all in one buffer
 * that is planned. The reads of a step's first windows are started by the step before. An element
 * is updated by the operations that update it without all this, so no bit depends on it.
 *
 * Each window has a fixed place in the buffer. It may be read there when the windows that were in
 * its place have been written: windows get into the buffer and leave it in their order, which
 * begins again with each step, and those that are in it are the range [tail, head) of a count that
 * never ends. */
#include <stdlib.h>
#include <string.h>

#include "train/trainer.h"

/* Windows that the buffer has room for, where tensors are not larger: one is computed, others are
 * read and written. */
#define WINDOWS_AT_ONCE 4
/* Of the elements of a window, so that what it has in the file begins with a page. */
#define WINDOW_UNIT (BY__SCRATCH_ALIGNMENT / sizeof(float))
#define MAX_PARTS   (1 + BY_MAX_STATES)

/* What programs do with windows: the update, the compute copies alone, and the moving average of
 * the weights (trainer_average.c), which follows the update, takes their place and leaves it. */
typedef enum purpose { UPDATE, COPIES, AVERAGE, TAKE, RETURN, PURPOSES } purpose;

/* What a window has on disk of one flat buffer. */
typedef struct part {
    int flat;
    by__transfer transfer; /* its place in the buffer is known from by__offload_open on */
} part;

typedef struct window {
    by__slice slice;
    by__handle tensor;   /* all of it; BY__NO_ENTRY: elements of a group, whatever they are */
    int kinds[PURPOSES]; /* which programs are for it; -1: none. It is trained if it is updated */
    size_t at;           /* where it begins in the buffer */
    size_t bytes;        /* that it takes there */
    part parts[MAX_PARTS];
    int part_count;
} window;

/* A program for all windows that differ in nothing but their memory. */
typedef struct kind {
    char name[32];
    purpose purpose;
    by_update_unit unit;
} kind;

struct by__offload {
    window *windows; /* those that are trained come first */
    size_t count;
    size_t trained;
    size_t capacity;
    kind *kinds;
    size_t kind_count;
    size_t kind_capacity;
    const kind *building; /* while its program is added */
    size_t window_elements;
    size_t buffer_bytes;
    by_memory buffer;
    /* Windows in the buffer: those from `tail` on are written, `next` is the next to be computed,
     * those up to `head`, which comes into it next, are read. */
    uint64_t tail;
    uint64_t next;
    uint64_t head;
    uint64_t version; /* of the scratch file, when the windows from `next` on were read */
    double waited;    /* seconds for the disk, in the present step */
};

static const char unit_name[] = "unit";

/* ---- the plan ---- */

static bool has_copies(const by_trainer *t, int group)
{
    return by__compute_dtype(t->config) != BY_F32 && (group & BY__GROUP_WIDE) == 0;
}

static by_status add_window(by__offload *o, by__slice slice, by__handle tensor, by_error *error)
{
    if (slice.count == 0) {
        return BY_OK;
    }
    BY_TRY(
        by__reserve((void **)&o->windows, &o->capacity, o->count + 1, sizeof *o->windows, error));
    o->windows[o->count++] =
        (window){.slice = slice, .tensor = tensor, .kinds = {-1, -1, -1, -1, -1}};
    return BY_OK;
}

static by_status cut(by__offload *o, int group, int64_t first, int64_t count, by_error *error)
{
    int64_t most = (int64_t)o->window_elements;
    for (int64_t at = 0; at < count; at += most) {
        const by__slice slice = {
            .group = group, .first = first + at, .count = count - at < most ? count - at : most};
        BY_TRY(add_window(o, slice, BY__NO_ENTRY, error));
    }
    return BY_OK;
}

static by_status cut_groups(by_trainer *t, int from, int to, bool needed, by_error *error)
{
    for (int group = from; group < to; group++) {
        if (needed || has_copies(t, group)) {
            BY_TRY(cut(t->offload, group, 0, by__group_elements(t->store, group), error));
        }
    }
    return BY_OK;
}

static by_status list_trained(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    if (by_optimizer_needs_tensors(&t->config->optimizer)) {
        for (size_t i = 0; i < by__store_count(t->store); i++) {
            const by__stored_tensor *entry = by__store_entry(t->store, (by__handle)i);
            const by__slice slice = {.group = entry->group,
                                     .first = by__store_begin(t->store, (by__handle)i),
                                     .count = by_shape_count(&entry->local)};
            if (entry->trainable && by__shard_owns(t, (by__handle)i)) {
                BY_TRY(add_window(o, slice, (by__handle)i, error));
            }
        }
        return BY_OK;
    }
    for (size_t i = 0; i < t->shard.own_count; i++) {
        const by__slice *own = &t->shard.own[i];
        BY_TRY(cut(o, own->group, own->first, own->count, error));
    }
    return by__is_sharded(t) ? BY_OK : cut_groups(t, 0, BY__TRAINED_GROUPS, true, error);
}

/* Elements of a window: as many of them fit the buffer as are to be in it at once. */
static size_t window_elements(const by_trainer *t)
{
    int parts = by_optimizer_state_count(&t->config->optimizer) +
                (by__compute_dtype(t->config) != BY_F32 ? 1 : 0);
    size_t all = (size_t)(t->config->offload.buffer_mib * 0x1p20) / sizeof(float);
    size_t each = all / WINDOWS_AT_ONCE / (size_t)(parts > 0 ? parts : 1);
    return each < WINDOW_UNIT ? WINDOW_UNIT : each / WINDOW_UNIT * WINDOW_UNIT;
}

by_status by__offload_plan(by_trainer *t, by_error *error)
{
    by_device_info info;
    if (t->sets == 0 || strcmp(t->config->offload.optimizer, "disk") != 0) {
        return BY_OK;
    }
    if (by_optimizer_state_count(&t->config->optimizer) == 0 &&
        by__compute_dtype(t->config) == BY_F32) {
        return BY_OK; /* there is nothing that could be on disk */
    }
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
    return cut_groups(t, BY__TRAINED_GROUPS, BY__GROUPS, false, error);
}

by_status by__offload_add_flat(by_trainer *t, by__flat_spec spec, unsigned divided, int *out,
                               by_error *error)
{
    const by__offload *o = t->offload;
    int64_t begin[BY__GROUPS + 1] = {0};
    by__store_run *held = NULL;
    size_t capacity;
    divided = by__is_sharded(t) ? divided & ~spec.on_disk : 0;
    BY_TRY(
        by__shard_list_held(t, ~(spec.on_disk | divided), divided, &held, &spec.held_count, error));
    capacity = spec.held_count;
    by_status status =
        by__reserve((void **)&held, &capacity, spec.held_count + o->count + 1, sizeof *held, error);
    for (int g = 0; g < BY__GROUPS; g++) {
        begin[g + 1] = begin[g] + by__group_elements(t->store, g);
    }
    for (size_t i = 0; i < o->count && status == BY_OK; i++) {
        const by__slice *slice = &o->windows[i].slice;
        if ((spec.on_disk >> slice->group & 1u) != 0) {
            held[spec.held_count++] =
                (by__store_run){begin[slice->group] + slice->first, slice->count};
        }
    }
    spec.held = held;
    status = status == BY_OK ? by__store_add_flat(t->store, &spec, out, error) : status;
    free(held);
    return status;
}

/* ---- programs ---- */

/* Whether the same ranks have the rest of two units. */
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

static bool same_kind(const kind *k, purpose use, const by_update_unit *unit)
{
    return k->purpose == use && k->unit.copy == unit->copy &&
           by_shape_equal(&k->unit.shape, &unit->shape) &&
           (use != UPDATE ||
            (same_axes(&k->unit, unit) && k->unit.decay == unit->decay &&
             k->unit.lr_scale == unit->lr_scale && k->unit.own_decay == unit->own_decay &&
             k->unit.inputs_first == unit->inputs_first &&
             k->unit.weight_decay == unit->weight_decay && same_ranks(&k->unit, unit)));
}

static by_status build_kind(const by_trainer *t, by_graph *graph, by_error *error)
{
    const kind *k = t->offload->building;
    if (k->purpose == UPDATE) {
        return by_optimizer_update_graph(graph, &t->config->optimizer, &k->unit, 1, error);
    }
    if (k->purpose == AVERAGE) {
        return by_optimizer_average_graph(graph, &k->unit, 1, error);
    }
    if (k->purpose != COPIES) {
        return by_optimizer_swap_graph(graph, &k->unit, 1, k->purpose == RETURN, error);
    }
    by_value master = by_graph_input(graph, unit_name, BY_F32, k->unit.shape);
    by_graph_output(graph, by_cast(graph, master, k->unit.copy), "copy.unit");
    return by_graph_check(graph, error);
}

/* The program for a unit, which is added where there is none yet. */
static by_status find_kind(by_trainer *t, purpose use, const by_update_unit *unit, int *out,
                           by_error *error)
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
    kind *k = &o->kinds[o->kind_count];
    *k = (kind){.purpose = use, .unit = *unit};
    *out = (int)o->kind_count++;
    return BY_OK;
}

/* Where a window is in the scratch file; *elements 0: the optimizer keeps no such state for it. */
static bool find_place(const by_trainer *t, int flat, const window *w, int64_t *elements,
                       uint64_t *offset)
{
    by__held_piece piece = {0};
    *elements = w->slice.count;
    if (w->tensor == BY__NO_ENTRY) {
        return by__store_disk_range(t->store, flat, w->slice.group, w->slice.first, *elements,
                                    offset);
    }
    for (size_t k = 0; by__store_piece(t->store, flat, w->tensor, k, &piece); k++) {
        if (piece.count > 0) {
            break;
        }
    }
    *elements = piece.count;
    *offset = piece.offset;
    return piece.on_disk || piece.count == 0;
}

/* What a window has on disk, and where its parts are in the file. */
static by_status find_parts(const by_trainer *t, window *w, by_error *error)
{
    int flats[MAX_PARTS] = {t->masters};
    int count = has_copies(t, w->slice.group) ? 1 : 0;
    for (int i = 0; i < by_optimizer_state_count(&t->config->optimizer) && w->kinds[UPDATE] >= 0;
         i++) {
        flats[count++] = t->states[i];
    }
    for (int i = 0; i < count; i++) {
        part p = {.flat = flats[i]};
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

static by_status find_programs(by_trainer *t, window *w, bool trained, by_error *error)
{
    by_update_unit unit =
        w->tensor == BY__NO_ENTRY
            ? by__trainer_unit(t, unit_name, BY_SHAPE(w->slice.count), w->slice.group)
            : by__trainer_tensor_unit(t, unit_name, by__store_entry(t->store, w->tensor));
    bool averaged = trained && by__has_average(t);
    bool swapped = averaged && t->config->train.eval_ema != 0;
    BY_TRY(trained ? find_kind(t, UPDATE, &unit, &w->kinds[UPDATE], error) : BY_OK);
    BY_TRY(averaged ? find_kind(t, AVERAGE, &unit, &w->kinds[AVERAGE], error) : BY_OK);
    BY_TRY(swapped ? find_kind(t, TAKE, &unit, &w->kinds[TAKE], error) : BY_OK);
    BY_TRY(swapped ? find_kind(t, RETURN, &unit, &w->kinds[RETURN], error) : BY_OK);
    return has_copies(t, w->slice.group) ? find_kind(t, COPIES, &unit, &w->kinds[COPIES], error)
                                         : BY_OK;
}

/* Gives windows their places: behind each other, at the front again where the end is reached. */
static void place_windows(by__offload *o, size_t wanted)
{
    size_t at = 0;
    o->buffer_bytes = wanted;
    for (size_t i = 0; i < o->count; i++) {
        o->buffer_bytes =
            o->windows[i].bytes > o->buffer_bytes ? o->windows[i].bytes : o->buffer_bytes;
    }
    for (size_t i = 0; i < o->count; i++) {
        window *w = &o->windows[i];
        w->at = at + w->bytes > o->buffer_bytes ? 0 : at;
        at = w->at + w->bytes;
    }
}

by_status by__offload_add_programs(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->count; i++) {
        BY_TRY(find_programs(t, &o->windows[i], i < o->trained, error));
        BY_TRY(find_parts(t, &o->windows[i], error));
    }
    place_windows(
        o, by__round_up((size_t)(t->config->offload.buffer_mib * 0x1p20), BY__SCRATCH_ALIGNMENT));
    for (size_t i = 0; i < o->kind_count; i++) {
        kind *k = &o->kinds[i];
        o->building = k;
        static const char *const names[PURPOSES] = {"update", "copies", "average", "average in",
                                                    "average out"};
        (void)snprintf(k->name, sizeof k->name, "%s %zu", names[k->purpose], i);
        BY_TRY(by__trainer_add_update(t, k->name, build_kind, error));
    }
    return BY_OK;
}

/* Whether this rank has parts of tensors that other axes than `shard` split. */
static bool has_parts(const by_trainer *t)
{
    for (size_t i = 0; i < by__store_count(t->store); i++) {
        if (by__store_is_part(by__store_entry(t->store, (by__handle)i))) {
            return true;
        }
    }
    return false;
}

size_t by__offload_bytes(const by_trainer *t)
{
    const by__offload *o = t->offload;
    size_t most = 0; /* the largest part that a checkpoint is written from */
    if (o == NULL) {
        return 0;
    }
    for (size_t i = 0; i < o->count; i++) {
        for (int k = 0; k < o->windows[i].part_count; k++) {
            size_t bytes = o->windows[i].parts[k].transfer.bytes;
            most = bytes > most ? bytes : most;
        }
    }
    /* Of a part of a tensor the boxes are copied out of what was read. */
    most = has_parts(t) ? 2 * most : most;
    return o->buffer_bytes + BY__SCRATCH_ALIGNMENT + most + by__scratch_memory();
}

double by__offload_waited(const by_trainer *t)
{
    return t->offload == NULL ? 0.0 : t->offload->waited;
}

/* ---- memory ---- */

by_status by__offload_open(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    if (o == NULL) {
        return BY_OK;
    }
    BY_TRY(by_device_alloc(&o->buffer, t->device, o->buffer_bytes + BY__SCRATCH_ALIGNMENT,
                           "the buffer of what is on disk", error));
    uintptr_t base = by__round_up(o->buffer.address, BY__SCRATCH_ALIGNMENT);
    for (size_t i = 0; i < o->count; i++) {
        window *w = &o->windows[i];
        size_t at = w->at;
        for (int k = 0; k < w->part_count; k++) {
            w->parts[k].transfer.data = (char *)(base + at);
            at += w->parts[k].transfer.bytes;
        }
    }
    for (size_t i = 0; i < o->kind_count; i++) {
        BY_TRY(by__trainer_bind_update(t, by__set_row(&t->programs, o->kinds[i].name), error));
    }
    return BY_OK;
}

/* Waits for what is under way, whether it fails or not, and empties the buffer. */
static void finish(by_trainer *t)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->count && by__store_scratch(t->store) != NULL; i++) {
        for (int k = 0; k < o->windows[i].part_count; k++) {
            (void)by__scratch_wait(by__store_scratch(t->store), &o->windows[i].parts[k].transfer,
                                   NULL);
        }
    }
    o->tail = o->head = o->next;
}

void by__offload_close(by_trainer *t)
{
    by__offload *o = t->offload;
    if (o == NULL) {
        return;
    }
    finish(t);
    by_device_free(&o->buffer);
    free(o->windows);
    free(o->kinds);
    free(o);
    t->offload = NULL;
}

/* ---- transfers ---- */

static by_status start(by_trainer *t, window *w, by__transfer_kind what, by_error *error)
{
    for (int k = 0; k < w->part_count; k++) {
        w->parts[k].transfer.kind = what;
        BY_TRY(by__scratch_start(by__store_scratch(t->store), &w->parts[k].transfer, error));
    }
    return BY_OK;
}

static bool is_done(const by_trainer *t, const window *w)
{
    for (int k = 0; k < w->part_count; k++) {
        if (!by__scratch_is_done(by__store_scratch(t->store), &w->parts[k].transfer)) {
            return false;
        }
    }
    return true;
}

static by_status wait(by_trainer *t, window *w, by_error *error)
{
    double begin = by__now();
    for (int k = 0; k < w->part_count; k++) {
        BY_TRY(by__scratch_wait(by__store_scratch(t->store), &w->parts[k].transfer, error));
    }
    t->offload->waited += by__now() - begin;
    return BY_OK;
}

static window *window_of(by__offload *o, uint64_t number)
{
    return &o->windows[number % o->trained];
}

/* Whether the next window has its place for itself. */
static bool is_free(by__offload *o)
{
    const window *w = window_of(o, o->head);
    for (uint64_t s = o->tail; s < o->head; s++) {
        const window *other = window_of(o, s);
        if (other == w || (w->at < other->at + other->bytes && other->at < w->at + w->bytes)) {
            return false;
        }
    }
    return true;
}

/* Starts as many reads as there is room for. */
static by_status read_ahead(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    for (;;) {
        while (o->tail < o->next && is_done(t, window_of(o, o->tail))) {
            o->tail++;
        }
        if (!is_free(o)) {
            return BY_OK;
        }
        BY_TRY(start(t, window_of(o, o->head), BY__TRANSFER_READ, error));
        o->head++;
    }
}

/* The next window is in memory. */
static by_status bring_in(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    BY_TRY(read_ahead(t, error));
    while (o->head == o->next) {
        BY_TRY(wait(t, window_of(o, o->tail), error));
        BY_TRY(read_ahead(t, error));
    }
    return wait(t, window_of(o, o->next), error);
}

/* What was read ahead is read again when the file was written in the meantime. */
static void forget_old(by_trainer *t)
{
    by__offload *o = t->offload;
    const by__scratch *scratch = by__store_scratch(t->store);
    uint64_t version = scratch == NULL ? 0 : by__scratch_version(scratch);
    if (version != o->version) {
        finish(t);
        o->version = version;
    }
}

/* ---- the update ---- */

/* Binds what a window has in memory, whether it comes from disk or not. */
static by_status bind(by_trainer *t, const window *w, by__program_row *row, by_error *error)
{
    char name[64];
    bool whole = w->tensor != BY__NO_ENTRY;
    int gradients = t->gradient_sets[t->sum_set];
    const int flats[] = {t->masters, t->copies, gradients, gradients};
    const char *const names[] = {unit_name, "copy.unit", "grad.unit", "kept.unit"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(flats); i++) {
        bool has = i == 0 || (i == 1 ? w->kinds[COPIES] >= 0 : w->kinds[UPDATE] >= 0);
        by_memory memory = !has    ? (by_memory){0}
                           : whole ? by__store_buffer(t->store, flats[i], w->tensor)
                                   : by__shard_memory(t, flats[i], &w->slice);
        if (memory.bytes > 0) {
            BY_TRY(by__row_bind(row, names[i], memory, error));
        }
    }
    for (int k = 0; k < w->part_count; k++) {
        const part *p = &w->parts[k];
        const by_memory memory = {.device = t->offload->buffer.device,
                                  .address = (uintptr_t)p->transfer.data,
                                  .bytes = p->transfer.bytes};
        (void)snprintf(name, sizeof name, "%s.%s", by__store_flat_name(t->store, p->flat),
                       unit_name);
        BY_TRY(by__row_bind(row, p->flat == t->masters ? unit_name : name, memory, error));
    }
    return BY_OK;
}

/* Runs the program of kind `number` on a window that is in memory. */
static by_status compute(by_trainer *t, const window *w, int number, by_error *error)
{
    by__program_row *row = by__set_row(&t->programs, t->offload->kinds[number].name);
    BY_TRY(bind(t, w, row, error));
    return by_program_run(row->program, error);
}

by_status by__offload_update(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    o->waited = 0.0;
    if (o->trained == 0) { /* tensors of other ranks */
        return BY_OK;
    }
    forget_old(t);
    for (size_t i = 0; i < o->trained; i++) {
        window *w = window_of(o, o->next);
        BY_TRY(bring_in(t, error));
        BY_TRY(compute(t, w, w->kinds[UPDATE], error));
        BY_TRY(w->kinds[AVERAGE] >= 0 ? compute(t, w, w->kinds[AVERAGE], error) : BY_OK);
        BY_TRY(start(t, w, BY__TRANSFER_WRITE, error));
        o->next++;
    }
    return read_ahead(t, error);
}

by_status by__offload_copy(by_trainer *t, by_error *error)
{
    by__offload *o = t->offload;
    finish(t);
    for (size_t i = 0; i < o->count; i++) {
        window *w = &o->windows[i];
        if (w->kinds[COPIES] >= 0) {
            by__transfer *master = &w->parts[0].transfer;
            master->kind = BY__TRANSFER_READ;
            BY_TRY(by__scratch_start(by__store_scratch(t->store), master, error));
            BY_TRY(by__scratch_wait(by__store_scratch(t->store), master, error));
            BY_TRY(compute(t, w, w->kinds[COPIES], error));
        }
    }
    return BY_OK;
}

/* One window after the other: that is for evaluations, not for steps. */
by_status by__offload_swap(by_trainer *t, bool back, by_error *error)
{
    by__offload *o = t->offload;
    for (size_t i = 0; i < o->trained; i++) { /* what the last update wrote has to be there */
        BY_TRY(wait(t, &o->windows[i], error));
    }
    finish(t);
    for (size_t i = 0; i < o->trained; i++) {
        window *w = &o->windows[i];
        BY_TRY(start(t, w, BY__TRANSFER_READ, error));
        BY_TRY(wait(t, w, error));
        BY_TRY(compute(t, w, w->kinds[back ? RETURN : TAKE], error));
        BY_TRY(start(t, w, BY__TRANSFER_WRITE, error));
        BY_TRY(wait(t, w, error));
    }
    return BY_OK;
}
