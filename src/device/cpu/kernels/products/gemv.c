/* Products with at most four rows (decoding): every element of B is read once, unpacked, and used
 * for all rows. Sums are f32 and their order depends on the shape alone.
 *
 * The time is that of memory, which is fastest for streams that the hardware prefetcher can follow:
 * one row of B after the other, in a loop whose loads advance by half a KiB. It does not follow
 * steps of three quarters and more (Zen 4: 21 to 27 instead of 33 GB/s a core); rows shorter than a
 * page read side by side are several streams within a page, which it takes for one with jumps (12
 * GB/s); and prefetch instructions occupy the line fill buffers, of which there are fewer than in
 * the second-level cache (28 GB/s). With several rows of x the core is too busy to run ahead of the
 * stream, and then prefetch instructions do help. B [k, n] is used for values of attention, whose n
 * is a head's width. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/panel.h"

/* Rows of B [n, k] are read BY__GEMV_COLUMNS at a time if the rows of x take at least this much:
 * they then do not stay in the first-level cache together with the stream, and are loaded once for
 * all columns. */
#define WIDE_BYTES (16 << 10)
/* Vectors of a row per iteration, and the number of sums used in rotation: a single sum would wait
 * for each addition. */
enum { STEPS = 8, CHAINS = 4 };
/* Up to this many rows of x are each combined with a row of B separately: the first reads it from
 * memory, the others from the first-level cache. */
#define ALONE 2
/* Prefetch distance in bytes for more rows of x: into the second-level cache (the first would evict
 * data in use), and one page ahead, because the hardware prefetcher stops at page ends. */
#define AHEAD 4096
/* Vectors of B [k, n] whose sums are kept in registers: with several rows of x, with one. A strip
 * that is narrower than a row of B reads a part of every line, in several passes. */
enum { STRIP = 4, WIDE_STRIP = 8 };

/* m rows x_i, in f32, or in bf16 like B. */
typedef struct gemv_rows {
    const void *data;
    by_dtype dtype;
    int64_t ld;
    int m;
} gemv_rows;

/* Elements of k per step. */
static inline __attribute__((always_inline)) int step_width(by_dtype x_dtype)
{
    return x_dtype == BY_BF16 ? 2 * BY__LANES : BY__LANES;
}

/* sums[i] += x_i[k ..] * row[k ..], n elements. */
static inline __attribute__((always_inline)) void
dot_step(by__vf *sums, gemv_rows x, const char *row, by_dtype dtype, int64_t k, int n)
{
#if defined(__AVX512BF16__)
    if (x.dtype == BY_BF16) {
        __m512bh b = (__m512bh)by__load_pairs_n((const uint16_t *)row + k, n);
#pragma GCC unroll 4
        for (int i = 0; i < x.m; i++) {
            const uint16_t *xi = (const uint16_t *)x.data + i * x.ld + k;
            sums[i] =
                (by__vf)_mm512_dpbf16_ps((__m512)sums[i], (__m512bh)by__load_pairs_n(xi, n), b);
        }
        return;
    }
#endif
    by__vf b = by__load_n(row, k, dtype, n);
#pragma GCC unroll 4
    for (int i = 0; i < x.m; i++) {
        sums[i] += by__load_n((const float *)x.data + i * x.ld, k, BY_F32, n) * b;
    }
}

/* Prefetches what is AHEAD of `bytes` of a row. */
static inline __attribute__((always_inline)) void fetch_ahead(const char *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += BY_CACHE_LINE) {
        __builtin_prefetch(row + at + AHEAD, 0, 2);
    }
}

/* Row i of x as a single row. */
static inline __attribute__((always_inline)) gemv_rows row_of(gemv_rows x, int i)
{
    int64_t bytes = x.ld * (x.dtype == BY_F32 ? 4 : 2);
    return (gemv_rows){(const char *)x.data + i * bytes, x.dtype, x.ld, 1};
}

/* sums[i] = x_i . row. */
static inline __attribute__((always_inline)) void
dot_row(float *sums, int64_t lds, gemv_rows x, const char *row, by_dtype dtype, int64_t k)
{
    by__vf total[CHAINS][BY__GEMV_ROWS] = {{{0}}};
    int width = step_width(x.dtype);
    int64_t size = dtype == BY_F32 ? 4 : 2;
    const int steps = x.m > ALONE ? CHAINS : STEPS;
    int64_t at = 0;
    for (; at + steps * width <= k; at += steps * width) {
        if (x.m > ALONE) {
            fetch_ahead(row + at * size, steps * width * size);
        }
#pragma GCC unroll 8
        for (int s = 0; s < steps; s++) {
            dot_step(total[s % CHAINS], x, row, dtype, at + s * width, width);
        }
    }
    for (; at + width <= k; at += width) {
        dot_step(total[0], x, row, dtype, at, width);
    }
    if (at < k) {
        dot_step(total[1], x, row, dtype, at, (int)(k - at));
    }
#pragma GCC unroll 4
    for (int i = 0; i < x.m; i++) {
        sums[i * lds] = by__sum((total[0][i] + total[1][i]) + (total[2][i] + total[3][i]));
    }
}

/* The same for four rows one after the other, of at most CHAINS steps and no remainder (heads of
 * keys), where the sums across lanes are most of the work. */
static inline __attribute__((always_inline)) void dot_short_rows(float sums[4], gemv_rows x,
                                                                 const char *row, by_dtype dtype,
                                                                 int64_t row_bytes, int64_t k)
{
    by__vf total[4] = {{0}};
    int width = step_width(x.dtype);
#pragma GCC unroll 4
    for (int r = 0; r < 4; r++) {
        for (int64_t at = 0; at < k; at += width) {
            dot_step(&total[r], x, row + r * row_bytes, dtype, at, width);
        }
    }
    by__sum4(sums, total[0], total[1], total[2], total[3]);
}

static inline __attribute__((always_inline)) void dot_wide_rows(float *sums, int64_t lds,
                                                                gemv_rows x, const char *row,
                                                                by_dtype dtype, int64_t row_bytes,
                                                                int64_t k)
{
    by__vf total[BY__GEMV_COLUMNS][BY__GEMV_ROWS] = {{{0}}};
    int width = step_width(x.dtype);
    int64_t at = 0;
    for (; at + width <= k; at += width) {
#pragma GCC unroll 8
        for (int r = 0; r < BY__GEMV_COLUMNS; r++) {
            dot_step(total[r], x, row + r * row_bytes, dtype, at, width);
        }
    }
    for (int r = 0; r < BY__GEMV_COLUMNS; r++) {
        if (at < k) {
            dot_step(total[r], x, row + r * row_bytes, dtype, at, (int)(k - at));
        }
        for (int i = 0; i < x.m; i++) {
            sums[i * lds + r] = by__sum(total[r][i]);
        }
    }
}

/* sums[i, j] = x_i . b_j for columns j of C, which are rows of B. x's m and dtype, and dtype, are
 * constants. */
static inline __attribute__((always_inline)) void dot_rows(float *sums, int64_t lds, gemv_rows x,
                                                           const void *b, by_dtype dtype,
                                                           int64_t ldb, int64_t n, int64_t k)
{
    int64_t row_bytes = ldb * (dtype == BY_F32 ? 4 : 2);
    const char *row = b;
    int64_t j = 0;
    if (x.m * k * (x.dtype == BY_F32 ? 4 : 2) >= WIDE_BYTES) {
        for (; j + BY__GEMV_COLUMNS <= n;
             j += BY__GEMV_COLUMNS, row += BY__GEMV_COLUMNS * row_bytes) {
            dot_wide_rows(sums + j, lds, x, row, dtype, row_bytes, k);
        }
    }
    bool is_short = k <= CHAINS * step_width(x.dtype) && k % step_width(x.dtype) == 0;
    for (; is_short && j + 4 <= n; j += 4, row += 4 * row_bytes) {
        if (x.m > ALONE && k > 2 * step_width(x.dtype)) {
            fetch_ahead(row, 4 * row_bytes);
        }
        for (int i = 0; i < x.m; i++) {
            dot_short_rows(sums + i * lds + j, row_of(x, i), row, dtype, row_bytes, k);
        }
    }
    for (; j < n; j++, row += row_bytes) {
        if (x.m > ALONE && !is_short) {
            dot_row(sums + j, lds, x, row, dtype, k);
            continue;
        }
        for (int i = 0; i < x.m; i++) {
            dot_row(sums + i * lds + j, lds, row_of(x, i), row, dtype, k);
        }
    }
}

/* Columns j .. j + STRIP vectors of B, the last one `n` elements wide, over all of k: the sums are
 * in registers. */
static inline __attribute__((always_inline)) void add_strip(float *sums, int64_t lds, gemv_rows x,
                                                            const char *b, by_dtype dtype,
                                                            int64_t row_bytes, int64_t j,
                                                            int vectors, int n, int64_t k)
{
    by__vf total[WIDE_STRIP][BY__GEMV_ROWS] = {{{0}}};
    for (int64_t at = 0; at < k; at++) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++) {
            by__vf lanes = by__load_n(b + at * row_bytes, j + v * BY__LANES, dtype,
                                      v == vectors - 1 ? n : BY__LANES);
#pragma GCC unroll 4
            for (int i = 0; i < x.m; i++) {
                total[v][i] += ((const float *)x.data)[i * x.ld + at] * lanes;
            }
        }
    }
    for (int v = 0; v < vectors; v++) {
        for (int i = 0; i < x.m; i++) {
            by__store_n(sums + i * lds, j + v * BY__LANES, total[v][i], BY_F32,
                        v == vectors - 1 ? n : BY__LANES);
        }
    }
}

/* sums[i, :] = sum over k of x_i[k] b[k, :], x of f32. */
static inline __attribute__((always_inline)) void add_rows(float *sums, int64_t lds, gemv_rows x,
                                                           const void *b, by_dtype dtype,
                                                           int64_t ldb, int64_t n, int64_t k)
{
    int64_t row_bytes = ldb * (dtype == BY_F32 ? 4 : 2);
    int64_t j = 0;
    for (; x.m == 1 && j + WIDE_STRIP * BY__LANES <= n; j += WIDE_STRIP * BY__LANES) {
        add_strip(sums, lds, x, b, dtype, row_bytes, j, WIDE_STRIP, BY__LANES, k);
    }
    for (; j + STRIP * BY__LANES <= n; j += STRIP * BY__LANES) {
        add_strip(sums, lds, x, b, dtype, row_bytes, j, STRIP, BY__LANES, k);
    }
    for (; j < n; j += BY__LANES) {
        add_strip(sums, lds, x, b, dtype, row_bytes, j, 1, (int)by__min_i64(BY__LANES, n - j), k);
    }
}

/* Instantiates a function for each number of rows, as a constant. */
#define FOR_ROWS(function, x_dtype, dtype)                                                         \
    switch (m) {                                                                                   \
    case 1:                                                                                        \
        function(sums, lds, (gemv_rows){x, x_dtype, ldx, 1}, b, dtype, ldb, n, k);                 \
        break;                                                                                     \
    case 2:                                                                                        \
        function(sums, lds, (gemv_rows){x, x_dtype, ldx, 2}, b, dtype, ldb, n, k);                 \
        break;                                                                                     \
    case 3:                                                                                        \
        function(sums, lds, (gemv_rows){x, x_dtype, ldx, 3}, b, dtype, ldb, n, k);                 \
        break;                                                                                     \
    default:                                                                                       \
        function(sums, lds, (gemv_rows){x, x_dtype, ldx, 4}, b, dtype, ldb, n, k);                 \
        break;                                                                                     \
    }

void BY__AT_LEVEL(by__kernel_gemv)(float *sums, int64_t lds, const void *x, by_dtype x_dtype,
                                   int64_t ldx, int m, const void *b, by_dtype dtype, int64_t ldb,
                                   bool trans_b, int64_t n, int64_t k)
{
    (void)x_dtype;
#if defined(__AVX512BF16__)
    if (x_dtype == BY_BF16) {
        FOR_ROWS(dot_rows, BY_BF16, BY_BF16)
        return;
    }
#endif
    if (dtype == BY_F32) {
        if (trans_b) {
            FOR_ROWS(dot_rows, BY_F32, BY_F32)
        } else {
            FOR_ROWS(add_rows, BY_F32, BY_F32)
        }
    } else if (dtype == BY_F16) {
        if (trans_b) {
            FOR_ROWS(dot_rows, BY_F32, BY_F16)
        } else {
            FOR_ROWS(add_rows, BY_F32, BY_F16)
        }
    } else if (trans_b) {
        FOR_ROWS(dot_rows, BY_F32, BY_BF16)
    } else {
        FOR_ROWS(add_rows, BY_F32, BY_BF16)
    }
}
