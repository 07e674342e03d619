#include "formats/image/image_resample.h"

#include <math.h>
#include <string.h>

#define WEIGHT_BITS 22
#define BLOCK       32 /* bytes of a row that are summed at a time */
#define CHANNELS    BY__RESAMPLE_CHANNELS

/* ---- weights ---- */

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

/* Filters widen with the scale when they shrink (antialiasing). */
static double widened(const by__format_axis *axis)
{
    double scale = axis->extent / (double)axis->whole;
    return scale > 1.0 ? scale : 1.0;
}

static double support_of(const by__format_axis *axis)
{
    return (axis->filter == BY_RESAMPLE_BILINEAR ? 1.0 : 2.0) * widened(axis);
}

static size_t most_of(const by__format_axis *axis)
{
    return (size_t)ceil(support_of(axis)) * 2 + 1;
}

size_t by__format_taps_bytes(const by__format_axis *axis)
{
    size_t count = (size_t)axis->count;
    size_t most = most_of(axis);
    return count * 2 * sizeof(int64_t) + most * sizeof(double) +
           by__round_up(count * most * sizeof(int32_t), sizeof(double));
}

void by__format_taps_make(by__format_taps *out, const by__format_axis *axis, void *memory)
{
    size_t count = (size_t)axis->count;
    double scale = axis->extent / (double)axis->whole;
    double wide = widened(axis);
    double support = support_of(axis);
    size_t most = most_of(axis);
    double *exact = (double *)((int64_t *)memory + 2 * count);
    *out = (by__format_taps){.first = memory,
                             .count = (int64_t *)memory + count,
                             .weights = (int32_t *)(exact + most),
                             .most = most};
    for (int64_t i = 0; i < axis->count; i++) {
        double center = axis->begin + ((double)(axis->first + i) + 0.5) * scale;
        double sum = 0.0;
        int64_t first = (int64_t)(center - support + 0.5);
        int64_t end = (int64_t)(center + support + 0.5);
        first = first < axis->low ? axis->low : first;
        end = end > axis->high ? axis->high : end;
        for (int64_t k = 0; k < end - first; k++) {
            exact[k] = weight_of(axis->filter, ((double)(k + first) - center + 0.5) * (1.0 / wide));
            sum += exact[k];
        }
        for (int64_t k = 0; k < end - first; k++) {
            out->weights[(size_t)i * most + (size_t)k] =
                to_fixed(sum != 0.0 ? exact[k] / sum : exact[k]);
        }
        out->first[i] = first;
        out->count[i] = end - first;
    }
}

int64_t by__format_taps_end(const by__format_taps *taps, int64_t count)
{
    return taps->first[count - 1] + taps->count[count - 1];
}

bool by__format_resample_rows_first(int64_t height, int64_t width, int64_t to_height,
                                    int64_t to_width)
{
    int64_t less = height - to_height;
    return less <= 0 || less <= 2 * (width - to_width);
}

size_t by__format_resample_between(int64_t height, int64_t width, const by__format_taps *y,
                                   const by__format_taps *x, bool rows_first)
{
    return rows_first ? (size_t)((by__format_taps_end(y, height) - y->first[0]) * width)
                      : (size_t)(height * (by__format_taps_end(x, width) - x->first[0]));
}

/* ---- sums ---- */

static inline uint8_t to_pixel(int32_t sum)
{
    int32_t value = sum < 0 ? 0 : sum >> WEIGHT_BITS;
    return (uint8_t)(value > 255 ? 255 : value);
}

/* out[i], i < count, of rows `stride` bytes apart: the loop over i is for vectors. */
static inline __attribute__((always_inline)) void sum_rows(uint8_t *restrict out,
                                                           const uint8_t *restrict in,
                                                           int64_t stride, const int32_t *weights,
                                                           int64_t taps, int64_t count)
{
    int64_t at = 0;
    for (; at + BLOCK <= count; at += BLOCK) {
        int32_t sums[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            sums[i] = 1 << (WEIGHT_BITS - 1);
        }
        for (int64_t k = 0; k < taps; k++) {
            const uint8_t *row = in + k * stride + at;
            for (int i = 0; i < BLOCK; i++) {
                sums[i] += row[i] * weights[k];
            }
        }
        for (int i = 0; i < BLOCK; i++) {
            out[at + i] = to_pixel(sums[i]);
        }
    }
    for (; at < count; at++) {
        int32_t sum = 1 << (WEIGHT_BITS - 1);
        for (int64_t k = 0; k < taps; k++) {
            sum += in[k * stride + at] * weights[k];
        }
        out[at] = to_pixel(sum);
    }
}

typedef int32_t sum4 __attribute__((vector_size(CHANNELS * sizeof(int32_t))));
typedef uint8_t pixel4 __attribute__((vector_size(CHANNELS)));

/* A row of interleaved pixels. */
static inline __attribute__((always_inline)) void sum_pixels(uint8_t *restrict out,
                                                             const uint8_t *restrict in,
                                                             const by__format_taps *x, int64_t left,
                                                             int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        const uint8_t *pixel = in + (x->first[i] - left) * CHANNELS;
        const int32_t *weights = x->weights + (size_t)i * x->most;
        sum4 sum = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1),
                    1 << (WEIGHT_BITS - 1)};
        for (int64_t k = 0; k < x->count[i]; k++) {
            pixel4 p;
            memcpy(&p, pixel + k * CHANNELS, sizeof p);
            sum += __builtin_convertvector(p, sum4) * weights[k];
        }
        for (int c = 0; c < CHANNELS; c++) {
            out[i * CHANNELS + c] = to_pixel(sum[c]);
        }
    }
}

static inline __attribute__((always_inline)) void pass_rows(uint8_t *out, const uint8_t *in,
                                                            int64_t stride, int64_t count,
                                                            const by__format_taps *y, int64_t top,
                                                            int64_t height)
{
    for (int64_t i = 0; i < height; i++) {
        sum_rows(out + i * count, in + (y->first[i] - top) * stride, stride,
                 y->weights + (size_t)i * y->most, y->count[i], count);
    }
}

static inline __attribute__((always_inline)) void pass_pixels(uint8_t *out, const uint8_t *in,
                                                              int64_t stride, int64_t rows,
                                                              const by__format_taps *x,
                                                              int64_t left, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        sum_pixels(out + row * width * CHANNELS, in + row * stride * CHANNELS, x, left, width);
    }
}

/* Integers: vectors of any width give the same bits. */
#if defined __x86_64__
#define WIDE __attribute__((target("avx2")))
static bool has_wide(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}
#else
#define WIDE
static bool has_wide(void)
{
    return true;
}
#endif

WIDE static void pass_rows_wide(uint8_t *out, const uint8_t *in, int64_t stride, int64_t count,
                                const by__format_taps *y, int64_t top, int64_t height)
{
    pass_rows(out, in, stride, count, y, top, height);
}

WIDE static void pass_pixels_wide(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                                  const by__format_taps *x, int64_t left, int64_t width)
{
    pass_pixels(out, in, stride, rows, x, left, width);
}

/* Resamples the columns: out [height, count bytes]. `in` begins at row `top`. */
static void columns(uint8_t *out, const uint8_t *in, int64_t stride, int64_t count,
                    const by__format_taps *y, int64_t top, int64_t height)
{
    if (has_wide()) {
        pass_rows_wide(out, in, stride, count, y, top, height);
    } else {
        pass_rows(out, in, stride, count, y, top, height);
    }
}

/* Resamples the rows of interleaved pixels: out [rows, width]. `in` begins at column `left`. */
static void rows_of_pixels(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                           const by__format_taps *x, int64_t left, int64_t width)
{
    if (has_wide()) {
        pass_pixels_wide(out, in, stride, rows, x, left, width);
    } else {
        pass_pixels(out, in, stride, rows, x, left, width);
    }
}

/* The same of a plane. */
static void rows_of_plane(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                          const by__format_taps *x, int64_t left, int64_t width)
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

/* ---- images ---- */

void by__format_resample_plane(uint8_t *out, int64_t height, int64_t width, const uint8_t *in,
                               int64_t stride, const by__format_taps *y, const by__format_taps *x,
                               bool rows_first, uint8_t *between)
{
    int64_t top = y->first[0];
    int64_t left = x->first[0];
    if (rows_first) {
        rows_of_plane(between, in + top * stride, stride, by__format_taps_end(y, height) - top, x,
                      0, width);
        columns(out, between, width, width, y, top, height);
    } else {
        int64_t count = by__format_taps_end(x, width) - left;
        columns(between, in + left, stride, count, y, 0, height);
        rows_of_plane(out, between, count, height, x, left, width);
    }
}

void by__format_resample_pixels(uint8_t *out, int64_t height, int64_t width, const uint8_t *in,
                                int64_t stride, const by__format_taps *y, const by__format_taps *x,
                                bool rows_first, uint8_t *between)
{
    int64_t top = y->first[0];
    int64_t left = x->first[0];
    if (rows_first) {
        rows_of_pixels(between, in + top * stride * CHANNELS, stride,
                       by__format_taps_end(y, height) - top, x, 0, width);
        columns(out, between, width * CHANNELS, width * CHANNELS, y, top, height);
    } else {
        int64_t count = by__format_taps_end(x, width) - left;
        columns(between, in + left * CHANNELS, stride * CHANNELS, count * CHANNELS, y, 0, height);
        rows_of_pixels(out, between, count, height, x, left, width);
    }
}
