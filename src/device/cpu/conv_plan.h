/* conv_plan: a convolution, or its transposed map, as classes of pixels that are computed alike.
 *
 * Both maps give each pixel of the result the sum over some taps of a pixel of the operand, so many
 * rows and columns away, times a matrix of weights. In a convolution all pixels have the same taps.
 * In a transposed one with stride s those whose rows and whose columns leave the same rest when
 * divided by s have the same taps: a class, in which neighbours are s pixels apart, and read
 * neighbouring pixels of the operand.
 *
 * Never put here: memory of tensors, threads, vectors.
 */
#ifndef BY_DEVICE_CPU_CONV_PLAN_H
#define BY_DEVICE_CPU_CONV_PLAN_H

#include "device/cpu/cpu.h"

/* What a pixel of the result reads. */
typedef struct by__cpu_conv_tap {
    int64_t offset[2]; /* of the operand's pixel: rows and columns from the class's place */
    int64_t weight;    /* entry of the window */
} by__cpu_conv_tap;

/* Pixel (i, j) of the grid is pixel origin + spacing (i, j) of the result, and its place in the
 * operand is step (i, j). */
typedef struct by__cpu_conv_class {
    int64_t grid[2], origin[2];
    int64_t first_tap, taps; /* of the plan's; neighbours along a row follow each other */
} by__cpu_conv_class;

typedef struct by__cpu_conv_plan {
    int64_t images;
    int64_t source[2], target[2]; /* height and width of the operand and of the result */
    int64_t source_channels, target_channels;
    int64_t groups;
    int64_t inner, outer; /* channels of a group in the operand and in the result */
    int64_t step[2], spacing[2];
    int64_t taps; /* of all classes */
    by__cpu_conv_tap *tap;
    int64_t class_count; /* those that have pixels */
    by__cpu_conv_class *classes;
} by__cpu_conv_plan;

/* Plans the CONV or CONV_TRANSPOSED of these tensors and attributes. */
by_status by__cpu_conv_plan_open(by__cpu_conv_plan *out, const by__device_tensor *x,
                                 const by__device_tensor *w, const by__device_tensor *y,
                                 const by_attrs *attrs, bool transposed, by_error *error);
void by__cpu_conv_plan_close(by__cpu_conv_plan *plan);

/* Whether each pixel of the result depends on one of the operand, the same one, alone: a product of
 * matrices as they lie. */
bool by__cpu_conv_is_pointwise(const by_attrs *attrs, int64_t height, int64_t width);

#endif
