/* Products with at most four rows (a decoder's): every element of B is read once, as it lies, and
 * used for all rows. Sums are f32 and their order depends on the shape alone. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/panel.h"

/* Rows of B that are read side by side. */
enum { DOT_ROWS = 4, ADD_ROWS = 8 };

/* How far ahead of use a row of B [k, n] is fetched. */
#define PREFETCH_BYTES 512

static inline __attribute__((always_inline)) void
dot_step(by__vf sums[DOT_ROWS][BY__GEMV_ROWS], const float *x, int64_t ldx, int m,
         const char *const b[DOT_ROWS], by_dtype dtype, int64_t ahead, int64_t k, int n)
{
    by__vf xs[BY__GEMV_ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        xs[i] = by__load_n(x + i * ldx, k, BY_F32, n);
    }
#pragma GCC unroll 4
    for (int r = 0; r < DOT_ROWS; r++) {
        by__vf row = by__load_n(b[r], k, dtype, n);
        /* The rows that come after these four: each is too short for the hardware to catch on. */
        __builtin_prefetch(b[r] + k * (dtype == BY_F32 ? 4 : 2) + ahead);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            sums[r][i] += xs[i] * row;
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
    for (int64_t j = 0; j < n; j += DOT_ROWS) {
        const char *rows[DOT_ROWS];
        for (int64_t r = 0; r < DOT_ROWS; r++) {
            rows[r] = (const char *)b + by__min_i64(j + r, n - 1) * row_bytes;
        }
        by__vf total[DOT_ROWS][BY__GEMV_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < DOT_ROWS; r++) {
#pragma GCC unroll 4
            for (int i = 0; i < m; i++) {
                total[r][i] = by__zero();
            }
        }
#define STEP(at, count) dot_step(total, x, ldx, m, rows, dtype, DOT_ROWS *row_bytes, (at), (count))
        BY__STEPS(0, k, STEP);
#undef STEP
        for (int r = 0; r < DOT_ROWS && j + r < n; r++) {
            for (int i = 0; i < m; i++) {
                sums[i * lds + j + r] = by__sum(total[r][i]);
            }
        }
    }
}

static inline __attribute__((always_inline)) void add_step(float *sums, int64_t lds, const float *x,
                                                           int64_t ldx, int m, const char *b,
                                                           by_dtype dtype, int64_t row_bytes,
                                                           int rows, bool first, int64_t j, int n)
{
    by__vf total[BY__GEMV_ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        total[i] = first ? by__zero() : by__load_n(sums + i * lds, j, BY_F32, n);
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        by__vf row = by__load_n(b + r * row_bytes, j, dtype, n);
        __builtin_prefetch(b + r * row_bytes + j * (dtype == BY_F32 ? 4 : 2) + PREFETCH_BYTES);
#pragma GCC unroll 4
        for (int i = 0; i < m; i++) {
            total[i] += x[i * ldx + r] * row;
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
        by__store_n(sums + i * lds, j, total[i], BY_F32, n);
    }
}

/* sums[i, :] = sum over k of x_i[k] b[k, :]. m and dtype are constants. */
static inline __attribute__((always_inline)) void add_rows(float *sums, int64_t lds, const float *x,
                                                           int64_t ldx, int m, const void *b,
                                                           by_dtype dtype, int64_t ldb, int64_t n,
                                                           int64_t k)
{
    int64_t row_bytes = ldb * (dtype == BY_F32 ? 4 : 2);
    int64_t at = 0;
    for (; at + ADD_ROWS <= k; at += ADD_ROWS) {
        const char *rows = (const char *)b + at * row_bytes;
#define STEP(j, count)                                                                             \
    add_step(sums, lds, x + at, ldx, m, rows, dtype, row_bytes, ADD_ROWS, at == 0, (j), (count))
        BY__STEPS(0, n, STEP);
#undef STEP
    }
    for (; at < k; at++) {
        const char *rows = (const char *)b + at * row_bytes;
#define STEP(j, count)                                                                             \
    add_step(sums, lds, x + at, ldx, m, rows, dtype, row_bytes, 1, at == 0, (j), (count))
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
