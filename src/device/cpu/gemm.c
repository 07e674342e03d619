/* Matrix products: the loops around the panels (panel.h).
 *
 * Loop order: B is divided into super-blocks that fit the shared cache (which also bounds the
 * scratch memory); all threads pack a super-block together. C's columns there are divided into
 * tiles. A thread takes tiles row by row, starting with its own rows. A is read unpacked, or packed
 * by the thread when it reaches the rows, because no other thread reads them. If one operand is
 * small, each thread packs it for itself, so that no thread waits. A tile's operands are divided
 * along k so that they fit the thread's own cache; sums are accumulated in f32 in the order of k,
 * and the final ones go from registers to their destination. The division of k is a function of the
 * shape and the panel alone, so the bits do not depend on the number of threads or on which thread
 * took which tile.
 *
 * One core of a Zen 4, GF/s: f32 bf16 on vdpbf16ps
 *   x W     [4096, 768] x [768, 3072]        106                                   214
 *   x^T dy  [768, 4096] x [4096, 3072]       100                                   200
 *   the inner loop alone                     117                                   235
 * One core of a Xeon with AMX under load, when A was always packed (oneDNN 2.6.3 in brackets):
 *                                              f32        bf16 on AMX      bf16 on vdpbf16ps
 *   x W     [4096, 768] x [768, 3072]        165 (80)     1100 (840)         104 (107)
 *   x W^T   [4096, 768] x [3072, 768]        156 (156)     870 (1030)        103 (109)
 *   x^T dy  [768, 4096] x [4096, 3072]       134 (70)      690 (600)         103 (108)
 *   the inner loop alone                     205          2600               118
 * oneDNN also divides k among threads for some bf16 products on AMX (768 x 768 x 1024, and 1024 x
 * 3072 x 768 with A transposed), so its bits depend on their number; here they cannot.
 */
#include "device/cpu/gemm.h"

#include <assert.h>
#include <omp.h>

#include "base/half.h"
#include "device/cpu/cpu.h"
#include "device/cpu/gemm_plan.h"
#include "device/cpu/work_range.h"

/* Rows of A that take no more than this are prefetched as a whole. */
#define FETCHED_BYTES (512 << 10)
/* With few rows, most pieces of B taken at a time. */
#define GEMV_PIECES 16
/* Packing is divided into pieces of about this many bytes, whose steps of k are a multiple of
 * PACK_UNIT (the block size of kernels/products/panel_pack.h, which is a multiple of the units of
 * k). */
#define PACK_PIECE (64 << 10)
#define PACK_UNIT  16

/* One thread's view of a super-block: columns n0 .. n0 + n of C over k0 .. k0 + k. */
typedef struct gemm_block {
    int64_t n0, k0;
    int64_t n, k;
    const by__cpu_gemm_operands *operands;
    char *a, *b; /* packed rows of A, which are the thread's own, and all packed columns of B */
} gemm_block;

/* Number of m rows of A that need not be packed. */
static int64_t rows_as_they_lie(const by__cpu_gemm *g, int64_t m)
{
    return g->unpacked ? m / 2 * 2 : 0;
}

/* Packs rows i .. i + m of A. */
static void pack_rows(const by__cpu_gemm *g, const gemm_block *s, int64_t i, int64_t m)
{
    const by__cpu_gemm_options *o = &g->options;
    int64_t row_stride = o->trans_a ? 1 : o->lda;
    int64_t k_stride = o->trans_a ? o->lda : 1;
    const char *from = (const char *)s->operands->a +
                       (size_t)(i * row_stride + s->k0 * k_stride) * by_dtype_size(o->dtype);
    g->panel->pack_a(s->a, by__panel_a_stride(g->panel, s->k), from, row_stride, k_stride, m, s->k);
}

/* Packs columns j .. j + columns of the block over its k .. k + depth; their panels begin at b. */
static void pack_part(const by__cpu_gemm *g, const gemm_block *s, char *b, int64_t j,
                      int64_t columns, int64_t k, int64_t depth)
{
    const by__cpu_gemm_options *o = &g->options;
    int64_t column_stride = o->trans_b ? o->ldb : 1;
    int64_t k_stride = o->trans_b ? 1 : o->ldb;
    int64_t at = (s->n0 + j) * column_stride + (s->k0 + k) * k_stride;
    g->panel->pack_b(b, by__panel_b_stride(g->panel, s->k),
                     (const char *)s->operands->b + (size_t)at * by_dtype_size(o->dtype),
                     column_stride, k_stride, columns, depth);
}

/* Packs B's columns together: called by every thread of the team; when it returns all is packed.
 * Each piece reads B in memory order: whole columns if those are contiguous, else all columns of a
 * part of k. */
static void pack_columns(const by__cpu_gemm *g, const gemm_block *s)
{
    const by__cpu_gemm_options *o = &g->options;
    const by__cpu_panel *p = g->panel;
    int64_t units = PACK_PIECE / 4 * p->step; /* elements per piece */
    int64_t columns = s->n;
    int64_t depth = s->k;
    if (o->trans_b) {
        columns = by__ceil_div(units, s->k * p->nr) * p->nr;
    } else {
        depth = by__ceil_div(units, s->n * PACK_UNIT * p->step) * PACK_UNIT * p->step;
    }
    size_t stride = by__panel_b_stride(p, s->k);
    int64_t across = by__ceil_div(s->n, columns);
    int64_t pieces = across * by__ceil_div(s->k, depth);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        int64_t j = i % across * columns;
        int64_t k = i / across * depth;
        char *b = s->b + (size_t)(j / p->nr) * stride + (size_t)(k / p->step * p->nr) * 4;
        pack_part(g, s, b, j, by__min_i64(columns, s->n - j), k, by__min_i64(depth, s->k - k));
    }
}

/* Prefetches rows i .. i + m of A into the thread's cache together: the inner loop would otherwise
 * miss row by row. */
static void fetch_rows(const by__cpu_gemm *g, const gemm_block *s, int64_t i, int64_t m)
{
    size_t size = by_dtype_size(g->options.dtype);
    size_t bytes = (size_t)s->k * size;
    if ((size_t)m * bytes > FETCHED_BYTES) {
        bytes = (size_t)by__min_i64(s->k, g->tile_k) * size;
    }
    for (int64_t row = i; row < i + m; row++) {
        const char *line =
            (const char *)s->operands->a + (size_t)(row * g->options.lda + s->k0) * size;
        for (size_t at = 0; at < bytes; at += BY_CACHE_LINE) {
            __builtin_prefetch(line + at, 0, 2);
        }
    }
}

/* Accumulates the products of rows i .. i + m, packed or not, with columns j .. j + n of the block.
 * With the last part of k the results go to the target, if there is one. */
static void add_products(const by__cpu_gemm *g, const gemm_block *s, float *sums, int64_t lds,
                         int64_t i, int64_t m, int64_t j, int64_t n,
                         const by__cpu_panel_target *target)
{
    const by__cpu_gemm_options *o = &g->options;
    const by__cpu_panel *p = g->panel;
    size_t size = by_dtype_size(o->dtype);
    size_t a_stride = by__panel_a_stride(p, s->k);
    size_t b_stride = by__panel_b_stride(p, s->k);
    int64_t lying = rows_as_they_lie(g, m);
    const char *a = (const char *)s->operands->a + (size_t)(i * o->lda + s->k0) * size;
    for (int64_t k = 0; k < s->k; k += g->tile_k) {
        int64_t depth = by__panel_k(p, by__min_i64(g->tile_k, s->k - k));
        bool accumulate =
            k > 0 || (g->packing != PACK_OWN_K && (s->k0 > 0 || (g->direct && o->accumulate)));
        const void *b = by__panel_b_at(p, s->b, j, k, b_stride);
        const by__cpu_panel_target *last = k + g->tile_k >= s->k ? target : NULL;
        if (lying > 0) {
            p->multiply_rows(sums, lds, a + (size_t)k * size, (size_t)o->lda * size, b, b_stride,
                             lying, n, depth, accumulate, last);
        }
        if (lying < m) {
            by__cpu_panel_target rest;
            if (last != NULL) {
                rest = by__panel_target_at(last, lying, 0);
                last = &rest;
            }
            p->multiply(sums + lying * lds, lds, by__panel_a_at(p, s->a, 0, k, a_stride), a_stride,
                        b, b_stride, m - lying, n, depth, accumulate, last);
        }
    }
}

static by__cpu_panel_target all_of_c(const by__cpu_gemm_options *o, const by__cpu_gemm_operands *x)
{
    const void *add = o->accumulate ? x->c : x->add;
    return (by__cpu_panel_target){.y = x->c,
                                  .ldy = o->ldc,
                                  .dtype = o->out,
                                  .bias_dtype = o->bias_dtype,
                                  .bias = o->bias ? x->bias : NULL,
                                  .add = o->add || o->accumulate ? add : NULL};
}

/* The sums of the first or second half of k. */
static float *half_of(const by__cpu_gemm *g, const by__cpu_gemm_operands *x, bool second)
{
    return (float *)((char *)x->work + g->sums_offset + (second ? g->half_bytes : 0));
}

/* Computes the tile of rows i .. i + m and of columns from j on. */
static void compute_tile(const by__cpu_gemm *g, const gemm_block *s, int64_t i, int64_t m,
                         int64_t j)
{
    const by__cpu_gemm_options *o = &g->options;
    const by__cpu_gemm_operands *x = s->operands;
    int64_t n = by__min_i64(g->tile_n, s->n - j);
    int64_t column = s->n0 + j;
    float *sums = (float *)((char *)x->work + g->sums_offset);
    if (g->packing == PACK_OWN_K) {
        sums = half_of(g, x, s->k0 > 0) + i * o->n + column;
        add_products(g, s, sums, o->n, i, m, j, n, NULL);
        return;
    }
    if (g->direct) {
        sums = (float *)x->c + i * o->ldc + column;
        add_products(g, s, sums, o->ldc, i, m, j, n, NULL);
        return;
    }
    int64_t lds = g->tile_n;
    if (g->whole) {
        lds = whole_columns(g);
        sums += i * lds + column;
    } else {
        sums = (float *)((char *)sums + g->tile_bytes * (size_t)omp_get_thread_num());
    }
    by__cpu_panel_target all = all_of_c(o, x);
    by__cpu_panel_target target = by__panel_target_at(&all, i, column);
    add_products(g, s, sums, lds, i, m, j, n, s->k0 + s->k == o->k ? &target : NULL);
}

static by__cpu_work_range *ranges_of(const by__cpu_gemm_operands *operands)
{
    return operands->work;
}

/* Computes the tiles of a super-block that thread `me` takes. */
static void compute_tiles(const by__cpu_gemm *g, const gemm_block *s, int me, int team)
{
    int64_t columns = by__ceil_div(s->n, g->tile_n);
    int64_t ready = -1;
    int64_t t;
    while ((t = by__work_range_claim(ranges_of(s->operands), me, team)) >= 0) {
        int64_t i = t / columns * g->tile_m;
        int64_t m = by__min_i64(g->tile_m, g->options.m - i);
        if (i != ready) {
            int64_t lying = rows_as_they_lie(g, m);
            fetch_rows(g, s, i, lying);
            if (lying < m) {
                pack_rows(g, s, i + lying, m - lying);
            }
            ready = i;
        }
        compute_tile(g, s, i, m, t % columns * g->tile_n);
    }
}

/* Packs a tile's columns of B, from column n0 on, and multiplies them with rows m0 .. m0 + m of A,
 * packed at `a`. */
static void compute_panel(const by__cpu_gemm *g, gemm_block *s, char *a, int64_t m0, int64_t m,
                          int64_t n0)
{
    size_t a_stride = by__panel_a_stride(g->panel, s->k);
    s->n0 = n0;
    s->n = by__min_i64(g->tile_n, g->options.n - n0);
    pack_part(g, s, s->b, 0, s->n, 0, s->k);
    for (int64_t i = 0; i < m; i += g->tile_m) {
        s->a = a + (size_t)(i / g->panel->mr) * a_stride;
        compute_tile(g, s, m0 + i, by__min_i64(g->tile_m, m - i), 0);
    }
}

/* Computes the columns of C that thread `me` takes; the thread packs all of A, and the columns of B
 * as it reaches them. */
static void compute_columns(const by__cpu_gemm *g, gemm_block *s, int me)
{
    char *a = s->a;
    pack_rows(g, s, 0, g->options.m);
    int64_t t;
    while ((t = by__work_range_claim(ranges_of(s->operands), me, g->options.threads)) >= 0) {
        compute_panel(g, s, a, 0, g->options.m, t * g->tile_n);
    }
}

/* Computes the tiles of the halves of k that thread `me` of a team takes, packing its own operands;
 * then adds its rows of C. A team may be smaller than was asked for (OMP_THREAD_LIMIT). */
static void compute_halves(const by__cpu_gemm *g, gemm_block *s, int me, int team)
{
    const by__cpu_gemm_options *o = &g->options;
    const by__cpu_gemm_operands *x = s->operands;
    int64_t columns = by__ceil_div(o->n, g->tile_n);
    char *a = s->a;
    int64_t ready = -1;
    int64_t t;
    while ((t = by__work_range_claim(ranges_of(x), me, o->threads)) >= 0) {
        int64_t part = t / columns; /* group of rows of A, in a half */
        int64_t parts = by__ceil_div(o->m, g->own_rows);
        int64_t m0 = part % parts * g->own_rows;
        int64_t m = by__min_i64(g->own_rows, o->m - m0);
        s->k0 = part / parts * g->half_k;
        s->k = by__min_i64(g->half_k, o->k - s->k0);
        if (part != ready) {
            s->a = a;
            pack_rows(g, s, m0, m);
            ready = part;
        }
        compute_panel(g, s, a, m0, m, t % columns * g->tile_n);
    }
#pragma omp barrier
    int64_t row = o->m * me / team;
    int64_t rows = o->m * (me + 1) / team - row;
    float *first = half_of(g, x, false) + row * o->n;
    float *c = (float *)x->c + row * o->ldc;
    by__cpu_panel_target sum = {.y = o->accumulate ? first : c,
                                .ldy = o->n,
                                .dtype = BY_F32,
                                .add = half_of(g, x, true) + row * o->n};
    g->panel->store(&sum, first, o->n, rows, o->n);
    if (o->accumulate) {
        by__cpu_panel_target target = {.y = c, .ldy = o->ldc, .dtype = BY_F32, .add = c};
        g->panel->store(&target, first, o->n, rows, o->n);
    }
}

/* Every thread of the team goes through the same super-blocks; there is a barrier before a packed B
 * is read and one before it is overwritten. */
static void compute(const by__cpu_gemm *g, const by__cpu_gemm_operands *operands)
{
    const by__cpu_gemm_options *o = &g->options;
    int me = omp_get_thread_num();
    int team = omp_get_num_threads();
    gemm_block s = {.operands = operands};
    s.a = (char *)operands->work + g->a_offset + (size_t)me * g->a_tile_bytes;
    s.b = (char *)operands->work + g->b_offset;
    if (g->packing != PACK_TOGETHER) {
        s.b += (size_t)me * g->b_bytes;
        s.k = o->k;
        s.n = o->n;
        if (g->packing == PACK_OWN_A) {
            compute_columns(g, &s, me);
        } else if (g->packing == PACK_OWN_K) {
            compute_halves(g, &s, me, team);
        } else {
            pack_part(g, &s, s.b, 0, s.n, 0, s.k);
            compute_tiles(g, &s, me, o->threads);
        }
        return;
    }
    int64_t rows = by__ceil_div(o->m, g->tile_m);
    for (s.k0 = 0; s.k0 < o->k; s.k0 += g->super_k) {
        s.k = by__min_i64(g->super_k, o->k - s.k0);
        for (s.n0 = 0; s.n0 < o->n; s.n0 += g->super_n) {
            s.n = by__min_i64(g->super_n, o->n - s.n0);
            if (s.k0 > 0 || s.n0 > 0) {
#pragma omp barrier
            }
            by__work_range_open(ranges_of(operands), rows * by__ceil_div(s.n, g->tile_n), me, team);
            pack_columns(g, &s);
            compute_tiles(g, &s, me, team);
        }
    }
}

static void few_rows_as_f32(const by__cpu_gemm *g, const by__cpu_gemm_operands *x)
{
    const by__cpu_gemm_options *o = &g->options;
    float *out = (float *)((char *)x->work + g->a_offset);
    for (int64_t i = 0; i < o->m; i++) {
        for (int64_t k = 0; k < o->k; k++) {
            uint16_t half = ((const uint16_t *)x->a)[i * o->lda + k];
            out[i * o->k + k] = o->dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
        }
    }
}

static void compute_few_rows(const by__cpu_gemm *g, const by__cpu_gemm_operands *x)
{
    const by__cpu_gemm_options *o = &g->options;
    const void *a = g->uses_rows ? x->a : (char *)x->work + g->a_offset;
    by_dtype a_dtype = g->uses_rows ? o->dtype : BY_F32;
    int64_t lda = g->uses_rows ? o->lda : o->k;
    by__cpu_panel_target all = all_of_c(o, x);
    int me = omp_get_thread_num();
    int64_t t;
    int64_t taken;
    while ((t = by__work_range_claim_some(ranges_of(x), me, o->threads, GEMV_PIECES, &taken)) >=
           0) {
        int64_t begin = t * g->piece;
        int64_t count = by__min_i64(taken * g->piece, o->n - begin);
        const char *b = (const char *)x->b + (size_t)(begin * o->ldb) * by_dtype_size(o->dtype);
        float *sums = (float *)((char *)x->work + g->sums_offset) + begin;
        g->panel->few_rows(sums, o->n, a, a_dtype, lda, (int)o->m, b, o->dtype, o->ldb, true, count,
                           o->k);
        by__cpu_panel_target target = by__panel_target_at(&all, 0, begin);
        g->panel->store(&target, sums, o->n, o->m, count);
    }
}

/* Divides the tasks before the threads start: then they need no barrier. */
static void open_ranges(const by__cpu_gemm *g, const by__cpu_gemm_operands *x, int64_t tasks)
{
    for (int thread = 0; thread < g->options.threads; thread++) {
        by__work_range_open(ranges_of(x), tasks, thread, g->options.threads);
    }
}

void by__cpu_gemm_run(const by__cpu_gemm *gemm, const by__cpu_gemm_operands *operands)
{
    if (gemm->few_rows) {
        if (!gemm->uses_rows) {
            few_rows_as_f32(gemm, operands);
        }
        open_ranges(gemm, operands, by__ceil_div(gemm->options.n, gemm->piece));
#pragma omp parallel num_threads(gemm->options.threads) if (gemm->options.threads > 1)
        compute_few_rows(gemm, operands);
        return;
    }
    if (gemm->packing != PACK_TOGETHER) {
        /* The threads do not wait for each other elsewhere, so the tasks are divided before they
         * start. */
        const by__cpu_gemm_options *o = &gemm->options;
        int64_t across = gemm->packing == PACK_OWN_B   ? by__ceil_div(o->m, gemm->tile_m)
                         : gemm->packing == PACK_OWN_K ? 2 * by__ceil_div(o->m, gemm->own_rows)
                                                       : 1;
        int64_t tiles = across * by__ceil_div(o->n, gemm->tile_n);
        open_ranges(gemm, operands, tiles);
    }
#pragma omp parallel num_threads(gemm->options.threads) if (gemm->options.threads > 1)
    compute(gemm, operands);
}

void by__cpu_gemm_run_part(const by__cpu_gemm *gemm, const by__cpu_gemm_operands *operands,
                           int64_t m, int64_t k)
{
    by__cpu_gemm part = *gemm;
    assert(gemm->options.partial && m > 0 && m <= gemm->options.m && k > 0);
    assert(k == gemm->options.k || (k < gemm->options.k && gemm->options.trans_a));
    part.options.m = m;
    part.options.k = k;
    by__cpu_gemm_run(&part, operands);
}
