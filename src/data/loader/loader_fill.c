/* The threads of a loader: they take work in order, count targets and fill rows. */
#include "base/base.h"
#include "data/loader/loader.h"

/* How many times a thread takes rows of a batch, if all are as fast: few, so that threads hardly
 * meet at the lock, and more than one, so that none waits long for the slowest. */
#define SHARES 4

/* Some work of a batch: its counts, or rows. */
typedef struct loader_work {
    by__loader_slot *slot;
    uint64_t batch;
    bool counts;
    size_t begin; /* rows */
    size_t end;
} loader_work;

/* ---- samples ---- */

static by_source_sample locate(by__loader_thread *t, uint64_t index)
{
    const by_loader *l = t->loader;
    by_source_sample sample = {
        .place = index, .index = index, .seed = l->seed, .scratch = t->scratch};
    if (l->source->shuffle) {
        uint64_t samples = l->source->samples;
        sample.epoch = index / samples;
        if (!t->has_epoch || sample.epoch != t->epoch) {
            by__loader_order_init(&t->order, samples, l->seed, sample.epoch);
            if (l->source->order_window > 0) {
                by__loader_windows_init(&t->windows, samples, l->source->order_block,
                                        l->source->order_window, l->seed, sample.epoch);
            }
            t->epoch = sample.epoch;
            t->has_epoch = true;
        }
        sample.place = l->source->order_window > 0
                           ? by__loader_windows_at(&t->windows, index % samples)
                           : by__loader_order_at(&t->order, index % samples);
    }
    return sample;
}

/* Adds to the error of a source which sample it is. */
static by_status name_sample(const by_source_sample *sample, const by_source *source,
                             by_status status, by_error *error)
{
    const by_error why = *error;
    return source->shuffle
               ? by_error_set(error, status, "%s (sample %llu in epoch %llu)", why.message,
                              (unsigned long long)sample->place, (unsigned long long)sample->epoch)
               : by_error_set(error, status, "%s (sample %llu)", why.message,
                              (unsigned long long)sample->place);
}

/* ---- counts ---- */

/* Number of targets of a pass before a sample. */
static uint64_t targets_before(const by_source *source, uint64_t sample)
{
    return sample >= source->samples ? source->targets : sample * source->sample_targets;
}

/* Counts the targets of samples [sample, sample + rows). */
static by_status count_targets(by__loader_thread *t, uint64_t sample, size_t rows, uint64_t *out,
                               by_error *error)
{
    const by_source *source = t->loader->source;
    *out = 0;
    if (source->count == NULL) {
        *out = source->shuffle
                   ? (uint64_t)rows * source->sample_targets
                   : targets_before(source, sample + rows) - targets_before(source, sample);
        return BY_OK;
    }
    for (size_t i = 0; i < rows; i++) {
        uint64_t targets;
        by_source_sample at = locate(t, sample + i);
        by_status status = source->count(source, &at, &targets, error);
        if (status != BY_OK) {
            return name_sample(&at, source, status, error);
        }
        *out += targets;
    }
    return BY_OK;
}

/* Adds the weights of samples [sample, sample + rows), in order. */
static by_status add_weights(by__loader_thread *t, uint64_t sample, size_t rows, double *sum,
                             by_error *error)
{
    const by_source *source = t->loader->source;
    for (size_t i = 0; i < rows; i++) {
        double weight;
        by_source_sample at = locate(t, sample + i);
        by_status status = source->weigh(source, &at, &weight, error);
        if (status != BY_OK) {
            return name_sample(&at, source, status, error);
        }
        *sum += weight;
    }
    return BY_OK;
}

/* Adds the weights of a slot's batch, and of this rank's part of it. */
static by_status weigh_slot(by__loader_thread *t, by__loader_slot *s, by_error *error)
{
    const by_loader *l = t->loader;
    s->weight = 0.0;
    s->global_weight = 0.0;
    if (l->source->weigh == NULL) {
        return BY_OK;
    }
    for (size_t row = 0; row < l->count; row += l->block) {
        size_t rows = l->count - row < l->block ? l->count - row : l->block;
        BY_TRY(add_weights(t, s->sample + l->first + row / l->block * l->stride, rows, &s->weight,
                           error));
    }
    return add_weights(t, s->sample, l->batch, &s->global_weight, error);
}

/* Counts the targets of a slot's batch, and of this rank's part of it. */
static by_status count_slot(by__loader_thread *t, by__loader_slot *s, by_error *error)
{
    const by_loader *l = t->loader;
    uint64_t targets;
    s->targets = 0;
    for (size_t row = 0; row < l->count; row += l->block) {
        size_t rows = l->count - row < l->block ? l->count - row : l->block;
        BY_TRY(count_targets(t, s->sample + l->first + row / l->block * l->stride, rows, &targets,
                             error));
        s->targets += targets;
    }
    if (l->count == l->batch) {
        s->global_targets = s->targets;
        return BY_OK;
    }
    return count_targets(t, s->sample, l->batch, &s->global_targets, error);
}

/* Counts damaged samples of the whole batch, identically on every rank. */
static void count_damaged(by__loader_thread *t, by__loader_slot *s)
{
    const by_loader *l = t->loader;
    s->damaged = 0;
    s->first_damaged = 0;
    for (size_t i = 0; i < l->batch && l->source->replaces != NULL; i++) {
        by_source_sample sample = locate(t, s->sample + i);
        if (l->source->replaces(l->source, &sample)) {
            s->first_damaged = s->damaged++ == 0 ? sample.index : s->first_damaged;
        }
    }
}

/* ---- work ---- */

/* Fills a row; on failure *place is set to it. */
static by_status fill_rows(by__loader_thread *t, const loader_work *w, size_t *place,
                           by_error *error)
{
    const by_loader *l = t->loader;
    const by__loader_slot *s = w->slot;
    for (size_t row = w->begin; row < w->end; row++) {
        size_t at = row / l->block * l->stride + row % l->block;
        by_source_sample sample = locate(t, s->sample + l->first + at);
        for (size_t i = 0; i < l->source->array_count; i++) {
            t->rows[i] = (char *)(uintptr_t)s->arrays[i].data + row * l->row_bytes[i];
        }
        by_status status = l->source->fill(l->source, &sample, t->rows, error);
        if (status != BY_OK) {
            *place = row + 1;
            return name_sample(&sample, l->source, status, error);
        }
    }
    return BY_OK;
}

/* Takes the next work; returns false if there is none now. The lock must be held. */
static bool claim_work(by_loader *l, loader_work *w)
{
    if (l->is_seeking || l->fault.status != BY_OK) {
        return false;
    }
    if (l->opened > 0) {
        by__loader_slot *s = &l->slots[(l->opened - 1) % l->slot_count];
        size_t left = l->count - s->next_row;
        if (left > 0) {
            size_t share = l->thread_count == 1 ? left : l->count / (SHARES * l->thread_count);
            share = share < 1 ? 1 : share < left ? share : left;
            *w = (loader_work){.slot = s,
                               .batch = l->opened - 1,
                               .begin = s->next_row,
                               .end = s->next_row + share};
            s->next_row += share;
            return true;
        }
    }
    if (l->has_ended || l->opened - l->released == l->slot_count) {
        return false;
    }
    uint64_t sample = l->base + l->opened * l->batch;
    if (!l->source->shuffle && sample >= l->source->samples) {
        l->has_ended = true;
        by__base_worker_notify(&l->worker);
        return false;
    }
    by__loader_slot *s = &l->slots[l->opened % l->slot_count];
    s->sample = sample;
    s->next_row = 0;
    s->undone = l->count + 1;
    *w = (loader_work){.slot = s, .batch = l->opened++, .counts = true};
    return true;
}

/* Notes a failure, unless there is one before it. The lock must be held. */
static void add_fault(by_loader *l, const loader_work *w, size_t place, by_status status,
                      const by_error *error)
{
    by__loader_fault *f = &l->fault;
    if (f->status == BY_OK || w->batch < f->batch || (w->batch == f->batch && place < f->place)) {
        *f = (by__loader_fault){
            .status = status, .batch = w->batch, .place = place, .error = *error};
    }
}

/* Counts finished work, and the batches that are complete with it. The lock must be held. */
static void finish_work(by_loader *l)
{
    bool news = false;
    l->working--;
    while (l->filled < l->opened && l->slots[l->filled % l->slot_count].undone == 0) {
        l->filled++;
        news = true;
    }
    if (l->working == 0 && l->fault.status != BY_OK) {
        l->status = l->fault.status;
        l->error = l->fault.error;
        news = true;
    }
    if (news || (l->working == 0 && l->is_seeking)) {
        by__base_worker_notify(&l->worker);
    }
}

/* Does some work. Called with the lock held, which is released meanwhile. */
static void do_work(by__loader_thread *t, const loader_work *w)
{
    by_loader *l = t->loader;
    by_status status;
    size_t place = 0;
    by_error error = {0};
    l->working++;
    by__base_worker_unlock(&l->worker);
    double begin = by__now();
    if (w->counts) {
        status = count_slot(t, w->slot, &error);
        if (status == BY_OK) {
            status = weigh_slot(t, w->slot, &error);
        }
        if (status == BY_OK) {
            count_damaged(t, w->slot);
        }
    } else {
        status = fill_rows(t, w, &place, &error);
    }
    double end = by__now();
    by__base_worker_lock(&l->worker);
    l->statistics.fill_seconds += end - begin;
    if (status == BY_OK) {
        w->slot->undone -= w->counts ? 1 : w->end - w->begin;
    } else {
        add_fault(l, w, place, status, &error);
    }
    finish_work(l);
}

void *by__loader_run(void *thread)
{
    by__loader_thread *t = thread;
    by_loader *l = t->loader;
    by__base_worker_lock(&l->worker);
    while (!l->worker.stop) {
        loader_work w;
        if (claim_work(l, &w)) {
            do_work(t, &w);
        } else {
            by__base_worker_wait(&l->worker);
        }
    }
    by__base_worker_unlock(&l->worker);
    return NULL;
}
