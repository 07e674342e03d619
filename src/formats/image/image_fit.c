/* Resizing of images as a model asks for it. */
#include "formats/image/image_fit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/image/image_resample.h"

/* A crop of a resized image: extents of the whole, and the offset of the crop. */
typedef struct image_crop {
    int64_t height;
    int64_t width;
    int64_t top;
    int64_t left;
} image_crop;

/* As in transformers: the longer side is rounded down, and so is half a pixel of margin. */
static image_crop part_of(const by_image_fit *fit, int64_t height, int64_t width)
{
    image_crop p = {.height = fit->whole_height > 0 ? fit->whole_height : fit->height,
                    .width = fit->whole_width > 0 ? fit->whole_width : fit->width};
    if (fit->resize == BY_RESIZE_CROP) {
        int64_t least = fit->height > fit->width ? fit->height : fit->width;
        int64_t edge = fit->edge > 0 ? fit->edge : least;
        p.height = height <= width ? edge : (int64_t)((double)(edge * height) / (double)width);
        p.width = width <= height ? edge : (int64_t)((double)(edge * width) / (double)height);
    }
    p.top = (p.height - fit->height) / 2;
    p.left = (p.width - fit->width) / 2;
    return p;
}

static by_status make_taps(by__format_taps *out, by_image_resample filter, int64_t size,
                           int64_t whole, int64_t begin, int64_t count, by_error *error)
{
    const by__format_axis axis = {.filter = filter,
                                  .extent = (double)size,
                                  .high = size,
                                  .whole = whole,
                                  .first = begin,
                                  .count = count};
    void *memory;
    BY_TRY(by__alloc(&memory, by__format_taps_bytes(&axis), 1, "an image", error));
    by__format_taps_make(out, &axis, memory);
    return BY_OK;
}

/* The order of the axes affects the rounding of intermediate pixels. */
static by_status resize(uint8_t *out, const by_image_fit *fit, int64_t channels,
                        const uint8_t *pixels, int64_t height, int64_t width, by_error *error)
{
    image_crop p = part_of(fit, height, width);
    by__format_taps x = {0};
    by__format_taps y = {0};
    uint8_t *between = NULL;
    bool rows_first = by__format_resample_rows_first(height, width, p.height, p.width);
    by_status status = make_taps(&x, fit->resample, width, p.width, p.left, fit->width, error);
    if (status == BY_OK) {
        status = make_taps(&y, fit->resample, height, p.height, p.top, fit->height, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&between,
                           by__format_resample_between(fit->height, fit->width, &y, &x, rows_first),
                           1, "an image", error);
    }
    for (int64_t c = 0; c < channels && status == BY_OK; c++) {
        by__format_resample_plane(out + c * fit->height * fit->width, fit->height, fit->width,
                                  pixels + c * height * width, width, &y, &x, rows_first, between);
    }
    free(between);
    free(x.first);
    free(y.first);
    return status;
}

by_status by__format_image_fit_check(const by_image_fit *fit, int64_t height, int64_t width,
                                     by_error *error)
{
    bool resizes = fit->resize != BY_RESIZE_NONE;
    if (resizes ? height <= BY__IMAGE_SIDE && width <= BY__IMAGE_SIDE
                : height == fit->height && width == fit->width) {
        return BY_OK;
    }
    return resizes
               ? by_error_set(error, BY_EARG,
                              "an image of %lld x %lld pixels; sides of up to %d are resized",
                              (long long)width, (long long)height, BY__IMAGE_SIDE)
               : by_error_set(error, BY_EARG,
                              "an image of %lld x %lld pixels; the model reads %lld x %lld, and "
                              "was trained without data.resize: resize it to that before, or train "
                              "with data.resize",
                              (long long)width, (long long)height, (long long)fit->width,
                              (long long)fit->height);
}

by_status by__format_image_fit_classes(uint8_t *out, const by_image_fit *fit,
                                       const uint8_t *classes, int64_t height, int64_t width,
                                       by_error *error)
{
    BY_TRY(by__format_image_fit_check(fit, height, width, error));
    image_crop p = part_of(fit, height, width);
    for (int64_t y = 0; y < fit->height; y++) {
        int64_t row = (2 * (y + p.top) + 1) * height / (2 * p.height);
        for (int64_t x = 0; x < fit->width; x++) {
            int64_t column = (2 * (x + p.left) + 1) * width / (2 * p.width);
            out[y * fit->width + x] = classes[row * width + column];
        }
    }
    return BY_OK;
}

by_status by__format_image_fit(uint8_t *out, const by_image_fit *fit, int64_t channels,
                               const uint8_t *pixels, int64_t height, int64_t width,
                               by_error *error)
{
    BY_TRY(by__format_image_fit_check(fit, height, width, error));
    if (fit->resize != BY_RESIZE_NONE) {
        return resize(out, fit, channels, pixels, height, width, error);
    }
    memcpy(out, pixels, (size_t)(channels * height * width));
    return BY_OK;
}
