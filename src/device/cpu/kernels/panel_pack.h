/* Packing into panels, for the level that the including file is compiled for.
 *
 * A unit is the 4 bytes that a panel holds for one row and one step of k: an f32, a pair of bf16,
 * or a bf16 widened. The panel stores units [step][row]. Blocks of LANES x LANES units are loaded
 * as vectors along whichever axis is contiguous in the source, and transposed in registers when
 * that is k.
 */
#ifndef BY_DEVICE_CPU_KERNELS_PANEL_PACK_H
#define BY_DEVICE_CPU_KERNELS_PANEL_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* LANES x 4 bytes is the level's vector. TILE_ROWS is at most LANES or a multiple of it. */
#if defined(__AVX512F__)
#define LANES     16
#define TILE_ROWS 14
#elif defined(__AVX2__)
#define LANES     8
#define TILE_ROWS 6
#elif defined(__aarch64__)
#define LANES     4
#define TILE_ROWS 8
#else
#define LANES     4
#define TILE_ROWS 4
#endif

/* Bytes ahead of use at which lines of the source are fetched. */
#define AHEAD 256

typedef enum source_kind { SOURCE_F32, SOURCE_PAIR, SOURCE_WIDE } source_kind;

typedef uint32_t units __attribute__((vector_size(LANES * 4), aligned(4)));
typedef uint32_t source_units __attribute__((vector_size(LANES * 4), aligned(2)));
typedef uint16_t halves __attribute__((vector_size(LANES * 2), aligned(2)));

/* Lane indices of one butterfly of a transposition: the lanes where bit d is clear (low) or set. */
#define LOW(d, l)  (((l) & (d)) == 0 ? (l) : LANES + (l) - (d))
#define HIGH(d, l) (((l) & (d)) == 0 ? (l) + (d) : LANES + (l))
#if LANES == 16
#define EACH_LANE(F, d)                                                                            \
    F(d, 0), F(d, 1), F(d, 2), F(d, 3), F(d, 4), F(d, 5), F(d, 6), F(d, 7), F(d, 8), F(d, 9),      \
        F(d, 10), F(d, 11), F(d, 12), F(d, 13), F(d, 14), F(d, 15)
#elif LANES == 8
#define EACH_LANE(F, d) F(d, 0), F(d, 1), F(d, 2), F(d, 3), F(d, 4), F(d, 5), F(d, 6), F(d, 7)
#else
#define EACH_LANE(F, d) F(d, 0), F(d, 1), F(d, 2), F(d, 3)
#endif
#define BUTTERFLIES(d)                                                                             \
    _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)                                       \
    {                                                                                              \
        if ((i & (d)) == 0) {                                                                      \
            units low = __builtin_shufflevector(v[i], v[i + (d)], EACH_LANE(LOW, d));              \
            v[i + (d)] = __builtin_shufflevector(v[i], v[i + (d)], EACH_LANE(HIGH, d));            \
            v[i] = low;                                                                            \
        }                                                                                          \
    }

static inline __attribute__((always_inline)) void transpose(units v[LANES])
{
    BUTTERFLIES(1)
    BUTTERFLIES(2)
#if LANES > 4
    BUTTERFLIES(4)
#endif
#if LANES > 8
    BUTTERFLIES(8)
#endif
}

static inline __attribute__((always_inline)) units widen(const uint16_t *p)
{
    return __builtin_convertvector(*(const halves *)p, units);
}

/* LANES units along k from element (row, step * elements of a unit), where k is contiguous. */
static inline __attribute__((always_inline)) units load_along_k(const void *row, source_kind kind,
                                                                int64_t step)
{
    if (kind == SOURCE_WIDE) {
        return widen((const uint16_t *)row + step) << 16;
    }
    return *(const source_units *)((const char *)row + step * 4);
}

/* LANES units along the rows at `step`, where rows are contiguous; p is the first row's element 0.
 */
static inline __attribute__((always_inline)) units load_along_rows(const void *p, source_kind kind,
                                                                   int64_t k_stride, int64_t step)
{
    if (kind == SOURCE_F32) {
        return *(const source_units *)((const uint32_t *)p + step * k_stride);
    }
    const uint16_t *half = p;
    if (kind == SOURCE_WIDE) {
        return widen(half + step * k_stride) << 16;
    }
    return widen(half + 2 * step * k_stride) | widen(half + (2 * step + 1) * k_stride) << 16;
}

/* One unit of row r, zero beyond the matrix. */
static inline uint32_t load_unit(const void *p, source_kind kind, int64_t row_stride,
                                 int64_t k_stride, int64_t rows, int64_t k, int64_t r, int64_t step)
{
    int64_t first = kind == SOURCE_PAIR ? 2 * step : step;
    if (r >= rows || first >= k) {
        return 0;
    }
    if (kind == SOURCE_F32) {
        return ((const uint32_t *)p)[r * row_stride + step * k_stride];
    }
    const uint16_t *half = (const uint16_t *)p + r * row_stride + first * k_stride;
    if (kind == SOURCE_WIDE) {
        return (uint32_t)half[0] << 16;
    }
    return half[0] | (first + 1 < k ? (uint32_t)half[k_stride] << 16 : 0);
}

/* v[s] = units of rows r .. r + LANES at step + s. Rows beyond the last hold anything. */
static inline __attribute__((always_inline)) void load_block(units v[LANES], const void *p,
                                                             source_kind kind, int64_t row_stride,
                                                             int64_t k_stride, int64_t rows,
                                                             int64_t k, int64_t r, int64_t step)
{
    int64_t size = kind == SOURCE_F32 ? 4 : 2;
    int64_t elements = kind == SOURCE_PAIR ? 2 : 1;
    bool whole = (step + LANES) * elements <= k;
    if (whole && k_stride == 1) {
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
        {
            int64_t row = r + i < rows ? r + i : rows - 1;
            const char *line = (const char *)p + row * row_stride * size;
            __builtin_prefetch(line + step * elements * size + AHEAD);
            v[i] = load_along_k(line, kind, step);
        }
        transpose(v);
    } else if (whole && r + LANES <= rows) {
        _Pragma("GCC unroll 16") for (int i = 0; i < LANES; i++)
        {
            const char *line = (const char *)p + r * size;
            for (int64_t e = 0; e < elements; e++) {
                __builtin_prefetch(line + ((step + i) * elements + e) * k_stride * size + AHEAD);
            }
            v[i] = load_along_rows(line, kind, k_stride, step + i);
        }
    } else {
        uint32_t edge[LANES][LANES];
        for (int s = 0; s < LANES; s++) {
            for (int i = 0; i < LANES; i++) {
                edge[s][i] = load_unit(p, kind, row_stride, k_stride, rows, k, r + i, step + s);
            }
        }
        memcpy(v, edge, sizeof edge);
    }
}

/* LANES units (`count` of them exist) of the panel that begins with row r. */
static inline __attribute__((always_inline)) void
pack_block(uint32_t *panel, const void *p, source_kind kind, int64_t row_stride, int64_t k_stride,
           int64_t rows, int64_t k, int64_t r, int64_t step, int64_t count, int height)
{
    for (int64_t i = 0; i < height && r + i < rows; i += LANES) {
        units v[LANES];
        load_block(v, p, kind, row_stride, k_stride, rows, k, r + i, step);
        uint32_t *target = panel + step * height + i;
        if (height >= LANES && count == LANES) {
            _Pragma("GCC unroll 16") for (int s = 0; s < LANES; s++)
            {
                *(units *)(target + s * height) = v[s];
            }
            continue;
        }
        /* A panel narrower than a vector: each store spills into the next step, which is written
         * after it; the last one must not. */
        int64_t s = 0;
        for (; s + 1 < count; s++) {
            *(units *)(target + s * height) = v[s];
        }
        memcpy(target + s * height, &v[s], (size_t)(height < LANES ? height : LANES) * 4);
    }
}

/* All panels of `height` rows; `steps` units along k. `kind` and `height` are constants. The source
 * is walked along the axis on which it is contiguous. */
static inline __attribute__((always_inline)) void pack(void *out, size_t stride, const void *p,
                                                       source_kind kind, int64_t row_stride,
                                                       int64_t k_stride, int64_t rows, int64_t k,
                                                       int64_t steps, int height)
{
    if (k_stride == 1) {
        for (int64_t r = 0; r < rows; r += height) {
            uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / height) * stride);
            for (int64_t step = 0; step < steps; step += LANES) {
                pack_block(panel, p, kind, row_stride, 1, rows, k, r, step,
                           steps - step < LANES ? steps - step : LANES, height);
            }
        }
        return;
    }
    for (int64_t step = 0; step < steps; step += LANES) {
        for (int64_t r = 0; r < rows; r += height) {
            uint32_t *panel = (uint32_t *)((char *)out + (size_t)(r / height) * stride);
            pack_block(panel, p, kind, row_stride, k_stride, rows, k, r, step,
                       steps - step < LANES ? steps - step : LANES, height);
        }
    }
}

#endif
