/* Packing into panels, for the level that the including file is compiled for.
 *
 * A unit is the 4 bytes that a panel holds for one row and one step of k: an f32, a pair of bf16,
 * or a bf16 or f16 widened. The panel stores units [step][row]. Vectors are loaded along whichever
 * axis is contiguous in the source; when that is k, blocks of BY__LANES x BY__LANES units are
 * transposed in registers.
 */
#ifndef BY_DEVICE_CPU_KERNELS_PRODUCTS_PANEL_PACK_H
#define BY_DEVICE_CPU_KERNELS_PRODUCTS_PANEL_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/kernels/simd.h"

/* Rows of a panel of A: at most BY__LANES or a multiple of it. */
#if defined(__AVX512F__)
#define TILE_ROWS 14
#elif defined(__AVX2__)
#define TILE_ROWS 6
#elif defined(__aarch64__)
#define TILE_ROWS 8
#else
#define TILE_ROWS 4
#endif

/* Prefetch distances in the source: in bytes where k is contiguous. Where rows are contiguous, the
 * next group of steps; STEPS_AHEAD steps further on if rows are no longer than this. */
#define AHEAD       256
#define STEPS_AHEAD 16
/* Steps of k that are packed together where rows are contiguous. Their cache lines stay in the
 * first-level cache whatever k_stride is (it is often a multiple of 1024 bytes, so that many lines
 * would fall into the same few sets), and the panel is written as one run of memory. */
#define STEPS_AT_ONCE 4

typedef enum panel_source_kind {
    SOURCE_F32,
    SOURCE_PAIR,
    SOURCE_BF16,
    SOURCE_F16
} panel_source_kind;

/* The dtype of elements that are widened one by one. */
BY__INLINE by_dtype source_dtype(panel_source_kind kind)
{
    return kind == SOURCE_F32 ? BY_F32 : kind == SOURCE_F16 ? BY_F16 : BY_BF16;
}

/* Units in memory: any alignment, any underlying type. */
typedef uint32_t units_any __attribute__((vector_size(4 * BY__LANES), aligned(2), may_alias));

/* Source matrix: element (i, j) is at i * row_stride + j * k_stride. kind, and which stride is 1,
 * are compile-time constants. */
typedef struct panel_source {
    const void *data;
    panel_source_kind kind;
    int64_t row_stride, k_stride;
    int64_t rows, k;
} panel_source;

/* Loads units along k, where k is contiguous, from p, where `elements` are valid. */
BY__INLINE by__vu load_along_k(const void *p, panel_source_kind kind, int64_t elements)
{
    int64_t most = kind == SOURCE_PAIR ? 2 * BY__LANES : BY__LANES;
    int n = (int)(elements < most ? elements : most);
    if (kind == SOURCE_PAIR) {
        return by__load_pairs_n(p, n);
    }
    return (by__vu)by__load_n(p, 0, source_dtype(kind), n);
}

/* Loads n units of rows r, r + 1, ..., which are contiguous, at one step of k: zeros beyond k,
 * unless the step is known to be `whole`. */
BY__INLINE by__vu load_along_rows(const panel_source *x, int64_t r, int64_t step, int n, bool whole)
{
    if (x->kind != SOURCE_PAIR) {
        by_dtype dtype = source_dtype(x->kind);
        return whole || step < x->k ? (by__vu)by__load_n(x->data, step * x->k_stride + r, dtype, n)
                                    : (by__vu){0};
    }
    const uint16_t *half = (const uint16_t *)x->data + 2 * step * x->k_stride + r;
    by__vh zero = {0};
    by__vh low = whole || 2 * step < x->k ? by__load_halves_n(half, n) : zero;
    by__vh high = whole || 2 * step + 1 < x->k ? by__load_halves_n(half + x->k_stride, n) : zero;
    return by__pairs(low, high);
}

/* Loads v[i] = units of row r + i, where k is contiguous, at the steps from `step` on; zeros beyond
 * k. Rows beyond the last have undefined contents. */
BY__INLINE void load_rows(by__vu v[BY__LANES], const panel_source *x, int64_t r, int64_t step)
{
    int64_t size = x->kind == SOURCE_F32 ? 4 : 2;
    int64_t elements = x->kind == SOURCE_PAIR ? 2 : 1;
    int64_t left = x->k - step * elements;
    left = left > 0 ? left : 0;
    bool whole = left >= BY__LANES * elements;
    const char *first = (const char *)x->data + step * elements * size;
    _Pragma("GCC unroll 16") for (int i = 0; i < BY__LANES; i++)
    {
        int64_t row = r + i < x->rows ? r + i : x->rows - 1;
        const char *line = first + row * x->row_stride * size;
        __builtin_prefetch(line + AHEAD);
        v[i] = load_along_k(line, x->kind, whole ? BY__LANES * elements : left);
    }
}

/* Stores one step of a panel, from row i of it on. In a panel narrower than a vector each store may
 * spill into the next step, which is written afterwards; the last one must not. */
BY__INLINE void store_units(uint32_t *target, by__vu v, int height, bool last)
{
    if (height >= BY__LANES || !last) {
        *(units_any *)target = v;
    } else {
        memcpy(target, &v, (size_t)height * 4);
    }
}

/* Packs BY__LANES units (`count` of them valid) of the panel that begins with row r. */
BY__INLINE void pack_block(uint32_t *panel, const panel_source *x, int64_t r, int64_t step,
                           int64_t count, int height)
{
    for (int64_t i = 0; i < height && r + i < x->rows; i += BY__LANES) {
        by__vu v[BY__LANES];
        load_rows(v, x, r + i, step);
        by__transpose(v);
        uint32_t *target = panel + step * height + i;
        if (height >= BY__LANES && count == BY__LANES) {
            _Pragma("GCC unroll 16") for (int s = 0; s < BY__LANES; s++)
            {
                *(units_any *)(target + s * height) = v[s];
            }
            continue;
        }
        for (int64_t s = 0; s < count; s++) {
            store_units(target + s * height, v[s], height, s + 1 == count);
        }
    }
}

/* Packs where k is contiguous: blocks are transposed. */
BY__INLINE void pack_along_k(void *out, size_t stride, const panel_source *x, int64_t steps,
                             int height)
{
    for (int64_t r = 0; r < x->rows; r += height) {
        uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / height) * stride);
        for (int64_t step = 0; step < steps; step += BY__LANES) {
            pack_block(panel, x, r, step, steps - step < BY__LANES ? steps - step : BY__LANES,
                       height);
        }
    }
}

/* Packs steps first .. end of the panel that begins with row r; `steps` is the total. */
BY__INLINE void pack_steps(uint32_t *panel, const panel_source *x, int64_t r, int64_t first,
                           int64_t end, int64_t steps, int height)
{
    int64_t elements = x->kind == SOURCE_PAIR ? 2 : 1;
    int64_t size = x->kind == SOURCE_F32 ? 4 : 2;
    bool whole = end * elements <= x->k;
    bool narrow = x->rows * size <= AHEAD;
    int64_t steps_ahead = narrow ? STEPS_AHEAD : STEPS_AT_ONCE;
    int64_t ahead = steps_ahead * elements * x->k_stride * size;
    for (int64_t step = first; step < end; step++) {
        _Pragma("GCC unroll 8") for (int i = 0; i < height; i += BY__LANES)
        {
            int64_t n = x->rows - r - i;
            if (n <= 0) {
                break;
            }
            for (int64_t e = step * elements; e < (step + 1) * elements; e++) {
                __builtin_prefetch((const char *)x->data + (e * x->k_stride + r + i) * size +
                                   ahead);
            }
            by__vu v =
                whole && n >= BY__LANES
                    ? load_along_rows(x, r + i, step, BY__LANES, true)
                    : load_along_rows(x, r + i, step, n < BY__LANES ? (int)n : BY__LANES, false);
            store_units(panel + step * height + i, v, height, step + 1 == steps);
        }
    }
}

/* Packs where rows are contiguous. */
BY__INLINE void pack_along_rows(void *out, size_t stride, const panel_source *x, int64_t steps,
                                int height)
{
    for (int64_t first = 0; first < steps; first += STEPS_AT_ONCE) {
        int64_t end = first + STEPS_AT_ONCE < steps ? first + STEPS_AT_ONCE : steps;
        for (int64_t r = 0; r < x->rows; r += height) {
            uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / height) * stride);
            pack_steps(panel, x, r, first, end, steps, height);
        }
    }
}

/* Packs all panels of `height` rows, a constant; `steps` units along k. */
BY__INLINE void pack(void *out, size_t stride, panel_source x, int64_t steps, int height)
{
    if (x.k_stride == 1) {
        pack_along_k(out, stride, &x, steps, height);
    } else {
        pack_along_rows(out, stride, &x, steps, height);
    }
}

#endif
