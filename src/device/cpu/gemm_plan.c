/* Plans a product: super-blocks, tiles, packing, and scratch memory. gemm.c explains these. */
#include "device/cpu/gemm_plan.h"

#include <assert.h>
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/work_range.h"

/* Bytes of a packed super-block of B, and its extent along k in steps of 4 bytes. */
#define PACKED_B_BYTES (8 << 20)
#define PACKED_STEPS   1024
/* An operand that packs into no more than OWN_BYTES is packed whole by every thread, if each thread
 * has at least this many rows (columns) of C: that takes less time than waiting for the other
 * threads and reading their packed parts from their caches. */
#define OWN_BYTES     (512 << 10)
#define OWN_B_ROWS    256
#define OWN_A_COLUMNS 64
/* Least k that is divided into halves, and columns of C that a thread takes at a time in a half. */
#define OWN_K         128
#define OWN_K_COLUMNS 64
/* Limits of a tile: rows, and steps of k at a time (so that a panel of B takes 32 KiB). */
#define TILE_ROWS  128
#define TILE_STEPS 256
/* Fewer tiles than this, in total or per thread, leave threads idle: tiles are made smaller. */
#define ENOUGH_TILES        32
#define ENOUGH_FOR_A_THREAD 4
/* With few rows, B is divided into pieces of this many bytes. */
#define GEMV_PIECE (16 << 10)

/* Divides n into equal pieces of at most `most`, each a multiple of `unit`. */
static int64_t cut(int64_t n, int64_t most, int64_t unit)
{
    most = most / unit * unit;
    most = most < unit ? unit : most;
    int64_t pieces = by__ceil_div(n, most);
    return by__ceil_div(by__ceil_div(n, pieces), unit) * unit;
}

/* The extent of a tile along n, a multiple of `unit` and at most `most`, that minimizes the work of
 * the busiest thread, with `across` tiles side by side divided equally among the threads. Smaller
 * tiles are chosen only if they gain more than 2 %. */
static int64_t cut_evenly(int64_t n, int64_t most, int64_t unit, int64_t across, int threads)
{
    int64_t best = 0;
    int64_t least = INT64_MAX;
    for (int64_t tile = most / unit * unit; tile > 0; tile -= unit) {
        int64_t along = by__ceil_div(n, tile);
        int64_t tiles = along * across;
        int64_t missing = along * tile - n; /* columns missing in each tile of the last row */
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

/* Decides on halves of k: for gradients of small weights. Rows of A and B are those of k, and each
 * thread produced its own of them: halving k leaves them in their caches. If threads read each
 * other's rows, they would not only wait for them: every cache that holds a line must also be
 * invalidated before the next step overwrites it, one line after the other. There are two halves
 * for any number of threads, so the bits do not depend on it. */
static bool halves_k(const by__cpu_gemm *g)
{
    const by__cpu_gemm_options *o = &g->options;
    return o->trans_a && !o->trans_b && o->out == BY_F32 && !o->bias && !o->add && !o->partial &&
           o->ldc == o->n && o->k >= OWN_K && (size_t)(o->m * o->n) * sizeof(float) <= OWN_BYTES &&
           by__panel_a_bytes(g->panel, o->m, g->half_k) <= OWN_BYTES;
}

static gemm_packing choose_packing(const by__cpu_gemm *g)
{
    const by__cpu_gemm_options *o = &g->options;
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

static void choose_cuts(by__cpu_gemm *g)
{
    const by__cpu_gemm_options *o = &g->options;
    const by__cpu_panel *p = g->panel;
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

static by_status plan_memory(by__cpu_gemm *g, by_error *error)
{
    const by__cpu_gemm_options *o = &g->options;
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
        by__round_up(threads * sizeof(by__cpu_work_range), 4096); /* the work ranges come first */
    g->b_offset = g->a_offset + threads * g->a_tile_bytes;
    g->sums_offset = g->b_offset + g->b_bytes * (g->packing == PACK_TOGETHER ? 1 : threads);
    if (!fits || !by__size_add(g->sums_offset, sums, &g->work)) {
        return by_error_set(error, BY_EMEMORY,
                            "a matrix product [%lld, %lld] does not fit in memory", (long long)o->m,
                            (long long)o->n);
    }
    return BY_OK;
}

/* Up to four rows, and B [n, k]: B is not packed, because it is used once. */
static void plan_few_rows(by__cpu_gemm *g)
{
    const by__cpu_gemm_options *o = &g->options;
    int64_t rows = by__ceil_div(GEMV_PIECE, o->k * (int64_t)by_dtype_size(o->dtype));
    g->piece = (int64_t)by__round_up((size_t)rows, BY__GEMV_COLUMNS);
    g->uses_rows = o->dtype == BY_F32 || g->panel->step == 2;
    size_t copied = g->uses_rows ? 0 : (size_t)(o->m * o->k) * sizeof(float);
    g->a_offset = (size_t)o->threads * sizeof(by__cpu_work_range); /* the work ranges come first */
    g->sums_offset = g->a_offset + by__round_up(copied, BY_CACHE_LINE);
    g->work = g->sums_offset + (size_t)(o->m * o->n) * sizeof(float);
}

by_status by__cpu_gemm_open(by__cpu_gemm **out, const by__cpu_gemm_options *options,
                            by_error *error)
{
    assert(options->m > 0 && options->n > 0 && options->k > 0 && options->threads > 0);
    assert(!(options->add && options->accumulate));
    assert(!options->accumulate || options->out == BY_F32);
    by__cpu_gemm *g = NULL;
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "a matrix product", error));
    g->options = *options;
    by__cpu_gemm_options *o = &g->options;
    o->lda = o->lda != 0 ? o->lda : (o->trans_a ? o->m : o->k);
    o->ldb = o->ldb != 0 ? o->ldb : (o->trans_b ? o->k : o->n);
    o->ldc = o->ldc != 0 ? o->ldc : o->n;
    g->panel = by__cpu_panel_for(o->isa, by__cpu_panel_native(), o->dtype);
    by_status status = BY_OK;
    g->few_rows = o->m <= BY__GEMV_ROWS && o->trans_b && !o->trans_a;
    if (g->few_rows) {
        plan_few_rows(g);
    } else {
        choose_cuts(g);
        status = plan_memory(g, error);
    }
    if (status != BY_OK) {
        by__cpu_gemm_close(&g);
        return status;
    }
    *out = g;
    return BY_OK;
}

void by__cpu_gemm_close(by__cpu_gemm **gemm)
{
    free(*gemm);
    *gemm = NULL;
}

size_t by__cpu_gemm_work(const by__cpu_gemm *gemm)
{
    return gemm->work;
}
