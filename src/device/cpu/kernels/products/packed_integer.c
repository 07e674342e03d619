/* PACKED_MATMUL and PACKED_GROUPED_MATMUL with weights of 8 and 4 bits (banyan/packing.h).
 *
 * Rows of x are quantized to 16-bit integers with a scale for each block of inputs, so that a
 * block's product is an exact integer sum: by vpdpbusd or AMX tiles, once for the lower and once
 * for the upper digit in base 256, or by 16-bit multiplications. Sums of blocks are added in f32 in
 * the order of k. A row's bits therefore do not depend on other rows, on threads, or on how a block
 * is computed. With few rows the time is that of reading the weights, once and without unpacking.
 *
 * With x = s q and w = t (c - o) for codes c and an offset o, a block contributes s t (sum of q c -
 * o sum of q). */
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

/* Rows of a tile: their sums over two vectors of columns are in registers. */
#if defined(__AVX512VNNI__)
#define HEIGHT 6
#elif defined(__AVX2__)
#define HEIGHT 3
#else
#define HEIGHT 2
#endif
/* With more rows than this, AMX tiles are faster than vpdpbusd where a block has several steps of
 * them, as with 8-bit codes. */
#define FEW_ROWS 4
/* The most rows of any tile. */
enum { MAX_ROWS = BY__TILES_ROWS > HEIGHT ? BY__TILES_ROWS : HEIGHT };
/* The largest magnitude of x's integers: both digits fit in a signed byte. */
#define LARGEST 32639.0f
/* Blocks whose largest magnitude is smaller are quantized to zeros, because its inverse would not
 * be finite. */
#define SMALLEST 0x1p-100f
/* Up to this many inputs are quantized by one thread, which is faster than a barrier. */
#define SERIAL_INPUTS 4096
/* Prefetch distance in bytes, into the first-level cache, for a single row with AVX2: with so many
 * instructions a byte, the core does not run far enough ahead of the stream by itself. */
#define FETCH_AHEAD 2048
/* 4-byte words for four inputs of a row. */
#define QUAD_WORDS 2

typedef by__vi integer_codes __attribute__((aligned(4), may_alias));

typedef struct packed_integer_plan {
    by_packing packing;
    bool tiles;        /* AMX tiles are used */
    int64_t tile_rows; /* most rows of a register tile */
    int64_t m;
    int64_t block, blocks; /* inputs that share a scale of x */
    size_t block_bytes, panel_bytes;
    int64_t row_words; /* words of a row's integers */
    size_t words;      /* [m][row_words] */
    size_t scales;     /* [m][blocks] f32 */
    size_t offsets;    /* [m][blocks] i32: o times the sum of the integers */
    int threads;
} packed_integer_plan;

/* Operands of a tile. */
typedef struct packed_integer_tile {
    const packed_integer_plan *p;
    const char *panel;
    const int32_t *x; /* integers of its first row */
    const float *scales;
    const int32_t *offsets;
} packed_integer_tile;

/* ---- rows of x ---- */

/* Stores the integers of a block's inputs `at` and after in the layout of add_quad, or, for AMX
 * tiles, all lower digits of the block before the upper ones. */
BY__INLINE void put_integers(const packed_integer_plan *p, int32_t *block, int64_t at, by__vi q)
{
#if defined(__AVX512VNNI__)
    by__vi upper = (q + 128) >> 8;
    __m128i low = _mm512_cvtepi32_epi8((__m512i)(q - upper * 256));
    __m128i high = _mm512_cvtepi32_epi8((__m512i)upper);
    if (p->tiles) {
        _mm_storeu_si128((__m128i *)(block + at / 4), low);
        _mm_storeu_si128((__m128i *)(block + p->block / 4 + at / 4), high);
        return;
    }
    _mm_storeu_si128((__m128i *)(block + at / 4 * QUAD_WORDS), _mm_unpacklo_epi32(low, high));
    _mm_storeu_si128((__m128i *)(block + at / 4 * QUAD_WORDS) + 1, _mm_unpackhi_epi32(low, high));
#else
    BY_UNUSED(p);
    by__put_quad_words(block + at / 4 * QUAD_WORDS, q);
#endif
}

/* dtype is a constant. */
BY__INLINE void take_block_of(const packed_integer_plan *p, const by__device_tensor *x, char *work,
                              int64_t i, int64_t b, by_dtype dtype)
{
    int64_t first = b * p->block;
    int64_t count = by__min_i64(p->block, p->packing.k - first);
    int64_t from = i * p->packing.k + first;
    by__vf largest = by__zero();
    /* a value that is not finite makes all sums of the row NaN, as with floats */
    by__vi finite = (by__vi){0} == 0;
    by__vi sum = {0};
    int32_t *out = (int32_t *)(work + p->words) + i * p->row_words + first / 4 * QUAD_WORDS;
#define MEASURE(at, n)                                                                             \
    by__vf size = by__abs(by__load_n(x->data, from + (at), dtype, n));                             \
    finite &= size <= FLT_MAX;                                                                     \
    largest = by__larger(largest, size)
    BY__STEPS(0, count, MEASURE);
#undef MEASURE
    bool is_finite = by__sum(__builtin_convertvector(finite, by__vf)) == (float)-BY__LANES;
    float most = is_finite ? by__max(largest) : 0.0f;
    float inverse = most >= SMALLEST ? LARGEST / most : 0.0f;
    by__vi keep = is_finite ? (by__vi){0} == 0 : (by__vi){0};
#define ROUND(at, n)                                                                               \
    by__vi q = by__round(by__load_n(x->data, from + (at), dtype, n) * inverse) & keep;             \
    sum += q;                                                                                      \
    put_integers(p, out, at, q)
    if (count < p->block) {
        memset(out, 0, (size_t)(p->block / 4 * QUAD_WORDS) * sizeof *out);
    }
    BY__STEPS(0, count, ROUND);
#undef ROUND
    /* At most 128 LARGEST, which f32 represents exactly. */
    int32_t total = (int32_t)by__sum(__builtin_convertvector(sum, by__vf));
    ((float *)(work + p->scales))[i * p->blocks + b] = is_finite ? most / LARGEST : NAN;
    ((int32_t *)(work + p->offsets))[i * p->blocks + b] =
        total * (p->packing.kind == BY_PACKING_INT8 ? BY__INT8_OFFSET : BY__INT4_OFFSET);
}

/* Quantizes block b of row i. */
static void quantize_block(const packed_integer_plan *p, const by__device_tensor *x, char *work,
                           int64_t i, int64_t b)
{
    switch (x->dtype) {
    case BY_F32:
        take_block_of(p, x, work, i, b, BY_F32);
        break;
    case BY_BF16:
        take_block_of(p, x, work, i, b, BY_BF16);
        break;
    default:
        take_block_of(p, x, work, i, b, BY_F16);
    }
}

/* ---- tiles ---- */

#define EACH_ROW _Pragma("GCC unroll 8") for (int r = 0; r < height; r++)

/* sum += the codes w, four inputs of each column, times four inputs of a row. */
BY__INLINE void add_quad(by__vi sum[2], by__vi w, const int32_t *x)
{
#if defined(__AVX512VNNI__)
    sum[0] = (by__vi)_mm512_dpbusd_epi32((__m512i)sum[0], (__m512i)w, _mm512_set1_epi32(x[0]));
    sum[1] = (by__vi)_mm512_dpbusd_epi32((__m512i)sum[1], (__m512i)w, _mm512_set1_epi32(x[1]));
#else
    sum[0] = by__add_quad_words(sum[0], w, (by__vi){0} + x[0], (by__vi){0} + x[1]);
#endif
}

BY__INLINE by__vf whole_sum(const by__vi sum[2], int32_t offset)
{
#if defined(__AVX512VNNI__)
    by__vi total = sum[0] + (by__vi)((by__vu)sum[1] << 8);
#else
    by__vi total = sum[0];
#endif
    return __builtin_convertvector(total - offset, by__vf);
}

/* Adds the codes w of four inputs, times those inputs of each row. */
BY__INLINE void add_codes(by__vi sums[HEIGHT][BY__PANEL_VECTORS][2],
                          const by__vi w[BY__PANEL_VECTORS], const int32_t *x, int64_t row_words,
                          int height)
{
    const int vectors = BY__TILE_VECTORS(height);
    EACH_ROW
    {
        BY__EACH_VECTOR
        {
            add_quad(sums[r][v], w[v], x + r * row_words);
        }
    }
}

/* Sums of block b over a tile's columns, from byte `column` of a step on; height and kind are
 * constants. */
BY__INLINE void add_block(by__vi sums[HEIGHT][BY__PANEL_VECTORS][2], by_packing_kind kind,
                          const packed_integer_tile *t, const char *block, int64_t b,
                          int64_t column, int height)
{
    const packed_integer_plan *p = t->p;
    const int vectors = BY__TILE_VECTORS(height);
    const int64_t step_bytes = 4 * BY_PACKED_COLUMNS;
    const int64_t quads = kind == BY_PACKING_INT4 ? 2 : 1;
    const int32_t *x = t->x + b * p->block / 4 * QUAD_WORDS;
    EACH_ROW
    {
        BY__EACH_VECTOR
        {
            sums[r][v][0] = sums[r][v][1] = (by__vi){0};
        }
    }
    for (int64_t s = 0; s < p->block / (4 * quads); s++) {
        const integer_codes *at =
            (const integer_codes *)(const void *)(block + s * step_bytes + column);
        const int32_t *xs = x + s * quads * QUAD_WORDS;
        by__vi w[BY__PANEL_VECTORS];
        BY__EACH_VECTOR
        {
            w[v] = at[v];
        }
        if (height == 1 && BY__LANES == 8) {
            __builtin_prefetch((const char *)at + FETCH_AHEAD, 0, 3);
            __builtin_prefetch((const char *)at + FETCH_AHEAD + BY_CACHE_LINE, 0, 3);
        }
        if (kind == BY_PACKING_INT8) {
            add_codes(sums, w, xs, p->row_words, height);
            continue;
        }
        const by__vi lower = (by__vi){0} + 0x0f0f0f0f;
        by__vi half[BY__PANEL_VECTORS];
        BY__EACH_VECTOR
        {
            half[v] = w[v] & lower;
        }
        add_codes(sums, half, xs, p->row_words, height);
        BY__EACH_VECTOR
        {
            half[v] = (by__vi)((by__vu)w[v] >> 4) & lower;
        }
        add_codes(sums, half, xs + QUAD_WORDS, p->row_words, height);
    }
}

/* Computes y[height, 32] of a panel. */
BY__INLINE void compute_tile(by_packing_kind kind, const packed_integer_tile *t, float *y,
                             int height)
{
    const packed_integer_plan *p = t->p;
    const int vectors = BY__TILE_VECTORS(height);
    for (int64_t j = 0; j < BY_PACKED_COLUMNS; j += vectors * BY__LANES) {
        for (int64_t b = 0; b < p->blocks; b++) {
            const char *block = t->panel + (size_t)b * p->block_bytes;
            const char *scales = block + p->block_bytes - 2 * BY_PACKED_COLUMNS;
            by__vi sums[HEIGHT][BY__PANEL_VECTORS][2];
            add_block(sums, kind, t, block, b, 4 * j, height);
            BY__EACH_VECTOR
            {
                int64_t column = j + v * BY__LANES;
                by__vf scale = kind == BY_PACKING_INT4 ? by__kernel_load(scales, column, BY_F16)
                                                       : by__splat(1.0f);
                EACH_ROW
                {
                    float *to = y + r * BY_PACKED_COLUMNS + column;
                    by__vf before = b > 0 ? by__kernel_load(to, 0, BY_F32) : by__zero();
                    by__vf sum = whole_sum(sums[r][v], t->offsets[r * p->blocks + b]);
                    by__vf factor = scale * t->scales[r * p->blocks + b];
                    by__kernel_store(to, 0, by__multiply_add(sum, factor, before), BY_F32);
                }
            }
        }
        for (int v = 0; v < vectors && kind == BY_PACKING_INT8; v++) {
            int64_t column = j + v * BY__LANES;
            by__vf scale =
                by__kernel_load(t->panel + (size_t)p->blocks * p->block_bytes, column, BY_F32);
            EACH_ROW
            {
                float *to = y + r * BY_PACKED_COLUMNS + column;
                by__kernel_store(to, 0, by__kernel_load(to, 0, BY_F32) * scale, BY_F32);
            }
        }
    }
}

#define TILE_OF(h)                                                                                 \
    case h:                                                                                        \
        compute_tile(kind, t, y, h);                                                               \
        break

BY__INLINE void compute_rows(by_packing_kind kind, const packed_integer_tile *t, float *y,
                             int64_t height)
{
    switch (height) {
        TILE_OF(1);
#if HEIGHT > 2
        TILE_OF(2);
#endif
#if HEIGHT > 3
        TILE_OF(3);
        TILE_OF(4);
        TILE_OF(5);
#endif
    default:
        compute_tile(kind, t, y, HEIGHT);
    }
}

/* The same with 8-bit codes, on AMX tiles, which are open for *open rows: the sums of both digits
 * are exact, and what follows is compute_tile's. */
static void compute_tiles(const packed_integer_tile *t, float *y, int height, int *open)
{
    const packed_integer_plan *p = t->p;
    const int64_t quads = p->block / 4;
    const size_t row_bytes = (size_t)p->row_words * sizeof *t->x;
    int32_t low[MAX_ROWS * BY_PACKED_COLUMNS];
    int32_t high[MAX_ROWS * BY_PACKED_COLUMNS];
    for (int64_t b = 0; b < p->blocks; b++) {
        const char *block = t->panel + (size_t)b * p->block_bytes;
        const int32_t *x = t->x + b * 2 * quads;
        by__tiles_add_bytes(low, x, row_bytes, block, quads, false, height, open);
        by__tiles_add_bytes(high, x + quads, row_bytes, block, quads, false, height, open);
        for (int64_t at = 0; at < height * BY_PACKED_COLUMNS; at += BY__LANES) {
            int64_t r = at / BY_PACKED_COLUMNS;
            const by__vi sums[2] = {*(const integer_codes *)(low + at),
                                    *(const integer_codes *)(high + at)};
            by__vf before = b > 0 ? by__kernel_load(y, at, BY_F32) : by__zero();
            by__vf sum = whole_sum(sums, t->offsets[r * p->blocks + b]);
            by__vf factor = by__splat(t->scales[r * p->blocks + b]);
            by__kernel_store(y, at, by__multiply_add(sum, factor, before), BY_F32);
        }
    }
    const char *scales = t->panel + (size_t)p->blocks * p->block_bytes;
    for (int64_t at = 0; at < height * BY_PACKED_COLUMNS; at += BY__LANES) {
        by__vf scale = by__kernel_load(scales, at % BY_PACKED_COLUMNS, BY_F32);
        by__kernel_store(y, at, by__kernel_load(y, at, BY_F32) * scale, BY_F32);
    }
}

/* Multiplies a panel with all rows. *open is the number of rows for which this thread's AMX tiles
 * are open, 0 for none. */
static void run_panel(const packed_integer_plan *p, const by__device_call *call,
                      const by__cpu_panel_target *all, int64_t panel, int *open)
{
    const char *work = call->work;
    int64_t column = panel * BY_PACKED_COLUMNS;
    for (int64_t i = 0; i < p->m; i += p->tile_rows) {
        float y[MAX_ROWS * BY_PACKED_COLUMNS] = {0};
        int64_t height = by__min_i64(p->tile_rows, p->m - i);
        packed_integer_tile t = {.p = p,
                                 .panel = (const char *)call->in[1].data +
                                          (size_t)panel * p->panel_bytes,
                                 .x = (const int32_t *)(work + p->words) + i * p->row_words,
                                 .scales = (const float *)(work + p->scales) + i * p->blocks,
                                 .offsets = (const int32_t *)(work + p->offsets) + i * p->blocks};
        if (BY__TILES_ROWS > 0 && p->tiles) {
            compute_tiles(&t, y, (int)height, open);
        } else if (p->packing.kind == BY_PACKING_INT8) {
            compute_rows(BY_PACKING_INT8, &t, y, height);
        } else {
            compute_rows(BY_PACKING_INT4, &t, y, height);
        }
        by__cpu_panel_target at = by__panel_target_at(all, i, column);
        BY__AT_LEVEL(by__kernel_panel_store)
        (&at, y, BY_PACKED_COLUMNS, height, by__min_i64(BY_PACKED_COLUMNS, p->packing.n - column));
    }
}

static void multiply(const packed_integer_plan *p, const by__device_call *call)
{
    by__cpu_work_range *ranges = call->work;
    int64_t panels = by__ceil_div(p->packing.n, BY_PACKED_COLUMNS);
    by__cpu_panel_target all = {.y = call->out[0].data,
                                .ldy = p->packing.n,
                                .dtype = call->out[0].dtype,
                                .bias_dtype = call->in[2].dtype,
                                .bias = call->in[2].data,
                                .add = call->in[3].data};
    for (int thread = 0; thread < p->threads; thread++) {
        by__work_range_open(ranges, panels, thread, p->threads);
    }
    int64_t blocks = p->m * p->blocks;
    int64_t serial = blocks * p->block <= SERIAL_INPUTS ? blocks : 0;
    for (int64_t i = 0; i < serial; i++) {
        quantize_block(p, &call->in[0], call->work, i / p->blocks, i % p->blocks);
    }
#pragma omp parallel num_threads(p->threads) if (p->threads > 1)
    {
        if (serial == 0) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < blocks; i++) {
                quantize_block(p, &call->in[0], call->work, i / p->blocks, i % p->blocks);
            }
        }
        int64_t panel;
        int open = 0;
        while ((panel = by__work_range_claim(ranges, omp_get_thread_num(), p->threads)) >= 0) {
            run_panel(p, call, &all, panel, &open);
        }
        by__tiles_close(&open);
    }
}

static bool accepts(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    by_packing_kind kind = call->attrs.packing.kind;
    return (kind == BY_PACKING_INT8 || kind == BY_PACKING_INT4) && by__tensor_is_act(x) &&
           by__tensor_count(x) > 0 && by__tensor_is_act(&call->out[0]);
}

static size_t plan_product(packed_integer_plan *p, const by__device_call *call, int threads)
{
    p->packing = call->attrs.packing;
    p->m = by__tensor_rows(&call->in[0]);
    p->threads = threads;
    p->tiles = p->tiles && p->packing.kind == BY_PACKING_INT8 && p->m > FEW_ROWS;
    p->tile_rows = p->tiles ? MAX_ROWS : HEIGHT;
    p->block = by__packed_block(&p->packing);
    p->blocks = by__ceil_div(p->packing.k, p->block);
    p->block_bytes = by__packed_block_bytes(&p->packing);
    p->panel_bytes = by__packed_panel_bytes(&p->packing);
    /* One extra cache line, so that rows do not share cache sets. */
    p->row_words = p->blocks * p->block / 4 * QUAD_WORDS + (int64_t)BY_CACHE_LINE / 4;
    size_t used = by__round_up((size_t)p->threads * sizeof(by__cpu_work_range), BY_CACHE_LINE);
    p->words = by__work_reserve(&used, (size_t)(p->m * p->row_words) * sizeof(int32_t));
    p->scales = by__work_reserve(&used, (size_t)(p->m * p->blocks) * sizeof(float));
    p->offsets = by__work_reserve(&used, (size_t)(p->m * p->blocks) * sizeof(int32_t));
    return used;
}

#define PACKED_PLAN packed_integer_plan
#include "device/cpu/kernels/products/packed_kernels.h"

BY__KERNEL(packed_integer) = {
    BY_OP_PACKED_MATMUL, BY__KERNEL_NAME("packed integer"), supports, prepare, release, run};
BY__KERNEL(packed_grouped_integer) = {BY_OP_PACKED_GROUPED_MATMUL,
                                      BY__KERNEL_NAME("packed grouped integer"),
                                      accepts,
                                      prepare_groups,
                                      release,
                                      run_groups};
