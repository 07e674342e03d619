/* Batches of one data set, filled ahead by one thread.
 *
 * A ring of slots lies between the thread and the caller. `filled` and `released` count batches
 * since the last seek: slot k % slots holds batch k while released <= k < filled. The batch that
 * the caller looks at is released by its next call. All fields below `mutex` are guarded by it,
 * except the slots' content: a slot belongs to the thread until it is counted in `filled`, then to
 * the caller until it is counted in `released`. What is in a batch depends on its place alone, so
 * the thread's timing never shows. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/data.h"
#include "base/base.h"
#include "data/dataset.h"
#include "data/order.h"

#define DEFAULT_PREFETCH 4
#define PREFETCH_LIMIT   65536
/* Bounds below which no sum or product of sample and token counts leaves 64 bits. */
#define CONTEXT_LIMIT ((size_t)1 << 30)
#define BATCH_LIMIT   ((size_t)1 << 30)
#define SAMPLE_LIMIT  ((uint64_t)1 << 62)

typedef struct slot {
    int32_t *tokens;
    int32_t *targets;
    uint64_t sample; /* first sample of the global batch */
} slot;

struct by_loader {
    const by_dataset *dataset; /* borrowed */
    size_t context;
    size_t batch;
    size_t first;
    size_t count;
    uint64_t seed;
    bool shuffle;
    uint64_t total;   /* tokens of the data */
    uint64_t windows; /* samples of an epoch or of the pass */
    uint64_t phases;  /* places where the first window of an epoch may start */
    slot *slots;
    size_t slot_count;
    int32_t *buffer; /* all slots' tokens and targets */

    /* Of the thread alone: the order of the epoch it is in. */
    by__order order;
    uint64_t phase;
    uint64_t epoch;
    bool has_epoch;

    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t is_filled;   /* the caller waits for it */
    pthread_cond_t is_released; /* the thread waits for it */
    uint64_t base;              /* first sample after the last seek */
    uint64_t filled;
    uint64_t released;
    bool is_seeking; /* the thread begins no batch */
    bool is_filling;
    bool is_held;   /* the caller looks at batch `released` */
    bool has_ended; /* no batch follows the filled ones */
    bool stop;
    by_status status; /* why no batch follows */
    by_error error;
    by_loader_statistics statistics;
};

/* ---- samples ---- */

/* First token of a sample. */
static uint64_t window_start(by_loader *l, uint64_t sample)
{
    if (!l->shuffle) {
        return sample * l->context;
    }
    uint64_t epoch = sample / l->windows;
    if (!l->has_epoch || epoch != l->epoch) {
        by__order_init(&l->order, l->windows, l->seed, epoch);
        l->phase = by__order_phase(l->phases, l->seed, epoch);
        l->epoch = epoch;
        l->has_epoch = true;
    }
    return l->phase + by__order_at(&l->order, sample % l->windows) * l->context;
}

/* Targets of a sample: `context`, fewer at the end of a pass, 0 behind it. */
static uint64_t targets_of(const by_loader *l, uint64_t sample)
{
    if (l->shuffle) {
        return l->context;
    }
    if (sample >= l->windows) {
        return 0;
    }
    uint64_t left = l->total - 1 - sample * l->context;
    return left < l->context ? left : l->context;
}

static by_status fill_sample(by_loader *l, uint64_t sample, int32_t *tokens, int32_t *targets,
                             by_error *error)
{
    size_t valid = (size_t)targets_of(l, sample);
    if (valid > 0) {
        uint64_t start = window_start(l, sample);
        BY_TRY(by_dataset_read(l->dataset, start, valid, tokens, error));
        memcpy(targets, tokens + 1, (valid - 1) * sizeof *targets);
        BY_TRY(by_dataset_read(l->dataset, start + valid, 1, targets + valid - 1, error));
    }
    for (size_t i = valid; i < l->context; i++) {
        tokens[i] = 0;
        targets[i] = -1;
    }
    return BY_OK;
}

static by_status fill_slot(by_loader *l, slot *s, by_error *error)
{
    for (size_t row = 0; row < l->count; row++) {
        BY_TRY(fill_sample(l, s->sample + l->first + row, s->tokens + row * l->context,
                           s->targets + row * l->context, error));
    }
    return BY_OK;
}

/* Targets of a pass before a sample. */
static uint64_t targets_before(const by_loader *l, uint64_t sample)
{
    return sample >= l->windows ? l->total - 1 : sample * l->context;
}

static uint64_t count_targets(const by_loader *l, uint64_t sample, size_t rows)
{
    return l->shuffle ? (uint64_t)rows * l->context
                      : targets_before(l, sample + rows) - targets_before(l, sample);
}

/* ---- the thread ---- */

/* Fills the next slot. Called and left with the mutex held; not held while filling. */
static void fill_next(by_loader *l)
{
    slot *s = &l->slots[l->filled % l->slot_count];
    by_error error = {0};
    s->sample = l->base + l->filled * l->batch;
    if (!l->shuffle && s->sample >= l->windows) {
        l->has_ended = true;
        return;
    }
    l->is_filling = true;
    pthread_mutex_unlock(&l->mutex);
    double begin = by__now();
    by_status status = fill_slot(l, s, &error);
    double end = by__now();
    pthread_mutex_lock(&l->mutex);
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
    pthread_mutex_lock(&l->mutex);
    while (!l->stop) {
        if (l->has_ended || l->status != BY_OK || l->is_seeking ||
            l->filled - l->released == l->slot_count) {
            pthread_cond_wait(&l->is_released, &l->mutex);
        } else {
            fill_next(l);
            pthread_cond_signal(&l->is_filled);
        }
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* Starts the thread with all signals blocked: they are for the program's own threads. */
static by_status start_thread(by_loader *l, by_error *error)
{
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failure = pthread_create(&l->thread, NULL, run_thread, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failure != 0) {
        return by_error_set(error, BY_EIO, "cannot start the loader's thread: %s",
                            strerror(failure));
    }
    return BY_OK;
}

/* ---- opening ---- */

static by_status check_options(const by_loader_options *o, by_error *error)
{
    if (o->context == 0 || o->batch == 0 || o->context > CONTEXT_LIMIT || o->batch > BATCH_LIMIT) {
        return by_error_set(error, BY_EARG,
                            "loader: context %zu and batch %zu must be from 1 to 2^30", o->context,
                            o->batch);
    }
    if (o->first >= o->batch || o->count > o->batch - o->first) {
        return by_error_set(
            error, BY_EARG, "loader: samples %zu to %zu are not within the batch of %zu", o->first,
            o->count > SIZE_MAX - o->first ? SIZE_MAX : o->first + o->count, o->batch);
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

/* How many windows an epoch or a pass has, and where the first may start. */
static by_status cut_windows(by_loader *l, by_error *error)
{
    uint64_t context = l->context;
    if (!l->shuffle) {
        if (l->total < 2) {
            return by_error_set(
                error, BY_EARG,
                "%s: %llu tokens are too few to evaluate on: a target needs a token "
                "before it; hold out more text (data.valid_fraction)",
                by__dataset_name(l->dataset), (unsigned long long)l->total);
        }
        l->windows = (l->total - 1 + context - 1) / context;
        return BY_OK;
    }
    if (l->total <= context) {
        return by_error_set(error, BY_EARG,
                            "%s: %llu tokens are too few for a context of %llu, which needs %llu; "
                            "give more text or lower model.context to %llu",
                            by__dataset_name(l->dataset), (unsigned long long)l->total,
                            (unsigned long long)context, (unsigned long long)context + 1,
                            (unsigned long long)(l->total > 1 ? l->total - 1 : 1));
    }
    /* As many as fit behind every phase of [0, context), so that all epochs have the same number;
     * for data shorter than that one window, with the phases that leave room for it. */
    l->windows = (l->total - context) / context;
    if (l->windows == 0) {
        l->windows = 1;
    }
    uint64_t slack = l->total - 1 - l->windows * context;
    l->phases = (slack < context - 1 ? slack : context - 1) + 1;
    return BY_OK;
}

/* The ring of batches. */
typedef struct layout {
    size_t slots; /* batches made ahead, and the one with the caller */
    size_t count; /* samples of a batch */
    size_t half;  /* bytes of a slot's tokens or targets, on whole cache lines */
    size_t bytes; /* of all slots */
} layout;

static by_status plan_layout(layout *out, const by_loader_options *o, by_error *error)
{
    layout p = {.slots = (o->prefetch == 0 ? DEFAULT_PREFETCH : o->prefetch) + 1,
                .count = o->count == 0 ? o->batch - o->first : o->count};
    size_t row_bytes;
    if (!by__size_mul(o->context, sizeof(int32_t), &row_bytes) ||
        !by__size_mul(row_bytes, p.count, &p.half) ||
        !by__size_add(p.half, BY_CACHE_LINE - 1, &p.half)) {
        goto overflow;
    }
    p.half &= ~(size_t)(BY_CACHE_LINE - 1);
    if (!by__size_mul(p.half, 2 * p.slots, &p.bytes)) {
        goto overflow;
    }
    *out = p;
    return BY_OK;
overflow:
    return by_error_set(error, BY_EMEMORY, "size overflow: %zu batches of %zu x %zu tokens",
                        p.slots, p.count, o->context);
}

by_status by_loader_bytes(uint64_t *out, const by_loader_options *options, by_error *error)
{
    layout p;
    BY_TRY(check_options(options, error));
    BY_TRY(plan_layout(&p, options, error));
    *out = (uint64_t)p.bytes + p.slots * sizeof(slot) + sizeof(by_loader);
    return BY_OK;
}

static by_status allocate(by_loader *l, const layout *p, by_error *error)
{
    l->slot_count = p->slots;
    BY_TRY(by__alloc((void **)&l->slots, p->slots, sizeof *l->slots, "loader slots", error));
    BY_TRY(by__alloc_aligned((void **)&l->buffer, p->bytes, "loader batches", error));
    for (size_t i = 0; i < p->slots; i++) {
        l->slots[i].tokens = l->buffer + 2 * i * (p->half / sizeof(int32_t));
        l->slots[i].targets = l->slots[i].tokens + p->half / sizeof(int32_t);
    }
    return BY_OK;
}

by_status by_loader_open(by_loader **out, const by_dataset *dataset,
                         const by_loader_options *options, by_error *error)
{
    by_loader *l;
    layout p;
    BY_TRY(check_options(options, error));
    BY_TRY(plan_layout(&p, options, error));
    BY_TRY(by__alloc((void **)&l, 1, sizeof *l, "a loader", error));
    l->dataset = dataset;
    l->context = options->context;
    l->batch = options->batch;
    l->first = options->first;
    l->count = p.count;
    l->seed = options->seed;
    l->shuffle = options->shuffle;
    l->base = options->start;
    l->total = by_dataset_tokens(dataset);
    by_status status = cut_windows(l, error);
    if (status == BY_OK) {
        status = allocate(l, &p, error);
    }
    if (status != BY_OK) {
        goto free_loader;
    }
    by__dataset_advise(dataset, l->shuffle);
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->is_filled, NULL);
    pthread_cond_init(&l->is_released, NULL);
    status = start_thread(l, error);
    if (status != BY_OK) {
        goto destroy_locks;
    }
    *out = l;
    return BY_OK;
destroy_locks:
    pthread_cond_destroy(&l->is_released);
    pthread_cond_destroy(&l->is_filled);
    pthread_mutex_destroy(&l->mutex);
free_loader:
    free(l->buffer);
    free(l->slots);
    free(l);
    return status;
}

void by_loader_close(by_loader **loader)
{
    if (loader == NULL || *loader == NULL) {
        return;
    }
    by_loader *l = *loader;
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_signal(&l->is_released);
    pthread_mutex_unlock(&l->mutex);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->is_released);
    pthread_cond_destroy(&l->is_filled);
    pthread_mutex_destroy(&l->mutex);
    free(l->buffer);
    free(l->slots);
    free(l);
    *loader = NULL;
}

/* ---- the caller's side ---- */

/* Gives the batch that the caller had back to the thread. The mutex is held. */
static void release_held(by_loader *l)
{
    if (l->is_held) {
        l->is_held = false;
        l->released++;
        pthread_cond_signal(&l->is_released);
    }
}

/* Blocks until a batch is filled, or none will be. The mutex is held. */
static void wait_filled(by_loader *l)
{
    if (l->filled > l->released || l->has_ended || l->status != BY_OK) {
        return;
    }
    double begin = by__now();
    while (l->filled == l->released && !l->has_ended && l->status == BY_OK) {
        pthread_cond_wait(&l->is_filled, &l->mutex);
    }
    l->statistics.waits++;
    l->statistics.wait_seconds += by__now() - begin;
}

by_status by_loader_next(by_loader *loader, by_batch *out, by_error *error)
{
    by_loader *l = loader;
    by_status status = BY_OK;
    by_batch batch = {.context = l->context};
    pthread_mutex_lock(&l->mutex);
    release_held(l);
    wait_filled(l);
    if (l->filled > l->released) {
        const slot *s = &l->slots[l->released % l->slot_count];
        l->is_held = true;
        l->statistics.batches++;
        batch.tokens = s->tokens;
        batch.targets = s->targets;
        batch.batch = l->count;
        batch.first_sample = s->sample + l->first;
        batch.valid_targets = count_targets(l, batch.first_sample, l->count);
        batch.global_targets = count_targets(l, s->sample, l->batch);
    } else if (l->status != BY_OK) {
        status = l->status;
        if (error != NULL) {
            *error = l->error;
        }
    } else {
        batch.first_sample = l->base + l->released * l->batch + l->first;
    }
    pthread_mutex_unlock(&l->mutex);
    if (status == BY_OK) {
        *out = batch;
    }
    return status;
}

by_status by_loader_seek(by_loader *loader, uint64_t sample, by_error *error)
{
    by_loader *l = loader;
    if (sample > SAMPLE_LIMIT) {
        return by_error_set(error, BY_EARG, "loader: sample %llu is more than 2^62",
                            (unsigned long long)sample);
    }
    pthread_mutex_lock(&l->mutex);
    l->is_seeking = true;
    while (l->is_filling) {
        pthread_cond_wait(&l->is_filled, &l->mutex);
    }
    l->is_seeking = false;
    l->base = sample;
    l->filled = 0;
    l->released = 0;
    l->is_held = false;
    l->has_ended = false;
    l->status = BY_OK;
    pthread_cond_signal(&l->is_released);
    pthread_mutex_unlock(&l->mutex);
    return BY_OK;
}

uint64_t by_loader_position(const by_loader *loader)
{
    by_loader *l = (by_loader *)(uintptr_t)loader; /* the mutex alone is written */
    pthread_mutex_lock(&l->mutex);
    uint64_t position = l->base + (l->released + l->is_held) * l->batch;
    pthread_mutex_unlock(&l->mutex);
    return position;
}

uint64_t by_loader_epoch_samples(const by_loader *loader)
{
    return loader->windows;
}

void by_loader_stats(by_loader *loader, by_loader_statistics *out)
{
    pthread_mutex_lock(&loader->mutex);
    *out = loader->statistics;
    pthread_mutex_unlock(&loader->mutex);
}
