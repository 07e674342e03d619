#include "data/loader/order_quality.h"

#include <math.h>
#include <stdlib.h>

/* ---- places ---- */

/* How far samples are from where their examples lie, and how much the place of one says of that of
 * the next. */
static void measure_places(by_order_quality *q, const by__loader_drawn *d)
{
    double n = (double)d->count;
    double scale = d->count > 1 ? 1.0 / (n - 1.0) : 1.0;
    double most = d->examples > 1 ? 1.0 / ((double)d->examples - 1.0) : 1.0;
    double moved = 0.0;
    double mean = 0.0;
    double variance = 0.0;
    double time_variance = 0.0;
    double with_time = 0.0;
    double with_next = 0.0;
    double last = 0.0;
    for (uint64_t i = 0; i < d->count; i++) {
        mean += (double)d->places[i] * most / n;
        moved += fabs((double)d->places[i] * most - (double)i * scale) / n;
    }
    for (uint64_t i = 0; i < d->count; i++) {
        double time = (double)i * scale - (d->count > 1 ? 0.5 : 0.0);
        double away = (double)d->places[i] * most - mean;
        variance += away * away;
        time_variance += time * time;
        with_time += away * time;
        with_next += i > 0 ? away * last : 0.0;
        last = away;
    }
    q->displacement = moved;
    q->rank_correlation = with_time / sqrt(variance * time_variance);
    q->neighbor_correlation = with_next / variance;
}

/* ---- files and classes ---- */

/* Numbers of the samples of each kind within a stretch; all are 0 between stretches. */
typedef struct kind_counts {
    uint64_t *inside;
    uint64_t *all; /* of the epoch */
} kind_counts;

static by_status open_counts(kind_counts *c, size_t kinds, by_error *error)
{
    BY_TRY(by__alloc((void **)&c->inside, kinds + 1, sizeof *c->inside, "an order", error));
    return by__alloc((void **)&c->all, kinds + 1, sizeof *c->all, "an order", error);
}

static void close_counts(kind_counts *c)
{
    free(c->inside);
    free(c->all);
}

/* Of all batches: the share of pairs of samples from one file, and the files of a batch. */
static by_status measure_files(by_order_quality *q, const by__loader_drawn *d, by_error *error)
{
    kind_counts c = {0};
    double same = 0.0;
    double pairs = 0.0;
    double seen = 0.0;
    double batches = 0.0;
    by_status status = open_counts(&c, d->file_count, error);
    for (uint64_t begin = 0; begin < d->count && status == BY_OK; begin += d->batch) {
        uint64_t end = d->count - begin < d->batch ? d->count : begin + d->batch;
        for (uint64_t i = begin; i < end; i++) {
            seen += c.inside[d->files[i]] == 0 ? 1.0 : 0.0;
            same += (double)c.inside[d->files[i]]++; /* pairs with those before it */
        }
        for (uint64_t i = begin; i < end; i++) {
            c.inside[d->files[i]] = 0;
        }
        pairs += (double)(end - begin) * (double)(end - begin - 1) / 2.0;
        batches += 1.0;
    }
    close_counts(&c);
    q->same_file = same / pairs;
    q->files_per_batch = seen / batches;
    return status;
}

/* The mean over stretches of `length` samples of the total variation distance between the shares
 * of classes in one and in the whole epoch; a shorter last one weighs as little. */
static double class_distance(const by__loader_drawn *d, kind_counts *c, uint64_t length)
{
    double sum = 0.0;
    for (uint64_t begin = 0; begin < d->count; begin += length) {
        uint64_t end = d->count - begin < length ? d->count : begin + length;
        for (uint64_t i = begin; i < end; i++) {
            c->inside[d->classes[i]]++;
        }
        /* Both shares add up to 1, so that the distance is what is too much, of those that are in
         * the stretch. */
        for (uint64_t i = begin; i < end; i++) {
            int32_t class = d->classes[i];
            double have = (double)c->inside[class];
            double due = (double)c->all[class] * (double)(end - begin) / (double)d->count;
            sum += have > due ? have - due : 0.0;
            c->inside[class] = 0;
        }
    }
    return sum / (double)d->count;
}

static by_status measure_classes(by_order_quality *q, const by__loader_drawn *d, by_error *error)
{
    kind_counts c = {0};
    q->batch_class_distance = (double)NAN;
    q->window_class_distance = (double)NAN;
    if (d->classes == NULL) {
        return BY_OK;
    }
    by_status status = open_counts(&c, d->class_count, error);
    for (uint64_t i = 0; i < d->count && status == BY_OK; i++) {
        c.all[d->classes[i]]++;
    }
    if (status == BY_OK) {
        q->batch_class_distance = class_distance(d, &c, d->batch);
        q->window_class_distance = d->window > 0 ? class_distance(d, &c, d->window) : (double)NAN;
    }
    close_counts(&c);
    return status;
}

by_status by__loader_order_measure(by_order_quality *out, const by__loader_drawn *drawn,
                                   by_error *error)
{
    by_order_quality q;
    measure_places(&q, drawn);
    BY_TRY(measure_files(&q, drawn, error));
    BY_TRY(measure_classes(&q, drawn, error));
    *out = q;
    return BY_OK;
}
