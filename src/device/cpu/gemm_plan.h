/* gemm_plan: what by__gemm_open decides and by__gemm_run follows.
 *
 * The plan is a function of the shape, the layouts and the panel alone, but for what changes no
 * bits (the extents of tiles, and who packs what), which may depend on the number of threads.
 * gemm_plan.c makes it, gemm.c runs it; nobody else includes this.
 */
#ifndef BY_DEVICE_CPU_GEMM_PLAN_H
#define BY_DEVICE_CPU_GEMM_PLAN_H

#include "device/cpu/gemm.h"
#include "device/cpu/panel.h"

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

/* Columns of the sums of all of C, with room for whole panels. */
static inline int64_t whole_columns(const by__gemm *g)
{
    return by__ceil_div(g->options.n, g->panel->nr) * g->panel->nr;
}

#endif
