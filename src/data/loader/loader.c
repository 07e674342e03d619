/* Batches of one source, filled ahead by threads: opening, and the caller's side. */
#include "data/loader/loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

#define DEFAULT_PREFETCH 4
#define PREFETCH_LIMIT   65536
#define THREAD_LIMIT     4096
/* Bounds that keep every sum and product of sample and target counts within 64 bits. */
#define BATCH_LIMIT  ((size_t)1 << 30)
#define TARGET_LIMIT ((uint64_t)1 << 30)
#define SAMPLE_LIMIT ((uint64_t)1 << 62)

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
    if (o->threads > THREAD_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: threads %zu is more than %d", o->threads,
                            THREAD_LIMIT);
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
typedef struct ring_layout {
    size_t slots; /* batches made ahead, and the caller's one */
    size_t count; /* samples per batch */
    size_t views; /* number of arrays in all slots */
    size_t bytes; /* bytes of all slots */
    size_t threads;
} ring_layout;

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

static by_status plan_layout(ring_layout *out, const by_array *arrays, size_t count,
                             const by_loader_options *o, by_error *error)
{
    ring_layout p = {.slots = (o->prefetch == 0 ? DEFAULT_PREFETCH : o->prefetch) + 1,
                     .count = o->count == 0 ? o->batch - o->first : o->count,
                     .threads = o->threads == 0 ? 1 : o->threads};
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
    ring_layout p;
    BY_TRY(check_options(options, error));
    BY_TRY(plan_layout(&p, arrays, array_count, options, error));
    *out = (uint64_t)p.bytes + p.slots * sizeof(by__loader_slot) + p.views * sizeof(by_array) +
           p.threads * (sizeof(by__loader_thread) + array_count * sizeof(void *)) +
           sizeof(by_loader);
    return BY_OK;
}

/* Sets the views of a slot with content at `at`; returns the end of the content. */
static char *place_slot(const by_loader *l, by__loader_slot *s, char *at)
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

/* Allocates what each thread has of its own. */
static by_status allocate_threads(by_loader *l, const ring_layout *p, by_error *error)
{
    size_t arrays = l->source->array_count;
    size_t scratch;
    if (!by__size_add(l->source->scratch, BY_CACHE_LINE - 1, &scratch)) {
        return by_error_set(error, BY_EMEMORY, "%s: size overflow: scratch", l->source->name);
    }
    scratch &= ~(size_t)(BY_CACHE_LINE - 1);
    BY_TRY(
        by__alloc((void **)&l->threads, p->threads, sizeof *l->threads, "loader threads", error));
    l->thread_count = p->threads;
    for (size_t i = 0; i < p->threads; i++) {
        by__loader_thread *t = &l->threads[i];
        t->loader = l;
        BY_TRY(by__alloc((void **)&t->rows, arrays, sizeof *t->rows, "loader rows", error));
        if (scratch > 0) {
            BY_TRY(by__alloc_aligned(&t->scratch, scratch, "loader scratch", error));
            memset(t->scratch, 0, scratch);
        }
    }
    return BY_OK;
}

static by_status allocate(by_loader *l, const ring_layout *p, by_error *error)
{
    size_t arrays = l->source->array_count;
    l->slot_count = p->slots;
    BY_TRY(allocate_threads(l, p, error));
    BY_TRY(by__alloc((void **)&l->row_bytes, arrays, sizeof *l->row_bytes, "loader rows", error));
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
    for (size_t i = 0; i < l->thread_count; i++) {
        free(l->threads[i].rows);
        free(l->threads[i].scratch);
    }
    free(l->threads);
    free(l->buffer);
    free(l->arrays);
    free(l->slots);
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

/* Ends the threads; the first one is that of the worker, which has the lock. */
static void stop_threads(by_loader *l)
{
    by__base_worker_stop(&l->worker);
    for (size_t i = 1; i < l->started; i++) {
        (void)pthread_join(l->threads[i].id, NULL);
    }
    by__base_worker_close(&l->worker);
}

static by_status start_threads(by_loader *l, by_error *error)
{
    by_status status = by__base_worker_start(&l->worker, by__loader_run, &l->threads[0],
                                             "the loader's thread", error);
    for (l->started = 1; status == BY_OK && l->started < l->thread_count;) {
        by__loader_thread *t = &l->threads[l->started];
        status =
            by__thread_create(&t->id, by__loader_run, t, "another thread of the loader", error);
        l->started += status == BY_OK;
    }
    if (status != BY_OK) {
        stop_threads(l);
    }
    return status;
}

by_status by_loader_open(by_loader **out, by_source *source, const by_loader_options *options,
                         by_error *error)
{
    by_loader *l = NULL;
    ring_layout p;
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
    status = start_threads(l, error);
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
    stop_threads(l);
    free_loader(l);
    *loader = NULL;
}

/* ---- the caller's side ---- */

/* Returns the caller's batch to the threads. The lock must be held. */
static void release_held(by_loader *l)
{
    if (l->is_held) {
        l->is_held = false;
        l->released++;
        by__base_worker_notify(&l->worker);
    }
}

/* Whether a batch is filled, or none will be. The lock must be held. */
static bool is_decided(const by_loader *l)
{
    return l->filled > l->released || (l->has_ended && l->filled == l->opened) ||
           l->status != BY_OK;
}

/* Blocks until that is so. The lock must be held. */
static void wait_filled(by_loader *l)
{
    if (is_decided(l)) {
        return;
    }
    double begin = by__now();
    while (!is_decided(l)) {
        by__base_worker_wait(&l->worker);
    }
    l->statistics.waits++;
    l->statistics.wait_seconds += by__now() - begin;
}

by_status by_loader_next(by_loader *loader, by_batch *out, by_error *error)
{
    by_loader *l = loader;
    by_status status = BY_OK;
    by_batch batch = {0};
    by__base_worker_lock(&l->worker);
    release_held(l);
    wait_filled(l);
    if (l->filled > l->released) {
        const by__loader_slot *s = &l->slots[l->released % l->slot_count];
        l->is_held = true;
        l->statistics.batches++;
        batch.arrays = s->arrays;
        batch.array_count = l->source->array_count;
        batch.batch = l->count;
        batch.first_sample = s->sample + l->first;
        batch.valid_targets = s->targets;
        batch.global_targets = s->global_targets;
        batch.weighted = l->source->weigh != NULL;
        batch.valid_weight = s->weight;
        batch.global_weight = s->global_weight;
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
    by__base_worker_unlock(&l->worker);
    if (status == BY_OK) {
        *out = batch;
    }
    return status;
}

/* Restarts at a sample. The lock must be held, and the threads must be idle. */
static void begin_at(by_loader *l, uint64_t sample)
{
    l->is_seeking = false;
    l->base = sample;
    l->opened = 0;
    l->filled = 0;
    l->released = 0;
    l->is_held = false;
    l->has_ended = false;
    l->status = BY_OK;
    l->fault.status = BY_OK;
    by__base_worker_notify(&l->worker);
}

/* Takes the lock, and keeps the threads from taking work. */
static void pause_threads(by_loader *l)
{
    by__base_worker_lock(&l->worker);
    l->is_seeking = true;
    while (l->working > 0) {
        by__base_worker_wait(&l->worker);
    }
}

by_status by_loader_seek(by_loader *loader, uint64_t sample, by_error *error)
{
    if (sample > SAMPLE_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: sample %llu is more than 2^62",
                            (unsigned long long)sample);
    }
    pause_threads(loader);
    begin_at(loader, sample);
    by__base_worker_unlock(&loader->worker);
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
    pause_threads(l);
    uint64_t sample = l->base + (l->released + l->is_held) * l->batch;
    set_part(l, options);
    for (size_t k = 0; k < l->slot_count; k++) {
        for (size_t i = 0; i < l->source->array_count; i++) {
            l->slots[k].arrays[i].shape.dim[0] = (int64_t)l->count;
        }
    }
    begin_at(l, sample);
    by__base_worker_unlock(&l->worker);
    return BY_OK;
}

uint64_t by_loader_position(const by_loader *loader)
{
    by_loader *l = (by_loader *)(uintptr_t)loader; /* only the lock is modified */
    by__base_worker_lock(&l->worker);
    uint64_t position = l->base + (l->released + l->is_held) * l->batch;
    by__base_worker_unlock(&l->worker);
    return position;
}

uint64_t by_loader_epoch_samples(const by_loader *loader)
{
    return loader->source->samples;
}

void by_loader_stats(by_loader *loader, by_loader_statistics *out)
{
    by__base_worker_lock(&loader->worker);
    *out = loader->statistics;
    by__base_worker_unlock(&loader->worker);
}
