/* Scales of the channels of series: learned, applied, and stored as JSON. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "data/series/series_set.h"

static by_status make_scales(by__series_scales **out, size_t count, const char *time,
                             const char *id, by_error *error)
{
    by__series_scales *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "scales", error));
    s->time = by__strdup(time);
    s->id = by__strdup(id);
    by_status status = s->time != NULL && s->id != NULL
                           ? by__alloc((void **)&s->channels.items, count + 1,
                                       sizeof *s->channels.items, "scales", error)
                           : by_error_set(error, BY_EMEMORY, "out of memory: scales");
    if (status == BY_OK) {
        status = by__alloc((void **)&s->mean, count + 1, sizeof *s->mean, "scales", error);
    }
    if (status == BY_OK) {
        status =
            by__alloc((void **)&s->deviation, count + 1, sizeof *s->deviation, "scales", error);
    }
    if (status != BY_OK) {
        by__series_scales_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

static by_status add_channel(by__series_scales *s, const char *name, by_error *error)
{
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: scales");
    }
    s->channels.items[s->channels.count++] = copy;
    return BY_OK;
}

void by__series_scales_close(by__series_scales **scales)
{
    by__series_scales *s = *scales;
    if (s == NULL) {
        return;
    }
    by__series_names_free(&s->channels);
    free(s->time);
    free(s->id);
    free(s->mean);
    free(s->deviation);
    free(s);
    *scales = NULL;
}

/* ---- learning and applying ---- */

/* Adds up a channel's values, or the squares of their differences from `mean`. */
static double sum_of(const by__series_set *set, size_t channel, const uint64_t *train,
                     const double *mean, uint64_t *count)
{
    size_t width = set->channels.count;
    double sum = 0.0;
    *count = 0;
    for (size_t s = 0; s < set->series_count; s++) {
        for (uint64_t i = 0; i < train[s]; i++) {
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

by_status by__series_learn(by__series_scales **out, const by__series_set *set,
                           const by__series_columns *columns, const uint64_t *train,
                           by_error *error)
{
    by__series_scales *s;
    by_status status = BY_OK;
    BY_TRY(make_scales(&s, set->channels.count, set->time, columns->id, error));
    for (size_t c = 0; c < set->channels.count && status == BY_OK; c++) {
        uint64_t count;
        double sum = sum_of(set, c, train, NULL, &count);
        if (count == 0) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: column '%s' has no number in the part to train on",
                                  set->name, set->channels.items[c]);
            break;
        }
        s->mean[c] = sum / (double)count;
        double deviation = sqrt(sum_of(set, c, train, &s->mean[c], &count) / (double)count);
        s->deviation[c] = deviation > 0.0 ? deviation : 1.0;
        status = add_channel(s, set->channels.items[c], error);
    }
    if (status != BY_OK) {
        by__series_scales_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}

void by__series_standardize(by__series_set *set, const by__series_scales *scales)
{
    size_t width = set->channels.count;
    for (size_t s = 0; s < set->series_count; s++) {
        float *values = set->values + set->series[s].first * width;
        const uint8_t *present = set->present + set->series[s].first * width;
        for (uint64_t i = 0; i < set->series[s].count * width; i++) {
            size_t c = (size_t)(i % width);
            double value = ((double)values[i] - scales->mean[c]) / scales->deviation[c];
            float before = i < width ? 0.0f : values[i - width];
            values[i] = present[i] != 0 ? (float)value : before;
        }
    }
}

/* ---- JSON ---- */

by_status by__series_scales_print(const by__series_scales *scales, char **out, by_error *error)
{
    json_t *channels = json_array();
    for (size_t c = 0; c < scales->channels.count; c++) {
        (void)json_array_append_new(
            channels, json_pack("{s:s, s:f, s:f}", "name", scales->channels.items[c], "mean",
                                scales->mean[c], "deviation", scales->deviation[c]));
    }
    json_t *root = json_pack("{s:s, s:s, s:o}", "time", scales->time, "series", scales->id,
                             "channels", channels);
    *out = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(root);
    return *out != NULL ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: scales");
}

static by_status read_channel(by__series_scales *s, const char *name, const json_t *in,
                              by_error *error)
{
    const char *channel = json_string_value(json_object_get(in, "name"));
    const json_t *mean = json_object_get(in, "mean");
    const json_t *deviation = json_object_get(in, "deviation");
    size_t c = s->channels.count;
    if (channel == NULL || !json_is_number(mean) || !json_is_number(deviation) ||
        !(json_number_value(deviation) > 0.0)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: channel %zu has no name, mean and deviation above 0", name, c);
    }
    s->mean[c] = json_number_value(mean);
    s->deviation[c] = json_number_value(deviation);
    return add_channel(s, channel, error);
}

by_status by__series_scales_parse(by__series_scales **out, const char *name, const char *text,
                                  by_error *error)
{
    json_t *root = by__json_read(text, 0, NULL);
    const json_t *channels = json_object_get(root, "channels");
    const char *time = json_string_value(json_object_get(root, "time"));
    const char *id = json_string_value(json_object_get(root, "series"));
    by__series_scales *s = NULL;
    by_status status =
        time != NULL && id != NULL && json_array_size(channels) > 0
            ? make_scales(&s, json_array_size(channels), time, id, error)
            : by_error_set(error, BY_EFORMAT,
                           "%s does not describe series: \"time\", \"series\", \"channels\"", name);
    for (size_t c = 0; status == BY_OK && c < json_array_size(channels); c++) {
        status = read_channel(s, name, json_array_get(channels, c), error);
    }
    json_decref(root);
    if (status != BY_OK) {
        by__series_scales_close(&s);
        return status;
    }
    *out = s;
    return BY_OK;
}
