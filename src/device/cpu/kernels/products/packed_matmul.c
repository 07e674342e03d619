/* PACKED_MATMUL, PACKED_GROUPED_MATMUL and PACKED_EMBEDDING: products with weights that were packed
 * when they were loaded (banyan/packing.h), and look-ups in them.
 *
 * Row invariance. Every element of the result is one chain of f32 additions along k, from the first
 * input to the last: a fused multiply-add for each input, vdpbf16ps for each pair of bf16, or an
 * AMX instruction for each 16 pairs (tiles.h), then with any number of rows. Where loops are
 * divided along k, the chain continues from the stored f32 sum. The number of rows, the division of
 * rows and columns, and the number of threads thus cannot change a bit of a row.
 *
 * Loop order. With few rows every panel is read once, from end to end, and all panels of a thread
 * are one stream of memory. With more rows than a register tile has, panels are processed in groups
 * and in pieces along k, so that a panel's piece stays in the first-level cache and a group's in
 * the second while they are combined with all rows of a block.
 *
 * Weights of FP8 are converted to pairs of bf16 in registers, and the complete sums of a row are
 * multiplied by the outputs' scales. */
#include <omp.h>
#include <string.h>

#include "base/packing/packing.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/products/packed_tile.h"
#include "device/cpu/kernels/products/panel_pack.h"
#include "device/cpu/kernels/products/tiles.h"
#include "device/cpu/kernels/step.h"
#include "device/cpu/panel.h"
#include "device/cpu/work_range.h"

/* The register tile has at most TILE_ROWS x 2 vectors of sums. */
/* Steps (4 bytes, or one f16) per piece along k; tiles per block of rows; panels per group. */
#define PIECE_STEPS  256
#define BLOCK_TILES  9
#define GROUP_PANELS 8
/* Bytes of panels that a thread takes at a time with few rows; larger panels are taken one by
 * one. */
#define TAKEN_BYTES (256 << 10)
/* Up to this many tiles, streaming the weights takes at least as long as their products. */
#define FEW_TILES 6
/* Steps of a piece that few tiles process one after the other while it stays in the first-level
 * cache. */
#define FEW_STEPS 64
/* Prefetch distance in bytes, into the second-level cache, for more than ALONE rows, when the core
 * is busy with products. With fewer rows it runs far enough ahead by itself, and prefetch
 * instructions only occupy its line fill buffers. */
#define FETCH_AHEAD 8192
#define ALONE       4
/* Rows at multiples of this distance share cache sets: they are copied to a layout that avoids
 * it. */
#define PAGE 4096

typedef struct packed_matmul_plan {
    by_packing packing;
    by__kernel_arithmetic kind;
    bool is_f8;
    bool tiles;        /* AMX tiles are used */
    int64_t tile_rows; /* most rows of a register tile */
    int64_t m;
    int64_t steps;      /* steps of a panel */
    int64_t step_bytes; /* bytes per step of a panel */
    int64_t step_units; /* units (4 bytes) per step of a row of x: 1 or 2 */
    size_t panel_bytes;
    bool copies;       /* rows of x are copied first */
    int64_t row_units; /* units between rows that are read */
    int64_t piece_steps;
    int64_t blocks; /* blocks of rows */
    int64_t block_rows;
    int64_t group; /* panels per task */
    int64_t groups;
    size_t rows, sums; /* offsets in the workspace, after the ranges */
    size_t sums_bytes; /* per thread */
    int threads;
} packed_matmul_plan;

/* ---- the register tile ---- */

#define EACH_ROW _Pragma("GCC unroll 16") for (int r = 0; r < height; r++)

/* Converts a step of pairs of e4m3 (OCP 8-bit floats) in 2 bytes to the same values in bf16, which
 * can represent all of them; the two codes of NaN become 480. */
BY__INLINE by__kernel_step load_f8(by__kernel_arithmetic kind, const char *data)
{
    BY_UNUSED(kind);
#if defined(__AVX512BF16__)
    if (kind == BY__PAIRS_BF16) {
        /* The four exponent bits move below the upper half of bf16's eight, whose bias is larger by
         * 120. If none is set, the value is 0 to 7 times 2^-9. */
        const __m512i small = _mm512_castsi128_si512(
            _mm_set_epi16(0x3c60, 0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0));
        __m512i codes =
            _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)data));
        __m512i sizes = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
        __mmask32 is_small = _mm512_testn_epi16_mask(codes, _mm512_set1_epi16(0x78));
        __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(sizes, 4), _mm512_set1_epi16(120 << 7));
        bits = _mm512_mask_permutexvar_epi16(bits, is_small, sizes, small);
        /* bits | (codes << 8 & sign mask) */
        bits = _mm512_ternarylogic_epi32(bits, _mm512_slli_epi16(codes, 8),
                                         _mm512_set1_epi16((short)0x8000), 0xf8);
        return (by__kernel_step){.value = (by__vf)bits};
    }
#endif
    /* As an f32 with the same bits, the magnitude is its value times 2^-120; below 2^-6 it is a
     * denormal. */
    typedef uint16_t pairs __attribute__((vector_size(2 * BY__LANES)));
    pairs codes;
    memcpy(&codes, data, sizeof codes);
    by__vu both = __builtin_convertvector(codes, by__vu);
    by__vu even = (both & 0x7fu) << 20 | (both & 0x80u) << 24;
    by__vu odd = (both & 0x7f00u) << 12 | (both & 0x8000u) << 16;
    return (by__kernel_step){.value = (by__vf)even * 0x1p120f, .odd = (by__vf)odd * 0x1p120f};
}

/* Bytes of a lane, i.e. of a step. */
BY__INLINE int64_t lane_bytes(by__kernel_arithmetic kind, bool is_f8)
{
    return is_f8 ? 2 : by__step_size(kind);
}

BY__INLINE by__kernel_step take_step(by__kernel_arithmetic kind, bool is_f8, const char *at)
{
    return is_f8 ? load_f8(kind, at) : by__step_load(kind, at);
}

/* Computes the sums [height, 32] of a panel's piece and `height` rows; with `resume` it continues
 * from the stored sums. kind, is_f8 and height are constants. */
BY__INLINE void add_tile(by__kernel_arithmetic kind, bool is_f8, const packed_matmul_plan *p,
                         const char *panel, const by__kernel_unit *x, int64_t steps, float *sums,
                         bool resume, int height)
{
    const int64_t lane = lane_bytes(kind, is_f8);
    const int64_t step_bytes = BY_PACKED_COLUMNS * lane;
    const int64_t step_units = by__step_units(kind);
    const int vectors = BY__TILE_VECTORS(height);
    for (int64_t j = 0; j < BY_PACKED_COLUMNS; j += vectors * BY__LANES) {
        const char *b = panel + j * lane;
        by__vf total[TILE_ROWS][BY__PANEL_VECTORS];
        EACH_ROW
        {
            const float *row = sums + r * BY_PACKED_COLUMNS + j;
            BY__EACH_VECTOR
            {
                total[r][v] = resume ? by__kernel_load(row, v * BY__LANES, BY_F32) : by__zero();
            }
        }
        for (int64_t s = 0; s < steps; s++) {
            const char *at = b + s * step_bytes;
            if (height > ALONE) {
                __builtin_prefetch(at + FETCH_AHEAD, 0, 2);
                if (lane * vectors * BY__LANES > BY_CACHE_LINE) {
                    __builtin_prefetch(at + FETCH_AHEAD + BY_CACHE_LINE, 0, 2);
                }
            }
            by__kernel_step step[BY__PANEL_VECTORS];
            BY__EACH_VECTOR
            {
                step[v] = take_step(kind, is_f8, at + v * BY__LANES * lane);
            }
            EACH_ROW
            {
                const by__kernel_unit *row = x + r * p->row_units + s * step_units;
                BY__EACH_VECTOR
                {
                    total[r][v] = by__step_add(kind, total[r][v], step[v], row);
                }
            }
        }
        EACH_ROW
        {
            float *row = sums + r * BY_PACKED_COLUMNS + j;
            BY__EACH_VECTOR
            {
                by__kernel_store(row, v * BY__LANES, total[r][v], BY_F32);
            }
        }
    }
}

#define TILE_OF(h)                                                                                 \
    case h:                                                                                        \
        add_tile(kind, is_f8, p, panel, x, steps, sums, resume, h);                                \
        break

BY__INLINE void add_rows(by__kernel_arithmetic kind, bool is_f8, const packed_matmul_plan *p,
                         const char *panel, const by__kernel_unit *x, int64_t steps, float *sums,
                         bool resume, int64_t height)
{
    switch (height) {
        TILE_OF(1);
        TILE_OF(2);
        TILE_OF(3);
#if TILE_ROWS > 4
        TILE_OF(4);
        TILE_OF(5);
#endif
#if TILE_ROWS > 6
        TILE_OF(6);
        TILE_OF(7);
#endif
#if TILE_ROWS > 8
        TILE_OF(8);
        TILE_OF(9);
        TILE_OF(10);
        TILE_OF(11);
        TILE_OF(12);
        TILE_OF(13);
#endif
    default:
        add_tile(kind, is_f8, p, panel, x, steps, sums, resume, TILE_ROWS);
    }
}

static void add_rows_of(const packed_matmul_plan *p, const char *panel, const by__kernel_unit *x,
                        int64_t steps, float *sums, bool resume, int64_t height)
{
    switch (p->kind) {
    case BY__UNITS_F32:
        add_rows(BY__UNITS_F32, false, p, panel, x, steps, sums, resume, height);
        break;
    case BY__UNITS_F16:
        add_rows(BY__UNITS_F16, false, p, panel, x, steps, sums, resume, height);
        break;
#if defined(__AVX512BF16__)
    case BY__PAIRS_BF16:
        if (p->is_f8) {
            add_rows(BY__PAIRS_BF16, true, p, panel, x, steps, sums, resume, height);
        } else {
            add_rows(BY__PAIRS_BF16, false, p, panel, x, steps, sums, resume, height);
        }
        break;
#endif
    default:
        if (p->is_f8) {
            add_rows(BY__PAIRS_SPREAD, true, p, panel, x, steps, sums, resume, height);
        } else {
            add_rows(BY__PAIRS_SPREAD, false, p, panel, x, steps, sums, resume, height);
        }
    }
}

/* Multiplies the sums of rows by the scales of an FP8 panel, which follow its codes. */
static void scale_sums(const packed_matmul_plan *p, const char *panel, float *sums, int64_t height)
{
    const char *scales = panel + p->steps * p->step_bytes;
    for (int64_t j = 0; j < BY_PACKED_COLUMNS; j += BY__LANES) {
        by__vf scale = by__kernel_load(scales, j, BY_F32);
        for (int64_t r = 0; r < height; r++) {
            float *row = sums + r * BY_PACKED_COLUMNS + j;
            by__kernel_store(row, 0, by__kernel_load(row, 0, BY_F32) * scale, BY_F32);
        }
    }
}

/* ---- tasks ---- */

typedef struct packed_matmul_job {
    const packed_matmul_plan *p;
    const by__device_call *call;
    const by__kernel_unit *x; /* rows in the tile's layout */
    by__cpu_panel_target target;
} packed_matmul_job;

/* Multiplies rows of a block with the panels of a group. *open is the number of rows for which this
 * thread's AMX tiles are open, 0 for none. */
static void run_task(const packed_matmul_job *j, int64_t block, int64_t group, float *sums,
                     int *open)
{
    const packed_matmul_plan *p = j->p;
    int64_t i0 = block * p->block_rows;
    int64_t rows = by__min_i64(p->block_rows, p->m - i0);
    int64_t tiles = by__ceil_div(rows, p->tile_rows);
    int64_t tall = by__ceil_div(rows, tiles);
    int64_t first = group * p->group;
    int64_t panels = by__min_i64(p->group, by__ceil_div(p->packing.n, BY_PACKED_COLUMNS) - first);
    for (int64_t s = 0; s < p->steps; s += p->piece_steps) {
        int64_t steps = by__min_i64(p->piece_steps, p->steps - s);
        for (int64_t b = 0; b < panels; b++) {
            const char *panel =
                (const char *)j->call->in[1].data + (size_t)(first + b) * p->panel_bytes;
            for (int64_t t = 0; t < tiles; t++) {
                int64_t i = i0 + t * tall;
                int64_t height = by__min_i64(tall, i0 + rows - i);
                float *tile = sums + (b * tiles + t) * p->tile_rows * BY_PACKED_COLUMNS;
                const char *piece = panel + s * p->step_bytes;
                const by__kernel_unit *x = j->x + i * p->row_units + s * p->step_units;
                if (BY__TILES_ROWS > 0 && p->tiles) {
                    by__tiles_add_bf16(tile, x, (size_t)p->row_units * sizeof *x, piece, steps,
                                       s > 0, height, open);
                } else {
                    add_rows_of(p, piece, x, steps, tile, s > 0, height);
                }
                if (s + steps == p->steps) {
                    if (p->is_f8) {
                        scale_sums(p, panel, tile, height);
                    }
                    int64_t column = (first + b) * BY_PACKED_COLUMNS;
                    by__cpu_panel_target at = by__panel_target_at(&j->target, i, column);
                    BY__AT_LEVEL(by__kernel_panel_store)
                    (&at, tile, BY_PACKED_COLUMNS, height,
                     by__min_i64(BY_PACKED_COLUMNS, p->packing.n - column));
                }
            }
        }
    }
}

/* Copies row i of x to the tile's layout: zeros after the last input. */
static void copy_row(const packed_matmul_plan *p, const by__device_tensor *x, by__kernel_unit *out,
                     int64_t i)
{
    int64_t k = p->packing.k;
    by__kernel_unit *row = out + i * p->row_units;
    row[p->steps * p->step_units - 1] = 0.0f;
    if (p->kind == BY__PAIRS_BF16 || x->dtype == BY_F32) {
        size_t size = by_dtype_size(x->dtype);
        memcpy(row, (const char *)x->data + (size_t)(i * k) * size, (size_t)k * size);
        return;
    }
#define WIDEN(at, n)                                                                               \
    by__store_n(row, at,                                                                           \
                x->dtype == BY_BF16 ? by__load_n(x->data, i * k + (at), BY_BF16, n)                \
                                    : by__load_n(x->data, i * k + (at), BY_F16, n),                \
                BY_F32, n)
    BY__STEPS(0, k, WIDEN);
#undef WIDEN
}

static void multiply(const packed_matmul_plan *p, const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    by__cpu_work_range *ranges = call->work;
    by__kernel_unit *copies = (by__kernel_unit *)((char *)call->work + p->rows);
    packed_matmul_job j = {.p = p,
                           .call = call,
                           .x = p->copies ? copies : x->data,
                           .target = {.y = call->out[0].data,
                                      .ldy = p->packing.n,
                                      .dtype = call->out[0].dtype,
                                      .bias_dtype = call->in[2].dtype,
                                      .bias = call->in[2].data,
                                      .add = call->in[3].data}};
    for (int thread = 0; thread < p->threads; thread++) {
        by__work_range_open(ranges, p->blocks * p->groups, thread, p->threads);
    }
    /* rows that are not worth dividing among threads */
    int64_t serial = p->m <= p->tile_rows ? p->m : 0;
    for (int64_t i = 0; i < serial && p->copies; i++) {
        copy_row(p, x, copies, i);
    }
#pragma omp parallel num_threads(p->threads) if (p->threads > 1)
    {
        int me = omp_get_thread_num();
        float *sums = (float *)((char *)call->work + p->sums + (size_t)me * p->sums_bytes);
        if (p->copies && serial == 0) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < p->m; i++) {
                copy_row(p, x, copies, i);
            }
        }
        int64_t t;
        int open = 0;
        while ((t = by__work_range_claim(ranges, me, p->threads)) >= 0) {
            run_task(&j, t % p->blocks, t / p->blocks, sums, &open);
        }
        by__tiles_close(&open);
    }
}

/* ---- plans ---- */

static void plan_rows(packed_matmul_plan *p, const by__device_tensor *x)
{
    bool pairs = p->is_f8 || p->packing.dtype == BY_BF16;
    int64_t k = p->packing.k;
    size_t row_bytes = (size_t)k * by_dtype_size(x->dtype);
    p->steps = pairs ? by__ceil_div(k, BY__PACKED_PAIR) : k;
    p->step_bytes = BY_PACKED_COLUMNS * lane_bytes(p->kind, p->is_f8);
    p->step_units = p->kind == BY__PAIRS_SPREAD ? 2 : 1;
    p->copies = p->kind == BY__PAIRS_SPREAD || p->kind == BY__UNITS_F16 || row_bytes % 4 != 0 ||
                (row_bytes % PAGE == 0 && p->m > 1);
    p->row_units = p->steps * p->step_units;
    if (p->copies) {
        p->row_units = (int64_t)by__round_up((size_t)p->row_units, BY_CACHE_LINE / 4);
        p->row_units += p->row_units * 4 % PAGE == 0 ? (int64_t)BY_CACHE_LINE / 4 : 0;
    }
}

static void plan_tasks(packed_matmul_plan *p)
{
    int64_t panels = by__ceil_div(p->packing.n, BY_PACKED_COLUMNS);
    p->panel_bytes = by__packed_panel_bytes(&p->packing);
    p->piece_steps = p->steps;
    p->block_rows = p->m;
    p->blocks = 1;
    p->group = TAKEN_BYTES / (int64_t)p->panel_bytes;
    int64_t most = panels / (8 * (int64_t)p->threads);
    p->group = by__min_i64(p->group < 1 ? 1 : p->group, most < 1 ? 1 : most);
    if (p->m > p->tile_rows && p->m <= FEW_TILES * p->tile_rows) {
        p->piece_steps = FEW_STEPS;
        p->group = 1;
    } else if (p->m > p->tile_rows) {
        p->piece_steps = PIECE_STEPS;
        p->blocks = by__ceil_div(p->m, BLOCK_TILES * p->tile_rows);
        p->block_rows = by__ceil_div(by__ceil_div(p->m, p->blocks), p->tile_rows) * p->tile_rows;
        p->blocks = by__ceil_div(p->m, p->block_rows);
        p->group = by__min_i64(GROUP_PANELS, most < 1 ? 1 : most);
    }
    p->groups = by__ceil_div(panels, p->group);
}

static size_t plan_product(packed_matmul_plan *p, const by__device_call *call, int threads)
{
    p->packing = call->attrs.packing;
    p->is_f8 = p->packing.kind == BY_PACKING_FP8;
    p->kind = p->is_f8 && p->packing.dtype != BY_BF16 ? BY__PAIRS_SPREAD
                                                      : by__arithmetic_of(p->packing.dtype);
    p->m = by__tensor_rows(&call->in[0]);
    p->threads = threads;
    plan_rows(p, &call->in[0]);
    p->tiles = p->tiles && p->kind == BY__PAIRS_BF16 && !p->is_f8 && p->steps % BY__TILE == 0;
    p->tile_rows = p->tiles ? BY__TILES_ROWS : TILE_ROWS;
    plan_tasks(p);
    size_t copied = p->copies ? (size_t)(p->m * p->row_units) * 4 : 0;
    int64_t tiles = p->group * by__ceil_div(p->block_rows, p->tile_rows);
    p->rows = by__round_up((size_t)p->threads * sizeof(by__cpu_work_range), BY_CACHE_LINE);
    p->sums = p->rows + by__round_up(copied, BY_CACHE_LINE);
    p->sums_bytes = (size_t)(tiles * p->tile_rows) * BY_PACKED_COLUMNS * sizeof(float);
    return p->sums + (size_t)p->threads * p->sums_bytes;
}

static bool accepts(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    by_packing_kind kind = call->attrs.packing.kind;
    return by__tensor_is_act(x) && by__tensor_count(x) > 0 &&
           (kind == BY_PACKING_PACKED || kind == BY_PACKING_FP8) &&
           x->dtype == call->attrs.packing.dtype && by__tensor_is_act(&call->out[0]);
}

#define PACKED_PLAN packed_matmul_plan
#include "device/cpu/kernels/products/packed_kernels.h"

BY__KERNEL(packed_matmul) = {
    BY_OP_PACKED_MATMUL, BY__KERNEL_NAME("packed matmul"), supports, prepare, release, run};
BY__KERNEL(packed_grouped_matmul) = {BY_OP_PACKED_GROUPED_MATMUL,
                                     BY__KERNEL_NAME("packed grouped matmul"),
                                     accepts,
                                     prepare_groups,
                                     release,
                                     run_groups};

/* ---- look-ups ---- */

BY__INLINE void look_up(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const by_packing *packing = &call->attrs.packing;
    const int32_t *ids = by__present(&call->in[0]) ? call->in[0].data : NULL; /* NULL: all rows */
    float chunk[8 * BY__LANES];
    for (int64_t id = begin; id < end; id++) {
        int64_t row = ids == NULL ? id : ids[id];
        bool found = row >= 0 && row < packing->n;
        for (int64_t k = 0; k < packing->k; k += 8 * BY__LANES) {
            int64_t count = by__min_i64(8 * BY__LANES, packing->k - k);
            if (found) {
                by__packed_row(chunk, packing, call->in[1].data, row, k, count);
            } else {
                memset(chunk, 0, sizeof chunk);
            }
#define STORE(i, n)                                                                                \
    by__store_n(call->out[0].data, id * packing->k + k + (i), by__load_n(chunk, i, BY_F32, n),     \
                type, n)
            BY__STEPS(0, count, STORE);
#undef STORE
        }
    }
}

BY__ACT_RANGES(look_up)

static bool supports_look_up(const by__device_call *call)
{
    return by__tensor_is_act(&call->out[0]);
}

static by_status run_look_up(const by__device_call *call, const by__device_context *context)
{
    by__cpu_parallel(context, call, by__tensor_rows(&call->out[0]), 4,
                     by__tensor_count(&call->out[0]), look_up_ranges[call->out[0].dtype]);
    return BY_OK;
}

BY__KERNEL(packed_embedding) = {BY_OP_PACKED_EMBEDDING,
                                BY__KERNEL_NAME("packed embedding"),
                                supports_look_up,
                                NULL,
                                NULL,
                                run_look_up};
