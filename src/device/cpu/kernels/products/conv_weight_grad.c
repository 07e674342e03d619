/* CONV_WEIGHT_GRAD: dw = dy^T rows(x), summed over the pixels of all images, where rows(x) are what
 * the pixels of the result read (conv_rows.h).
 *
 * The pixels are cut into pieces, and the columns, which are entries of the window and channels,
 * into chunks. A thread takes a piece and a chunk at a time, for all outputs: it packs a block of
 * pixels of both operands, which stay in its cache, and adds their product to the sums of the
 * piece. At the end the sums of the pieces are added in order. Pieces, chunks and blocks follow
 * from shapes alone, so the bits do not depend on the number of threads.
 */
#include <omp.h>
#include <stdlib.h>

#include "base/half.h"
#include "device/cpu/gemm.h"
#include "device/cpu/kernels/products/conv_rows.h"
#include "device/cpu/panel.h"
#include "device/cpu/work_range.h"

/* Limits of a tile: outputs, columns, and steps of 4 bytes along the pixels. */
#define TILE_OUTPUTS 128
#define TILE_COLUMNS 256
#define TILE_STEPS   256
/* Rows of the scratch: pixels that are packed together, a multiple of every unit of k. */
#define ROWS 64
/* Least pixels of a piece in blocks, the number of tasks that pieces are made for, and the most
 * memory that their sums may take. */
#define PIECE_BLOCKS 4
#define ENOUGH_TASKS 32
#define SUMS_BYTES   (16 << 20)

typedef struct weight_state {
    conv_owned own; /* a part is a chunk of columns */
    const by__cpu_panel *panel;
    int64_t chunk_count, chunk;
    int64_t columns; /* of a group */
    int64_t pixels, block, piece, pieces;
    int64_t tile_outputs;
    size_t row_bytes; /* of the scratch */
    int threads;
    size_t sums_offset, scratch_offset;
    size_t thread_bytes, columns_offset, outputs_offset; /* of each thread's scratch */
} weight_state;

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]) && call->in[1].dtype == call->in[0].dtype &&
           by__tensor_is_act(&call->out[0]) && by__tensor_count(&call->in[0]) > 0 &&
           by__tensor_count(&call->in[1]) > 0 && by__tensor_count(&call->out[0]) > 0;
}

/* ---- plan ---- */

static by_status open_gemm(weight_state *s, const by__device_call *call, int threads,
                           by_error *error)
{
    by__cpu_gemm_options o = {.m = by__tensor_columns(&call->in[1]),
                              .n = by__tensor_columns(&call->in[0]),
                              .k = by__tensor_rows(&call->in[0]),
                              .trans_a = true,
                              .dtype = call->in[0].dtype,
                              .out = call->out[0].dtype,
                              .isa = BY__AT_LEVEL(BY__LEVEL),
                              .threads = threads};
    return by__cpu_gemm_open(&s->own.gemm, &o, error);
}

static by_status plan_chunks(weight_state *s, by_error *error)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    int64_t nr = s->panel->nr;
    s->columns = plan->taps * plan->inner;
    int64_t count = by__ceil_div(s->columns, TILE_COLUMNS / nr * nr);
    s->chunk = by__ceil_div(by__ceil_div(s->columns, count), nr) * nr;
    s->chunk_count = by__ceil_div(s->columns, s->chunk);
    BY_TRY(by__alloc((void **)&s->own.parts, (size_t)s->chunk_count, sizeof *s->own.parts,
                     "a convolution", error));
    BY_TRY(by__alloc((void **)&s->own.runs, (size_t)(plan->taps + s->chunk_count),
                     sizeof *s->own.runs, "a convolution", error));
    int64_t run = 0;
    for (int64_t i = 0; i < s->chunk_count; i++) {
        conv_part *chunk = &s->own.parts[i];
        chunk->k = i * s->chunk;
        chunk->depth = by__min_i64(s->chunk, s->columns - chunk->k);
        chunk->first_run = run;
        chunk->runs =
            conv_find_runs(s->own.runs + run, plan, &plan->classes[0], chunk->k, chunk->depth);
        run += chunk->runs;
    }
    return BY_OK;
}

static void plan_pieces(weight_state *s)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    s->pixels = plan->images * plan->target[0] * plan->target[1];
    s->block = by__min_i64((int64_t)TILE_STEPS * s->panel->step, s->pixels);
    s->block = by__ceil_div(s->block, s->panel->k_unit) * s->panel->k_unit;
    double bytes = (double)(plan->groups * plan->outer) * (double)s->columns * sizeof(float);
    int64_t most = bytes > SUMS_BYTES ? 1 : (int64_t)(SUMS_BYTES / bytes);
    int64_t pieces = by__ceil_div(ENOUGH_TASKS, plan->groups * s->chunk_count);
    pieces = by__min_i64(pieces, most);
    pieces = by__min_i64(pieces, by__ceil_div(s->pixels, s->block * PIECE_BLOCKS));
    s->piece = by__ceil_div(by__ceil_div(s->pixels, pieces), s->block) * s->block;
    s->pieces = by__ceil_div(s->pixels, s->piece);
}

static by_status plan_memory(weight_state *s, by__device_call *call, by_error *error)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_panel *p = s->panel;
    size_t size = by_dtype_size(call->in[0].dtype);
    int64_t cuts = by__ceil_div(plan->outer, TILE_OUTPUTS / p->mr * p->mr);
    s->tile_outputs = by__ceil_div(by__ceil_div(plan->outer, cuts), p->mr) * p->mr;
    s->row_bytes = by__round_up((size_t)s->chunk * size, BY_CACHE_LINE);
    size_t sums;
    s->sums_offset = by__round_up((size_t)s->threads * sizeof(by__cpu_work_range), 4096);
    bool fits = by__size_mul((size_t)by__tensor_count(&call->out[0]),
                             (size_t)s->pieces * sizeof(float), &sums);
    s->columns_offset = by__round_up((size_t)ROWS * s->row_bytes, 4096);
    s->outputs_offset =
        s->columns_offset + by__round_up(by__panel_b_bytes(p, s->chunk, s->block), 4096);
    s->thread_bytes =
        s->outputs_offset + by__round_up(by__panel_a_bytes(p, s->tile_outputs, s->block), 4096);
    size_t scratch;
    fits = fits && by__size_add(s->sums_offset, by__round_up(sums, 4096), &s->scratch_offset) &&
           by__size_mul(s->thread_bytes, (size_t)s->threads, &scratch) &&
           by__size_add(s->scratch_offset, scratch, &call->work_bytes);
    if (!fits) {
        return by_error_set(error, BY_EMEMORY,
                            "the gradient of a convolution does not fit in memory");
    }
    return BY_OK;
}

static by_status open_state(weight_state *s, by__device_call *call, int threads, by_error *error)
{
    const by__device_tensor *w = &call->out[0];
    s->threads = threads;
    if (by__cpu_conv_is_pointwise(&call->attrs, w->shape.dim[2], w->shape.dim[3])) {
        BY_TRY(open_gemm(s, call, threads, error));
        call->work_bytes = by__cpu_gemm_work(s->own.gemm);
        return BY_OK;
    }
    BY_TRY(by__cpu_conv_plan_open(&s->own.plan, &call->in[0], w, &call->in[1], &call->attrs, false,
                                  error));
    s->panel =
        by__cpu_panel_for(BY__AT_LEVEL(BY__LEVEL), by__cpu_panel_native(), call->in[0].dtype);
    BY_TRY(plan_chunks(s, error));
    plan_pieces(s);
    return plan_memory(s, call, error);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    weight_state *s;
    BY_TRY(by__alloc((void **)&s, 1, sizeof *s, "a convolution", error));
    call->state = s;
    by_status status = open_state(s, call, context->threads, error);
    if (status != BY_OK) {
        conv_release(call);
    }
    return status;
}

/* ---- products ---- */

/* Packs the columns of a chunk for `count` pixels from `pixel` on. */
static void pack_pixels(const weight_state *s, const by__device_call *call, const conv_part *chunk,
                        int64_t group, int64_t pixel, int64_t count, char *scratch)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const conv_run *runs = s->own.runs + chunk->first_run;
    int64_t size = (int64_t)by_dtype_size(call->in[0].dtype);
    int64_t first = group * plan->inner;
    size_t stride = by__panel_b_stride(s->panel, s->block);
    conv_place places[ROWS];
    for (int64_t n = 0; n < count; n += ROWS) {
        int64_t some = by__min_i64(ROWS, count - n);
        conv_places(places, plan, &plan->classes[0], call->in[0].data, pixel + n, some, size);
        for (int64_t i = 0; i < some; i++) {
            char *to = scratch + (size_t)i * s->row_bytes;
            if (size == 4) {
                conv_fill_row(to, plan, runs, chunk->runs, &places[i], first, 0, 4);
            } else {
                conv_fill_row(to, plan, runs, chunk->runs, &places[i], first, 0, 2);
            }
        }
        char *panels =
            scratch + s->columns_offset + (size_t)(n / s->panel->step * s->panel->nr) * 4;
        s->panel->pack_b(panels, stride, scratch, 1, (int64_t)s->row_bytes / size, chunk->depth,
                         some);
    }
}

static void add_block(const weight_state *s, const by__device_call *call, const conv_part *chunk,
                      int64_t group, int64_t pixel, int64_t count, float *sums, bool accumulate,
                      char *scratch)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__cpu_panel *p = s->panel;
    size_t size = by_dtype_size(call->in[1].dtype);
    int64_t ld = plan->target_channels;
    size_t a_stride = by__panel_a_stride(p, s->block);
    size_t b_stride = by__panel_b_stride(p, s->block);
    pack_pixels(s, call, chunk, group, pixel, count, scratch);
    for (int64_t o = 0; o < plan->outer; o += s->tile_outputs) {
        int64_t outputs = by__min_i64(s->tile_outputs, plan->outer - o);
        const char *dy =
            (const char *)call->in[1].data + (size_t)(pixel * ld + group * plan->outer + o) * size;
        char *a = scratch + s->outputs_offset;
        p->pack_a(a, a_stride, dy, 1, ld, outputs, count);
        p->multiply(sums + o * s->columns, s->columns, a, a_stride, scratch + s->columns_offset,
                    b_stride, outputs, chunk->depth, by__panel_k(p, count), accumulate, NULL);
    }
}

static float *sums_of(const weight_state *s, const by__device_call *call, int64_t piece)
{
    return (float *)(void *)((char *)call->work + s->sums_offset) +
           piece * by__tensor_count(&call->out[0]);
}

static void compute_task(const weight_state *s, const by__device_call *call, int64_t task,
                         char *scratch)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const conv_part *chunk = &s->own.parts[task % s->chunk_count];
    int64_t group = task / s->chunk_count % plan->groups;
    int64_t piece = task / s->chunk_count / plan->groups;
    int64_t begin = piece * s->piece;
    int64_t end = by__min_i64(begin + s->piece, s->pixels);
    float *sums = sums_of(s, call, piece) + group * plan->outer * s->columns + chunk->k;
    for (int64_t pixel = begin; pixel < end; pixel += s->block) {
        add_block(s, call, chunk, group, pixel, by__min_i64(s->block, end - pixel), sums,
                  pixel > begin, scratch);
    }
}

/* Adds the sums of all pieces for output o, and stores them in the order of the weights: the
 * taps of a channel follow each other. */
static void finish_output(const weight_state *s, const by__device_call *call, int64_t o)
{
    const by__cpu_conv_plan *plan = &s->own.plan;
    const by__device_tensor *dw = &call->out[0];
    float *sums = sums_of(s, call, 0) + o * s->columns;
    for (int64_t piece = 1; piece < s->pieces; piece++) {
        const float *more = sums_of(s, call, piece) + o * s->columns;
        for (int64_t i = 0; i < s->columns; i++) {
            sums[i] += more[i];
        }
    }
    for (int64_t t = 0; t < plan->taps; t++) {
        int64_t at = o * s->columns + plan->tap[t].weight;
        const float *from = sums + t * plan->inner;
        for (int64_t c = 0; c < plan->inner; c++) {
            if (dw->dtype == BY_F32) {
                ((float *)dw->data)[at + c * plan->taps] = from[c];
            } else {
                ((uint16_t *)dw->data)[at + c * plan->taps] =
                    dw->dtype == BY_BF16 ? by__f32_to_bf16(from[c]) : by__f32_to_f16(from[c]);
            }
        }
    }
}

/* What each thread of the team does. */
static void compute(const weight_state *s, const by__device_call *call)
{
    int me = omp_get_thread_num();
    int team = omp_get_num_threads();
    by__cpu_work_range *ranges = call->work;
    char *scratch = (char *)call->work + s->scratch_offset + (size_t)me * s->thread_bytes;
    int64_t outputs = call->out[0].shape.dim[0];
    by__work_range_open(ranges, s->pieces * s->own.plan.groups * s->chunk_count, me, team);
#pragma omp barrier
    int64_t task;
    while ((task = by__work_range_claim(ranges, me, team)) >= 0) {
        compute_task(s, call, task, scratch);
    }
#pragma omp barrier
#pragma omp for schedule(static)
    for (int64_t o = 0; o < outputs; o++) {
        finish_output(s, call, o);
    }
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    const weight_state *s = call->state;
    BY_UNUSED(context);
    if (s->own.gemm != NULL) {
        by__cpu_gemm_operands operands = {.a = call->in[1].data,
                                          .b = call->in[0].data,
                                          .c = call->out[0].data,
                                          .work = call->work};
        by__cpu_gemm_run(s->own.gemm, &operands);
        return BY_OK;
    }
#pragma omp parallel num_threads(s->threads) if (s->threads > 1)
    compute(s, call);
    return BY_OK;
}

BY__KERNEL(conv_weight_grad) = {BY_OP_CONV_WEIGHT_GRAD,
                                BY__KERNEL_NAME("conv_weight_grad"),
                                supports,
                                prepare,
                                conv_release,
                                run};
