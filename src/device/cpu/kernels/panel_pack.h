/* Packing into panels, for the level that the including file is compiled for.
 *
 * A unit is the 4 bytes that a panel holds for one row and one step of k: an f32, a pair of bf16,
 * or a bf16 widened. The panel stores units [step][row]. Blocks of BY__LANES x BY__LANES units are
 * loaded as vectors along whichever axis is contiguous in the source, and transposed in registers
 * when that is k.
 */
#ifndef BY_DEVICE_CPU_KERNELS_PANEL_PACK_H
#define BY_DEVICE_CPU_KERNELS_PANEL_PACK_H

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

/* Bytes ahead of use at which lines of the source are fetched. */
#define AHEAD 256

typedef enum source_kind { SOURCE_F32, SOURCE_PAIR, SOURCE_WIDE } source_kind;

/* Units in memory: any alignment, any type underneath. */
typedef uint32_t units_any __attribute__((vector_size(4 * BY__LANES), aligned(2), may_alias));

/* Element (i, j) is at i * row_stride + j * k_stride; kind, and which stride is 1, are constants. */
typedef struct source {
    const void *data;
    source_kind kind;
    int64_t row_stride, k_stride;
    int64_t rows, k;
} source;

/* Units along k, where k is contiguous: `elements` of the row at p exist. */
BY__INLINE by__vu load_along_k(const void *p, source_kind kind, int64_t elements)
{
    int64_t most = kind == SOURCE_PAIR ? 2 * BY__LANES : BY__LANES;
    int n = (int)(elements < most ? elements : most);
    if (kind == SOURCE_PAIR) {
        return by__load_pairs_n(p, n);
    }
    return (by__vu)by__load_n(p, 0, kind == SOURCE_F32 ? BY_F32 : BY_BF16, n);
}

/* n units of neighbouring rows, which are contiguous; p is the first row's element of k. The second
 * half of a pair is zero when it lies `beyond` k. */
BY__INLINE by__vu load_along_rows(const void *p, source_kind kind, int64_t k_stride, int n,
                                  bool beyond)
{
    if (kind != SOURCE_PAIR) {
        return (by__vu)by__load_n(p, 0, kind == SOURCE_F32 ? BY_F32 : BY_BF16, n);
    }
    const uint16_t *half = p;
    by__vh low = by__load_halves_n(half, n);
    by__vh high = beyond ? (by__vh){0} : by__load_halves_n(half + k_stride, n);
    return by__pairs(low, high);
}

/* v[s] = units of rows r .. r + BY__LANES at step + s, zero beyond k. Rows beyond the last hold
 * anything. */
BY__INLINE void load_block(by__vu v[BY__LANES], const source *x, int64_t r, int64_t step)
{
    int64_t size = x->kind == SOURCE_F32 ? 4 : 2;
    int64_t elements = x->kind == SOURCE_PAIR ? 2 : 1;
    int64_t left = x->k - step * elements;
    left = left > 0 ? left : 0;
    bool whole = left >= BY__LANES * elements;
    const char *first = (const char *)x->data + step * elements * x->k_stride * size;
    if (x->k_stride == 1) {
        _Pragma("GCC unroll 16") for (int i = 0; i < BY__LANES; i++)
        {
            int64_t row = r + i < x->rows ? r + i : x->rows - 1;
            const char *line = first + row * x->row_stride * size;
            __builtin_prefetch(line + AHEAD);
            v[i] = load_along_k(line, x->kind, whole ? BY__LANES * elements : left);
        }
        by__transpose(v);
        return;
    }
    first += r * size;
    int64_t line_bytes = x->k_stride * size;
    if (whole && r + BY__LANES <= x->rows) {
        _Pragma("GCC unroll 16") for (int i = 0; i < BY__LANES; i++)
        {
            const char *line = first + i * elements * line_bytes;
            for (int64_t e = 0; e < elements; e++) {
                __builtin_prefetch(line + e * line_bytes + AHEAD);
            }
            v[i] = load_along_rows(line, x->kind, x->k_stride, BY__LANES, false);
        }
        return;
    }
    int n = (int)(x->rows - r < BY__LANES ? x->rows - r : BY__LANES);
    for (int i = 0; i < BY__LANES; i++) {
        int64_t at = i * elements;
        v[i] = at >= left ? (by__vu){0}
                          : load_along_rows(first + at * line_bytes, x->kind, x->k_stride, n,
                                            at + 1 >= left);
    }
}

/* BY__LANES units (`count` of them exist) of the panel that begins with row r. */
BY__INLINE void pack_block(uint32_t *panel, const source *x, int64_t r, int64_t step, int64_t count,
                           int height)
{
    for (int64_t i = 0; i < height && r + i < x->rows; i += BY__LANES) {
        by__vu v[BY__LANES];
        load_block(v, x, r + i, step);
        uint32_t *target = panel + step * height + i;
        if (height >= BY__LANES && count == BY__LANES) {
            _Pragma("GCC unroll 16") for (int s = 0; s < BY__LANES; s++)
            {
                *(units_any *)(target + s * height) = v[s];
            }
            continue;
        }
        /* A panel narrower than a vector: each store spills into the next step, which is written
         * after it; the last one must not. */
        int64_t s = 0;
        for (; s + 1 < count; s++) {
            *(units_any *)(target + s * height) = v[s];
        }
        memcpy(target + s * height, &v[s], (size_t)(height < BY__LANES ? height : BY__LANES) * 4);
    }
}

/* All panels of `height` rows; `steps` units along k. `height` is a constant. The source is walked
 * along the axis on which it is contiguous. */
BY__INLINE void pack(void *out, size_t stride, source x, int64_t steps, int height)
{
    if (x.k_stride == 1) {
        for (int64_t r = 0; r < x.rows; r += height) {
            uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / height) * stride);
            for (int64_t step = 0; step < steps; step += BY__LANES) {
                pack_block(panel, &x, r, step, steps - step < BY__LANES ? steps - step : BY__LANES,
                           height);
            }
        }
        return;
    }
    for (int64_t step = 0; step < steps; step += BY__LANES) {
        for (int64_t r = 0; r < x.rows; r += height) {
            uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / height) * stride);
            pack_block(panel, &x, r, step, steps - step < BY__LANES ? steps - step : BY__LANES,
                       height);
        }
    }
}

#endif
