/* PACKED_MATMUL and PACKED_GROUPED_MATMUL with 8-bit weights and rows (W8A8, banyan/packing.h).
 *
 * A row of x is quantized to signed bytes with one scale, its largest magnitude / 127, so that an
 * element of the result is one exact integer sum over all of k: by AMX tiles, by vpdpbusd, or by
 * 16-bit multiplications. Weights are unsigned codes c with w = t (c - 128), as vpdpbusd's first
 * operand requires; with x = s q the element is s t (sum of q c - 128 sum of q), and the last sum
 * is computed with the row. Integer sums do not depend on their order: a row's bits depend on no
 * other row, no thread, and no division of rows, columns and inputs.
 *
 * Loop order: blocks of rows stay in the second-level cache while panels stream past them; panels
 * are divided into pieces of inputs that stay in the first-level cache while they are combined with
 * all tiles of a block. */
#include <float.h>
#include <math.h>
#include <omp.h>
#include <string.h>

#include "base/packing/packing.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/products/packed_tile.h"
#include "device/cpu/kernels/products/quad_words.h"
#include "device/cpu/kernels/products/tiles.h"
#include "device/cpu/kernels/simd_math.h"
#include "device/cpu/panel.h"
#include "device/cpu/work_range.h"

/* Rows of a tile, whose sums over two vectors of columns are in registers; 4-byte words for four
 * inputs of a row. */
#if defined(__AVX512VNNI__)
#define HEIGHT     12
#define QUAD_WORDS 1
#elif defined(__AVX2__)
#define HEIGHT     4
#define QUAD_WORDS 2
#else
#define HEIGHT     2
#define QUAD_WORDS 2
#endif
/* With more rows than this, AMX tiles are faster than vpdpbusd; most rows of any tile. */
#define FEW_ROWS 4
enum { MAX_ROWS = BY__TILES_ROWS > HEIGHT ? BY__TILES_ROWS : HEIGHT };
#define LARGEST 127.0f
/* Rows whose largest magnitude is smaller are quantized to zeros, because its inverse would not be
 * finite. */
#define SMALLEST 0x1p-100f
/* Up to this many inputs are quantized by one thread, which is faster than a barrier. */
#define SERIAL_INPUTS 4096
/* Inputs per piece; bytes per block of rows; least number of tasks per thread. */
#define PIECE       512
#define BLOCK_BYTES (384 << 10)
#define MIN_TASKS   8

typedef by__vi w8a8_codes __attribute__((aligned(4), may_alias));

typedef struct w8a8_plan {
    by_packing packing;
    bool tiles;        /* AMX tiles are used */
    int64_t tile_rows; /* most rows of a register tile */
    int64_t m;
    int64_t quads; /* groups of four inputs in a panel */
    size_t panel_bytes;
    int64_t panels;
    int64_t row_words; /* words of a row's integers */
    int64_t block_rows, blocks;
    size_t words;      /* [m][row_words] */
    size_t scales;     /* [m] f32 */
    size_t offsets;    /* [m] i32: 128 times the sum of the integers */
    size_t sums;       /* per thread: [block_rows][32] i32 */
    size_t sums_bytes; /* between the sums of threads */
    int threads;
} w8a8_plan;

/* ---- rows of x ---- */

/* Stores integers of neighbouring inputs in the layout of add_quad. */
BY__INLINE void put_integers(int32_t *out, by__vi q)
{
#if defined(__AVX512VNNI__)
    _mm_storeu_si128((__m128i *)(void *)out, _mm512_cvtepi32_epi8((__m512i)q));
#else
    by__put_quad_words(out, q);
#endif
}

BY__INLINE void take_row_of(const w8a8_plan *p, const by__device_tensor *x, char *work, int64_t i,
                            by_dtype dtype)
{
    const int64_t k = p->packing.k;
    by__vf largest = by__zero();
    /* a value that is not finite makes all sums of the row NaN, as with floats */
    by__vi finite = (by__vi){0} == 0;
    by__vi sum = {0};
    int32_t *out = (int32_t *)(void *)(work + p->words) + i * p->row_words;
#define MEASURE(at, n)                                                                             \
    by__vf size = by__abs(by__load_n(x->data, i * k + (at), dtype, n));                            \
    finite &= size <= FLT_MAX;                                                                     \
    largest = by__larger(largest, size)
    BY__STEPS(0, k, MEASURE);
#undef MEASURE
    bool is_finite = by__sum(__builtin_convertvector(finite, by__vf)) == (float)-BY__LANES;
    float most = is_finite ? by__max(largest) : 0.0f;
    float inverse = most >= SMALLEST ? LARGEST / most : 0.0f;
    by__vi keep = is_finite ? (by__vi){0} == 0 : (by__vi){0};
#define ROUND(at, n)                                                                               \
    by__vi q = by__round(by__load_n(x->data, i * k + (at), dtype, n) * inverse) & keep;            \
    sum += q;                                                                                      \
    put_integers(out + (at) / 4 * QUAD_WORDS, q)
    BY__STEPS(0, k, ROUND);
#undef ROUND
    /* Codes of weights beyond k are 0, so these values have no effect; they are set for tools that
     * detect uninitialized reads. */
    int64_t taken = by__ceil_div(k, BY__LANES) * BY__LANES / 4 * QUAD_WORDS;
    memset(out + taken, 0, (size_t)(p->quads * QUAD_WORDS - taken) * sizeof *out);
    int32_t total = 0;
    for (int lane = 0; lane < BY__LANES; lane++) {
        total += sum[lane];
    }
    ((float *)(void *)(work + p->scales))[i] = is_finite ? most / LARGEST : NAN;
    ((int32_t *)(void *)(work + p->offsets))[i] = total * BY__INT8_OFFSET;
}

static void quantize_row(const w8a8_plan *p, const by__device_tensor *x, char *work, int64_t i)
{
    switch (x->dtype) {
    case BY_F32:
        take_row_of(p, x, work, i, BY_F32);
        break;
    case BY_BF16:
        take_row_of(p, x, work, i, BY_BF16);
        break;
    default:
        take_row_of(p, x, work, i, BY_F16);
    }
}

/* ---- tiles ---- */

#define EACH_ROW _Pragma("GCC unroll 16") for (int r = 0; r < height; r++)

/* sums += the codes w, four inputs of each column, times four inputs of a row. vectors is a
 * constant. */
BY__INLINE void add_quad(by__vi sums[BY__PANEL_VECTORS], const by__vi w[BY__PANEL_VECTORS],
                         const int32_t *x, int vectors)
{
#if defined(__AVX512VNNI__)
    __m512i q = _mm512_set1_epi32(x[0]);
    BY__EACH_VECTOR
    {
        sums[v] = (by__vi)_mm512_dpbusd_epi32((__m512i)sums[v], (__m512i)w[v], q);
    }
#else
    by__vi even = (by__vi){0} + x[0];
    by__vi odd = (by__vi){0} + x[1];
    BY__EACH_VECTOR
    {
        sums[v] = by__add_quad_words(sums[v], w[v], even, odd);
    }
#endif
}

/* sums[height, 32] of a piece of a panel and `height` rows (a constant); with `resume` it continues
 * from the stored sums. */
BY__INLINE void add_tile(const w8a8_plan *p, const char *panel, const int32_t *x, int64_t quads,
                         int32_t *sums, bool resume, int height)
{
    const int vectors = BY__TILE_VECTORS(height);
    for (int64_t j = 0; j < BY_PACKED_COLUMNS; j += vectors * BY__LANES) {
        const w8a8_codes *at = (const w8a8_codes *)(const void *)(panel + 4 * j);
        by__vi total[HEIGHT][BY__PANEL_VECTORS];
        EACH_ROW
        {
            const w8a8_codes *row =
                (const w8a8_codes *)(const void *)(sums + r * BY_PACKED_COLUMNS + j);
            BY__EACH_VECTOR
            {
                total[r][v] = resume ? (by__vi)row[v] : (by__vi){0};
            }
        }
        for (int64_t s = 0; s < quads; s++) {
            by__vi w[BY__PANEL_VECTORS];
            BY__EACH_VECTOR
            {
                w[v] = at[v];
            }
            EACH_ROW
            {
                add_quad(total[r], w, x + r * p->row_words + s * QUAD_WORDS, vectors);
            }
            at += BY_PACKED_COLUMNS / BY__LANES;
        }
        EACH_ROW
        {
            w8a8_codes *row = (w8a8_codes *)(void *)(sums + r * BY_PACKED_COLUMNS + j);
            BY__EACH_VECTOR
            {
                row[v] = total[r][v];
            }
        }
    }
}

#define TILE_OF(h)                                                                                 \
    case h:                                                                                        \
        add_tile(p, panel, x, quads, sums, resume, h);                                             \
        break

static void add_rows(const w8a8_plan *p, const char *panel, const int32_t *x, int64_t quads,
                     int32_t *sums, bool resume, int64_t height)
{
    switch (height) {
        TILE_OF(1);
#if HEIGHT > 2
        TILE_OF(2);
        TILE_OF(3);
#endif
#if HEIGHT > 4
        TILE_OF(4);
        TILE_OF(5);
        TILE_OF(6);
        TILE_OF(7);
        TILE_OF(8);
        TILE_OF(9);
        TILE_OF(10);
        TILE_OF(11);
#endif
    default:
        add_tile(p, panel, x, quads, sums, resume, HEIGHT);
    }
}

/* Stores the sums of a tile at their destination. */
static void store_tile(const w8a8_plan *p, const by__device_call *call,
                       const by__cpu_panel_target *all, const char *panel, const int32_t *sums,
                       int64_t i, int64_t column, int64_t height)
{
    const char *work = call->work;
    const float *scales = (const float *)(const void *)(work + p->scales) + i;
    const int32_t *offsets = (const int32_t *)(const void *)(work + p->offsets) + i;
    const char *factors = panel + p->panel_bytes - BY_PACKED_COLUMNS * sizeof(float);
    float y[MAX_ROWS * BY_PACKED_COLUMNS];
    for (int64_t j = 0; j < BY_PACKED_COLUMNS; j += BY__LANES) {
        by__vf factor = by__kernel_load(factors, j, BY_F32);
        for (int64_t r = 0; r < height; r++) {
            const w8a8_codes *from =
                (const w8a8_codes *)(const void *)(sums + r * BY_PACKED_COLUMNS + j);
            by__vf sum = __builtin_convertvector(from[0] - offsets[r], by__vf);
            by__kernel_store(y, r * BY_PACKED_COLUMNS + j, sum * (factor * scales[r]), BY_F32);
        }
    }
    by__cpu_panel_target at = by__panel_target_at(all, i, column);
    BY__AT_LEVEL(by__kernel_panel_store)
    (&at, y, BY_PACKED_COLUMNS, height, by__min_i64(BY_PACKED_COLUMNS, p->packing.n - column));
}

/* Multiplies a panel with a block of rows. *open is the number of rows for which this thread's AMX
 * tiles are open, 0 for none. */
static void run_task(const w8a8_plan *p, const by__device_call *call,
                     const by__cpu_panel_target *all, int64_t block, int64_t column, int32_t *sums,
                     int *open)
{
    const char *panel =
        (const char *)call->in[1].data + (size_t)(column / BY_PACKED_COLUMNS) * p->panel_bytes;
    const int32_t *x = (const int32_t *)(const void *)((const char *)call->work + p->words);
    int64_t first = block * p->block_rows;
    int64_t rows = by__min_i64(p->block_rows, p->m - first);
    int64_t tiles = by__ceil_div(rows, p->tile_rows);
    int64_t tall = by__ceil_div(rows, tiles);
    for (int64_t s = 0; s < p->quads; s += PIECE / 4) {
        int64_t quads = by__min_i64(PIECE / 4, p->quads - s);
        for (int64_t i = 0; i < rows; i += tall) {
            int64_t height = by__min_i64(tall, rows - i);
            int32_t *tile = sums + i * BY_PACKED_COLUMNS;
            const char *piece = panel + s * 4 * BY_PACKED_COLUMNS;
            const int32_t *row = x + (first + i) * p->row_words + s * QUAD_WORDS;
            if (BY__TILES_ROWS > 0 && p->tiles) {
                by__tiles_add_bytes(tile, row, (size_t)p->row_words * sizeof *row, piece, quads,
                                    s > 0, height, open);
            } else {
                add_rows(p, piece, row, quads, tile, s > 0, height);
            }
            if (s + quads == p->quads) {
                store_tile(p, call, all, panel, tile, first + i, column, height);
            }
        }
    }
}

static void multiply(const w8a8_plan *p, const by__device_call *call)
{
    by__cpu_work_range *ranges = call->work;
    by__cpu_panel_target all = {.y = call->out[0].data,
                                .ldy = p->packing.n,
                                .dtype = call->out[0].dtype,
                                .bias_dtype = call->in[2].dtype,
                                .bias = call->in[2].data,
                                .add = call->in[3].data};
    for (int thread = 0; thread < p->threads; thread++) {
        by__work_range_open(ranges, p->blocks * p->panels, thread, p->threads);
    }
    int64_t serial = p->m * p->packing.k <= SERIAL_INPUTS ? p->m : 0;
    for (int64_t i = 0; i < serial; i++) {
        quantize_row(p, &call->in[0], call->work, i);
    }
#pragma omp parallel num_threads(p->threads) if (p->threads > 1)
    {
        int me = omp_get_thread_num();
        char *sums = (char *)call->work + p->sums + (size_t)me * p->sums_bytes;
        if (serial == 0) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < p->m; i++) {
                quantize_row(p, &call->in[0], call->work, i);
            }
        }
        int64_t t;
        int open = 0;
        while ((t = by__work_range_claim(ranges, me, p->threads)) >= 0) {
            run_task(p, call, &all, t / p->panels, t % p->panels * BY_PACKED_COLUMNS,
                     (int32_t *)(void *)sums, &open);
        }
        by__tiles_close(&open);
    }
}

/* ---- plans ---- */

static bool accepts(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    return call->attrs.packing.kind == BY_PACKING_W8A8 && by__tensor_is_act(x) &&
           by__tensor_count(x) > 0 && by__tensor_is_act(&call->out[0]);
}

/* As many rows as a block's bytes allow, fewer if threads would get too few tasks. */
static void plan_blocks(w8a8_plan *p)
{
    int64_t tiles = BLOCK_BYTES / (p->row_words * 4 * p->tile_rows);
    int64_t all = by__ceil_div(p->m, p->tile_rows);
    tiles = tiles < 1 ? 1 : by__min_i64(tiles, all);
    while (tiles > 4 && by__ceil_div(all, tiles) * p->panels < MIN_TASKS * (int64_t)p->threads) {
        tiles = by__ceil_div(tiles, 2);
    }
    p->blocks = by__ceil_div(all, tiles);
    p->block_rows = by__ceil_div(all, p->blocks) * p->tile_rows;
}

static size_t plan_product(w8a8_plan *p, const by__device_call *call, int threads)
{
    p->packing = call->attrs.packing;
    p->m = by__tensor_rows(&call->in[0]);
    p->threads = threads;
    p->tiles = p->tiles && p->m > FEW_ROWS;
    p->tile_rows = p->tiles ? MAX_ROWS : HEIGHT;
    p->quads = by__ceil_div(p->packing.k, BY__PACKED_BLOCK) * BY__PACKED_BLOCK / 4;
    p->panel_bytes = by__packed_panel_bytes(&p->packing);
    p->panels = by__ceil_div(p->packing.n, BY_PACKED_COLUMNS);
    /* One extra cache line, so that rows do not share cache sets. */
    p->row_words = p->quads * QUAD_WORDS + (int64_t)BY_CACHE_LINE / 4;
    plan_blocks(p);
    size_t used = by__round_up((size_t)p->threads * sizeof(by__cpu_work_range), BY_CACHE_LINE);
    p->words = by__work_reserve(&used, (size_t)(p->m * p->row_words) * sizeof(int32_t));
    p->scales = by__work_reserve(&used, (size_t)p->m * sizeof(float));
    p->offsets = by__work_reserve(&used, (size_t)p->m * sizeof(int32_t));
    p->sums_bytes = (size_t)p->block_rows * BY_PACKED_COLUMNS * sizeof(int32_t);
    p->sums = by__work_reserve(&used, (size_t)p->threads * p->sums_bytes);
    return used;
}

#define PACKED_PLAN w8a8_plan
#include "device/cpu/kernels/products/packed_kernels.h"

BY__KERNEL(packed_w8a8) = {
    BY_OP_PACKED_MATMUL, BY__KERNEL_NAME("packed w8a8"), supports, prepare, release, run};
BY__KERNEL(packed_grouped_w8a8) = {BY_OP_PACKED_GROUPED_MATMUL,
                                   BY__KERNEL_NAME("packed grouped w8a8"),
                                   accepts,
                                   prepare_groups,
                                   release,
                                   run_groups};
