/* Batches of one source, filled ahead by one thread.
 *
 * The thread and the caller share a ring of slots. `filled` and `released` count batches since the
 * last seek: slot k % slots holds batch k while released <= k < filled. The caller's current batch
 * is released by its next call. All fields below `thread` are guarded by its lock, except the
 * slots' content: a slot belongs to the thread until it is counted in `filled`, then to the caller
 * until it is counted in `released`. The content of a batch depends on its position alone, not on
 * the thread's timing. */
#include <stdlib.h>
#include <string.h>

#include "banyan/data.h"
#include "base/base.h"
#include "base/worker_thread.h"
#include "data/loader/order.h"

#define DEFAULT_PREFETCH 4
#define PREFETCH_LIMIT   65536
/* Bounds that keep every sum and product of sample and target counts within 64 bits. */
#define BATCH_LIMIT  ((size_t)1 << 30)
#define TARGET_LIMIT ((uint64_t)1 << 30)
#define SAMPLE_LIMIT ((uint64_t)1 << 62)

typedef struct slot {
    by_array *arrays; /* views into the buffer */
    uint64_t sample;  /* first sample of the global batch */
    uint64_t targets; /* of this part, and of the global batch */
    uint64_t global_targets;
    uint64_t damaged; /* of the global batch */
    uint64_t first_damaged;
} slot;

struct by_loader {
    by_source *source;
    size_t batch;
    size_t first;
    size_t count;
    size_t most;   /* largest `count` that there is room for */
    size_t block;  /* samples that are contiguous in the global batch, */
    size_t stride; /* and distance between such blocks */
    uint64_t seed;
    slot *slots;
    size_t slot_count;
    by_array *arrays;  /* of all slots */
    size_t *row_bytes; /* of each array of a sample */
    char *buffer;      /* memory of all slots' arrays */

    /* Used by the thread only: */
    void **rows;            /* addresses for the sample being filled */
    by__loader_order order; /* of its epoch */
    uint64_t epoch;
    bool has_epoch;

    by__base_worker thread;
    uint64_t base; /* first sample after the last seek */
    uint64_t filled;
    uint64_t released;
    bool is_seeking; /* the thread must not begin a batch */
    bool is_filling;
    bool is_held;     /* the caller holds batch `released` */
    bool has_ended;   /* no batch follows the filled ones */
    by_status status; /* the reason */
    by_error error;
    by_loader_statistics statistics;
};

/* ---- samples ---- */

static by_source_sample locate(by_loader *l, uint64_t index)
{
    by_source_sample sample = {.place = index, .index = index, .seed = l->seed};
    if (l->source->shuffle) {
        uint64_t samples = l->source->samples;
        sample.epoch = index / samples;
        if (!l->has_epoch || sample.epoch != l->epoch) {
            by__loader_order_init(&l->order, samples, l->seed, sample.epoch);
            l->epoch = sample.epoch;
            l->has_epoch = true;
        }
        sample.place = by__loader_order_at(&l->order, index % samples);
    }
    return sample;
}

/* Number of targets of a pass before a sample. */
static uint64_t targets_before(const by_source *source, uint64_t sample)
{
    return sample >= source->samples ? source->targets : sample * source->sample_targets;
}

/* Counts the targets of samples [sample, sample + rows). */
static by_status count_targets(by_loader *l, uint64_t sample, size_t rows, uint64_t *out,
                               by_error *error)
{
    const by_source *source = l->source;
    *out = 0;
    if (source->count == NULL) {
        *out = source->shuffle
                   ? (uint64_t)rows * source->sample_targets
                   : targets_before(source, sample + rows) - targets_before(source, sample);
        return BY_OK;
    }
    for (size_t i = 0; i < rows; i++) {
        uint64_t targets;
        by_source_sample at = locate(l, sample + i);
        BY_TRY(source->count(source, &at, &targets, error));
        *out += targets;
    }
    return BY_OK;
}

/* Counts the targets of a slot's batch, and of this rank's part of it. */
static by_status count_slot(by_loader *l, slot *s, by_error *error)
{
    uint64_t targets;
    s->targets = 0;
    for (size_t row = 0; row < l->count; row += l->block) {
        size_t rows = l->count - row < l->block ? l->count - row : l->block;
        BY_TRY(count_targets(l, s->sample + l->first + row / l->block * l->stride, rows, &targets,
                             error));
        s->targets += targets;
    }
    if (l->count == l->batch) {
        s->global_targets = s->targets;
        return BY_OK;
    }
    return count_targets(l, s->sample, l->batch, &s->global_targets, error);
}

/* Counts damaged samples of the whole batch, identically on every rank. */
static void count_damaged(by_loader *l, slot *s)
{
    s->damaged = 0;
    s->first_damaged = 0;
    for (size_t i = 0; i < l->batch && l->source->replaces != NULL; i++) {
        by_source_sample sample = locate(l, s->sample + i);
        if (l->source->replaces(l->source, &sample)) {
            s->first_damaged = s->damaged++ == 0 ? sample.index : s->first_damaged;
        }
    }
}

static by_status fill_slot(by_loader *l, slot *s, by_error *error)
{
    BY_TRY(count_slot(l, s, error));
    count_damaged(l, s);
    for (size_t row = 0; row < l->count; row++) {
        size_t at = row / l->block * l->stride + row % l->block;
        by_source_sample sample = locate(l, s->sample + l->first + at);
        for (size_t i = 0; i < l->source->array_count; i++) {
            l->rows[i] = (char *)(uintptr_t)s->arrays[i].data + row * l->row_bytes[i];
        }
        BY_TRY(l->source->fill(l->source, &sample, l->rows, error));
    }
    return BY_OK;
}

/* ---- the thread ---- */

/* Fills the next slot. Called with the lock held, which is released while filling. */
static void fill_next(by_loader *l)
{
    slot *s = &l->slots[l->filled % l->slot_count];
    by_error error = {0};
    s->sample = l->base + l->filled * l->batch;
    if (!l->source->shuffle && s->sample >= l->source->samples) {
        l->has_ended = true;
        return;
    }
    l->is_filling = true;
    by__base_worker_unlock(&l->thread);
    double begin = by__now();
    by_status status = fill_slot(l, s, &error);
    double end = by__now();
    by__base_worker_lock(&l->thread);
    l->is_filling = false;
    l->statistics.fill_seconds += end - begin;
    if (status != BY_OK) {
        l->status = status;
        l->error = error;
        return;
    }
    l->filled++;
}

static void *run_thread(void *argument)
{
    by_loader *l = argument;
    by__base_worker_lock(&l->thread);
    while (!l->thread.stop) {
        if (l->has_ended || l->status != BY_OK || l->is_seeking ||
            l->filled - l->released == l->slot_count) {
            by__base_worker_wait(&l->thread);
        } else {
            fill_next(l);
            by__base_worker_notify(&l->thread);
        }
    }
    by__base_worker_unlock(&l->thread);
    return NULL;
}

/* ---- opening ---- */

/* Returns true if the blocks of a part do not overlap and are within the batch. */
static bool has_blocks(const by_loader_options *o)
{
    size_t last = o->count == 0 ? 0 : o->count - 1;
    size_t end = o->batch - o->first; /* end of the last sample, relative to `first` */
    return o->count > 0 && o->stride >= o->block && o->stride <= BATCH_LIMIT &&
           last / o->block * o->stride + last % o->block < end;
}

static by_status check_options(const by_loader_options *o, by_error *error)
{
    if (o->batch == 0 || o->batch > BATCH_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: batch %zu must be from 1 to 2^30", o->batch);
    }
    if (o->first >= o->batch || o->count > o->batch - o->first) {
        return by_error_set(
            error, BY_EARG, "loader: samples %zu to %zu are not within the batch of %zu", o->first,
            o->count > SIZE_MAX - o->first ? SIZE_MAX : o->first + o->count, o->batch);
    }
    if (o->block > 0 && !has_blocks(o)) {
        return by_error_set(
            error, BY_EARG,
            "loader: %zu samples in blocks of %zu, one every %zu from sample %zu on, are not "
            "within the batch of %zu",
            o->count, o->block, o->stride, o->first, o->batch);
    }
    if (o->prefetch > PREFETCH_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: prefetch %zu is more than %d", o->prefetch,
                            PREFETCH_LIMIT);
    }
    if (o->start > SAMPLE_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: start %llu is more than 2^62",
                            (unsigned long long)o->start);
    }
    return BY_OK;
}

static by_status check_source(const by_source *s, by_error *error)
{
    if (s->array_count == 0 || s->samples == 0 || s->samples > SAMPLE_LIMIT ||
        s->sample_targets > TARGET_LIMIT ||
        s->targets / (s->sample_targets + (s->sample_targets == 0)) > s->samples) {
        return by_error_set(
            error, BY_EARG,
            "%s: a source of %zu arrays and %llu samples, %llu targets with %llu in "
            "a sample, cannot fill batches",
            s->name, s->array_count, (unsigned long long)s->samples, (unsigned long long)s->targets,
            (unsigned long long)s->sample_targets);
    }
    for (size_t i = 0; i < s->array_count; i++) {
        const by_array *a = &s->arrays[i];
        bool is_valid =
            a->shape.rank >= 0 && a->shape.rank < BY_MAX_RANK && by_dtype_size(a->dtype) > 0;
        for (int k = 0; is_valid && k < a->shape.rank; k++) {
            is_valid = a->shape.dim[k] > 0;
        }
        if (!is_valid) {
            return by_error_set(error, BY_EARG,
                                "%s: array '%s' of a sample needs a data type and up to %d axes of "
                                "at least 1",
                                s->name, a->name, BY_MAX_RANK - 1);
        }
    }
    return BY_OK;
}

/* Sizes of the ring of batches. */
typedef struct layout {
    size_t slots; /* batches made ahead, and the caller's one */
    size_t count; /* samples per batch */
    size_t views; /* number of arrays in all slots */
    size_t bytes; /* bytes of all slots */
} layout;

/* Bytes of one sample's part of an array; returns false if they overflow. */
static bool measure_row(const by_array *array, size_t *bytes)
{
    *bytes = by_dtype_size(array->dtype);
    for (int k = 0; k < array->shape.rank; k++) {
        if (!by__size_mul(*bytes, (size_t)array->shape.dim[k], bytes)) {
            return false;
        }
    }
    return true;
}

static by_status plan_layout(layout *out, const by_array *arrays, size_t count,
                             const by_loader_options *o, by_error *error)
{
    layout p = {.slots = (o->prefetch == 0 ? DEFAULT_PREFETCH : o->prefetch) + 1,
                .count = o->count == 0 ? o->batch - o->first : o->count};
    bool fits = by__size_mul(count, p.slots, &p.views);
    for (size_t i = 0; i < count && fits; i++) {
        size_t bytes; /* each array is aligned to a cache line */
        fits = measure_row(&arrays[i], &bytes) && by__size_mul(bytes, p.count, &bytes) &&
               by__size_add(bytes, BY_CACHE_LINE - 1, &bytes) &&
               by__size_add(p.bytes, bytes & ~(size_t)(BY_CACHE_LINE - 1), &p.bytes);
    }
    if (!fits || !by__size_mul(p.bytes, p.slots, &p.bytes)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: %zu batches of %zu samples", p.slots,
                            p.count);
    }
    *out = p;
    return BY_OK;
}

by_status by_loader_bytes(uint64_t *out, const by_array *arrays, size_t array_count,
                          const by_loader_options *options, by_error *error)
{
    layout p;
    BY_TRY(check_options(options, error));
    BY_TRY(plan_layout(&p, arrays, array_count, options, error));
    *out =
        (uint64_t)p.bytes + p.slots * sizeof(slot) + p.views * sizeof(by_array) + sizeof(by_loader);
    return BY_OK;
}

/* Sets the views of a slot with content at `at`; returns the end of the content. */
static char *place_slot(const by_loader *l, slot *s, char *at)
{
    for (size_t i = 0; i < l->source->array_count; i++) {
        const by_array *row = &l->source->arrays[i];
        by_array *view = &s->arrays[i];
        *view = (by_array){.name = row->name, .dtype = row->dtype, .data = at};
        view->shape.rank = row->shape.rank + 1;
        view->shape.dim[0] = (int64_t)l->count;
        memcpy(view->shape.dim + 1, row->shape.dim,
               (size_t)row->shape.rank * sizeof row->shape.dim[0]);
        at += by__round_up(l->row_bytes[i] * l->count, BY_CACHE_LINE);
    }
    return at;
}

static by_status allocate(by_loader *l, const layout *p, by_error *error)
{
    size_t arrays = l->source->array_count;
    l->slot_count = p->slots;
    BY_TRY(by__alloc((void **)&l->row_bytes, arrays, sizeof *l->row_bytes, "loader rows", error));
    BY_TRY(by__alloc((void **)&l->rows, arrays, sizeof *l->rows, "loader rows", error));
    BY_TRY(by__alloc((void **)&l->slots, p->slots, sizeof *l->slots, "loader slots", error));
    BY_TRY(by__alloc((void **)&l->arrays, p->views, sizeof *l->arrays, "loader arrays", error));
    BY_TRY(by__alloc_aligned((void **)&l->buffer, p->bytes, "loader batches", error));
    for (size_t i = 0; i < arrays; i++) {
        (void)measure_row(&l->source->arrays[i], &l->row_bytes[i]);
    }
    char *at = l->buffer;
    for (size_t k = 0; k < p->slots; k++) {
        l->slots[k].arrays = l->arrays + k * arrays;
        at = place_slot(l, &l->slots[k], at);
    }
    return BY_OK;
}

static void free_loader(by_loader *l)
{
    by_source_close(&l->source);
    free(l->buffer);
    free(l->arrays);
    free(l->slots);
    free(l->rows);
    free(l->row_bytes);
    free(l);
}

static void set_part(by_loader *l, const by_loader_options *o)
{
    l->batch = o->batch;
    l->first = o->first;
    l->count = o->count == 0 ? o->batch - o->first : o->count;
    l->block = o->block == 0 ? l->count : o->block;
    l->stride = o->block == 0 ? l->count : o->stride;
}

by_status by_loader_open(by_loader **out, by_source *source, const by_loader_options *options,
                         by_error *error)
{
    by_loader *l = NULL;
    layout p;
    by_status status = check_options(options, error);
    if (status == BY_OK) {
        status = check_source(source, error);
    }
    if (status == BY_OK) {
        status = plan_layout(&p, source->arrays, source->array_count, options, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&l, 1, sizeof *l, "a loader", error);
    }
    if (status != BY_OK) {
        by_source_close(&source);
        return status;
    }
    l->source = source;
    set_part(l, options);
    l->most = l->count;
    l->seed = options->seed;
    l->base = options->start;
    status = allocate(l, &p, error);
    if (status != BY_OK) {
        free_loader(l);
        return status;
    }
    status = by__base_worker_start(&l->thread, run_thread, l, "the loader's thread", error);
    if (status != BY_OK) {
        free_loader(l);
        return status;
    }
    *out = l;
    return BY_OK;
}

void by_loader_close(by_loader **loader)
{
    if (loader == NULL || *loader == NULL) {
        return;
    }
    by_loader *l = *loader;
    by__base_worker_close(&l->thread);
    free_loader(l);
    *loader = NULL;
}

/* ---- the caller's side ---- */

/* Returns the caller's batch to the thread. The lock must be held. */
static void release_held(by_loader *l)
{
    if (l->is_held) {
        l->is_held = false;
        l->released++;
        by__base_worker_notify(&l->thread);
    }
}

/* Blocks until a batch is filled, or none will be. The lock must be held. */
static void wait_filled(by_loader *l)
{
    if (l->filled > l->released || l->has_ended || l->status != BY_OK) {
        return;
    }
    double begin = by__now();
    while (l->filled == l->released && !l->has_ended && l->status == BY_OK) {
        by__base_worker_wait(&l->thread);
    }
    l->statistics.waits++;
    l->statistics.wait_seconds += by__now() - begin;
}

by_status by_loader_next(by_loader *loader, by_batch *out, by_error *error)
{
    by_loader *l = loader;
    by_status status = BY_OK;
    by_batch batch = {0};
    by__base_worker_lock(&l->thread);
    release_held(l);
    wait_filled(l);
    if (l->filled > l->released) {
        const slot *s = &l->slots[l->released % l->slot_count];
        l->is_held = true;
        l->statistics.batches++;
        batch.arrays = s->arrays;
        batch.array_count = l->source->array_count;
        batch.batch = l->count;
        batch.first_sample = s->sample + l->first;
        batch.valid_targets = s->targets;
        batch.global_targets = s->global_targets;
        batch.damaged = s->damaged;
        batch.first_damaged = s->first_damaged;
    } else if (l->status != BY_OK) {
        status = l->status;
        if (error != NULL) {
            *error = l->error;
        }
    } else {
        batch.first_sample = l->base + l->released * l->batch + l->first;
    }
    by__base_worker_unlock(&l->thread);
    if (status == BY_OK) {
        *out = batch;
    }
    return status;
}

/* Restarts at a sample. The lock must be held, and the thread must be idle. */
static void begin_at(by_loader *l, uint64_t sample)
{
    l->is_seeking = false;
    l->base = sample;
    l->filled = 0;
    l->released = 0;
    l->is_held = false;
    l->has_ended = false;
    l->status = BY_OK;
    by__base_worker_notify(&l->thread);
}

/* Takes the lock and keeps the thread from beginning a batch. */
static void hold_thread(by_loader *l)
{
    by__base_worker_lock(&l->thread);
    l->is_seeking = true;
    while (l->is_filling) {
        by__base_worker_wait(&l->thread);
    }
}

by_status by_loader_seek(by_loader *loader, uint64_t sample, by_error *error)
{
    if (sample > SAMPLE_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: sample %llu is more than 2^62",
                            (unsigned long long)sample);
    }
    hold_thread(loader);
    begin_at(loader, sample);
    by__base_worker_unlock(&loader->thread);
    return BY_OK;
}

by_status by_loader_resize(by_loader *loader, const by_loader_options *options, by_error *error)
{
    by_loader *l = loader;
    BY_TRY(check_options(options, error));
    size_t count = options->count == 0 ? options->batch - options->first : options->count;
    if (count > l->most) {
        return by_error_set(error, BY_EARG,
                            "loader: a part of %zu samples, and it was opened with %zu", count,
                            l->most);
    }
    hold_thread(l);
    uint64_t sample = l->base + (l->released + l->is_held) * l->batch;
    set_part(l, options);
    for (size_t k = 0; k < l->slot_count; k++) {
        for (size_t i = 0; i < l->source->array_count; i++) {
            l->slots[k].arrays[i].shape.dim[0] = (int64_t)l->count;
        }
    }
    begin_at(l, sample);
    by__base_worker_unlock(&l->thread);
    return BY_OK;
}

uint64_t by_loader_position(const by_loader *loader)
{
    by_loader *l = (by_loader *)(uintptr_t)loader; /* only the lock is modified */
    by__base_worker_lock(&l->thread);
    uint64_t position = l->base + (l->released + l->is_held) * l->batch;
    by__base_worker_unlock(&l->thread);
    return position;
}

uint64_t by_loader_epoch_samples(const by_loader *loader)
{
    return loader->source->samples;
}

void by_loader_stats(by_loader *loader, by_loader_statistics *out)
{
    by__base_worker_lock(&loader->thread);
    *out = loader->statistics;
    by__base_worker_unlock(&loader->thread);
}
