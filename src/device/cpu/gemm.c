/* The loops around the panels.
 *
 * B is cut into super-blocks that fit the shared cache (and bound the scratch memory), which all
 * threads pack together. Then C's columns there are cut into tiles. A thread takes tiles row by
 * row, beginning with rows of its own. A is read unpacked, or packed by the thread as it comes to
 * the rows: nobody else reads them. Of two operands of which one is small, each thread packs that
 * one for itself, and nobody waits. A tile's operands are cut along k so that they fit the thread's
 * own cache, its sums are added up in f32 in the order of k, and the last of them go from registers
 * to where they belong. The cuts along k are a function of the shape and the panel alone, so the
 * bits do not depend on the number of threads or on which thread took which tile.
 *
 * One core of a Zen 4, GF/s:                   f32                               bf16 on vdpbf16ps
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
#include <stdlib.h>

#include "base/half.h"
#include "device/cpu/cpu.h"
#include "device/cpu/panel.h"
#include "device/cpu/work_range.h"

/* Bytes of a packed super-block of B, and its extent along k in steps of 4 bytes. */
#define PACKED_B_BYTES (8 << 20)
#define PACKED_STEPS   1024
/* An operand that packs into no more than OWN_BYTES is packed whole by every thread for itself,
 * when there are as many rows (columns) of C for each thread as given here: that takes less than
 * waiting for the others and fetching what they packed from their caches. */
#define OWN_BYTES     (512 << 10)
#define OWN_B_ROWS    256
#define OWN_A_COLUMNS 64
/* Least k that is halved, and columns of C that a thread takes at a time in a half. */
#define OWN_K         128
#define OWN_K_COLUMNS 64
/* A tile: at most this many rows, and steps of k at a time (so that a panel of B takes 32 KiB). */
#define TILE_ROWS  128
#define TILE_STEPS 256
/* Rows of A that do not take more than this are fetched whole. */
#define FETCHED_BYTES (512 << 10)
/* Fewer tiles than this, and for each thread, leave threads idle: tiles get smaller. */
#define ENOUGH_TILES        32
#define ENOUGH_FOR_A_THREAD 4
/* With few rows, B is handed out in pieces of this many bytes, at most so many at a time. */
#define GEMV_PIECE  (16 << 10)
#define GEMV_PIECES 16
/* Packing is handed out in pieces of about this many bytes, whose steps of k are a multiple of
 * PACK_UNIT (the blocks of kernels/panel_pack.h; the units of k divide it too). */
#define PACK_PIECE (64 << 10)
#define PACK_UNIT  16

/* Who packs what. */
typedef enum packing {
    PACK_TOGETHER, /* all threads a super-block of B; each its rows of A */
    PACK_OWN_B,    /* each thread all of B, and its rows of A */
    PACK_OWN_A,    /* each thread all of A, and its columns of B */
    PACK_OWN_K,    /* the same in each half of k, whose sums are added up at last */
} packing;

struct by__gemm {
    by__gemm_options options;
    const by__panel *panel;
    int64_t super_n, super_k;
    int64_t half_k, own_rows; /* of PACK_OWN_K: rows of A that a thread packs at a time */
    int64_t tile_m, tile_n, tile_k;
    bool direct;   /* sums are added up in C */
    bool unpacked; /* A is read unpacked, but for the last of an odd number of rows */
    packing packing;
    bool whole; /* sums of all of C are kept from one super-block of k to the next */
    size_t a_offset, b_offset, sums_offset, work;
    size_t tile_bytes;   /* of each thread's sums */
    size_t half_bytes;   /* of the sums of a half of k */
    size_t a_tile_bytes; /* of each thread's rows of A, as far as they are packed */
    size_t b_bytes;
    bool few_rows;  /* no panels: see plan_few_rows() */
    bool uses_rows; /* its rows of A are read in their dtype, else copied as f32 */
    int64_t piece;  /* rows of B */
};

/* Cuts n into equal pieces of at most `most`, each a multiple of `unit`. */
static int64_t cut(int64_t n, int64_t most, int64_t unit)
{
    most = most / unit * unit;
    most = most < unit ? unit : most;
    int64_t pieces = by__ceil_div(n, most);
    return by__ceil_div(by__ceil_div(n, pieces), unit) * unit;
}

/* The extent of a tile along n, a multiple of `unit` and at most `most`, by which the busiest
 * thread has least to do: threads get the tiles, `across` side by side, in equal numbers. Smaller
 * tiles must be worth more than 2 %. */
static int64_t cut_evenly(int64_t n, int64_t most, int64_t unit, int64_t across, int threads)
{
    int64_t best = 0;
    int64_t least = INT64_MAX;
    for (int64_t tile = most / unit * unit; tile > 0; tile -= unit) {
        int64_t along = by__ceil_div(n, tile);
        int64_t tiles = along * across;
        int64_t missing = along * tile - n; /* in each tile of the last row */
        int64_t busiest = 0;
        for (int thread = 0; thread < threads; thread++) {
            int64_t begin = tiles * thread / threads;
            int64_t end = tiles * (thread + 1) / threads;
            int64_t last = end - by__min_i64(end, begin > tiles - across ? begin : tiles - across);
            int64_t load = (end - begin) * tile - last * missing;
            busiest = load > busiest ? load : busiest;
        }
        if (busiest < least - least / 50) {
            least = busiest;
            best = tile;
        }
    }
    return best;
}

/* Gradients of small weights. Rows of A and B are those of k, and each thread made its own of them:
 * halves of k leave them where they are. Threads that read each other's rows would not only wait
 * for them: a cache that has a line must be asked before it is overwritten in the next step, one
 * line after the other. The halves are two for any number of threads, so that the bits are the
 * same. */
static bool halves_k(const by__gemm *g)
{
    const by__gemm_options *o = &g->options;
    return o->trans_a && !o->trans_b && o->out == BY_F32 && !o->bias && !o->add && !o->partial &&
           o->ldc == o->n && o->k >= OWN_K && (size_t)(o->m * o->n) * sizeof(float) <= OWN_BYTES &&
           by__panel_a_bytes(g->panel, o->m, g->half_k) <= OWN_BYTES;
}

static packing choose_packing(const by__gemm *g)
{
    const by__gemm_options *o = &g->options;
    if (o->k > g->super_k) {
        return PACK_TOGETHER;
    }
    if (halves_k(g)) {
        return PACK_OWN_K;
    }
    if (o->n <= g->super_n && by__panel_b_bytes(g->panel, o->n, o->k) <= OWN_BYTES &&
        o->m >= OWN_B_ROWS * o->threads) {
        return PACK_OWN_B;
    }
    if (!g->unpacked && by__panel_a_bytes(g->panel, o->m, o->k) <= OWN_BYTES &&
        o->n >= OWN_A_COLUMNS * o->threads) {
        return PACK_OWN_A;
    }
    return PACK_TOGETHER;
}

static void choose_cuts(by__gemm *g)
{
    const by__gemm_options *o = &g->options;
    const by__panel *p = g->panel;
    g->unpacked =
        !o->trans_a && by__panel_reads_rows(p, o->k, (size_t)o->lda * by_dtype_size(o->dtype));
    g->super_k = cut(o->k, (int64_t)PACKED_STEPS * p->step, p->k_unit);
    int64_t row_bytes = g->super_k / p->step * 4;
    g->super_n = cut(o->n, PACKED_B_BYTES / row_bytes, p->nr);
    g->tile_m = cut(o->m, TILE_ROWS, p->mr);
    g->tile_n = cut(by__min_i64(g->super_n, o->n), p->tile_columns, p->nr);
    g->tile_k = cut(g->super_k, (int64_t)TILE_STEPS * p->step, p->k_unit);
    g->half_k = (int64_t)by__round_up((size_t)by__ceil_div(o->k, 2), (size_t)p->k_unit);
    g->packing = choose_packing(g);
    if (g->packing == PACK_OWN_K) {
        g->tile_n = cut(o->n, OWN_K_COLUMNS, p->nr);
        int64_t parts = by__ceil_div(o->threads, 2 * by__ceil_div(o->n, g->tile_n));
        g->own_rows = cut(o->m, by__ceil_div(o->m, parts), p->mr);
        return;
    }
    if (g->packing == PACK_OWN_A) {
        g->tile_n = cut_evenly(o->n, OWN_A_COLUMNS, p->nr, 1, o->threads);
        return;
    }
    if (g->packing == PACK_OWN_B) {
        g->tile_m = cut_evenly(o->m, TILE_ROWS, p->mr, by__ceil_div(o->n, g->tile_n), o->threads);
        return;
    }
    int64_t enough = (int64_t)o->threads * ENOUGH_FOR_A_THREAD;
    enough = enough > ENOUGH_TILES ? enough : ENOUGH_TILES;
    while (by__ceil_div(o->m, g->tile_m) * by__ceil_div(o->n, g->tile_n) < enough) {
        if (g->tile_m > 2 * p->mr) {
            g->tile_m = by__ceil_div(g->tile_m, 2 * p->mr) * p->mr;
        } else if (g->tile_n > 2 * p->nr) {
            g->tile_n = by__ceil_div(g->tile_n, 2 * p->nr) * p->nr;
        } else {
            break;
        }
    }
}

/* Columns of the sums of all of C, with room for whole panels. */
static int64_t whole_columns(const by__gemm *g)
{
    return by__ceil_div(g->options.n, g->panel->nr) * g->panel->nr;
}

static by_status plan_memory(by__gemm *g, by_error *error)
{
    const by__gemm_options *o = &g->options;
    g->direct = o->out == BY_F32 && !o->bias && !o->add;
    g->whole = !g->direct && g->super_k < o->k;
    size_t threads = (size_t)o->threads;
    bool own_k = g->packing == PACK_OWN_K;
    bool own_a = g->packing == PACK_OWN_A || own_k;
    int64_t packed_k = own_k ? g->half_k : g->super_k;
    int64_t packed_rows = g->unpacked ? 1 : own_a ? o->m : g->tile_m;
    g->a_tile_bytes = by__round_up(by__panel_a_bytes(g->panel, packed_rows, packed_k), 4096);
    int64_t packed_columns = own_a ? g->tile_n : by__min_i64(g->super_n, o->n);
    size_t b = by__panel_b_bytes(g->panel, packed_columns, packed_k);
    g->tile_bytes = by__round_up((size_t)(g->tile_m * g->tile_n) * sizeof(float), BY_CACHE_LINE);
    size_t sums = 0;
    bool fits = true;
    if (own_k) {
        g->half_bytes = by__round_up((size_t)(o->m * o->n) * sizeof(float), 4096);
        sums = 2 * g->half_bytes;
    } else if (g->whole) {
        fits = by__size_mul(by__round_up((size_t)o->m, (size_t)g->panel->mr),
                            (size_t)whole_columns(g), &sums) &&
               by__size_mul(sums, sizeof(float), &sums);
    } else if (!g->direct) {
        sums = g->tile_bytes * threads;
    }
    g->b_bytes = by__round_up(b, 4096);
    g->a_offset =
        by__round_up(threads * sizeof(by__work_range), 4096); /* the work ranges come first */
    g->b_offset = g->a_offset + threads * g->a_tile_bytes;
    g->sums_offset = g->b_offset + g->b_bytes * (g->packing == PACK_TOGETHER ? 1 : threads);
    if (!fits || !by__size_add(g->sums_offset, sums, &g->work)) {
        return by_error_set(error, BY_EMEMORY,
                            "a matrix product [%lld, %lld] does not fit in memory", (long long)o->m,
                            (long long)o->n);
    }
    return BY_OK;
}

/* Up to four rows and B [n, k]: it is not packed, because it is used once. */
static void plan_few_rows(by__gemm *g)
{
    const by__gemm_options *o = &g->options;
    int64_t rows = by__ceil_div(GEMV_PIECE, o->k * (int64_t)by_dtype_size(o->dtype));
    g->piece = (int64_t)by__round_up((size_t)rows, BY__GEMV_COLUMNS);
    g->uses_rows = o->dtype == BY_F32 || g->panel->step == 2;
    size_t copied = g->uses_rows ? 0 : (size_t)(o->m * o->k) * sizeof(float);
    g->a_offset = (size_t)o->threads * sizeof(by__work_range); /* the work ranges come first */
    g->sums_offset = g->a_offset + by__round_up(copied, BY_CACHE_LINE);
    g->work = g->sums_offset + (size_t)(o->m * o->n) * sizeof(float);
}

by_status by__gemm_open(by__gemm **out, const by__gemm_options *options, by_error *error)
{
    assert(options->m > 0 && options->n > 0 && options->k > 0 && options->threads > 0);
    assert(!(options->add && options->accumulate));
    assert(!options->accumulate || options->out == BY_F32);
    by__gemm *g = NULL;
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "a matrix product", error));
    g->options = *options;
    by__gemm_options *o = &g->options;
    o->lda = o->lda != 0 ? o->lda : (o->trans_a ? o->m : o->k);
    o->ldb = o->ldb != 0 ? o->ldb : (o->trans_b ? o->k : o->n);
    o->ldc = o->ldc != 0 ? o->ldc : o->n;
    g->panel = by__panel_for(o->isa, by__panel_native(), o->dtype);
    by_status status = BY_OK;
    g->few_rows = o->m <= BY__GEMV_ROWS && o->trans_b && !o->trans_a;
    if (g->few_rows) {
        plan_few_rows(g);
    } else {
        choose_cuts(g);
        status = plan_memory(g, error);
    }
    if (status != BY_OK) {
        by__gemm_close(&g);
        return status;
    }
    *out = g;
    return BY_OK;
}

void by__gemm_close(by__gemm **gemm)
{
    free(*gemm);
    *gemm = NULL;
}

size_t by__gemm_work(const by__gemm *gemm)
{
    return gemm->work;
}

const char *by__gemm_name(const by__gemm *gemm)
{
    return gemm->panel->name;
}

/* A super-block being computed: columns n0 .. n0 + n of C over k0 .. k0 + k, by one thread. */
typedef struct block {
    int64_t n0, k0;
    int64_t n, k;
    const by__gemm_operands *operands;
    char *a, *b; /* packed rows of A, which are the thread's own, and all columns of B */
} block;

/* Of m rows of A, those that need not be packed. */
static int64_t rows_as_they_lie(const by__gemm *g, int64_t m)
{
    return g->unpacked ? m / 2 * 2 : 0;
}

/* Rows i .. i + m of A. */
static void pack_rows(const by__gemm *g, const block *s, int64_t i, int64_t m)
{
    const by__gemm_options *o = &g->options;
    int64_t row_stride = o->trans_a ? 1 : o->lda;
    int64_t k_stride = o->trans_a ? o->lda : 1;
    const char *from = (const char *)s->operands->a +
                       (size_t)(i * row_stride + s->k0 * k_stride) * by_dtype_size(o->dtype);
    g->panel->pack_a(s->a, by__panel_a_stride(g->panel, s->k), from, row_stride, k_stride, m, s->k);
}

/* Packs columns j .. j + columns of the block over k .. k + depth of it, whose panels begin at
 * b. */
static void pack_part(const by__gemm *g, const block *s, char *b, int64_t j, int64_t columns,
                      int64_t k, int64_t depth)
{
    const by__gemm_options *o = &g->options;
    int64_t column_stride = o->trans_b ? o->ldb : 1;
    int64_t k_stride = o->trans_b ? 1 : o->ldb;
    int64_t at = (s->n0 + j) * column_stride + (s->k0 + k) * k_stride;
    g->panel->pack_b(b, by__panel_b_stride(g->panel, s->k),
                     (const char *)s->operands->b + (size_t)at * by_dtype_size(o->dtype),
                     column_stride, k_stride, columns, depth);
}

/* Packs B's columns together: every thread of the team calls it, and all is packed when it returns.
 * Pieces are cut so that each reads B in the order of memory: whole columns where those are
 * contiguous, and all columns of a part of k where they are not. */
static void pack_columns(const by__gemm *g, const block *s)
{
    const by__gemm_options *o = &g->options;
    const by__panel *p = g->panel;
    int64_t units = PACK_PIECE / 4 * p->step; /* elements of a piece */
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

/* Brings rows i .. i + m of A into the thread's cache, all at once: the inner loop would meet them
 * row by row and wait for each. */
static void fetch_rows(const by__gemm *g, const block *s, int64_t i, int64_t m)
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

/* Sums of rows i .. i + m, the packed ones and those that are not, and of columns j .. j + n of the
 * block. With the last of k they go to the target, if there is one. */
static void add_products(const by__gemm *g, const block *s, float *sums, int64_t lds, int64_t i,
                         int64_t m, int64_t j, int64_t n, const by__panel_target *target)
{
    const by__gemm_options *o = &g->options;
    const by__panel *p = g->panel;
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
        const by__panel_target *last = k + g->tile_k >= s->k ? target : NULL;
        if (lying > 0) {
            p->multiply_rows(sums, lds, a + (size_t)k * size, (size_t)o->lda * size, b, b_stride,
                             lying, n, depth, accumulate, last);
        }
        if (lying < m) {
            by__panel_target rest;
            if (last != NULL) {
                rest = by__panel_target_at(last, lying, 0);
                last = &rest;
            }
            p->multiply(sums + lying * lds, lds, by__panel_a_at(p, s->a, 0, k, a_stride), a_stride,
                        b, b_stride, m - lying, n, depth, accumulate, last);
        }
    }
}

static by__panel_target all_of_c(const by__gemm_options *o, const by__gemm_operands *x)
{
    const void *add = o->accumulate ? x->c : x->add;
    return (by__panel_target){.y = x->c,
                              .ldy = o->ldc,
                              .dtype = o->out,
                              .bias_dtype = o->bias_dtype,
                              .bias = o->bias ? x->bias : NULL,
                              .add = o->add || o->accumulate ? add : NULL};
}

/* Sums of the first or second half of k. */
static float *half_of(const by__gemm *g, const by__gemm_operands *x, bool second)
{
    return (float *)((char *)x->work + g->sums_offset + (second ? g->half_bytes : 0));
}

/* The tile of rows i .. i + m and of columns j .. of the block. */
static void compute_tile(const by__gemm *g, const block *s, int64_t i, int64_t m, int64_t j)
{
    const by__gemm_options *o = &g->options;
    const by__gemm_operands *x = s->operands;
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
    by__panel_target all = all_of_c(o, x);
    by__panel_target target = by__panel_target_at(&all, i, column);
    add_products(g, s, sums, lds, i, m, j, n, s->k0 + s->k == o->k ? &target : NULL);
}

static by__work_range *ranges_of(const by__gemm_operands *operands)
{
    return operands->work;
}

/* The tiles of a super-block that fall to thread `me`. */
static void compute_tiles(const by__gemm *g, const block *s, int me, int team)
{
    int64_t columns = by__ceil_div(s->n, g->tile_n);
    int64_t ready = -1;
    int64_t t;
    while ((t = by__work_range_take(ranges_of(s->operands), me, team)) >= 0) {
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

/* Packs a tile's columns of B, from column n0 on, and multiplies rows m0 .. m0 + m of A with them,
 * which are packed at `a`. */
static void compute_panel(const by__gemm *g, block *s, char *a, int64_t m0, int64_t m, int64_t n0)
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

/* The columns of C that fall to thread `me`, which packs all of A for itself, and of B what it
 * comes to. */
static void compute_columns(const by__gemm *g, block *s, int me)
{
    char *a = s->a;
    pack_rows(g, s, 0, g->options.m);
    int64_t t;
    while ((t = by__work_range_take(ranges_of(s->operands), me, g->options.threads)) >= 0) {
        compute_panel(g, s, a, 0, g->options.m, t * g->tile_n);
    }
}

/* The tiles of the halves of k that fall to thread `me`, which packs for itself what it comes to;
 * then its rows of C. */
static void compute_halves(const by__gemm *g, block *s, int me)
{
    const by__gemm_options *o = &g->options;
    const by__gemm_operands *x = s->operands;
    int64_t columns = by__ceil_div(o->n, g->tile_n);
    char *a = s->a;
    int64_t ready = -1;
    int64_t t;
    while ((t = by__work_range_take(ranges_of(x), me, o->threads)) >= 0) {
        int64_t part = t / columns; /* rows of A, in a half */
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
    int64_t row = o->m * me / o->threads;
    int64_t rows = o->m * (me + 1) / o->threads - row;
    float *first = half_of(g, x, false) + row * o->n;
    float *c = (float *)x->c + row * o->ldc;
    by__panel_target sum = {.y = o->accumulate ? first : c,
                            .ldy = o->n,
                            .dtype = BY_F32,
                            .add = half_of(g, x, true) + row * o->n};
    g->panel->store(&sum, first, o->n, rows, o->n);
    if (o->accumulate) {
        by__panel_target target = {.y = c, .ldy = o->ldc, .dtype = BY_F32, .add = c};
        g->panel->store(&target, first, o->n, rows, o->n);
    }
}

/* Every thread of the team walks the same super-blocks; a barrier stands before a packed B is read
 * and before it is overwritten. */
static void compute(const by__gemm *g, const by__gemm_operands *operands)
{
    const by__gemm_options *o = &g->options;
    int me = omp_get_thread_num();
    int team = omp_get_num_threads();
    block s = {.operands = operands};
    s.a = (char *)operands->work + g->a_offset + (size_t)me * g->a_tile_bytes;
    s.b = (char *)operands->work + g->b_offset;
    if (g->packing != PACK_TOGETHER) {
        s.b += (size_t)me * g->b_bytes;
        s.k = o->k;
        s.n = o->n;
        if (g->packing == PACK_OWN_A) {
            compute_columns(g, &s, me);
        } else if (g->packing == PACK_OWN_K) {
            compute_halves(g, &s, me);
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

static void few_rows_as_f32(const by__gemm *g, const by__gemm_operands *x)
{
    const by__gemm_options *o = &g->options;
    float *out = (float *)((char *)x->work + g->a_offset);
    for (int64_t i = 0; i < o->m; i++) {
        for (int64_t k = 0; k < o->k; k++) {
            uint16_t half = ((const uint16_t *)x->a)[i * o->lda + k];
            out[i * o->k + k] = o->dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
        }
    }
}

static void compute_few_rows(const by__gemm *g, const by__gemm_operands *x)
{
    const by__gemm_options *o = &g->options;
    const void *a = g->uses_rows ? x->a : (char *)x->work + g->a_offset;
    by_dtype a_dtype = g->uses_rows ? o->dtype : BY_F32;
    int64_t lda = g->uses_rows ? o->lda : o->k;
    by__panel_target all = all_of_c(o, x);
    int me = omp_get_thread_num();
    int64_t t;
    int64_t taken;
    while ((t = by__work_range_take_some(ranges_of(x), me, o->threads, GEMV_PIECES, &taken)) >= 0) {
        int64_t begin = t * g->piece;
        int64_t count = by__min_i64(taken * g->piece, o->n - begin);
        const char *b = (const char *)x->b + (size_t)(begin * o->ldb) * by_dtype_size(o->dtype);
        float *sums = (float *)((char *)x->work + g->sums_offset) + begin;
        g->panel->few_rows(sums, o->n, a, a_dtype, lda, (int)o->m, b, o->dtype, o->ldb, true, count,
                           o->k);
        by__panel_target target = by__panel_target_at(&all, 0, begin);
        g->panel->store(&target, sums, o->n, o->m, count);
    }
}

/* Divides the tasks up before the threads begin: then they need not wait for each other. */
static void open_ranges(const by__gemm *g, const by__gemm_operands *x, int64_t tasks)
{
    for (int thread = 0; thread < g->options.threads; thread++) {
        by__work_range_open(ranges_of(x), tasks, thread, g->options.threads);
    }
}

void by__gemm_run(const by__gemm *gemm, const by__gemm_operands *operands)
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
        /* Nothing else makes the threads wait for each other, so the tasks are divided up
         * before. */
        const by__gemm_options *o = &gemm->options;
        int64_t across = gemm->packing == PACK_OWN_B   ? by__ceil_div(o->m, gemm->tile_m)
                         : gemm->packing == PACK_OWN_K ? 2 * by__ceil_div(o->m, gemm->own_rows)
                                                       : 1;
        int64_t tiles = across * by__ceil_div(o->n, gemm->tile_n);
        open_ranges(gemm, operands, tiles);
    }
#pragma omp parallel num_threads(gemm->options.threads) if (gemm->options.threads > 1)
    compute(gemm, operands);
}

void by__gemm_run_part(const by__gemm *gemm, const by__gemm_operands *operands, int64_t m,
                       int64_t k)
{
    by__gemm part = *gemm;
    assert(gemm->options.partial && m > 0 && m <= gemm->options.m && k > 0);
    assert(k == gemm->options.k || (k < gemm->options.k && gemm->options.trans_a));
    part.options.m = m;
    part.options.k = k;
    by__gemm_run(&part, operands);
}
