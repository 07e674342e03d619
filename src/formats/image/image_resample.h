/* Resampling of images as Pillow does it: along one axis and then along the other, through u8, with
 * 22-bit fixed-point weights (libImaging/Resample.c of version 13), so that a model trained on
 * Pillow's pixels gets the same input. Any processor gives the same bits. Nothing is allocated. */
#ifndef BY_FORMATS_IMAGE_IMAGE_RESAMPLE_H
#define BY_FORMATS_IMAGE_IMAGE_RESAMPLE_H

#include "banyan/formats.h"
#include "base/base.h"

/* Channels of interleaved pixels; those that an image lacks are computed, too. */
#define BY__RESAMPLE_CHANNELS 4

/* Outputs [first, first + count) of `whole`, into which `extent` inputs from `begin` on are
 * resampled; inputs before `low` and from `high` on do not exist. */
typedef struct by__format_axis {
    by_image_resample filter;
    double begin;
    double extent;
    int64_t low;
    int64_t high;
    int64_t whole;
    int64_t first;
    int64_t count;
} by__format_axis;

/* The inputs of each output: weights[i * most] are for those from first[i] on. */
typedef struct by__format_taps {
    int64_t *first;
    int64_t *count;
    int32_t *weights;
    size_t most;
} by__format_taps;

/* Bytes of memory that the taps of an axis take. */
size_t by__format_taps_bytes(const by__format_axis *axis);
/* Computes them in memory aligned to 8 bytes. */
void by__format_taps_make(by__format_taps *out, const by__format_axis *axis, void *memory);
/* The inputs of all `count` outputs: [taps->first[0], this). */
int64_t by__format_taps_end(const by__format_taps *taps, int64_t count);

/* Whether the rows are resampled first. Pillow starts with the columns if that reduces the number
 * of pixels far more. */
bool by__format_resample_rows_first(int64_t height, int64_t width, int64_t to_height,
                                    int64_t to_width);

/* One plane, out [height, width]. Row and column 0 of `in`, rows of `stride` bytes, are input 0 of
 * the axes. `between` has room for by__format_resample_between bytes. */
void by__format_resample_plane(uint8_t *out, int64_t height, int64_t width, const uint8_t *in,
                               int64_t stride, const by__format_taps *y, const by__format_taps *x,
                               bool rows_first, uint8_t *between);
/* The same of interleaved pixels, out [height, width, BY__RESAMPLE_CHANNELS]; `stride` and
 * `between` are in pixels. */
void by__format_resample_pixels(uint8_t *out, int64_t height, int64_t width, const uint8_t *in,
                                int64_t stride, const by__format_taps *y, const by__format_taps *x,
                                bool rows_first, uint8_t *between);
size_t by__format_resample_between(int64_t height, int64_t width, const by__format_taps *y,
                                   const by__format_taps *x, bool rows_first);

#endif
