#include "data/loader/pixel_scales.h"

#include <stdlib.h>

#include "base/json.h"

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

static by_status read_scales(float *out, const char *name, const json_t *root, const char *key,
                             size_t count, bool above_zero, by_error *error)
{
    const json_t *list = json_object_get(root, key);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        double number = json_number_value(value);
        if (!json_is_number(value) || json_array_size(list) != count ||
            (above_zero && !((float)number > 0.0f))) {
            return by_error_set(error, BY_EFORMAT, "%s: \"%s\" is not a list of %s, one a channel",
                                name, key, above_zero ? "positive numbers" : "numbers");
        }
        out[i] = (float)number;
    }
    return BY_OK;
}

by_status by__loader_pixel_scales_parse(by__loader_pixel_scales *scales, const char *path,
                                        const char *text, size_t length, by_error *error)
{
    json_error_t where;
    json_t *root = by_json_load(text, length, JSON_REJECT_DUPLICATES, &where);
    size_t channels = json_array_size(json_object_get(root, "image_mean"));
    by_status status = BY_OK;
    if (root == NULL) {
        status =
            by_error_set(error, BY_EFORMAT, "%s:%d: not JSON: %s", path, where.line, where.text);
    } else if (channels == 0 || channels > CHANNELS_LIMIT) {
        status = by_error_set(error, BY_EFORMAT, "%s: there is no \"image_mean\"", path);
    }
    if (status == BY_OK) {
        status = by__loader_pixel_scales_allocate(scales, channels, error);
    }
    if (status == BY_OK) {
        status = read_scales(scales->mean, path, root, "image_mean", channels, false, error);
    }
    if (status == BY_OK) {
        status = read_scales(scales->deviation, path, root, "image_std", channels, true, error);
    }
    json_decref(root);
    return status;
}
