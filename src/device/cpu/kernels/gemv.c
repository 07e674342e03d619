/* Products with at most four rows (a decoder's): every element of B is read once, as it lies, and
 * used for all rows. Sums are f32 and their order depends on the shape alone.
 *
 * Memory is all that matters here, and it is fastest for streams that the processor can follow: one
 * row of B after the other. Side by side, rows shorter than a page are streams within one page,
 * which it takes for one that jumps (Zen 4: 23 instead of 38 GB/s). */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/panel.h"

/* Bytes ahead of use that B [k, n] is fetched, as the sums, too, pass through the first cache. */
#define PREFETCH_BYTES 256
/* Rows of B [n, k] at least this long are read WIDE_ROWS at a time: x no longer stays in the first
 * cache beside them, and is loaded once for all. */
#define WIDE_BYTES 4096
enum { WIDE_ROWS = 8, CHAINS = 4 };

/* sums[chain][i] += x_i[k ..] * row[k ..], n elements. */
static inline __attribute__((always_inline)) void dot_step(by__vf sums[BY__GEMV_ROWS],
                                                           const float *x, int64_t ldx, int m,
                                                           const char *row, by_dtype dtype,
                                                           int64_t k, int n)
{
    by__vf b = by__load_n(row, k, dtype, n);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        sums[i] += by__load_n(x + i * ldx, k, BY_F32, n) * b;
    }
}

/* One row, in CHAINS sums by turns: one sum would wait for each addition. */
static inline __attribute__((always_inline)) void dot_row(float *sums, int64_t lds, const float *x,
                                                          int64_t ldx, int m, const char *row,
                                                          by_dtype dtype, int64_t k)
{
    by__vf total[CHAINS][BY__GEMV_ROWS] = {{{0}}};
    int64_t at = 0;
    for (; at + CHAINS * BY__LANES <= k; at += CHAINS * BY__LANES) {
#pragma GCC unroll 4
        for (int c = 0; c < CHAINS; c++) {
            dot_step(total[c], x, ldx, m, row, dtype, at + c * BY__LANES, BY__LANES);
        }
    }
#define STEP(i, count) dot_step(total[0], x, ldx, m, row, dtype, (i), (count))
    BY__STEPS(at, k, STEP);
#undef STEP
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        sums[i * lds] = by__sum((total[0][i] + total[1][i]) + (total[2][i] + total[3][i]));
    }
}

static inline __attribute__((always_inline)) void dot_wide_rows(float *sums, int64_t lds,
                                                                const float *x, int64_t ldx, int m,
                                                                const char *rows, by_dtype dtype,
                                                                int64_t row_bytes, int64_t k)
{
    by__vf total[WIDE_ROWS][BY__GEMV_ROWS] = {{{0}}};
#define STEP(i, count)                                                                             \
    _Pragma("GCC unroll 8") for (int r = 0; r < WIDE_ROWS; r++)                                    \
    {                                                                                              \
        dot_step(total[r], x, ldx, m, rows + r * row_bytes, dtype, (i), (count));                  \
    }
    BY__STEPS(0, k, STEP);
#undef STEP
    for (int r = 0; r < WIDE_ROWS; r++) {
        for (int i = 0; i < m; i++) {
            sums[i * lds + r] = by__sum(total[r][i]);
        }
    }
}

/* sums[i, j] = x_i . b_j for columns j of C, which are rows of B. m and dtype are constants. */
static inline __attribute__((always_inline)) void dot_rows(float *sums, int64_t lds, const float *x,
                                                           int64_t ldx, int m, const void *b,
                                                           by_dtype dtype, int64_t ldb, int64_t n,
                                                           int64_t k)
{
    int64_t row_bytes = ldb * (dtype == BY_F32 ? 4 : 2);
    const char *row = b;
    int64_t j = 0;
    if (row_bytes >= WIDE_BYTES) {
        for (; j + WIDE_ROWS <= n; j += WIDE_ROWS, row += WIDE_ROWS * row_bytes) {
            dot_wide_rows(sums + j, lds, x, ldx, m, row, dtype, row_bytes, k);
        }
    }
    for (; j < n; j++, row += row_bytes) {
        dot_row(sums + j, lds, x, ldx, m, row, dtype, k);
    }
}

static inline __attribute__((always_inline)) void add_step(float *sums, int64_t lds, const float *x,
                                                           int64_t ldx, int m, const char *row,
                                                           by_dtype dtype, bool first, int64_t j,
                                                           int n)
{
    by__vf b = by__load_n(row, j, dtype, n);
    __builtin_prefetch(row + j * (dtype == BY_F32 ? 4 : 2) + PREFETCH_BYTES);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        by__vf sum = first ? by__zero() : by__load_n(sums + i * lds, j, BY_F32, n);
        by__store_n(sums + i * lds, j, sum + x[i * ldx] * b, BY_F32, n);
    }
}

/* sums[i, :] = sum over k of x_i[k] b[k, :]. m and dtype are constants. */
static inline __attribute__((always_inline)) void add_rows(float *sums, int64_t lds, const float *x,
                                                           int64_t ldx, int m, const void *b,
                                                           by_dtype dtype, int64_t ldb, int64_t n,
                                                           int64_t k)
{
    for (int64_t at = 0; at < k; at++) {
        const char *row = (const char *)b + at * ldb * (dtype == BY_F32 ? 4 : 2);
#define STEP(j, count) add_step(sums, lds, x + at, ldx, m, row, dtype, at == 0, (j), (count))
        BY__STEPS(0, n, STEP);
#undef STEP
    }
}

#define FOR_ROWS(function, dtype)                                                                  \
    switch (m) {                                                                                   \
    case 1:                                                                                        \
        function(sums, lds, x, ldx, 1, b, dtype, ldb, n, k);                                       \
        break;                                                                                     \
    case 2:                                                                                        \
        function(sums, lds, x, ldx, 2, b, dtype, ldb, n, k);                                       \
        break;                                                                                     \
    case 3:                                                                                        \
        function(sums, lds, x, ldx, 3, b, dtype, ldb, n, k);                                       \
        break;                                                                                     \
    default:                                                                                       \
        function(sums, lds, x, ldx, 4, b, dtype, ldb, n, k);                                       \
        break;                                                                                     \
    }

void BY__AT_LEVEL(by__gemv)(float *sums, int64_t lds, const float *x, int64_t ldx, int m,
                            const void *b, by_dtype dtype, int64_t ldb, bool trans_b, int64_t n,
                            int64_t k)
{
    if (dtype == BY_F32) {
        if (trans_b) {
            FOR_ROWS(dot_rows, BY_F32)
        } else {
            FOR_ROWS(add_rows, BY_F32)
        }
    } else if (trans_b) {
        FOR_ROWS(dot_rows, BY_BF16)
    } else {
        FOR_ROWS(add_rows, BY_BF16)
    }
}
