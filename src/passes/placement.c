/* An interval can only go into gaps between the addresses of placed intervals that live at the same
 * time, of which a deep model has thousands. A segment tree over node indices yields their union
 * without visiting each. Every tree node covers a range of time and keeps two sets of addresses:
 * `whole`, of intervals that live throughout its range but not throughout its parent's, and
 * `within`, of all intervals in the `whole` sets of its subtree. An interval enters O(log n) sets.
 * The intervals that live at some time of a window are in the `whole` sets of the tree nodes that
 * the window intersects and in the `within` sets of the largest nodes that it covers, again
 * O(log n) sets. A set holds disjoint ranges in ascending order and merges ranges that touch: since
 * an arena is dense, a set has few.
 */
#include "passes/placement.h"

#include <stdlib.h>
#include <string.h>

/* Bytes begin .. end - 1 of the arena. */
typedef struct byte_range {
    size_t begin;
    size_t end;
} byte_range;

typedef struct range_set {
    byte_range *ranges;
    size_t count;
    size_t capacity;
} range_set;

/* Most sets that one query reads: four for each level of a tree over 2^63 times. */
#define RUNS 256

typedef struct timeline {
    range_set *whole; /* of tree node k, whose children are 2k and 2k + 1; the root is 1 */
    range_set *within;
    size_t times; /* a power of two; tree node times + t is the leaf of time t */
    /* The result of a query: the sets concatenated; run r starts at found.ranges[run[r]]. */
    range_set found;
    range_set merged; /* scratch for merging them */
    size_t run[RUNS + 1];
    size_t runs;
} timeline;

static by_status add(range_set *set, byte_range added, by_error *error)
{
    size_t low = 0; /* the first range that does not end before the added one begins */
    size_t high = set->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->ranges[middle].end < added.begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    size_t after = low; /* the first range after the added one */
    while (after < set->count && set->ranges[after].begin <= added.end) {
        const byte_range *touched = &set->ranges[after++];
        added.begin = touched->begin < added.begin ? touched->begin : added.begin;
        added.end = touched->end > added.end ? touched->end : added.end;
    }
    if (after == low) {
        BY_TRY(by__reserve((void **)&set->ranges, &set->capacity, set->count + 1,
                           sizeof *set->ranges, error));
    }
    if (after != low + 1) {
        memmove(&set->ranges[low + 1], &set->ranges[after],
                (set->count - after) * sizeof *set->ranges);
    }
    set->count = set->count + 1 - (after - low);
    set->ranges[low] = added;
    return BY_OK;
}

/* Records an interval below tree node k, which covers the `span` times from `begin` on. */
static by_status record(timeline *t, size_t k, size_t begin, size_t span,
                        const by__pass_interval *it, by_error *error)
{
    byte_range bytes = {it->offset, it->offset + it->bytes};
    if (it->last < begin || it->first >= begin + span) {
        return BY_OK;
    }
    BY_TRY(add(&t->within[k], bytes, error));
    if (it->first <= begin && begin + span - 1 <= it->last) {
        return add(&t->whole[k], bytes, error);
    }
    BY_TRY(record(t, 2 * k, begin, span / 2, it, error));
    return record(t, 2 * k + 1, begin + span / 2, span / 2, it, error);
}

static by_status gather_set(timeline *t, const range_set *set, by_error *error)
{
    if (set->count > 0) {
        BY_TRY(by__reserve((void **)&t->found.ranges, &t->found.capacity,
                           t->found.count + set->count, sizeof *set->ranges, error));
        memcpy(&t->found.ranges[t->found.count], set->ranges, set->count * sizeof *set->ranges);
        t->found.count += set->count;
        t->run[++t->runs] = t->found.count;
    }
    return BY_OK;
}

/* Gathers the addresses of intervals that live at the same time as `it`, below tree node k. */
static by_status gather(timeline *t, size_t k, size_t begin, size_t span,
                        const by__pass_interval *it, by_error *error)
{
    if (it->last < begin || it->first >= begin + span || t->within[k].count == 0) {
        return BY_OK;
    }
    if (it->first <= begin && begin + span - 1 <= it->last) {
        return gather_set(t, &t->within[k], error);
    }
    BY_TRY(gather_set(t, &t->whole[k], error));
    BY_TRY(gather(t, 2 * k, begin, span / 2, it, error));
    return gather(t, 2 * k + 1, begin + span / 2, span / 2, it, error);
}

/* Merges two ascending lists into `out`. */
static void merge(byte_range *out, const byte_range *a, size_t a_count, const byte_range *b,
                  size_t b_count)
{
    size_t i = 0;
    size_t j = 0;
    while (i < a_count && j < b_count) {
        *out++ = a[i].begin <= b[j].begin ? a[i++] : b[j++];
    }
    memcpy(out, &a[i], (a_count - i) * sizeof *a);
    memcpy(out + (a_count - i), &b[j], (b_count - j) * sizeof *b);
}

/* Merges the gathered runs into one ascending list, two neighbouring runs at a time. */
static by_status merge_runs(timeline *t, by_error *error)
{
    BY_TRY(by__reserve((void **)&t->merged.ranges, &t->merged.capacity, t->found.count,
                       sizeof *t->merged.ranges, error));
    while (t->runs > 1) {
        size_t made = 0;
        for (size_t r = 0; r < t->runs; r += 2) {
            size_t begin = t->run[r];
            size_t middle = t->run[r + 1];
            size_t end = r + 2 <= t->runs ? t->run[r + 2] : middle;
            merge(&t->merged.ranges[begin], &t->found.ranges[begin], middle - begin,
                  &t->found.ranges[middle], end - middle);
            t->run[made++] = begin;
        }
        t->run[made] = t->found.count;
        t->runs = made;
        t->merged.count = t->found.count;
        range_set swapped = t->found;
        t->found = t->merged;
        t->merged = swapped;
    }
    return BY_OK;
}

/* Returns the lowest of the tightest gaps that fit, or the end of the last range. */
static size_t best_fit(const range_set *found, size_t bytes)
{
    size_t cursor = 0;
    size_t best = SIZE_MAX;
    size_t best_gap = SIZE_MAX;
    for (size_t i = 0; i < found->count; i++) {
        const byte_range *taken = &found->ranges[i];
        if (taken->begin > cursor && taken->begin - cursor >= bytes &&
            taken->begin - cursor < best_gap) {
            best = cursor;
            best_gap = taken->begin - cursor;
        }
        cursor = taken->end > cursor ? taken->end : cursor;
    }
    return best == SIZE_MAX ? cursor : best;
}

static void empty_sets(range_set *sets, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        sets[i].count = 0;
    }
}

static void free_sets(range_set *sets, size_t count)
{
    for (size_t i = 0; i < count && sets != NULL; i++) {
        free(sets[i].ranges);
    }
    free(sets);
}

/* Places the intervals in the array's order. */
static by_status place_all(size_t *total, timeline *t, by__pass_interval *intervals, size_t count,
                           by_error *error)
{
    *total = 0;
    empty_sets(t->whole, 2 * t->times);
    empty_sets(t->within, 2 * t->times);
    for (size_t i = 0; i < count; i++) {
        by__pass_interval *it = &intervals[i];
        t->found.count = 0;
        t->runs = 0;
        BY_TRY(gather(t, 1, 0, t->times, it, error));
        BY_TRY(merge_runs(t, error));
        it->offset = best_fit(&t->found, it->bytes);
        BY_TRY(record(t, 1, 0, t->times, it, error));
        *total = it->offset + it->bytes > *total ? it->offset + it->bytes : *total;
    }
    return BY_OK;
}

static int by_size(const void *a, const void *b)
{
    const by__pass_interval *x = a;
    const by__pass_interval *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    return x->root < y->root ? -1 : 1;
}

static int by_start(const void *a, const void *b)
{
    const by__pass_interval *x = a;
    const by__pass_interval *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return by_size(a, b);
}

/* enough: a total that need not be improved. */
static by_status place_best(size_t *total, timeline *t, by__pass_interval *intervals, size_t count,
                            size_t enough, by_error *error)
{
    size_t early;
    qsort(intervals, count, sizeof *intervals, by_start);
    BY_TRY(place_all(&early, t, intervals, count, error));
    if (early <= enough) {
        *total = early;
        return BY_OK;
    }
    qsort(intervals, count, sizeof *intervals, by_size);
    BY_TRY(place_all(total, t, intervals, count, error));
    if (early < *total && enough > 0) {
        *total = early;
    } else if (early < *total) {
        qsort(intervals, count, sizeof *intervals, by_start);
        BY_TRY(place_all(total, t, intervals, count, error));
    }
    return BY_OK;
}

static by_status place(size_t *total, by__pass_interval *intervals, size_t count, size_t enough,
                       by_error *error)
{
    timeline t = {.times = 1};
    size_t last = 0;
    *total = 0;
    if (count == 0) {
        return BY_OK;
    }
    for (size_t i = 0; i < count; i++) {
        last = intervals[i].last > last ? intervals[i].last : last;
    }
    while (t.times <= last) {
        t.times *= 2;
    }
    by_status status =
        by__alloc((void **)&t.whole, 2 * t.times, sizeof *t.whole, "memory plan", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&t.within, 2 * t.times, sizeof *t.within, "memory plan", error);
    }
    if (status == BY_OK) {
        status = place_best(total, &t, intervals, count, enough, error);
    }
    free_sets(t.whole, 2 * t.times);
    free_sets(t.within, 2 * t.times);
    free(t.found.ranges);
    free(t.merged.ranges);
    return status;
}

by_status by__pass_place_intervals(size_t *total, by__pass_interval *intervals, size_t count,
                                   by_error *error)
{
    return place(total, intervals, count, 0, error);
}

by_status by__passes_measure_intervals(size_t *total, by__pass_interval *intervals, size_t count,
                                       size_t enough, by_error *error)
{
    return place(total, intervals, count, enough > 0 ? enough : 1, error);
}
