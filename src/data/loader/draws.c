#include "data/loader/draws.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/npy.h"

#define STREAM_DRAW 0x64726177u /* "draw" in ASCII: a Philox key of its own */
#define FILE_LIMIT  ((size_t)1 << 34)
#define LINE        64 /* bytes of a number's text, at most */

/* ---- draws ---- */

/* Puts the examples of each class one after another. starts: [classes + 1], zeros. */
static void sort_by_class(uint64_t *order, uint64_t *starts, const int32_t *classes, uint64_t count)
{
    int32_t most = 0;
    for (uint64_t i = 0; i < count; i++) {
        starts[classes[i] + 1]++;
        most = classes[i] > most ? classes[i] : most;
    }
    for (int32_t c = 0; c < most; c++) {
        starts[c + 1] += starts[c];
    }
    for (uint64_t i = 0; i < count; i++) {
        order[starts[classes[i]]++] = i;
    }
}

static by_status order_classes(by__loader_draws *d, const int32_t *classes, by_error *error)
{
    int32_t most = 0;
    uint64_t *starts;
    for (uint64_t i = 0; i < d->count; i++) {
        if (classes[i] < 0) {
            return by_error_set(error, BY_EARG, "example %llu has no class to balance",
                                (unsigned long long)i);
        }
        most = classes[i] > most ? classes[i] : most;
    }
    BY_TRY(by__alloc((void **)&starts, (size_t)most + 2, sizeof *starts, "classes", error));
    sort_by_class(d->order, starts, classes, d->count);
    free(starts);
    return BY_OK;
}

static double weight_of(const double *weights, uint64_t i)
{
    return weights == NULL ? 1.0 : weights[i];
}

/* The place in `order` behind those of the class that place `first` has; without classes, of
 * all. */
static uint64_t class_end(const by__loader_draws *d, const int32_t *classes, uint64_t first)
{
    uint64_t end = classes == NULL ? d->count : first + 1;
    while (end < d->count && classes[d->order[end]] == classes[d->order[first]]) {
        end++;
    }
    return end;
}

static uint64_t count_groups(const by__loader_draws *d, const int32_t *classes)
{
    uint64_t groups = 0;
    for (uint64_t i = 0; i < d->count; i = class_end(d, classes, i)) {
        groups++;
    }
    return groups;
}

/* Adds up the weights of each class. Classes of which no example has a weight are left out. */
static by_status add_up(by__loader_draws *d, const double *weights, const int32_t *classes,
                        by_error *error)
{
    size_t groups = (size_t)count_groups(d, classes);
    BY_TRY(by__alloc((void **)&d->groups, groups, sizeof *d->groups, "draws", error));
    for (uint64_t i = 0; i < d->count;) {
        double sum = 0.0;
        uint64_t first = i;
        for (uint64_t end = class_end(d, classes, i); i < end; i++) {
            sum += weight_of(weights, d->order[i]);
            d->ends[i] = sum;
        }
        if (!(sum < INFINITY)) {
            return by_error_set(error, BY_EARG,
                                "the sum of how often examples are drawn is too large");
        }
        if (sum > 0.0) {
            d->groups[d->group_count++] = (by__loader_draw_group){.first = first, .end = i};
        }
    }
    return BY_OK;
}

by_status by__loader_draws_open(by__loader_draws *out, const double *weights,
                                const int32_t *classes, uint64_t count, by_error *error)
{
    bool any = false;
    *out = (by__loader_draws){.count = count};
    for (uint64_t i = 0; i < count; i++) {
        double weight = weight_of(weights, i);
        if (!(weight >= 0.0 && weight < INFINITY)) {
            return by_error_set(error, BY_EARG,
                                "example %llu is drawn %g times as often as one of weight 1: at "
                                "least 0, and finite",
                                (unsigned long long)i, weight);
        }
        any = any || weight > 0.0;
    }
    if (!any) {
        return by_error_set(error, BY_EARG, "none of the examples to train on is ever drawn");
    }
    BY_TRY(by__alloc((void **)&out->ends, (size_t)count, sizeof *out->ends, "draws", error));
    BY_TRY(by__alloc((void **)&out->order, (size_t)count, sizeof *out->order, "draws", error));
    for (uint64_t i = 0; i < count; i++) {
        out->order[i] = i;
    }
    if (classes != NULL) {
        BY_TRY(order_classes(out, classes, error));
    }
    return add_up(out, weights, classes, error);
}

void by__loader_draws_free(by__loader_draws *draws)
{
    free(draws->ends);
    free(draws->order);
    free(draws->groups);
    *draws = (by__loader_draws){0};
}

/* Random bits of a place of an epoch; the place behind the last stands for the epoch. */
static void draw_bits(uint32_t bits[4], const by_source_sample *sample, uint64_t place)
{
    uint32_t key[2];
    const uint32_t counter[4] = {(uint32_t)sample->epoch, (uint32_t)(sample->epoch >> 32),
                                 (uint32_t)place, (uint32_t)(place >> 32)};
    by__philox_key(key, sample->seed, STREAM_DRAW);
    by__philox(bits, key, counter);
}

/* The first place of group g: floor((g * count + offset) / groups) without overflow, so that each
 * group has the integer below or above count / groups, and the offset decides which. */
static uint64_t first_place(const by__loader_draws *d, uint64_t g, uint64_t offset)
{
    uint64_t groups = d->group_count;
    return g * (d->count / groups) + (g * (d->count % groups) + offset) / groups;
}

uint64_t by__loader_draws_at(const by__loader_draws *d, const by_source_sample *sample)
{
    uint32_t bits[4];
    draw_bits(bits, sample, d->count);
    uint64_t offset = (uint64_t)bits[0] * d->group_count >> 32;
    uint64_t group = 0; /* the last that begins at or before the place */
    for (uint64_t end = d->group_count; end - group > 1;) {
        uint64_t middle = group + (end - group) / 2;
        if (first_place(d, middle, offset) <= sample->place) {
            group = middle;
        } else {
            end = middle;
        }
    }
    uint64_t first = first_place(d, group, offset);
    uint64_t places = first_place(d, group + 1, offset) - first;
    uint64_t low = d->groups[group].first; /* the first whose end is behind the point */
    uint64_t high = d->groups[group].end - 1;
    draw_bits(bits, sample, sample->place);
    double point = ((double)(sample->place - first) + (double)bits[0] * 0x1p-32) / (double)places *
                   d->ends[high];
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (d->ends[middle] > point) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    /* A point that was rounded up to the sum of all belongs to the last that has a weight. */
    while (low > d->groups[group].first && d->ends[low] == d->ends[low - 1]) {
        low--;
    }
    return d->order[low];
}

/* ---- files ---- */

static by_status refuse(const char *path, uint64_t place, const char *unit, by_error *error)
{
    return by_error_set(error, BY_EFORMAT,
                        "%s: %s %llu does not say how often an example is drawn: a number of at "
                        "least 0",
                        path, unit, (unsigned long long)place);
}

static by_status refuse_count(const char *path, uint64_t count, uint64_t examples, by_error *error)
{
    return by_error_set(error, BY_EFORMAT, "%s has %llu numbers, and there are %llu examples", path,
                        (unsigned long long)count, (unsigned long long)examples);
}

static bool is_weight(double value)
{
    return value >= 0.0 && value < INFINITY;
}

static by_status read_lines(double *out, const char *path, const char *text, size_t size,
                            uint64_t examples, by_error *error)
{
    uint64_t count = 0;
    for (size_t at = 0; at < size; count++) {
        char line[LINE];
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end == NULL ? size - at : (size_t)(end - text) - at;
        size_t kept = length - (length > 0 && text[at + length - 1] == '\r');
        double value = -1.0;
        if (kept < sizeof line) {
            memcpy(line, text + at, kept);
            line[kept] = '\0';
        }
        if (kept >= sizeof line || strlen(line) != kept || !by__parse_f64(line, &value) ||
            !is_weight(value)) {
            return refuse(path, count + 1, "line", error);
        }
        if (count < examples) {
            out[count] = value;
        }
        at += length + 1;
    }
    return count == examples ? BY_OK : refuse_count(path, count, examples, error);
}

static by_status read_array(double *out, const char *path, const char *text, size_t size,
                            uint64_t examples, by_error *error)
{
    by__format_array_view view;
    BY_TRY(by__format_npy_parse_array(&view, path, (const uint8_t *)text, size, error));
    bool wide = view.element == BY__ELEMENT_F64;
    if (view.shape.rank != 1 || (view.element != BY__ELEMENT_F32 && !wide) || view.big_endian) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: how often examples are drawn is one axis of f32 or f64, "
                            "little-endian",
                            path);
    }
    uint64_t count = (uint64_t)view.shape.dim[0];
    if (count != examples) {
        return refuse_count(path, count, examples, error);
    }
    for (uint64_t i = 0; i < count; i++) {
        float narrow;
        memcpy(wide ? (void *)&out[i] : (void *)&narrow, view.data + i * (wide ? 8 : 4),
               wide ? 8 : 4);
        out[i] = wide ? out[i] : (double)narrow;
        if (!is_weight(out[i])) {
            return refuse(path, i, "element", error);
        }
    }
    return BY_OK;
}

by_status by__loader_draws_read(double **out, const char *path, uint64_t examples, by_error *error)
{
    uint8_t *data;
    size_t size;
    double *made = NULL;
    BY_TRY(by__format_array_file_read(&data, &size, path, FILE_LIMIT, error));
    const char *text = (const char *)data;
    bool is_npy = size >= 6 && memcmp(text, "\x93NUMPY", 6) == 0;
    by_status status = by__alloc((void **)&made, (size_t)examples, sizeof *made,
                                 "how often examples are drawn", error);
    if (status == BY_OK) {
        status = (is_npy ? read_array : read_lines)(made, path, text, size, examples, error);
    }
    free(data);
    if (status != BY_OK) {
        free(made);
        return status;
    }
    *out = made;
    return BY_OK;
}
