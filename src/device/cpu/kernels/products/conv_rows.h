/* conv_rows: pixels of an image as rows of a matrix: each row holds what a window reads, channel by
 * channel, with zeros outside of the image. Rows exist for a tile at a time, in a scratch that
 * stays in a core's cache.
 *
 * Never put here: products, weights.
 */
#ifndef BY_DEVICE_CPU_KERNELS_PRODUCTS_CONV_ROWS_H
#define BY_DEVICE_CPU_KERNELS_PRODUCTS_CONV_ROWS_H

#include <stdlib.h>
#include <string.h>

#include "device/cpu/conv_plan.h"
#include "device/cpu/gemm.h"
#include "device/cpu/kernels/simd.h"

/* Elements of a row that follow each other in a row of the image as well. */
typedef struct conv_run {
    int64_t at;       /* first element in the row of the scratch */
    int64_t row;      /* of the image, from the pixel's place */
    int64_t position; /* element of the image's row, from the pixel's place */
    int64_t length;
} conv_run;

/* A part of k: its runs. */
typedef struct conv_part {
    int64_t first_run, runs;
    int64_t k, depth; /* first element, and number */
} conv_part;

/* Those of the pixels of a result that are computed alike (conv_plan.h). */
typedef struct conv_class {
    conv_part *parts;
    int64_t part_count;
    int64_t rows;       /* pixels of all images */
    int64_t first_tile; /* tiles of the classes before */
    size_t panels;      /* in the packed weights */
    size_t stride;      /* bytes of one panel */
} conv_class;

/* What the state of a call owns: the first member of both. */
typedef struct conv_owned {
    by__cpu_gemm *gemm; /* NULL: the rest is used */
    by__cpu_conv_plan plan;
    conv_class *classes;
    conv_part *parts;
    conv_run *runs;
} conv_owned;

/* Frees a call's state and what it owns. */
static inline void conv_release(by__device_call *call)
{
    conv_owned *own = call->state;
    if (own != NULL) {
        by__cpu_gemm_close(&own->gemm);
        by__cpu_conv_plan_close(&own->plan);
        free(own->classes);
        free(own->parts);
        free(own->runs);
        free(own);
        call->state = NULL;
    }
}

/* Where a pixel reads. */
typedef struct conv_place {
    const char *image;
    int64_t row, position;
} conv_place;

typedef uint8_t conv_bytes __attribute__((vector_size(4 * BY__LANES), aligned(1), may_alias));

/* Copies n bytes, a multiple of 2. */
BY__INLINE void conv_copy(char *to, const char *from, int64_t n)
{
    const int64_t width = sizeof(conv_bytes);
    int64_t i = 0;
    for (; i + width <= n; i += width) {
        *(conv_bytes *)(to + i) = *(const conv_bytes *)(from + i);
    }
    if (i == n) {
        return;
    }
    if (n >= width) {
        *(conv_bytes *)(to + n - width) = *(const conv_bytes *)(from + n - width);
        return;
    }
    for (; i + 16 <= n; i += 16) {
        memcpy(to + i, from + i, 16);
    }
    if ((n & 8) != 0) {
        memcpy(to + i, from + i, 8);
        i += 8;
    }
    if ((n & 4) != 0) {
        memcpy(to + i, from + i, 4);
        i += 4;
    }
    if ((n & 2) != 0) {
        memcpy(to + i, from + i, 2);
    }
}

/* Writes the runs of a part of k of one pixel, then zeros up to `padded` elements. `first` is the
 * first channel of the group. */
BY__INLINE void conv_fill_row(char *to, const by__cpu_conv_plan *plan, const conv_run *runs,
                              int64_t count, const conv_place *place, int64_t first, int64_t padded,
                              int64_t size)
{
    int64_t width = plan->source[1] * plan->source_channels;
    int64_t end = 0;
    for (int64_t i = 0; i < count; i++) {
        const conv_run *run = &runs[i];
        char *out = to + run->at * size;
        int64_t row = place->row + run->row;
        int64_t p = place->position + run->position + first;
        int64_t low = p < 0 ? by__min_i64(-p, run->length) : 0;
        int64_t high = by__min_i64(run->length, width - p);
        end = run->at + run->length;
        if (row < 0 || row >= plan->source[0] || low >= high) {
            memset(out, 0, (size_t)(run->length * size));
            continue;
        }
        if (low > 0) {
            memset(out, 0, (size_t)(low * size));
        }
        conv_copy(out + low * size, place->image + (row * width + p + low) * size,
                  (high - low) * size);
        if (high < run->length) {
            memset(out + high * size, 0, (size_t)((run->length - high) * size));
        }
    }
    if (end < padded) {
        memset(to + end * size, 0, (size_t)((padded - end) * size));
    }
}

/* The places of pixels begin .. begin + count of a class, image after image. */
BY__INLINE void conv_places(conv_place *out, const by__cpu_conv_plan *plan,
                            const by__cpu_conv_class *class, const void *x, int64_t begin,
                            int64_t count, int64_t size)
{
    int64_t j = begin % class->grid[1];
    int64_t i = begin / class->grid[1] % class->grid[0];
    int64_t image = begin / class->grid[1] / class->grid[0];
    int64_t bytes = plan->source[0] * plan->source[1] * plan->source_channels * size;
    for (int64_t n = 0; n < count; n++) {
        out[n] = (conv_place){(const char *)x + image * bytes, i * plan->step[0],
                              j * plan->step[1] * plan->source_channels};
        if (++j == class->grid[1]) {
            j = 0;
            if (++i == class->grid[0]) {
                i = 0;
                image++;
            }
        }
    }
}

/* Writes the runs of elements k .. k + depth of a class's rows, of `inner` channels a tap; returns
 * how many. There are at most depth. */
static inline int64_t conv_find_runs(conv_run *out, const by__cpu_conv_plan *plan,
                                     const by__cpu_conv_class *class, int64_t k, int64_t depth)
{
    int64_t count = 0;
    for (int64_t e = k; e < k + depth;) {
        const by__cpu_conv_tap *tap = &plan->tap[class->first_tap + e / plan->inner];
        int64_t channel = e % plan->inner;
        int64_t length = by__min_i64(plan->inner - channel, k + depth - e);
        int64_t position = tap->offset[1] * plan->source_channels + channel;
        conv_run *last = count == 0 ? NULL : &out[count - 1];
        if (last != NULL && last->row == tap->offset[0] &&
            last->position + last->length == position) {
            last->length += length;
        } else {
            out[count++] = (conv_run){e - k, tap->offset[0], position, length};
        }
        e += length;
    }
    return count;
}

#endif
