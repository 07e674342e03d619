/* panel: products of small blocks of packed operands: the inner loop of the matrix products and
 * attention of the CPU device.
 *
 * An operand is packed into panels: `mr` rows of A (or `nr` columns of B) side by side for every
 * step of k, padded with arbitrary values beyond the rows and with zeros beyond k. The inner loop
 * thus reads both as streams, whatever their layout was. After GotoBLAS (Goto and van de Geijn,
 * "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008) and BLIS.
 *
 * A step is 4 bytes: one f32, or two neighbouring bf16 where the processor multiplies those.
 * Otherwise packing widens bf16 to f32; f16 is always widened. Results are always f32.
 *
 * A panel spans all of k; a product over a part of k starts inside the panels (by__panel_a_at,
 * by__panel_b_at), so that a caller packs once and multiplies in pieces that fit the cache.
 *
 * Never put here: threads, allocation, bias, anything that knows what the product is for.
 */
#ifndef BY_DEVICE_CPU_PANEL_H
#define BY_DEVICE_CPU_PANEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cpu/cpu.h"

/* BY__AT_LEVEL(BY__LEVEL) is the by__cpu_isa that a file in kernels/ is compiled for. */
#define BY__LEVEL_baseline BY__ISA_BASELINE
#define BY__LEVEL_avx2     BY__ISA_AVX2
#define BY__LEVEL_avx512   BY__ISA_AVX512

/* Destination of a product: y[rows, columns] = sums (+ bias[columns]) (+ add), rounded to dtype.
 * add is laid out as y and may be y. */
typedef struct by__cpu_panel_target {
    void *y;
    int64_t ldy;
    by_dtype dtype;
    by_dtype bias_dtype;
    const void *bias; /* NULL: none */
    const void *add;  /* NULL: none */
} by__cpu_panel_target;

typedef struct by__cpu_panel {
    int mr;     /* rows of a panel of A */
    int nr;     /* columns of a panel of B */
    int k_unit; /* k is padded to a multiple of this; offsets in k must be multiples of it */
    int step;   /* elements of k in 4 bytes: 1 or 2 */
    /* columns of C for which B fits a core's cache; cores with AMX have larger ones */
    int tile_columns;
    /* Packs `rows` rows (columns of B) of `k` elements; element (i, j) is at i * row_stride + j *
     * k_stride, and one of the two strides is 1. Panels are `stride` bytes apart, so that a part of
     * k that starts at a multiple of k_unit can be packed into panels that span all of k. */
    void (*pack_a)(void *out, size_t stride, const void *a, int64_t row_stride, int64_t k_stride,
                   int64_t rows, int64_t k);
    void (*pack_b)(void *out, size_t stride, const void *b, int64_t column_stride, int64_t k_stride,
                   int64_t columns, int64_t k);
    /* C[m, n] = or += A B over k (a multiple of k_unit). The strides are the bytes of a whole
     * panel. With a `target` the results are stored there as soon as they are complete; C then only
     * provides the values that they are added to, with room for whole panels: m and n rounded up to
     * mr and nr. */
    void (*multiply)(float *c, int64_t ldc, const void *a, size_t a_stride, const void *b,
                     size_t b_stride, int64_t m, int64_t n, int64_t k, bool accumulate,
                     const by__cpu_panel_target *target);
    /* The same with A unpacked, rows `row_bytes` apart (a multiple of 4, and best not of 4096) and
     * contiguous along k. Rows are read in pairs: with an odd m, one row beyond the last is read.
     * NULL if A must be packed. */
    void (*multiply_rows)(float *c, int64_t ldc, const void *a, size_t row_bytes, const void *b,
                          size_t b_stride, int64_t m, int64_t n, int64_t k, bool accumulate,
                          const by__cpu_panel_target *target);
    /* Stores sums that are already in memory; they may be the target's y. */
    void (*store)(const by__cpu_panel_target *target, const float *sums, int64_t lds, int64_t rows,
                  int64_t columns);
    /* sums[m, n] = x[m, k] B for at most BY__GEMV_ROWS rows, B unpacked: [k, n], or [n, k] when
     * trans_b. x is f32; with bf16 pairs (step 2) and a B of bf16 and trans_b, it may be bf16.
     * Columns may be computed in parts: with trans_b the bits are the same if parts begin at
     * multiples of BY__GEMV_COLUMNS. */
    void (*few_rows)(float *sums, int64_t lds, const void *x, by_dtype x_dtype, int64_t ldx, int m,
                     const void *b, by_dtype dtype, int64_t ldb, bool trans_b, int64_t n,
                     int64_t k);
} by__cpu_panel;

#define BY__GEMV_ROWS    4
#define BY__GEMV_COLUMNS 8

/* Functions shared by the panels of a level, defined once per level in kernels/. */
#define BY__DECLARE_SHARED(level)                                                                  \
    void by__kernel_panel_store_##level(const by__cpu_panel_target *target, const float *sums,     \
                                        int64_t lds, int64_t rows, int64_t columns);               \
    void by__kernel_gemv_##level(float *sums, int64_t lds, const void *x, by_dtype x_dtype,        \
                                 int64_t ldx, int m, const void *b, by_dtype dtype, int64_t ldb,   \
                                 bool trans_b, int64_t n, int64_t k);                              \
    extern const by__cpu_panel by__kernel_panel_f32_##level;                                       \
    extern const by__cpu_panel by__kernel_panel_bf16_##level;                                      \
    extern const by__cpu_panel by__kernel_panel_f16_##level;
BY__DECLARE_SHARED(baseline)
BY__DECLARE_SHARED(avx2)
BY__DECLARE_SHARED(avx512)

#if defined(__x86_64__) && defined(__linux__)
/* Panels on AMX tiles; NULL if the processor or the system does not support them. */
const by__cpu_panel *by__kernel_panel_amx(void);
#endif
/* Returns true if AMX tiles may be used beside the instructions of a level. It asks the system each
 * time, for a microsecond or more. */
bool by__cpu_panel_tiles(by__cpu_isa isa);
/* Panels for operands of `dtype` (an activation dtype) at a level. With `native`, extensions beyond
 * the level (AMX tiles) are used too. */
const by__cpu_panel *by__cpu_panel_for(by__cpu_isa isa, bool native, by_dtype dtype);
/* Returns true if BANYAN_ISA does not limit the level, so that instructions beyond `avx512` may be
 * used. */
bool by__cpu_panel_native(void);

/* The part of a target from row i and column j on. */
static inline by__cpu_panel_target by__panel_target_at(const by__cpu_panel_target *target,
                                                       int64_t i, int64_t j)
{
    by__cpu_panel_target at = *target;
    int64_t offset = (i * at.ldy + j) * (at.dtype == BY_F32 ? 4 : 2);
    at.y = (char *)at.y + offset;
    at.add = at.add == NULL ? NULL : (const char *)at.add + offset;
    at.bias =
        at.bias == NULL ? NULL : (const char *)at.bias + j * (at.bias_dtype == BY_F32 ? 4 : 2);
    return at;
}

static inline int64_t by__panel_k(const by__cpu_panel *panel, int64_t k)
{
    return (k + panel->k_unit - 1) / panel->k_unit * panel->k_unit;
}
/* Bytes of one panel of A or B, and of a whole packed operand. */
static inline size_t by__panel_a_stride(const by__cpu_panel *panel, int64_t k)
{
    return (size_t)(by__panel_k(panel, k) / panel->step * panel->mr) * 4;
}
static inline size_t by__panel_b_stride(const by__cpu_panel *panel, int64_t k)
{
    return (size_t)(by__panel_k(panel, k) / panel->step * panel->nr) * 4;
}
static inline size_t by__panel_a_bytes(const by__cpu_panel *panel, int64_t rows, int64_t k)
{
    return (size_t)((rows + panel->mr - 1) / panel->mr) * by__panel_a_stride(panel, k);
}
static inline size_t by__panel_b_bytes(const by__cpu_panel *panel, int64_t columns, int64_t k)
{
    return (size_t)((columns + panel->nr - 1) / panel->nr) * by__panel_b_stride(panel, k);
}
/* Returns true if multiply_rows is to be used for rows `row_bytes` apart and k elements long. Rows
 * a multiple of a page apart share cache sets, and evict each other. */
static inline bool by__panel_reads_rows(const by__cpu_panel *panel, int64_t k, size_t row_bytes)
{
    return panel->multiply_rows != NULL && k % panel->k_unit == 0 && row_bytes % 4 == 0 &&
           row_bytes % 4096 != 0;
}
/* Address of element k of row (column) `r`; r is a multiple of mr (nr), k of k_unit. */
static inline const void *by__panel_a_at(const by__cpu_panel *panel, const void *a, int64_t r,
                                         int64_t k, size_t stride)
{
    return (const char *)a + (size_t)(r / panel->mr) * stride +
           (size_t)(k / panel->step * panel->mr) * 4;
}
static inline const void *by__panel_b_at(const by__cpu_panel *panel, const void *b, int64_t r,
                                         int64_t k, size_t stride)
{
    return (const char *)b + (size_t)(r / panel->nr) * stride +
           (size_t)(k / panel->step * panel->nr) * 4;
}

#endif
