/* Scales of the channels of series: learned and applied. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/series/series_scales.h"

/* ---- learning ---- */

/* Rows of series that scales are learned from: `counts` first ones of each of the series from
 * `begin` to `end` - 1. */
typedef struct learned_rows {
    const by__series_set *set;
    const uint64_t *counts;
    size_t begin, end;
} learned_rows;

/* Adds up a channel's values, or the squares of their differences from `mean`. */
static double sum_of(const learned_rows *rows, size_t channel, const double *mean, uint64_t *count)
{
    const by__series_set *set = rows->set;
    size_t width = set->channels.count;
    double sum = 0.0;
    *count = 0;
    for (size_t s = rows->begin; s < rows->end; s++) {
        for (uint64_t i = 0; i < rows->counts[s]; i++) {
            uint64_t at = (set->series[s].first + i) * width + channel;
            if (set->present[at] != 0) {
                double value = (double)set->values[at];
                sum += mean == NULL ? value : (value - *mean) * (value - *mean);
                *count += 1;
            }
        }
    }
    return sum;
}

/* False: there is no number. */
static bool scale_of(const learned_rows *rows, size_t channel, bool counts, double *mean,
                     double *deviation)
{
    uint64_t count;
    double sum = sum_of(rows, channel, NULL, &count);
    if (count == 0) {
        return false;
    }
    *mean = sum / (double)count;
    double size = counts ? *mean : sqrt(sum_of(rows, channel, mean, &count) / (double)count);
    *mean = counts ? 0.0 : *mean;
    *deviation = size > 0.0 ? size : 1.0;
    return true;
}

static by_status check_counts(const learned_rows *rows, by_error *error)
{
    const by__series_set *set = rows->set;
    size_t width = set->channels.count;
    for (size_t s = rows->begin; s < rows->end; s++) {
        for (uint64_t i = 0; i < rows->counts[s] * width; i++) {
            uint64_t at = set->series[s].first * width + i;
            double value = (double)set->values[at];
            if (set->present[at] != 0 && !(value >= 0.0 && value == floor(value))) {
                return by_error_set(
                    error, BY_EFORMAT,
                    "%s: column '%s' has %g in row %llu of %s%s, which is no count: task.loss "
                    "negative_binomial needs counts (0, 1, 2, ...); gaussian takes any numbers",
                    set->name, set->channels.items[i % width], value,
                    (unsigned long long)(i / width) + 1,
                    set->names == NULL ? "the series" : "series ",
                    set->names == NULL ? "" : set->names[s]);
            }
        }
    }
    return BY_OK;
}

/* Scales of each series; what one has no numbers of is scaled as all are. */
static by_status learn_each(by__series_scales *s, const learned_rows *all, by_error *error)
{
    size_t width = all->set->channels.count;
    for (size_t i = 0; i < all->set->series_count; i++) {
        const learned_rows rows = {all->set, all->counts, i, i + 1};
        for (size_t c = 0; c < width; c++) {
            size_t at = i * width + c;
            s->means[at] = s->mean[c];
            s->deviations[at] = s->deviation[c];
            (void)scale_of(&rows, c, s->scaling.counts, &s->means[at], &s->deviations[at]);
        }
        BY_TRY(by__series_names_add(&s->series, all->set->names == NULL ? "" : all->set->names[i],
                                    error));
    }
    return BY_OK;
}

/* Scales of the columns that are known ahead, over the rows to learn from. */
static by_status learn_known(by__series_scales *s, const learned_rows *all, by_error *error)
{
    const by__series_set *set = all->set;
    size_t width = set->known.count;
    for (size_t k = 0; k < width; k++) {
        double sums[3] = {0.0, 0.0, 0.0}; /* count, sum, squares of differences */
        for (int pass = 0; pass < 2; pass++) {
            double mean = sums[0] > 0.0 ? sums[1] / sums[0] : 0.0;
            for (size_t i = all->begin; i < all->end; i++) {
                const float *values = set->known_values + set->series[i].known_first * width + k;
                for (uint64_t row = 0; row < all->counts[i]; row++) {
                    double value = (double)values[row * width];
                    if (!isnan(value)) {
                        sums[0] += pass == 0 ? 1.0 : 0.0;
                        sums[1] += pass == 0 ? value : 0.0;
                        sums[2] += pass == 0 ? 0.0 : (value - mean) * (value - mean);
                    }
                }
            }
        }
        double deviation = sums[0] > 0.0 ? sqrt(sums[2] / sums[0]) : 0.0;
        s->known_mean[k] = sums[0] > 0.0 ? sums[1] / sums[0] : 0.0;
        s->known_deviation[k] = deviation > 0.0 ? deviation : 1.0;
        BY_TRY(by__series_names_add(&s->known, set->known.items[k], error));
    }
    return BY_OK;
}

static by_status learn_all(by__series_scales *s, const learned_rows *all, by_error *error)
{
    const by__series_set *set = all->set;
    if (s->scaling.counts) {
        BY_TRY(check_counts(all, error));
    }
    for (size_t c = 0; c < set->channels.count; c++) {
        if (!scale_of(all, c, s->scaling.counts, &s->mean[c], &s->deviation[c])) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: column '%s' has no number in the part to train on", set->name,
                                set->channels.items[c]);
        }
        BY_TRY(by__series_names_add(&s->channels, set->channels.items[c], error));
    }
    BY_TRY(learn_known(s, all, error));
    return s->scaling.each ? learn_each(s, all, error) : BY_OK;
}

by_status by__series_learn(by__series_scales **out, const by__series_set *set,
                           const by__series_columns *columns, const by__series_scaling *scaling,
                           const uint64_t *train, by_error *error)
{
    const learned_rows all = {set, train, 0, set->series_count};
    const by__series_scales_size size = {set->channels.count, scaling->each ? set->series_count : 0,
                                         set->known.count};
    by__series_scales *s;
    BY_TRY(by__series_scales_make(&s, &size, set->time, columns->id, error));
    s->scaling = *scaling;
    s->numbers = !set->stamped;
    by_status status = learn_all(s, &all, error);
    if (status != BY_OK) {
        by__series_scales_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

/* ---- applying ---- */

/* Finds the scales of a series, or learns them from its rows. */
static void find_scales(by__series_set *set, const by__series_scales *scales,
                        const uint64_t *counts, size_t s)
{
    size_t width = set->channels.count;
    const char *name = set->names == NULL ? "" : set->names[s];
    const learned_rows rows = {set, counts, s, s + 1};
    bool same = s < scales->series.count && strcmp(scales->series.items[s], name) == 0;
    size_t known = same ? s : 0;
    while (known < scales->series.count && strcmp(scales->series.items[known], name) != 0) {
        known++;
    }
    for (size_t c = 0; c < width; c++) {
        double *mean = &set->mean[s * width + c];
        double *deviation = &set->deviation[s * width + c];
        *mean = scales->mean[c];
        *deviation = scales->deviation[c];
        if (known < scales->series.count) {
            *mean = scales->means[known * width + c];
            *deviation = scales->deviations[known * width + c];
        } else if (scales->scaling.each) {
            (void)scale_of(&rows, c, scales->scaling.counts, mean, deviation);
        }
    }
}

static void standardize_series(by__series_set *set, size_t s)
{
    size_t width = set->channels.count;
    float *values = set->values + set->series[s].first * width;
    const uint8_t *present = set->present + set->series[s].first * width;
    for (uint64_t i = 0; i < set->series[s].count * width; i++) {
        size_t at = s * width + (size_t)(i % width);
        double value = ((double)values[i] - set->mean[at]) / set->deviation[at];
        float before = i < width ? 0.0f : values[i - width];
        values[i] = present[i] != 0 ? (float)value : before;
    }
}

by_status by__series_standardize(by__series_set *set, const by__series_scales *scales,
                                 by_error *error)
{
    uint64_t *counts;
    BY_TRY(by__series_scales_rows(&set->mean, &set->deviation,
                                  set->series_count * set->channels.count, error));
    BY_TRY(by__alloc((void **)&counts, set->series_count, sizeof *counts, "scales", error));
    for (size_t s = 0; s < set->series_count; s++) {
        counts[s] = set->series[s].count;
    }
    for (size_t s = 0; s < set->series_count; s++) {
        find_scales(set, scales, counts, s);
        standardize_series(set, s);
    }
    free(counts);
    return BY_OK;
}
