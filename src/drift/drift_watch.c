/* Counts requests in windows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "drift/drift.h"

struct by_drift_watch {
    const by_drift_reference *reference;
    by_drift_options options;
    by__drift_counts *windows; /* [features] */
    by_drift_verdict *verdicts;
    by__drift_groups *groups;
    double *memory;
    size_t memory_count;
    size_t requests;
    double since; /* NaN: no request yet */
    by_drift_window last;
};

/* Allocates the counters of all features as one array. */
static by_status open_counts(by_drift_watch *w, by_error *error)
{
    const by_drift_reference *r = w->reference;
    for (size_t i = 0; i < r->count; i++) {
        const by__drift_feature *f = &r->features[i];
        w->memory_count += f->bins * (f->kind == BY_DRIFT_TOKENS ? BY__DRIFT_BLOCKS + 1 : 1);
    }
    BY_TRY(
        by__alloc((void **)&w->memory, w->memory_count + 1, sizeof *w->memory, "a window", error));
    double *at = w->memory;
    for (size_t i = 0; i < r->count; i++) {
        const by__drift_feature *f = &r->features[i];
        w->windows[i].counts = at;
        at += f->bins;
        if (f->kind == BY_DRIFT_TOKENS) {
            w->windows[i].blocks = at;
            at += BY__DRIFT_BLOCKS * f->bins;
        }
    }
    return BY_OK;
}

static by_status open_watch(by_drift_watch *w, by_error *error)
{
    size_t count = w->reference->count;
    BY_TRY(by__alloc((void **)&w->windows, count + 1, sizeof *w->windows, "a window", error));
    BY_TRY(by__alloc((void **)&w->verdicts, count + 1, sizeof *w->verdicts, "a window", error));
    BY_TRY(by__alloc((void **)&w->groups, 1, sizeof *w->groups, "a window", error));
    return open_counts(w, error);
}

by_status by_drift_watch_open(by_drift_watch **out, const by_drift_reference *reference,
                              const by_drift_options *options, by_error *error)
{
    by_drift_watch *w;
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "a watch", error));
    by_drift_options o = options == NULL ? (by_drift_options){0} : *options;
    o.requests = o.requests == 0 ? 500 : o.requests;
    o.seconds = o.seconds == 0.0 ? 600.0 : o.seconds;
    o.least = o.least == 0 ? 100 : o.least;
    o.least = o.least > o.requests ? o.requests : o.least;
    o.threshold = o.threshold == 0.0 ? 0.1 : o.threshold;
    o.alpha = o.alpha == 0.0 ? 0.0001 : o.alpha;
    *w = (by_drift_watch){.reference = reference, .options = o, .since = NAN};
    by_status status = open_watch(w, error);
    if (status != BY_OK) {
        by_drift_watch_close(&w);
        return status;
    }
    w->last.verdicts = w->verdicts;
    w->last.count = reference->count;
    *out = w;
    return BY_OK;
}

void by_drift_watch_close(by_drift_watch **watch)
{
    by_drift_watch *w = *watch;
    if (w == NULL) {
        return;
    }
    *watch = NULL;
    free(w->windows);
    free(w->verdicts);
    free(w->groups);
    free(w->memory);
    free(w);
}

void by_drift_watch_number(by_drift_watch *watch, size_t feature, double value)
{
    const by__drift_feature *f = &watch->reference->features[feature];
    by__drift_counts *c = &watch->windows[feature];
    if (!isfinite(value)) {
        c->missing++;
        return;
    }
    double low = f->edges[0];
    double high = f->edges[f->edge_count - 1];
    c->rows++;
    c->counts[by__drift_bin_number(f, value)]++;
    c->unknown += value < low; /* the first bin counts them together with the smallest value */
    c->below += value < low ? low - value : 0.0;
    c->above += value > high ? value - high : 0.0;
}

void by_drift_watch_category(by_drift_watch *watch, size_t feature, const char *value)
{
    const by__drift_feature *f = &watch->reference->features[feature];
    by__drift_counts *c = &watch->windows[feature];
    if (value == NULL) {
        c->missing++;
        return;
    }
    size_t bin = by__drift_bin_category(f, value);
    c->rows++;
    c->counts[bin]++;
    c->unknown += bin == f->kept && f->distinct == f->kept;
}

void by_drift_watch_tokens(by_drift_watch *watch, size_t feature, const int32_t *ids, size_t count)
{
    const by__drift_feature *f = &watch->reference->features[feature];
    by__drift_counts *c = &watch->windows[feature];
    if (count == 0) {
        return;
    }
    double *block = c->blocks + watch->requests % BY__DRIFT_BLOCKS * f->bins;
    for (size_t i = 0; i < count; i++) {
        size_t bin = by__drift_bin_token(f, ids[i]);
        c->counts[bin]++;
        block[bin]++;
        c->unknown += bin == f->kept && f->distinct == f->kept;
    }
    c->rows += (double)count;
    c->requests++;
}

static void compare(by_drift_watch *w)
{
    by_drift_window *last = &w->last;
    last->number++;
    last->requests = w->requests;
    last->detected = false;
    for (size_t i = 0; i < last->count; i++) {
        by__drift_judge(&w->verdicts[i], &w->reference->features[i], &w->windows[i], &w->options,
                        last->count, w->groups);
        last->detected = last->detected || w->verdicts[i].detected;
    }
    last->alarms += last->detected;
}

static void clear(by_drift_watch *w)
{
    memset(w->memory, 0, w->memory_count * sizeof *w->memory);
    for (size_t i = 0; i < w->reference->count; i++) {
        by__drift_counts *c = &w->windows[i];
        *c = (by__drift_counts){.counts = c->counts, .blocks = c->blocks};
    }
    w->requests = 0;
}

bool by_drift_watch_next(by_drift_watch *watch, double now)
{
    by_drift_watch *w = watch;
    w->since = w->requests == 0 ? now : w->since;
    w->requests++;
    bool over = now - w->since >= w->options.seconds && w->requests >= w->options.least;
    if (w->requests < w->options.requests && !over) {
        return false;
    }
    compare(w);
    clear(w);
    return true;
}

bool by_drift_watch_end(by_drift_watch *watch)
{
    if (watch->requests < watch->options.least) {
        return false;
    }
    compare(watch);
    clear(watch);
    return true;
}

const by_drift_window *by_drift_watch_last(const by_drift_watch *watch)
{
    return &watch->last;
}

size_t by_drift_watch_filled(const by_drift_watch *watch)
{
    return watch->requests;
}

size_t by_drift_watch_least(const by_drift_watch *watch)
{
    return watch->options.least;
}
