/* gemm_plan: the decisions that by__cpu_gemm_open makes and by__cpu_gemm_run follows.
 *
 * The plan is a function of the shape, the layouts and the panel alone. The number of threads may
 * affect only choices that do not change bits: the extents of tiles, and which thread packs what.
 * gemm_plan.c makes the plan, gemm.c runs it; no other file may include this header.
 */
#ifndef BY_DEVICE_CPU_GEMM_PLAN_H
#define BY_DEVICE_CPU_GEMM_PLAN_H

#include "device/cpu/gemm.h"
#include "device/cpu/panel.h"

/* How packing is divided among the threads. */
typedef enum gemm_packing {
    PACK_TOGETHER, /* all threads pack a super-block of B together; each its own rows of A */
    PACK_OWN_B,    /* each thread packs all of B, and its own rows of A */
    PACK_OWN_A,    /* each thread packs all of A, and its own columns of B */
    PACK_OWN_K,    /* as PACK_OWN_A in each half of k; the two sums are added at the end */
} gemm_packing;

struct by__cpu_gemm {
    by__cpu_gemm_options options;
    const by__cpu_panel *panel;
    int64_t super_n, super_k;
    int64_t half_k, own_rows; /* of PACK_OWN_K: rows of A that a thread packs at a time */
    int64_t tile_m, tile_n, tile_k;
    bool direct;   /* sums are accumulated in C itself */
    bool unpacked; /* A is read unpacked, except the last row of an odd number */
    gemm_packing packing;
    bool whole; /* sums of all of C are kept between super-blocks of k */
    size_t a_offset, b_offset, sums_offset, work;
    size_t tile_bytes;   /* bytes of each thread's sums */
    size_t half_bytes;   /* bytes of the sums of one half of k */
    size_t a_tile_bytes; /* bytes of each thread's packed rows of A */
    size_t b_bytes;
    bool few_rows;  /* no panels: see plan_few_rows() */
    bool uses_rows; /* rows of A are read in their dtype, else copied to f32 */
    int64_t piece;  /* rows of B that a task covers */
};

/* Columns of the buffer for the sums of all of C, rounded up to whole panels. */
static inline int64_t whole_columns(const by__cpu_gemm *g)
{
    return by__ceil_div(g->options.n, g->panel->nr) * g->panel->nr;
}

#endif
