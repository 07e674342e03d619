/* Panels of f32, of bf16 and f16 widened to f32, and of bf16 pairs for vdpbf16ps. The vector width,
 * and with it the shape of the register tile, follows the level. */
#include <string.h>

#include "base/half.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/products/panel_pack.h"
#include "device/cpu/panel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

/* The register tile: TILE_ROWS x 2 vectors of sums, two of B and one of A. */
#define TILE_COLUMNS (2 * BY__LANES)

/* Units of 4 bytes, whatever their type. */
typedef float panel_unit __attribute__((may_alias));
typedef by__kernel_vf_any vector;

/* Stores to a target whose dtype is a constant. */
BY__INLINE void store_as(const by__cpu_panel_target *t, const float *sums, int64_t lds,
                         int64_t rows, int64_t columns, by_dtype dtype)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t row = i * t->ldy;
#define STORE(j, n)                                                                                \
    by__vf sum = by__load_n(sums, i * lds + (j), BY_F32, (n));                                     \
    if (t->bias != NULL) {                                                                         \
        sum += t->bias_dtype == BY_F32   ? by__load_n(t->bias, (j), BY_F32, (n))                   \
               : t->bias_dtype == BY_F16 ? by__load_n(t->bias, (j), BY_F16, (n))                   \
                                         : by__load_n(t->bias, (j), BY_BF16, (n));                 \
    }                                                                                              \
    if (t->add != NULL) {                                                                          \
        sum += by__load_n(t->add, row + (j), dtype, (n));                                          \
    }                                                                                              \
    by__store_flushed_n(t->y, row + (j), sum, dtype, (n))
        BY__STEPS(0, columns, STORE);
#undef STORE
    }
}

void BY__AT_LEVEL(by__kernel_panel_store)(const by__cpu_panel_target *target, const float *sums,
                                          int64_t lds, int64_t rows, int64_t columns)
{
    if (target->dtype == BY_F32) {
        store_as(target, sums, lds, rows, columns, BY_F32);
    } else if (target->dtype == BY_F16) {
        store_as(target, sums, lds, rows, columns, BY_F16);
    } else {
        store_as(target, sums, lds, rows, columns, BY_BF16);
    }
}

/* Operation of one step of k on a sum. */
typedef enum arithmetic { PRODUCTS_F32, PAIRS_BF16 } arithmetic;

BY__INLINE vector multiply_add(arithmetic kind, vector sum, vector x, vector y)
{
#if defined(__AVX512BF16__)
    if (kind == PAIRS_BF16) {
        return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
    }
#endif
    BY_UNUSED(kind);
    return sum + x * y;
}

/* C[m, n] = or += A B. Row i of A is `row_step` units of 4 bytes after row i - 1, steps of k are
 * `k_step` units apart, and groups of TILE_ROWS rows `panel_step` units. */
typedef struct panel_product {
    float *c;
    int64_t ldc;
    const panel_unit *a;
    int64_t panel_step, row_step, k_step;
    const char *b;
    size_t b_stride;
    int64_t m, n, steps;
    bool accumulate;
    const by__cpu_panel_target *target;
} panel_product;

/* Prefetch distance in B, in steps. */
#define AHEAD_STEPS 16

#define EACH_ROW _Pragma("GCC unroll 16") for (int r = 0; r < height; r++)

/* A store that misses the cache delays the next tile: the lines that will be written or added to
 * are prefetched while the tile is computed. */
BY__INLINE void fetch_target(const panel_product *p, int64_t i, int64_t j, int height)
{
    if (p->target != NULL) {
        int64_t size = p->target->dtype == BY_F32 ? 4 : 2;
        int64_t offset = (i * p->target->ldy + j) * size;
        const char *line = (const char *)p->target->y + offset;
        EACH_ROW
        {
            __builtin_prefetch(line + r * p->target->ldy * size, 1);
        }
        if (p->target->add != NULL && p->target->add != p->target->y) {
            line = (const char *)p->target->add + offset;
            EACH_ROW
            {
                __builtin_prefetch(line + r * p->target->ldy * size);
            }
        }
    }
    if (p->accumulate) {
        const float *line = p->c + i * p->ldc + j;
        EACH_ROW
        {
            __builtin_prefetch(line + r * p->ldc, 1);
            __builtin_prefetch(line + r * p->ldc + BY__LANES, 1);
        }
    }
}

/* sums += the values at `data`, rows `ld` apart; `across` vectors per row. */
BY__INLINE void add_rows(vector sums[TILE_ROWS][2], const void *data, by_dtype dtype, int64_t ld,
                         int height, int across)
{
    EACH_ROW
    {
        sums[r][0] += by__kernel_load(data, r * ld, dtype);
        if (across == 2) {
            sums[r][1] += by__kernel_load(data, r * ld + BY__LANES, dtype);
        }
    }
}

BY__INLINE void store_rows(void *data, by_dtype dtype, int64_t ld, vector sums[TILE_ROWS][2],
                           int height, int across)
{
    EACH_ROW
    {
        by__store_flushed(data, r * ld, sums[r][0], dtype);
        if (across == 2) {
            by__store_flushed(data, r * ld + BY__LANES, sums[r][1], dtype);
        }
    }
}

BY__INLINE void store_target_as(const by__cpu_panel_target *t, by_dtype dtype,
                                vector sums[TILE_ROWS][2], int height, int across)
{
    if (t->add != NULL) {
        add_rows(sums, t->add, dtype, t->ldy, height, across);
    }
    store_rows(t->y, dtype, t->ldy, sums, height, across);
}

/* Stores a whole tile to its target from registers. */
BY__INLINE void store_target(const by__cpu_panel_target *t, vector sums[TILE_ROWS][2], int height,
                             int across)
{
    if (t->bias != NULL && t->bias_dtype == BY_F32) {
        add_rows(sums, t->bias, BY_F32, 0, height, across);
    } else if (t->bias != NULL && t->bias_dtype == BY_BF16) {
        add_rows(sums, t->bias, BY_BF16, 0, height, across);
    } else if (t->bias != NULL) {
        add_rows(sums, t->bias, BY_F16, 0, height, across);
    }
    if (t->dtype == BY_F32) {
        store_target_as(t, BY_F32, sums, height, across);
    } else if (t->dtype == BY_BF16) {
        store_target_as(t, BY_BF16, sums, height, across);
    } else {
        store_target_as(t, BY_F16, sums, height, across);
    }
}

/* Rows of A in groups of five: a row's address is its group's pointer plus a register with one or
 * three times the row distance, scaled by 1, 2 or 4 by the addressing mode. One pointer per row
 * would need more registers than there are. */
enum { GROUP_ROWS = 5, GROUPS = (TILE_ROWS + GROUP_ROWS - 1) / GROUP_ROWS };

typedef struct tile_rows {
    const char *groups[GROUPS];
    int64_t step, step3; /* bytes */
} tile_rows;

BY__INLINE tile_rows group_rows(const panel_unit *a, int64_t row_step, int height)
{
    tile_rows rows = {.step = row_step * 4, .step3 = row_step * 12};
    /* Hides from the compiler that these are multiples of each other; otherwise it keeps a pointer
     * for each row. */
    __asm__("" : "+r"(rows.step3));
    for (int g = 0; g * GROUP_ROWS < height; g++) {
        rows.groups[g] = (const char *)(a + g * GROUP_ROWS * row_step);
        __asm__("" : "+r"(rows.groups[g]));
    }
    return rows;
}

BY__INLINE float unit_of_row(const tile_rows *rows, int r)
{
    int in_group = r % GROUP_ROWS;
    int64_t offset = in_group == 3 ? rows->step3 : in_group * rows->step;
    return *(const panel_unit *)(rows->groups[r / GROUP_ROWS] + offset);
}

BY__INLINE void next_step(tile_rows *rows, int height)
{
    for (int g = 0; g * GROUP_ROWS < height; g++) {
        rows->groups[g] += sizeof(panel_unit);
    }
}

/* The part of the next panel of B that the tile of row i prefetches, NEXT_UNITS at each step: every
 * tile except the first, during which this panel itself is still being loaded, prefetches the part
 * after the previous tile's. Prefetching all of it at once would delay the loads that the tiles
 * wait for. */
#define NEXT_UNITS 4

BY__INLINE const panel_unit *next_panel(const panel_product *p, int64_t i, int64_t j,
                                        const panel_unit *b)
{
    if (i < TILE_ROWS || j + TILE_COLUMNS >= p->n) {
        return b;
    }
    int64_t part = (i / TILE_ROWS - 1) % (TILE_COLUMNS / NEXT_UNITS);
    return (const panel_unit *)((const char *)b + p->b_stride) + part * p->steps * NEXT_UNITS;
}

/* Computes the tile of rows i .. i + height (a constant, at most TILE_ROWS) and of columns j .. j +
 * TILE_COLUMNS, not all of which need exist: `across` vectors of them (a constant, 1 or 2). */
BY__INLINE void compute_tile(arithmetic kind, const panel_product *p, int64_t i, int64_t j,
                             const panel_unit *a, int height, int across)
{
    const panel_unit *b = (const panel_unit *)(p->b + (size_t)(j / TILE_COLUMNS) * p->b_stride);
    float *c = p->c + i * p->ldc + j;
    int64_t rows = by__min_i64(p->m - i, height);
    int64_t columns = by__min_i64(p->n - j, TILE_COLUMNS);
    vector sums[TILE_ROWS][2];
    EACH_ROW
    {
        sums[r][0] = sums[r][1] = (vector){0};
    }
    fetch_target(p, i, j, height);
    const panel_unit *next = next_panel(p, i, j, b);
    bool packed = p->k_step == TILE_ROWS; /* a constant */
    tile_rows lying = group_rows(a, p->row_step, packed ? 0 : height);
    for (int64_t k = 0; k < p->steps; k++) {
        if (packed) {
            __builtin_prefetch(a + p->panel_step + k * TILE_ROWS);
        }
        __builtin_prefetch(b + (k + AHEAD_STEPS) * TILE_COLUMNS);
        __builtin_prefetch(b + (k + AHEAD_STEPS) * TILE_COLUMNS + BY__LANES);
        __builtin_prefetch(next + k * NEXT_UNITS);
        vector b0 = *(const vector *)(b + k * TILE_COLUMNS);
        vector b1 = *(const vector *)(b + k * TILE_COLUMNS + BY__LANES);
        EACH_ROW
        {
            vector ar = (packed ? a[k * TILE_ROWS + r] : unit_of_row(&lying, r)) - (vector){0};
            sums[r][0] = multiply_add(kind, sums[r][0], ar, b0);
            if (across == 2) {
                sums[r][1] = multiply_add(kind, sums[r][1], ar, b1);
            }
        }
        next_step(&lying, packed ? 0 : height);
    }
    bool whole = rows == height && columns == across * BY__LANES;
    if (p->accumulate && (whole || p->target != NULL)) {
        add_rows(sums, c, BY_F32, p->ldc, height, across);
    }
    if (whole && p->target == NULL) {
        store_rows(c, BY_F32, p->ldc, sums, height, across);
        return;
    }
    if (whole) {
        by__cpu_panel_target target = by__panel_target_at(p->target, i, j);
        store_target(&target, sums, height, across);
        return;
    }
    float edge[TILE_ROWS * TILE_COLUMNS];
    store_rows(edge, BY_F32, TILE_COLUMNS, sums, height, across);
    by__cpu_panel_target target = {c, p->ldc, BY_F32, BY_F32, NULL, p->accumulate ? c : NULL};
    if (p->target != NULL) {
        target = by__panel_target_at(p->target, i, j);
    }
    BY__AT_LEVEL(by__kernel_panel_store)(&target, edge, TILE_COLUMNS, rows, columns);
}

/* Rows of the tile before which `left` are left: the last panel of 128 rows has 2 of 14, and would
 * take as long as a full one. Rows that are not packed may be cut anywhere: the last two tiles then
 * get as many each, since one of 2 rows waits for its own sums. */
BY__INLINE int64_t tile_height(int64_t left, bool packed)
{
    int64_t rows = !packed && left > TILE_ROWS && left < 2 * TILE_ROWS ? (left + 1) / 2 : left;
    return by__min_i64((rows + 1) / 2 * 2, TILE_ROWS);
}

#define TILE_OF(h)                                                                                 \
    case h:                                                                                        \
        compute_tile(kind, p, i, j, a, h, across);                                                 \
        break
#if TILE_ROWS == 14
#define LOWER_TILES()                                                                              \
    TILE_OF(12);                                                                                   \
    TILE_OF(10);                                                                                   \
    TILE_OF(8);                                                                                    \
    TILE_OF(6);                                                                                    \
    TILE_OF(4);                                                                                    \
    TILE_OF(2)
#elif TILE_ROWS == 8
#define LOWER_TILES()                                                                              \
    TILE_OF(6);                                                                                    \
    TILE_OF(4);                                                                                    \
    TILE_OF(2)
#elif TILE_ROWS == 6
#define LOWER_TILES()                                                                              \
    TILE_OF(4);                                                                                    \
    TILE_OF(2)
#else
#define LOWER_TILES() TILE_OF(2)
#endif

BY__INLINE void compute_column(arithmetic kind, const panel_product *p, int64_t j, int across)
{
    bool packed = p->k_step == TILE_ROWS; /* a constant */
    const panel_unit *a = p->a;
    int64_t height;
    for (int64_t i = 0; i < p->m; i += height) {
        height = tile_height(p->m - i, packed);
        switch (height) {
            LOWER_TILES();
        default:
            compute_tile(kind, p, i, j, a, TILE_ROWS, across);
        }
        a += packed ? p->panel_step : height * p->row_step;
    }
}

/* If half of the last panel of B is padding, as for heads of 16, only half is computed. */
BY__INLINE void compute_tiles(arithmetic kind, const panel_product *p)
{
    for (int64_t j = 0; j < p->n; j += TILE_COLUMNS) {
        if (p->n - j <= BY__LANES) {
            compute_column(kind, p, j, 1);
        } else {
            compute_column(kind, p, j, 2);
        }
    }
}

BY__INLINE void multiply_packed(arithmetic kind, float *c, int64_t ldc, const void *a,
                                size_t a_stride, const void *b, size_t b_stride, int64_t m,
                                int64_t n, int64_t steps, bool accumulate,
                                const by__cpu_panel_target *target)
{
    panel_product p = {
        c,     ldc,        a,     (int64_t)(a_stride / 4), 1, TILE_ROWS, b, b_stride, m, n,
        steps, accumulate, target};
    compute_tiles(kind, &p);
}

BY__INLINE void multiply_unpacked(arithmetic kind, float *c, int64_t ldc, const void *a,
                                  size_t row_bytes, const void *b, size_t b_stride, int64_t m,
                                  int64_t n, int64_t steps, bool accumulate,
                                  const by__cpu_panel_target *target)
{
    int64_t row_step = (int64_t)(row_bytes / 4);
    panel_product p = {c, ldc, a,     TILE_ROWS * row_step, row_step, 1, b, b_stride,
                       m, n,   steps, accumulate,           target};
    compute_tiles(kind, &p);
}

/* Defines the functions of a panel: `kind` multiplies operands that were packed from `from`, in
 * `steps` steps along k. */
#define MULTIPLY(name, function, kind, steps)                                                      \
    static void name(float *c, int64_t ldc, const void *a, size_t a_step, const void *b,           \
                     size_t b_stride, int64_t m, int64_t n, int64_t k, bool accumulate,            \
                     const by__cpu_panel_target *target)                                           \
    {                                                                                              \
        function(kind, c, ldc, a, a_step, b, b_stride, m, n, steps, accumulate, target);           \
    }
#define PACK(name, from, steps, width)                                                             \
    static void name(void *out, size_t stride, const void *x, int64_t row_stride,                  \
                     int64_t k_stride, int64_t rows, int64_t k)                                    \
    {                                                                                              \
        pack(out, stride, (panel_source){x, from, row_stride, k_stride, rows, k}, steps, width);   \
    }

MULTIPLY(multiply_f32, multiply_packed, PRODUCTS_F32, k)
MULTIPLY(multiply_f32_rows, multiply_unpacked, PRODUCTS_F32, k)
PACK(pack_a_f32, SOURCE_F32, k, TILE_ROWS)
PACK(pack_b_f32, SOURCE_F32, k, TILE_COLUMNS)

const by__cpu_panel BY__AT_LEVEL(by__kernel_panel_f32) = {TILE_ROWS,
                                                          TILE_COLUMNS,
                                                          1,
                                                          1,
                                                          256,
                                                          pack_a_f32,
                                                          pack_b_f32,
                                                          multiply_f32,
                                                          multiply_f32_rows,
                                                          BY__AT_LEVEL(by__kernel_panel_store),
                                                          BY__AT_LEVEL(by__kernel_gemv)};

#if defined(__AVX512BF16__)

MULTIPLY(multiply_bf16, multiply_packed, PAIRS_BF16, k / 2)
MULTIPLY(multiply_bf16_rows, multiply_unpacked, PAIRS_BF16, k / 2)
PACK(pack_a_bf16, SOURCE_PAIR, (k + 1) / 2, TILE_ROWS)
PACK(pack_b_bf16, SOURCE_PAIR, (k + 1) / 2, TILE_COLUMNS)

const by__cpu_panel BY__AT_LEVEL(by__kernel_panel_bf16) = {TILE_ROWS,
                                                           TILE_COLUMNS,
                                                           2,
                                                           2,
                                                           256,
                                                           pack_a_bf16,
                                                           pack_b_bf16,
                                                           multiply_bf16,
                                                           multiply_bf16_rows,
                                                           BY__AT_LEVEL(by__kernel_panel_store),
                                                           BY__AT_LEVEL(by__kernel_gemv)};

#else

PACK(pack_a_bf16, SOURCE_BF16, k, TILE_ROWS)
PACK(pack_b_bf16, SOURCE_BF16, k, TILE_COLUMNS)

const by__cpu_panel BY__AT_LEVEL(by__kernel_panel_bf16) = {TILE_ROWS,
                                                           TILE_COLUMNS,
                                                           1,
                                                           1,
                                                           256,
                                                           pack_a_bf16,
                                                           pack_b_bf16,
                                                           multiply_f32,
                                                           NULL,
                                                           BY__AT_LEVEL(by__kernel_panel_store),
                                                           BY__AT_LEVEL(by__kernel_gemv)};

#endif

PACK(pack_a_f16, SOURCE_F16, k, TILE_ROWS)
PACK(pack_b_f16, SOURCE_F16, k, TILE_COLUMNS)

const by__cpu_panel BY__AT_LEVEL(by__kernel_panel_f16) = {TILE_ROWS,
                                                          TILE_COLUMNS,
                                                          1,
                                                          1,
                                                          256,
                                                          pack_a_f16,
                                                          pack_b_f16,
                                                          multiply_f32,
                                                          NULL,
                                                          BY__AT_LEVEL(by__kernel_panel_store),
                                                          BY__AT_LEVEL(by__kernel_gemv)};
