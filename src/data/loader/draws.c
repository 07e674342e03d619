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

/* Adds the weights of the examples from `first` on that have its class, and of all others without
 * classes; *sum: of these. Returns the place behind them. */
static uint64_t add_class(by__loader_draws *d, const double *weights, const int32_t *classes,
                          uint64_t first, double before, double *sum)
{
    uint64_t i = first;
    *sum = 0.0;
    for (; i < d->count && (classes == NULL || classes[d->order[i]] == classes[d->order[first]]);
         i++) {
        *sum += weight_of(weights, d->order[i]);
        d->ends[i] = before + *sum;
    }
    return i;
}

/* Classes of which no example has a weight are left out. */
static void add_up(by__loader_draws *d, const double *weights, const int32_t *classes)
{
    double before = 0.0;
    for (uint64_t i = 0; i < d->count;) {
        double sum;
        uint64_t end = add_class(d, weights, classes, i, 0.0, &sum);
        bool scales = classes != NULL && sum > 0.0;
        for (uint64_t k = i; k < end; k++) {
            d->ends[k] = before + (scales ? d->ends[k] / sum : d->ends[k]);
        }
        i = end;
        before = d->ends[end - 1];
    }
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
    add_up(out, weights, classes);
    double total = out->ends[count - 1];
    return total < INFINITY ? BY_OK
                            : by_error_set(error, BY_EARG,
                                           "the sum of how often examples are drawn is too large");
}

void by__loader_draws_free(by__loader_draws *draws)
{
    free(draws->ends);
    free(draws->order);
    *draws = (by__loader_draws){0};
}

uint64_t by__loader_draws_at(const by__loader_draws *d, const by_source_sample *sample)
{
    uint32_t key[2];
    uint32_t bits[4];
    const uint32_t counter[4] = {(uint32_t)sample->epoch, (uint32_t)(sample->epoch >> 32),
                                 (uint32_t)sample->place, (uint32_t)(sample->place >> 32)};
    by__philox_key(key, sample->seed, STREAM_DRAW);
    by__philox(bits, key, counter);
    double total = d->ends[d->count - 1];
    double point = ((double)sample->place + (double)bits[0] * 0x1p-32) / (double)d->count * total;
    uint64_t low = 0; /* the first whose end is behind the point */
    uint64_t high = d->count - 1;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (d->ends[middle] > point) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    /* A point that was rounded up to the sum of all belongs to the last that has a weight. */
    while (low > 0 && d->ends[low] == d->ends[low - 1]) {
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
    char *text;
    size_t size;
    double *made = NULL;
    BY_TRY(by__file_read(&text, &size, path, FILE_LIMIT, error));
    bool is_npy = size >= 6 && memcmp(text, "\x93NUMPY", 6) == 0;
    by_status status = by__alloc((void **)&made, (size_t)examples, sizeof *made,
                                 "how often examples are drawn", error);
    if (status == BY_OK) {
        status = (is_npy ? read_array : read_lines)(made, path, text, size, examples, error);
    }
    free(text);
    if (status != BY_OK) {
        free(made);
        return status;
    }
    *out = made;
    return BY_OK;
}
