/* Windows of series as samples. No window is stored: each is copied from the series' rows. */
#include "data/series/series_source.h"

#include <stdlib.h>
#include <string.h>

typedef struct series_source {
    by_source base;
    by_array arrays[6];
    by__series_set *set;
    by__series_window_options options;
    by__series_windows *windows;
    uint64_t *ends; /* [series_count] index behind the last sample of each series */
} series_source;

by__series_windows by__series_windows_in(uint64_t begin, uint64_t end, uint64_t context,
                                         uint64_t horizon)
{
    uint64_t target = begin > context ? begin : context; /* row of the first target */
    bool fits = end >= horizon && target <= end - horizon;
    return (by__series_windows){.first = target - context,
                                .count = fits ? end - horizon - target + 1 : 0};
}

void by__series_source_place(const by_source *source, uint64_t sample, size_t *series,
                             uint64_t *row)
{
    const series_source *s = (const series_source *)source;
    size_t low = 0;
    size_t high = s->set->series_count - 1;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sample < s->ends[middle]) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    *series = low;
    *row = s->windows[low].first + sample - (s->ends[low] - s->windows[low].count) +
           s->options.context;
}

/* The first row of a sample's targets, in the arrays of the set. */
static uint64_t first_target(const series_source *s, const by_source_sample *sample)
{
    size_t series;
    uint64_t row;
    by__series_source_place(&s->base, sample->place, &series, &row);
    return s->set->series[series].first + row;
}

/* The first row that a sample reads, in the inputs of the set. */
static uint64_t first_input(const series_source *s, const by_source_sample *sample)
{
    size_t series;
    uint64_t row;
    by__series_source_place(&s->base, sample->place, &series, &row);
    return s->set->series[series].inputs_first + row - s->options.context;
}

/* Padding has deviations of 1. */
static void fill_scales(const series_source *s, const by_source_sample *sample, void *const *rows)
{
    size_t channels = s->set->channels.count;
    bool padding = sample->place >= s->base.samples;
    size_t series = 0;
    uint64_t row;
    if (!padding) {
        by__series_source_place(&s->base, sample->place, &series, &row);
    }
    for (size_t c = 0; s->options.scales && c < channels; c++) {
        size_t at = series * channels + c;
        ((float *)rows[3])[c] = padding ? 0.0f : (float)s->set->mean[at];
        ((float *)rows[4])[c] = padding ? 1.0f : (float)s->set->deviation[at];
    }
}

static by_status fill(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error)
{
    const series_source *s = (const series_source *)source;
    size_t channels = s->set->channels.count;
    size_t reads = (size_t)s->options.context * channels;
    size_t targets = (size_t)s->options.horizon * channels;
    float *weights = rows[2];
    BY_UNUSED(error);
    fill_scales(s, sample, rows);
    size_t told = (size_t)(s->options.context + s->options.horizon) * s->set->input_width;
    void *known = rows[source->array_count - 1];
    if (sample->place >= source->samples && told > 0) {
        memset(known, 0, told * sizeof(float));
    }
    if (sample->place >= source->samples) {
        memset(rows[0], 0, reads * sizeof(float));
        memset(rows[1], 0, targets * sizeof(float));
        memset(rows[2], 0, targets * sizeof(float));
        return BY_OK;
    }
    uint64_t first = first_target(s, sample);
    if (told > 0) {
        memcpy(known, s->set->inputs + first_input(s, sample) * s->set->input_width,
               told * sizeof(float));
    }
    memcpy(rows[0], s->set->values + (first - s->options.context) * channels,
           reads * sizeof(float));
    if (s->options.ahead) {
        memset(rows[1], 0, targets * sizeof(float));
    } else {
        memcpy(rows[1], s->set->values + first * channels, targets * sizeof(float));
    }
    for (size_t i = 0; i < targets; i++) {
        weights[i] = s->options.ahead || s->set->present[first * channels + i] != 0 ? 1.0f : 0.0f;
    }
    return BY_OK;
}

static by_status weigh(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error)
{
    const series_source *s = (const series_source *)source;
    size_t channels = s->set->channels.count;
    size_t targets = (size_t)s->options.horizon * channels;
    uint64_t sum = 0;
    BY_UNUSED(error);
    if (sample->place < source->samples) {
        uint64_t first = first_target(s, sample);
        for (size_t i = 0; i < targets; i++) {
            sum += s->options.ahead || s->set->present[first * channels + i] != 0;
        }
    }
    *weight = (double)sum;
    return BY_OK;
}

static void close_source(by_source *source)
{
    series_source *s = (series_source *)source;
    if (s->options.owns) {
        by__series_set_close(&s->set);
    }
    free(s->windows);
    free(s->ends);
    free(s);
}

by_status by__series_source_open(by_source **out, by__series_set *set,
                                 const by__series_window_options *options, by_error *error)
{
    series_source *s;
    size_t count = set->series_count;
    int64_t channels = (int64_t)set->channels.count;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "windows of series", error));
    s->set = set;
    s->options = *options;
    s->arrays[0] = (by_array){
        .name = "series", .dtype = BY_F32, .shape = BY_SHAPE((int64_t)options->context, channels)};
    s->arrays[1] = (by_array){
        .name = "targets", .dtype = BY_F32, .shape = BY_SHAPE((int64_t)options->horizon, channels)};
    s->arrays[2] = s->arrays[1];
    s->arrays[2].name = "weight";
    size_t arrays = 3;
    if (options->scales) {
        const by_array scale = {.name = "mean", .dtype = BY_F32, .shape = BY_SHAPE(channels)};
        s->arrays[arrays++] = scale;
        s->arrays[arrays] = scale;
        s->arrays[arrays++].name = "deviation";
    }
    if (set->input_width > 0) {
        s->arrays[arrays++] =
            (by_array){.name = "known",
                       .dtype = BY_F32,
                       .shape = BY_SHAPE((int64_t)(options->context + options->horizon),
                                         (int64_t)set->input_width)};
    }
    by_status status =
        by__alloc((void **)&s->windows, count, sizeof *s->windows, "windows of series", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&s->ends, count, sizeof *s->ends, "windows of series", error);
    }
    if (status != BY_OK) {
        s->options.owns = false;
        close_source(&s->base);
        return status;
    }
    memcpy(s->windows, options->windows, count * sizeof *s->windows);
    s->options.windows = s->windows;
    uint64_t samples = 0;
    for (size_t i = 0; i < count; i++) {
        samples += s->windows[i].count;
        s->ends[i] = samples;
    }
    s->base = (by_source){.name = set->name,
                          .arrays = s->arrays,
                          .array_count = arrays,
                          .shuffle = options->shuffle,
                          .samples = samples,
                          .sample_targets = 1,
                          .targets = samples,
                          .fill = fill,
                          .close = close_source,
                          .weigh = weigh};
    if (samples == 0) {
        s->options.owns = false;
        close_source(&s->base);
        return by_error_set(error, BY_EARG, "%s: no series has a window of %llu and %llu rows",
                            set->name, (unsigned long long)options->context,
                            (unsigned long long)options->horizon);
    }
    *out = &s->base;
    return BY_OK;
}
