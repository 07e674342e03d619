#include "formats/image/image_resample.h"

#include <math.h>
#include <string.h>

#include "formats/image/wide.h"

#define WEIGHT_BITS 22
#define BLOCK       32   /* bytes of a row that are summed at a time */
#define SPAN        1024 /* columns that are turned at a time */
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
    return axis->filter == BY_RESAMPLE_NEAREST
               ? 0.5
               : (axis->filter == BY_RESAMPLE_BILINEAR ? 1.0 : 2.0) * widened(axis);
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

/* One tap each. Pillow adds the scale up from output to output, and its rounding errors count where
 * a center lies between two inputs. */
static void find_nearest(by__format_taps *out, const by__format_axis *axis)
{
    double scale = axis->extent / (double)axis->whole;
    double center = axis->begin + scale * 0.5;
    for (int64_t i = 0; i < axis->first + axis->count; i++) {
        int64_t k = i - axis->first;
        int64_t input = (int64_t)center;
        center += scale;
        if (k >= 0) {
            out->first[k] = input < axis->high ? input : axis->high - 1;
            out->count[k] = 1;
            out->weights[(size_t)k * out->most] = 1 << WEIGHT_BITS;
        }
    }
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
    if (axis->filter == BY_RESAMPLE_NEAREST) {
        find_nearest(out, axis);
        return;
    }
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
BY__EITHER void sum_rows(uint8_t *restrict out, const uint8_t *restrict in, int64_t stride,
                         const int32_t *weights, int64_t taps, int64_t count)
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
BY__EITHER void sum_pixels(uint8_t *restrict out, const uint8_t *restrict in,
                           const by__format_taps *x, int64_t left, int64_t width)
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

BY__EITHER void pass_rows(uint8_t *out, const uint8_t *in, int64_t stride, int64_t count,
                          const by__format_taps *y, int64_t top, int64_t height)
{
    for (int64_t i = 0; i < height; i++) {
        sum_rows(out + i * count, in + (y->first[i] - top) * stride, stride,
                 y->weights + (size_t)i * y->most, y->count[i], count);
    }
}

BY__EITHER void pass_pixels(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                            const by__format_taps *x, int64_t left, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        sum_pixels(out + row * width * CHANNELS, in + row * stride * CHANNELS, x, left, width);
    }
}

BY__WIDE static void pass_rows_wide(uint8_t *out, const uint8_t *in, int64_t stride, int64_t count,
                                    const by__format_taps *y, int64_t top, int64_t height)
{
    pass_rows(out, in, stride, count, y, top, height);
}

BY__WIDE static void pass_pixels_wide(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                                      const by__format_taps *x, int64_t left, int64_t width)
{
    pass_pixels(out, in, stride, rows, x, left, width);
}

/* Resamples the columns: out [height, count bytes]. `in` begins at row `top`. */
static void columns(uint8_t *out, const uint8_t *in, int64_t stride, int64_t count,
                    const by__format_taps *y, int64_t top, int64_t height)
{
    if (by__format_has_wide()) {
        pass_rows_wide(out, in, stride, count, y, top, height);
    } else {
        pass_rows(out, in, stride, count, y, top, height);
    }
}

/* Resamples the rows of interleaved pixels: out [rows, width]. `in` begins at column `left`. */
static void rows_of_pixels(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                           const by__format_taps *x, int64_t left, int64_t width)
{
    if (by__format_has_wide()) {
        pass_pixels_wide(out, in, stride, rows, x, left, width);
    } else {
        pass_pixels(out, in, stride, rows, x, left, width);
    }
}

/* ---- rows of a plane ----
 *
 * Columns of BLOCK rows are turned, so that a sum over neighbors in a row is one over rows of the
 * turned columns, in vectors, and what comes out is turned back. */

/* Turns 8 x 8 bytes, those of rows from x on. */
BY__EITHER void turn(uint8_t *out, int64_t stride, const uint8_t *const row[8], int64_t x)
{
    static const uint64_t masks[] = {0x00000000ffffffff, 0x0000ffff0000ffff, 0x00ff00ff00ff00ff};
    uint64_t words[8];
    for (int i = 0; i < 8; i++) {
        memcpy(&words[i], row[i] + x, sizeof words[i]);
    }
    for (int stage = 0; stage < 3; stage++) {
        int apart = 4 >> stage;
        for (int i = 0; i < 8; i++) {
            if ((i & apart) == 0) {
                uint64_t changed = (words[i] >> 8 * apart ^ words[i + apart]) & masks[stage];
                words[i + apart] ^= changed;
                words[i] ^= changed << 8 * apart;
            }
        }
    }
    for (int i = 0; i < 8; i++) {
        memcpy(out + i * stride, &words[i], sizeof words[i]);
    }
}

/* Turns `count` columns of n rows, the last of which stands for those that lack: out [count,
 * BLOCK]. */
BY__EITHER void turn_columns(uint8_t *out, const uint8_t *in, int64_t stride, int64_t n,
                             int64_t count)
{
    const uint8_t *row[BLOCK];
    for (int64_t r = 0; r < BLOCK; r++) {
        row[r] = in + (r < n ? r : n - 1) * stride;
    }
    int64_t x = 0;
    for (; x + 8 <= count; x += 8) {
        for (int r = 0; r < BLOCK; r += 8) {
            turn(out + x * BLOCK + r, BLOCK, &row[r], x);
        }
    }
    for (; x < count; x++) {
        for (int r = 0; r < BLOCK; r++) {
            out[x * BLOCK + r] = row[r][x];
        }
    }
}

/* Writes `count` turned columns, at most 8, as n rows. */
BY__EITHER void turn_back(uint8_t *out, int64_t width, const uint8_t *turned, int64_t n,
                          int64_t count)
{
    const uint8_t *column[8];
    for (int i = 0; i < 8; i++) {
        column[i] = turned + i * BLOCK;
    }
    int64_t r = 0;
    for (; count == 8 && r + 8 <= n; r += 8) {
        turn(out + r * width, width, column, r);
    }
    for (; r < n; r++) {
        for (int64_t i = 0; i < count; i++) {
            out[r * width + i] = column[i][r];
        }
    }
}

/* Resamples columns begin .. end of n rows, at most BLOCK. Their taps are within SPAN columns, of
 * which `in` has the first. */
BY__EITHER void pass_turned(uint8_t *out, int64_t width, const uint8_t *in, int64_t stride,
                            int64_t n, const by__format_taps *x, int64_t begin, int64_t end)
{
    uint8_t turned[SPAN * BLOCK];
    uint8_t sums[8 * BLOCK] = {0};
    int64_t first = x->first[begin];
    turn_columns(turned, in, stride, n, by__format_taps_end(x, end) - first);
    for (int64_t i = begin; i < end; i += 8) {
        int64_t count = end - i < 8 ? end - i : 8;
        for (int64_t k = 0; k < count; k++) {
            sum_rows(sums + k * BLOCK, turned + (x->first[i + k] - first) * BLOCK, BLOCK,
                     x->weights + (size_t)(i + k) * x->most, x->count[i + k], BLOCK);
        }
        turn_back(out + i, width, sums, n, count);
    }
}

BY__WIDE static void pass_turned_wide(uint8_t *out, int64_t width, const uint8_t *in,
                                      int64_t stride, int64_t n, const by__format_taps *x,
                                      int64_t begin, int64_t end)
{
    pass_turned(out, width, in, stride, n, x, begin, end);
}

/* One column whose taps are too many to be turned; `in` has the first of them. */
static void pass_column(uint8_t *out, int64_t width, const uint8_t *in, int64_t stride, int64_t n,
                        const by__format_taps *x, int64_t i)
{
    for (int64_t r = 0; r < n; r++) {
        sum_rows(out + r * width + i, in + r * stride, 1, x->weights + (size_t)i * x->most,
                 x->count[i], 1);
    }
}

/* Resamples the rows of a plane: out [rows, width]. `in` begins at column `left`. */
static void rows_of_plane(uint8_t *out, const uint8_t *in, int64_t stride, int64_t rows,
                          const by__format_taps *x, int64_t left, int64_t width)
{
    bool wide = by__format_has_wide();
    for (int64_t row = 0; row < rows; row += BLOCK) {
        int64_t n = rows - row < BLOCK ? rows - row : BLOCK;
        uint8_t *to = out + row * width;
        for (int64_t i = 0; i < width;) {
            const uint8_t *from = in + row * stride + x->first[i] - left;
            int64_t end = i;
            while (end < width && x->first[end] + x->count[end] - x->first[i] <= SPAN) {
                end++;
            }
            if (end == i) {
                pass_column(to, width, from, stride, n, x, i);
                end++;
            } else if (wide) {
                pass_turned_wide(to, width, from, stride, n, x, i, end);
            } else {
                pass_turned(to, width, from, stride, n, x, i, end);
            }
            i = end;
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
