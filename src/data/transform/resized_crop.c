/* resized_crop: a random part of an image, resized to all of it: torchvision's RandomResizedCrop of
 * Pillow's images, bilinear with antialiasing (Szegedy et al. 2015, section 6). */
#include <string.h>

#include "data/transform/box.h"
#include "formats/image/image_resample.h"

enum { MIN_AREA, MAX_AREA, MIN_RATIO, MAX_RATIO };

static by_status check(const double *parameters, const by__transform_size *size, by_error *error)
{
    BY_UNUSED(size);
    bool areas = parameters[MIN_AREA] <= parameters[MAX_AREA];
    if (!areas || parameters[MIN_RATIO] > parameters[MAX_RATIO]) {
        return by_error_set(error, BY_EARG, "resized_crop: min_%s %g is more than max_%s %g",
                            areas ? "ratio" : "area", parameters[areas ? MIN_RATIO : MIN_AREA],
                            areas ? "ratio" : "area", parameters[areas ? MAX_RATIO : MAX_AREA]);
    }
    return BY_OK;
}

/* The largest part of an allowed ratio, in the middle. */
static by__transform_box middle(const double *parameters, int64_t height, int64_t width)
{
    by__transform_box box = {.height = height, .width = width};
    double ratio = (double)width / (double)height;
    if (ratio < parameters[MIN_RATIO]) {
        box.height = (int64_t)((double)width / parameters[MIN_RATIO] + 0.5);
    } else if (ratio > parameters[MAX_RATIO]) {
        box.width = (int64_t)((double)height * parameters[MAX_RATIO] + 0.5);
    }
    box.height = box.height < 1 ? 1 : box.height > height ? height : box.height;
    box.width = box.width < 1 ? 1 : box.width > width ? width : box.width;
    box.top = (height - box.height) / 2;
    box.left = (width - box.width) / 2;
    return box;
}

static void crop(const double *parameters, const by__transform_draw *draw, int64_t height,
                 int64_t width, by__transform_box *box)
{
    const by__transform_box_range range = {.area = {parameters[MIN_AREA], parameters[MAX_AREA]},
                                           .ratio = {parameters[MIN_RATIO], parameters[MAX_RATIO]},
                                           .whole = true};
    if (!by__transform_box_draw(box, &range, draw, height, width)) {
        *box = middle(parameters, height, width);
    }
}

static by__format_axis axis_of(int64_t begin, int64_t extent, size_t count)
{
    return (by__format_axis){.filter = BY_RESAMPLE_BILINEAR,
                             .begin = (double)begin,
                             .extent = (double)extent,
                             .low = begin,
                             .high = begin + extent,
                             .whole = (int64_t)count,
                             .count = (int64_t)count};
}

/* Taps of both axes of the largest part, and a plane between them. */
static size_t scratch(const by__transform_size *size)
{
    const by__format_axis y = axis_of(0, (int64_t)size->height, size->height);
    const by__format_axis x = axis_of(0, (int64_t)size->width, size->width);
    return by__format_taps_bytes(&y) + by__format_taps_bytes(&x) + size->height * size->width;
}

/* The nearest pixels of a part, as Pillow takes them. */
static void take_nearest(const by__transform_box *box, const by__transform_size *size,
                         const uint8_t *in, uint8_t *out)
{
    for (size_t y = 0; y < size->height; y++) {
        size_t row = (size_t)box->top + (2 * y + 1) * (size_t)box->height / (2 * size->height);
        for (size_t x = 0; x < size->width; x++) {
            size_t column =
                (size_t)box->left + (2 * x + 1) * (size_t)box->width / (2 * size->width);
            out[y * size->width + x] = in[row * size->width + column];
        }
    }
}

static bool apply(const double *parameters, const by__transform_size *size,
                  const by__transform_draw *draw, const uint8_t *in, uint8_t *out)
{
    int64_t height = (int64_t)size->height;
    int64_t width = (int64_t)size->width;
    by__transform_box box;
    by__format_taps y;
    by__format_taps x;
    crop(parameters, draw, height, width, &box);
    if (box.height == height && box.width == width) {
        return false;
    }
    if (size->labels) {
        take_nearest(&box, size, in, out);
        return true;
    }
    const by__format_axis down = axis_of(box.top, box.height, size->height);
    const by__format_axis across = axis_of(box.left, box.width, size->width);
    uint8_t *memory = draw->scratch;
    by__format_taps_make(&y, &down, memory);
    memory += by__format_taps_bytes(&down);
    by__format_taps_make(&x, &across, memory);
    memory += by__format_taps_bytes(&across);
    bool rows_first = by__format_resample_rows_first(box.height, box.width, height, width);
    for (size_t c = 0; c < size->channels; c++) {
        size_t plane = c * size->height * size->width;
        by__format_resample_plane(out + plane, height, width, in + plane, width, &y, &x, rows_first,
                                  memory);
    }
    return true;
}

const by__transform_row by__transform_resized_crop = {
    .name = "resized_crop",
    .parameters =
        {[MIN_AREA] = {.name = "min_area", .fallback = 0.08, .min = 0.001, .max = 1},
         [MAX_AREA] = {.name = "max_area", .fallback = 1, .min = 0.001, .max = 1},
         [MIN_RATIO] = {.name = "min_ratio", .fallback = 0.75, .min = 0.01, .max = 100},
         [MAX_RATIO] = {.name = "max_ratio", .fallback = 4.0 / 3.0, .min = 0.01, .max = 100}},
    .stream = 0x63726f70u, /* "crop" in ASCII */
    .check = check,
    .scratch = scratch,
    .crop = crop,
    .moves = true,
    .apply = apply};
