/* Panels of f32, of bf16 widened to f32, and of bf16 pairs for vdpbf16ps. The vector width, and
 * with it the shape of the register tile, follows the level. */
#include <string.h>

#include "base/half.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/panel_pack.h"
#include "device/cpu/panel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

/* The register tile: TILE_ROWS x 2 vectors of sums, two of B and one of A. */
#define TILE_COLUMNS (2 * BY__LANES)

/* Units of 4 bytes, whatever they hold. */
typedef float unit __attribute__((may_alias));
typedef by__vf_any vector;

/* c[rows, columns] = or += sums. */
static inline void store_tile(float *c, int64_t ldc, const float *sums, int64_t rows,
                              int64_t columns, bool accumulate)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++) {
            c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0.0f) + sums[i * TILE_COLUMNS + j];
        }
    }
}

/* One tile of `height` rows (a constant, at most TILE_ROWS), of which `rows` exist.
 * `MULTIPLY_ADD(sum, a, b)` is the level's instruction on one step of k. Row i
 * of A is `row_step` units of 4 bytes behind row i - 1, and each step of k `k_step` behind the one
 * before: constants where A is packed. The panel of a packed A that comes `next`, B some steps ahead,
 * and a tile of C that is added to are fetched early. */
#define DEFINE_TILE(name, MULTIPLY_ADD)                                                            \
    static inline __attribute__((always_inline)) void name(                                        \
        float *c, int64_t ldc, const unit *a, const unit *b, int64_t steps, int64_t rows,          \
        int64_t columns, bool accumulate, const unit *next, int height, int64_t row_step,          \
        int64_t k_step)                                                                            \
    {                                                                                              \
        vector sums[TILE_ROWS][2];                                                                 \
        _Pragma("GCC unroll 16") for (int i = 0; i < height; i++)                                  \
        {                                                                                          \
            sums[i][0] = sums[i][1] = (vector){0};                                                 \
        }                                                                                          \
        if (accumulate) {                                                                          \
            _Pragma("GCC unroll 16") for (int i = 0; i < height; i++)                              \
            {                                                                                      \
                __builtin_prefetch(c + i * ldc, 1);                                                \
                __builtin_prefetch(c + i * ldc + BY__LANES, 1);                                    \
            }                                                                                      \
        }                                                                                          \
        for (int64_t k = 0; k < steps; k++) {                                                      \
            if (k_step == TILE_ROWS) {                                                             \
                __builtin_prefetch(next + k * TILE_ROWS);                                          \
            }                                                                                      \
            __builtin_prefetch(b + (k + 8) * TILE_COLUMNS);                                        \
            __builtin_prefetch(b + (k + 8) * TILE_COLUMNS + BY__LANES);                            \
            vector b0 = *(const vector *)(b + k * TILE_COLUMNS);                                   \
            vector b1 = *(const vector *)(b + k * TILE_COLUMNS + BY__LANES);                       \
            _Pragma("GCC unroll 16") for (int i = 0; i < height; i++)                              \
            {                                                                                      \
                vector ai = a[k * k_step + i * row_step] - (vector){0};                            \
                sums[i][0] = MULTIPLY_ADD(sums[i][0], ai, b0);                                     \
                sums[i][1] = MULTIPLY_ADD(sums[i][1], ai, b1);                                     \
            }                                                                                      \
        }                                                                                          \
        if (rows < height || columns < TILE_COLUMNS) {                                             \
            float edge[TILE_ROWS * TILE_COLUMNS];                                                  \
            _Pragma("GCC unroll 16") for (int i = 0; i < height; i++)                              \
            {                                                                                      \
                *(vector *)(edge + i * TILE_COLUMNS) = sums[i][0];                                 \
                *(vector *)(edge + i * TILE_COLUMNS + BY__LANES) = sums[i][1];                     \
            }                                                                                      \
            store_tile(c, ldc, edge, by__min_i64(rows, height),                                    \
                       by__min_i64(columns, TILE_COLUMNS), accumulate);                            \
            return;                                                                                \
        }                                                                                          \
        _Pragma("GCC unroll 16") for (int i = 0; i < height; i++)                                  \
        {                                                                                          \
            vector *out = (vector *)(c + i * ldc);                                                 \
            if (accumulate) {                                                                      \
                sums[i][0] += out[0];                                                              \
                sums[i][1] += out[1];                                                              \
            }                                                                                      \
            out[0] = sums[i][0];                                                                   \
            out[1] = sums[i][1];                                                                   \
        }                                                                                          \
    }

/* Calls `tile` with the height that fits: the last panel of 128 rows has 2 of 14, and would take as
 * long as a full one. */
#define TILE_OF(tile, h)                                                                           \
    case h:                                                                                        \
        tile(ci, ldc, ai, bj, k, m - i, n - j, accumulate, next, h, row_step, k_step);             \
        break
#if TILE_ROWS == 14
#define LOWER_TILES(tile)                                                                          \
    TILE_OF(tile, 12);                                                                             \
    TILE_OF(tile, 10);                                                                             \
    TILE_OF(tile, 8);                                                                              \
    TILE_OF(tile, 6);                                                                              \
    TILE_OF(tile, 4);                                                                              \
    TILE_OF(tile, 2)
#elif TILE_ROWS == 8
#define LOWER_TILES(tile)                                                                          \
    TILE_OF(tile, 6);                                                                              \
    TILE_OF(tile, 4);                                                                              \
    TILE_OF(tile, 2)
#elif TILE_ROWS == 6
#define LOWER_TILES(tile)                                                                          \
    TILE_OF(tile, 4);                                                                              \
    TILE_OF(tile, 2)
#else
#define LOWER_TILES(tile) TILE_OF(tile, 2)
#endif

/* Tiles of C[m, n]: `panel_step` units from one panel of A to the next. */
#define DEFINE_MULTIPLY(name, tile, STEP)                                                          \
    static inline __attribute__((always_inline)) void name##_tiles(                                \
        float *c, int64_t ldc, const unit *a, int64_t panel_step, int64_t row_step,                \
        int64_t k_step, const char *b, size_t b_stride, int64_t m, int64_t n, int64_t k,           \
        bool accumulate)                                                                           \
    {                                                                                              \
        for (int64_t j = 0; j < n; j += TILE_COLUMNS) {                                            \
            const unit *bj = (const unit *)(b + (size_t)(j / TILE_COLUMNS) * b_stride);            \
            const unit *ai = a;                                                                    \
            for (int64_t i = 0; i < m; i += TILE_ROWS, ai += panel_step) {                         \
                const unit *next = ai + panel_step;                                                \
                float *ci = c + i * ldc + j;                                                       \
                switch ((by__min_i64(m - i, TILE_ROWS) + 1) / 2 * 2) {                             \
                    LOWER_TILES(tile);                                                             \
                default:                                                                           \
                    tile(ci, ldc, ai, bj, k, m - i, n - j, accumulate, next, TILE_ROWS, row_step,  \
                         k_step);                                                                  \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name(float *c, int64_t ldc, const void *a, size_t a_stride, const void *b,         \
                     size_t b_stride, int64_t m, int64_t n, int64_t k, bool accumulate)            \
    {                                                                                              \
        name##_tiles(c, ldc, a, (int64_t)(a_stride / 4), 1, TILE_ROWS, b, b_stride, m, n,          \
                     k / (STEP), accumulate);                                                      \
    }                                                                                              \
    static void name##_rows(float *c, int64_t ldc, const void *a, size_t row_bytes, const void *b, \
                            size_t b_stride, int64_t m, int64_t n, int64_t k, bool accumulate)     \
    {                                                                                              \
        int64_t row_step = (int64_t)(row_bytes / 4);                                               \
        name##_tiles(c, ldc, a, TILE_ROWS *row_step, row_step, 1, b, b_stride, m, n, k / (STEP),   \
                     accumulate);                                                                  \
    }

/* One row of `store`; the dtypes are constants, so that each combination is a vector loop. */
static inline __attribute__((always_inline)) void store_row(void *y, by_dtype dtype,
                                                            const float *sums, int64_t columns,
                                                            const void *bias, by_dtype bias_dtype,
                                                            const void *add)
{
#define STORE(j, n)                                                                                \
    by__vf sum = by__load_n(sums, (j), BY_F32, (n));                                               \
    sum += bias != NULL ? by__load_n(bias, (j), bias_dtype, (n)) : by__zero();                     \
    sum += add != NULL ? by__load_n(add, (j), dtype, (n)) : by__zero();                            \
    by__store_flushed_n(y, (j), sum, dtype, (n))
    BY__STEPS(0, columns, STORE);
#undef STORE
}

static inline __attribute__((always_inline)) void store_dtype(void *y, by_dtype dtype,
                                                              const float *sums, int64_t columns,
                                                              const void *bias, by_dtype bias_dtype,
                                                              const void *add)
{
    if (bias != NULL && bias_dtype == BY_F32) {
        if (add != NULL) {
            store_row(y, dtype, sums, columns, bias, BY_F32, add);
        } else {
            store_row(y, dtype, sums, columns, bias, BY_F32, NULL);
        }
    } else if (bias != NULL) {
        if (add != NULL) {
            store_row(y, dtype, sums, columns, bias, BY_BF16, add);
        } else {
            store_row(y, dtype, sums, columns, bias, BY_BF16, NULL);
        }
    } else if (add != NULL) {
        store_row(y, dtype, sums, columns, NULL, BY_F32, add);
    } else {
        store_row(y, dtype, sums, columns, NULL, BY_F32, NULL);
    }
}

void BY__AT_LEVEL(by__panel_store)(void *y, by_dtype dtype, int64_t ldy, const float *sums,
                                   int64_t lds, int64_t rows, int64_t columns, const void *bias,
                                   by_dtype bias_dtype, const void *add)
{
    int64_t size = dtype == BY_F32 ? 4 : 2;
    for (int64_t i = 0; i < rows; i++) {
        char *row = (char *)y + i * ldy * size;
        const char *added = add == NULL ? NULL : (const char *)add + i * ldy * size;
        if (dtype == BY_F32) {
            store_dtype(row, BY_F32, sums + i * lds, columns, bias, bias_dtype, added);
        } else {
            store_dtype(row, BY_BF16, sums + i * lds, columns, bias, bias_dtype, added);
        }
    }
}

#define MULTIPLY_ADD_F32(sum, x, y) ((sum) + (x) * (y))
DEFINE_TILE(tile_f32, MULTIPLY_ADD_F32)
DEFINE_MULTIPLY(multiply_f32, tile_f32, 1)

static void pack_a_f32(void *out, size_t stride, const void *a, int64_t row_stride,
                       int64_t k_stride, int64_t rows, int64_t k)
{
    pack(out, stride, (source){a, SOURCE_F32, row_stride, k_stride, rows, k}, k, TILE_ROWS);
}

static void pack_b_f32(void *out, size_t stride, const void *b, int64_t column_stride,
                       int64_t k_stride, int64_t columns, int64_t k)
{
    pack(out, stride, (source){b, SOURCE_F32, column_stride, k_stride, columns, k}, k,
         TILE_COLUMNS);
}

const by__panel BY__AT_LEVEL(by__panel_f32) = {BY__KERNEL_NAME("panel f32"),
                                               TILE_ROWS,
                                               TILE_COLUMNS,
                                               1,
                                               1,
                                               256,
                                               pack_a_f32,
                                               pack_b_f32,
                                               multiply_f32,
                                               multiply_f32_rows,
                                               BY__AT_LEVEL(by__panel_store),
                                               BY__AT_LEVEL(by__gemv)};

#if defined(__AVX512BF16__)

#define MULTIPLY_ADD_BF16(sum, x, y)                                                               \
    ((vector)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(x), (__m512bh)(y)))
DEFINE_TILE(tile_bf16, MULTIPLY_ADD_BF16)
DEFINE_MULTIPLY(multiply_bf16, tile_bf16, 2)

static void pack_a_bf16(void *out, size_t stride, const void *a, int64_t row_stride,
                        int64_t k_stride, int64_t rows, int64_t k)
{
    pack(out, stride, (source){a, SOURCE_PAIR, row_stride, k_stride, rows, k}, (k + 1) / 2,
         TILE_ROWS);
}

static void pack_b_bf16(void *out, size_t stride, const void *b, int64_t column_stride,
                        int64_t k_stride, int64_t columns, int64_t k)
{
    pack(out, stride, (source){b, SOURCE_PAIR, column_stride, k_stride, columns, k}, (k + 1) / 2,
         TILE_COLUMNS);
}

const by__panel BY__AT_LEVEL(by__panel_bf16) = {BY__KERNEL_NAME("panel bf16"),
                                                TILE_ROWS,
                                                TILE_COLUMNS,
                                                2,
                                                2,
                                                256,
                                                pack_a_bf16,
                                                pack_b_bf16,
                                                multiply_bf16,
                                                multiply_bf16_rows,
                                                BY__AT_LEVEL(by__panel_store),
                                                BY__AT_LEVEL(by__gemv)};

#else

static void pack_a_wide(void *out, size_t stride, const void *a, int64_t row_stride,
                        int64_t k_stride, int64_t rows, int64_t k)
{
    pack(out, stride, (source){a, SOURCE_WIDE, row_stride, k_stride, rows, k}, k, TILE_ROWS);
}

static void pack_b_wide(void *out, size_t stride, const void *b, int64_t column_stride,
                        int64_t k_stride, int64_t columns, int64_t k)
{
    pack(out, stride, (source){b, SOURCE_WIDE, column_stride, k_stride, columns, k}, k,
         TILE_COLUMNS);
}

const by__panel BY__AT_LEVEL(by__panel_bf16) = {BY__KERNEL_NAME("panel bf16 as f32"),
                                                TILE_ROWS,
                                                TILE_COLUMNS,
                                                1,
                                                1,
                                                256,
                                                pack_a_wide,
                                                pack_b_wide,
                                                multiply_f32,
                                                NULL,
                                                BY__AT_LEVEL(by__panel_store),
                                                BY__AT_LEVEL(by__gemv)};

#endif
