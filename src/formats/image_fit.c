/* Resizing of images. Pillow resamples along one axis and then along the other, through u8, with
 * 22-bit fixed-point weights (libImaging/Resample.c of version 13); this does the same in the same
 * order, so that a model trained on Pillow's pixels gets the same input. */
#include "formats/image_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define WEIGHT_BITS 22

/* ---- checks ---- */

static int64_t side_of(const json_t *o, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(o, key));
    return value > 0 && value <= BY__IMAGE_SIDE ? (int64_t)value : 0;
}

void by__format_image_fit_parse(by_image_fit *out, const char *text, size_t length)
{
    json_t *root = by_json_load(text, length, JSON_REJECT_DUPLICATES, NULL);
    const json_t *size = json_object_get(root, "size");
    const json_t *crop = json_object_get(root, "crop_size");
    const json_t *resample = json_object_get(root, "resample");
    bool crops = json_is_true(json_object_get(root, "do_center_crop"));
    int64_t edge = side_of(size, "shortest_edge");
    by_image_fit fit = {.height = side_of(edge > 0 ? crop : size, "height"),
                        .width = side_of(edge > 0 ? crop : size, "width"),
                        .edge = edge};
    json_int_t filter = resample == NULL ? 2 : json_integer_value(resample);
    bool known = fit.height > 0 && fit.width > 0 && (filter == 2 || filter == 3) &&
                 crops == (edge > 0) && (edge == 0 || (edge >= fit.height && edge >= fit.width));
    if (known && json_is_true(json_object_get(root, "do_resize"))) {
        fit.resize = edge > 0 ? BY_RESIZE_CROP : BY_RESIZE_STRETCH;
        fit.resample = filter == 2 ? BY_RESAMPLE_BILINEAR : BY_RESAMPLE_BICUBIC;
    }
    *out = fit;
    json_decref(root);
}

/* ---- weights ---- */

/* The inputs of each output: weights[i * most] are for those from first[i] on. */
typedef struct taps {
    int64_t *first;
    int64_t *count;
    int32_t *weights;
    size_t most;
} taps;

static void free_taps(taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weights);
}

static double weight_of(by_image_resample filter, double x)
{
    x = fabs(x);
    if (filter == BY_RESAMPLE_BILINEAR) {
        return x < 1.0 ? 1.0 - x : 0.0;
    }
    /* Keys (1981), eq. 4, with a = -0.5. */
    return x < 1.0   ? (1.5 * x - 2.5) * x * x + 1.0
           : x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
                     : 0.0;
}

static int32_t to_fixed(double weight)
{
    double scaled = weight * (1 << WEIGHT_BITS);
    return (int32_t)(weight < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

/* Computes outputs [begin, begin + count) of `whole` from `size` inputs. */
static by_status make_taps(taps *t, by_image_resample filter, int64_t size, int64_t whole,
                           int64_t begin, int64_t count, by_error *error)
{
    double scale = (double)size / (double)whole;
    double widened = scale > 1.0 ? scale : 1.0;
    double support = (filter == BY_RESAMPLE_BILINEAR ? 1.0 : 2.0) * widened;
    double *exact;
    t->most = (size_t)ceil(support) * 2 + 1;
    BY_TRY(by__alloc((void **)&t->first, (size_t)count, sizeof *t->first, "an image", error));
    BY_TRY(by__alloc((void **)&t->count, (size_t)count, sizeof *t->count, "an image", error));
    BY_TRY(by__alloc((void **)&t->weights, (size_t)count * t->most, sizeof *t->weights, "an image",
                     error));
    BY_TRY(by__alloc((void **)&exact, t->most, sizeof *exact, "an image", error));
    for (int64_t i = 0; i < count; i++) {
        double center = ((double)(begin + i) + 0.5) * scale;
        double sum = 0.0;
        int64_t first = (int64_t)(center - support + 0.5);
        int64_t end = (int64_t)(center + support + 0.5);
        first = first < 0 ? 0 : first;
        end = end > size ? size : end;
        for (int64_t k = 0; k < end - first; k++) {
            exact[k] = weight_of(filter, ((double)(k + first) - center + 0.5) * (1.0 / widened));
            sum += exact[k];
        }
        for (int64_t k = 0; k < end - first; k++) {
            t->weights[(size_t)i * t->most + (size_t)k] =
                to_fixed(sum != 0.0 ? exact[k] / sum : exact[k]);
        }
        t->first[i] = first;
        t->count[i] = end - first;
    }
    free(exact);
    return BY_OK;
}

static uint8_t to_pixel(int32_t sum)
{
    int32_t value = sum < 0 ? 0 : sum >> WEIGHT_BITS;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* ---- a plane ---- */

/* Resamples the rows of a plane: out [rows, width]. `in` begins at column `left`. */
static void pass_x(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows, const taps *x,
                   int64_t left, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < width; i++) {
            const uint8_t *pixel = in + row * stride + x->first[i] - left;
            const int32_t *weights = x->weights + (size_t)i * x->most;
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int64_t k = 0; k < x->count[i]; k++) {
                sum += pixel[k] * weights[k];
            }
            out[row * width + i] = to_pixel(sum);
        }
    }
}

/* Resamples the columns of a plane: out [height, columns]. `in` begins at row `top`. */
static void pass_y(uint8_t *out, const uint8_t *in, int64_t stride, int64_t columns, const taps *y,
                   int64_t top, int64_t height)
{
    for (int64_t i = 0; i < height; i++) {
        const uint8_t *first = in + (y->first[i] - top) * stride;
        const int32_t *weights = y->weights + (size_t)i * y->most;
        for (int64_t column = 0; column < columns; column++) {
            int32_t sum = 1 << (WEIGHT_BITS - 1);
            for (int64_t k = 0; k < y->count[i]; k++) {
                sum += first[k * stride + column] * weights[k];
            }
            out[i * columns + column] = to_pixel(sum);
        }
    }
}

/* A crop of a resized image: extents of the whole, and the offset of the crop. */
typedef struct image_crop {
    int64_t height;
    int64_t width;
    int64_t top;
    int64_t left;
} image_crop;

/* As in torchvision: the longer side is rounded down, half a pixel of margin to even. */
static image_crop part_of(const by_image_fit *fit, int64_t height, int64_t width)
{
    image_crop p = {.height = fit->height, .width = fit->width};
    if (fit->resize == BY_RESIZE_CROP) {
        int64_t least = fit->height > fit->width ? fit->height : fit->width;
        int64_t edge = fit->edge > 0 ? fit->edge : least;
        p.height = height <= width ? edge : (int64_t)((double)(edge * height) / (double)width);
        p.width = width <= height ? edge : (int64_t)((double)(edge * width) / (double)height);
        p.top = (int64_t)rint((double)(p.height - fit->height) / 2.0);
        p.left = (int64_t)rint((double)(p.width - fit->width) / 2.0);
    }
    return p;
}

/* End of the inputs that the outputs depend on. */
static int64_t end_of(const taps *t, int64_t count)
{
    return t->first[count - 1] + t->count[count - 1];
}

/* The order of the axes affects the rounding of intermediate pixels. */
static by_status resize_planes(uint8_t *out, const by_image_fit *fit, bool x_first, const taps *x,
                               const taps *y, int64_t channels, const uint8_t *pixels,
                               int64_t height, int64_t width, by_error *error)
{
    int64_t top = y->first[0];
    int64_t left = x->first[0];
    int64_t rows = end_of(y, fit->height) - top;
    int64_t columns = end_of(x, fit->width) - left;
    uint8_t *between;
    BY_TRY(by__alloc((void **)&between, (size_t)(x_first ? rows : fit->height),
                     (size_t)(x_first ? fit->width : columns), "an image", error));
    for (int64_t c = 0; c < channels; c++) {
        const uint8_t *in = pixels + c * height * width;
        uint8_t *to = out + c * fit->height * fit->width;
        if (x_first) {
            pass_x(between, in + top * width, width, rows, x, 0, fit->width);
            pass_y(to, between, fit->width, fit->width, y, top, fit->height);
        } else {
            pass_y(between, in + left, width, columns, y, 0, fit->height);
            pass_x(to, between, columns, fit->height, x, left, fit->width);
        }
    }
    free(between);
    return BY_OK;
}

static by_status resize(uint8_t *out, const by_image_fit *fit, int64_t channels,
                        const uint8_t *pixels, int64_t height, int64_t width, by_error *error)
{
    image_crop p = part_of(fit, height, width);
    taps x = {0};
    taps y = {0};
    /* Pillow starts with the columns if that reduces the number of pixels far more. */
    int64_t less = height - p.height;
    bool x_first = less <= 0 || less <= 2 * (width - p.width);
    by_status status = make_taps(&x, fit->resample, width, p.width, p.left, fit->width, error);
    if (status == BY_OK) {
        status = make_taps(&y, fit->resample, height, p.height, p.top, fit->height, error);
    }
    if (status == BY_OK) {
        status = resize_planes(out, fit, x_first, &x, &y, channels, pixels, height, width, error);
    }
    free_taps(&x);
    free_taps(&y);
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
