/* Splits each step of a rank into computing, exchanging and waiting, from intervals of nodes and of
 * exchanges, which may overlap. */
#include <stdlib.h>
#include <string.h>

#include "plan/recorder.h"

typedef struct interval {
    double begin;
    double end;
} interval;

/* Ascending and disjoint after `unite`. */
typedef struct intervals {
    interval *at;
    size_t count;
    size_t capacity;
} intervals;

static by_status add(intervals *x, double begin, double end, by_error *error)
{
    if (end <= begin) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&x->at, &x->capacity, x->count + 1, sizeof *x->at, error));
    x->at[x->count++] = (interval){begin, end};
    return BY_OK;
}

static int by_begin(const void *a, const void *b)
{
    double x = ((const interval *)a)->begin;
    double y = ((const interval *)b)->begin;
    return x < y ? -1 : x > y;
}

/* Sorts the intervals and merges those that overlap. */
static void unite(intervals *x)
{
    size_t count = 0;
    if (x->count == 0) {
        return;
    }
    qsort(x->at, x->count, sizeof *x->at, by_begin);
    for (size_t i = 1; i < x->count; i++) {
        interval *last = &x->at[count];
        if (x->at[i].begin > last->end) {
            x->at[++count] = x->at[i];
        } else if (x->at[i].end > last->end) {
            last->end = x->at[i].end;
        }
    }
    x->count = count + 1;
}

/* Computes the intersection of two lists. */
static by_status intersect(intervals *out, const intervals *x, const intervals *y, by_error *error)
{
    size_t i = 0;
    size_t k = 0;
    while (i < x->count && k < y->count) {
        const interval *a = &x->at[i];
        const interval *b = &y->at[k];
        double begin = a->begin > b->begin ? a->begin : b->begin;
        double end = a->end < b->end ? a->end : b->end;
        BY_TRY(add(out, begin, end, error));
        if (a->end < b->end) {
            i++;
        } else {
            k++;
        }
    }
    return BY_OK;
}

/* Returns the seconds of the intervals within a span. */
static double within(const intervals *x, const interval *span)
{
    double sum = 0.0;
    size_t low = 0;
    size_t high = x->count;
    while (low < high) { /* find the first that ends after the span's begin */
        size_t middle = low + (high - low) / 2;
        if (x->at[middle].end <= span->begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < x->count && x->at[low].begin < span->end; low++) {
        double begin = x->at[low].begin > span->begin ? x->at[low].begin : span->begin;
        double end = x->at[low].end < span->end ? x->at[low].end : span->end;
        sum += end - begin;
    }
    return sum;
}

/* ---- recorded intervals ---- */

/* One run of a program. */
typedef struct program_run {
    interval time;
    by_profile_work work;
} program_run;

typedef struct interval_lists {
    intervals nodes; /* nodes that compute */
    intervals exchanges;
    intervals waits; /* parts of exchanges before all ranks have arrived */
    intervals hidden;
    intervals hidden_waits;
    intervals steps;
    program_run *passes; /* runs of all programs, in order */
    size_t pass_count;
    size_t pass_capacity;
} interval_lists;

static void free_lists(interval_lists *l)
{
    free(l->nodes.at);
    free(l->exchanges.at);
    free(l->waits.at);
    free(l->hidden.at);
    free(l->hidden_waits.at);
    free(l->steps.at);
    free(l->passes);
}

static by_status add_pass(interval_lists *l, const by__plan_program_run *run, by_profile_work work,
                          by_error *error)
{
    BY_TRY(by__reserve((void **)&l->passes, &l->pass_capacity, l->pass_count + 1, sizeof *l->passes,
                       error));
    l->passes[l->pass_count++] = (program_run){{run->begin, run->end}, work};
    return BY_OK;
}

static by_status list_event(interval_lists *l, const by_profile *p, const by__plan_node_run *event,
                            by__plan_program_run *runs, by_error *error)
{
    by_node_info info;
    if (event->program < 0) {
        return by__plan_is_span(p, event, "step") ? add(&l->steps, event->begin, event->end, error)
                                                  : BY_OK;
    }
    const by__plan_watched *watched = p->watched[event->program];
    by__plan_program_run *run = &runs[event->program];
    BY_TRY(by_program_node(watched->program, event->node, &info, error));
    if (!info.collective && !info.waits) {
        BY_TRY(add(&l->nodes, event->begin, event->end, error));
    }
    if (by__plan_program_run_add(run, watched, event)) {
        BY_TRY(add_pass(l, run, watched->work, error));
        *run = (by__plan_program_run){0};
    }
    return BY_OK;
}

static by_status list_all(interval_lists *l, const by_profile *p, by_error *error)
{
    by__plan_program_run *runs;
    BY_TRY(by__alloc((void **)&runs, p->watched_count + 1, sizeof *runs, "profile", error));
    by_status status = BY_OK;
    for (size_t e = 0; e < p->count && status == BY_OK; e++) {
        status = list_event(l, p, &p->events[e], runs, error);
    }
    free(runs);
    for (size_t i = 0; i < p->exchange_count && status == BY_OK; i++) {
        const by__plan_exchanged *x = &p->exchanges[i];
        status = add(&l->exchanges, x->begin, x->end, error);
        if (status == BY_OK) {
            status = add(&l->waits, x->begin, x->ready, error);
        }
    }
    BY_TRY(status);
    unite(&l->nodes);
    unite(&l->exchanges);
    unite(&l->waits);
    BY_TRY(intersect(&l->hidden, &l->exchanges, &l->nodes, error));
    return intersect(&l->hidden_waits, &l->waits, &l->nodes, error);
}

/* ---- sums ---- */

static by_profile_step sum_step(const interval_lists *l, const interval *step)
{
    by_profile_step s = {.seconds = step->end - step->begin};
    s.compute = within(&l->nodes, step);
    s.hidden = within(&l->hidden, step);
    s.exposed = within(&l->exchanges, step) - s.hidden;
    s.waiting = within(&l->waits, step) - within(&l->hidden_waits, step);
    return s;
}

static bool is_pass(const program_run *p)
{
    return p->work >= BY_PROFILE_PASS_FORWARD;
}

/* Sums up the passes of a step, from *next on, which it moves past the step; adds to the seconds of
 * each kind. */
static by__plan_pipe_window sum_passes(const interval_lists *l, const interval *step, size_t *next,
                                       double *passes)
{
    by__plan_pipe_window w = {0};
    size_t first = l->pass_count;
    size_t last = 0;
    for (size_t i = *next; i < l->pass_count && l->passes[i].time.begin < step->end; i++) {
        const program_run *p = &l->passes[i];
        *next = i + 1;
        if (p->time.begin < step->begin || !is_pass(p)) {
            continue;
        }
        passes[p->work - BY_PROFILE_PASS_FORWARD] += p->time.end - p->time.begin;
        first = i < first ? i : first;
        last = i;
    }
    for (size_t i = first; i <= last && first < l->pass_count; i++) {
        w.busy += l->passes[i].time.end - l->passes[i].time.begin;
    }
    if (first < l->pass_count) {
        w.begin = l->passes[first].time.begin;
        w.end = l->passes[last].time.end;
    }
    return w;
}

by_status by__plan_rank_times_make(by__plan_rank_times *out, const by_profile *profile,
                                   by_error *error)
{
    interval_lists l = {0};
    by__plan_rank_times t = {0};
    BY_TRY(by__plan_profile_check(profile, error));
    by_status status = list_all(&l, profile, error);
    t.count = l.steps.count;
    if (status == BY_OK) {
        status = by__alloc((void **)&t.steps, t.count + 1, sizeof *t.steps, "profile", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&t.windows, t.count + 1, sizeof *t.windows, "profile", error);
    }
    size_t next = 0;
    const interval *steps = l.steps.at; /* NULL when there are none */
    for (size_t i = 0; i < t.count && steps != NULL && status == BY_OK; i++) {
        t.steps[i] = sum_step(&l, &steps[i]);
        t.windows[i] = sum_passes(&l, &steps[i], &next, t.steps[i].passes);
    }
    free_lists(&l);
    if (status != BY_OK) {
        by__plan_rank_times_free(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

void by__plan_rank_times_free(by__plan_rank_times *times)
{
    free(times->steps);
    free(times->windows);
    *times = (by__plan_rank_times){0};
}
