#include "data/loader/pixel_scales.h"

#include <math.h>
#include <stdlib.h>

#include "formats/image/image_processor.h"

#define CHANNELS_LIMIT 65536

by_status by__loader_pixel_scales_allocate(by__loader_pixel_scales *scales, size_t channels,
                                           by_error *error)
{
    scales->channels = channels;
    BY_TRY(
        by__alloc((void **)&scales->mean, channels, sizeof *scales->mean, "pixel scales", error));
    return by__alloc((void **)&scales->deviation, channels, sizeof *scales->deviation,
                     "pixel scales", error);
}

void by__loader_pixel_scales_free(by__loader_pixel_scales *scales)
{
    free(scales->mean);
    free(scales->deviation);
    *scales = (by__loader_pixel_scales){0};
}

/* The steps from a pixel to what the model reads: ((pixel * factor - offset) - mean) / deviation.
 * Without a step its numbers change nothing. */
typedef struct pixel_steps {
    double factor;
    double offset;
    bool normalizes;
    bool again; /* divides by the deviation once more */
} pixel_steps;

/* Reads a flag of one kind of processor, which others must not set. */
static by_status read_own(bool *out, const json_t *root, const char *path, const char *key,
                          bool is_own, bool usual, by_error *error)
{
    BY_TRY(by__format_image_processor_flag(out, root, path, key, usual, error));
    return is_own || !*out
               ? BY_OK
               : by__format_image_processor_refuse(
                     root, path, key,
                     "is only known of \"image_processor_type\": \"EfficientNetImageProcessor\"",
                     error);
}

static by_status read_steps(pixel_steps *out, const json_t *root,
                            const by__format_image_processor *usual, const char *path,
                            by_error *error)
{
    bool rescales;
    bool shifts;
    bool twice = usual->divides_twice;
    *out = (pixel_steps){.factor = 1.0};
    BY_TRY(by__format_image_processor_flag(&rescales, root, path, "do_rescale", true, error));
    BY_TRY(
        by__format_image_processor_flag(&out->normalizes, root, path, "do_normalize", true, error));
    BY_TRY(read_own(&shifts, root, path, "rescale_offset", twice, false, error));
    BY_TRY(read_own(&out->again, root, path, "include_top", twice, twice, error));
    if (rescales) {
        BY_TRY(by__format_image_processor_number(&out->factor, root, path, "rescale_factor",
                                                 1.0 / 255.0, error));
        out->offset = shifts ? 1.0 : 0.0;
    }
    return BY_OK;
}

/* Reads "image_mean" or "image_std": a number, or one of each channel. */
static by_status read_list(double *out, const json_t *root, const char *path, const char *key,
                           const double usual[3], size_t count, bool above_zero, by_error *error)
{
    const json_t *value = by__format_image_processor_value(root, key);
    bool is_list = json_is_array(value);
    char what[128];
    if (value == NULL && (count != 3 || !(usual[0] > 0.0))) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: there is no \"%s\", a list of %zu numbers, one a channel", path,
                            key, count);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *item = is_list ? json_array_get(value, i) : value;
        out[i] = value == NULL ? usual[i] : json_number_value(item);
        if (value != NULL &&
            (!json_is_number(item) || (is_list && json_array_size(value) != count) ||
             (above_zero && !(out[i] > 0.0)))) {
            (void)snprintf(what, sizeof what, "is no list of %zu %s, one a channel", count,
                           above_zero ? "positive numbers" : "numbers");
            return by__format_image_processor_refuse(root, path, key, what, error);
        }
    }
    return BY_OK;
}

/* Merges the steps: (pixel / 255 - mean) / deviation. */
static by_status merge(by__loader_pixel_scales *scales, const pixel_steps *s, const double *mean,
                       const double *deviation, const char *path, by_error *error)
{
    for (size_t c = 0; c < scales->channels; c++) {
        double divisor = s->normalizes ? deviation[c] : 1.0;
        divisor *= s->again ? deviation[c] : 1.0;
        double whole = 255.0 * s->factor;
        scales->mean[c] = (float)((s->offset + (s->normalizes ? mean[c] : 0.0)) / whole);
        scales->deviation[c] = (float)(divisor / whole);
        if (!isfinite(scales->mean[c]) || !isfinite(scales->deviation[c]) ||
            !(scales->deviation[c] > 0.0f)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: \"rescale_factor\", \"image_mean\" and \"image_std\" scale "
                                "pixels of channel %zu beyond the numbers that there are",
                                path, c);
        }
    }
    return BY_OK;
}

/* How many channels there are: of the model, of the lists, or those of colours. */
static size_t count_channels(const json_t *root, int64_t channels)
{
    size_t count = json_array_size(json_object_get(root, "image_mean"));
    return channels > 0 ? (size_t)channels : count > 0 ? count : 3;
}

static by_status read_scales(by__loader_pixel_scales *scales, const json_t *root,
                             const by__format_image_processor *usual, const char *path,
                             int64_t channels, by_error *error)
{
    pixel_steps steps;
    double *numbers;
    size_t count = count_channels(root, channels);
    BY_TRY(read_steps(&steps, root, usual, path, error));
    if (count > CHANNELS_LIMIT) {
        return by_error_set(error, BY_EFORMAT, "%s: \"image_mean\" is of %zu channels, over %d",
                            path, count, CHANNELS_LIMIT);
    }
    BY_TRY(by__loader_pixel_scales_allocate(scales, count, error));
    BY_TRY(by__alloc((void **)&numbers, 2 * count, sizeof *numbers, "pixel scales", error));
    by_status status = steps.normalizes ? read_list(numbers, root, path, "image_mean", usual->mean,
                                                    count, false, error)
                                        : BY_OK;
    if (status == BY_OK && (steps.normalizes || steps.again)) {
        status = read_list(numbers + count, root, path, "image_std", usual->deviation, count, true,
                           error);
    }
    if (status == BY_OK) {
        status = merge(scales, &steps, numbers, numbers + count, path, error);
    }
    free(numbers);
    return status;
}

by_status by__loader_pixel_scales_parse(by__loader_pixel_scales *scales, const char *path,
                                        const char *text, size_t length, int64_t channels,
                                        by_error *error)
{
    json_t *root;
    const by__format_image_processor *usual;
    BY_TRY(by__format_image_processor_parse(&root, &usual, path, text, length, error));
    by_status status = read_scales(scales, root, usual, path, channels, error);
    json_decref(root);
    return status;
}
