/* LSTM, GRU and their gradients.
 *
 * The products of all steps with the input are one matrix product into the gates. Then samples are
 * independent of each other: they are cut into blocks by the shape, and a block goes through all
 * steps on one thread, without waiting for others. A step multiplies the states of a block by
 * weights that were packed once (panel.h). States, cells and their gradients are f32, whatever the
 * operands are. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/kernels/simd_math.h"
#include "device/cpu/panel.h"

/* Samples from which on two panels of rows share each reading of the weights. */
#define MANY_SAMPLES 256

typedef struct recurrent_plan {
    by__cpu_gemm *input; /* forward */
    const by__cpu_panel *panel;
    int64_t samples, steps, width;
    int64_t sums;       /* of a step: rows of the weights of the states */
    int64_t block;      /* samples of a block */
    int64_t inner;      /* k of a step's product */
    int64_t columns;    /* its columns */
    int64_t row_floats; /* from one row of its result to the next */
    /* Places in the workspace. */
    size_t wide; /* the weights of the states as f32, if they are narrower */
    size_t weights;
    size_t blocks, block_bytes;
    /* Places in the memory of a block. */
    size_t states, carried, addends, product, rows;
} recurrent_plan;

typedef struct recurrent_block {
    const recurrent_plan *p;
    const void *weights;
    int64_t first; /* sample */
    int64_t count;
    float *states;  /* [count, width] */
    float *carried; /* [count, width]: cells, or gradients */
    float *addends; /* [count, sums]: gradients of sums */
    float *product; /* [count, row_floats] */
    void *rows;     /* packed */
} recurrent_block;

static recurrent_block block_of(const by__device_call *call, int64_t b)
{
    const recurrent_plan *p = call->state;
    char *memory = (char *)call->work + p->blocks + (size_t)b * p->block_bytes;
    return (recurrent_block){.p = p,
                             .weights = (char *)call->work + p->weights,
                             .first = b * p->block,
                             .count = by__min_i64(p->block, p->samples - b * p->block),
                             .states = (float *)(void *)(memory + p->states),
                             .carried = (float *)(void *)(memory + p->carried),
                             .addends = (float *)(void *)(memory + p->addends),
                             .product = (float *)(void *)(memory + p->product),
                             .rows = memory + p->rows};
}

/* product = rows [count, inner] times the packed weights. */
static void multiply(const recurrent_block *b, const float *rows)
{
    const recurrent_plan *p = b->p;
    size_t a_stride = by__panel_a_stride(p->panel, p->inner);
    size_t b_stride = by__panel_b_stride(p->panel, p->inner);
    p->panel->pack_a(b->rows, a_stride, rows, p->inner, 1, b->count, p->inner);
    p->panel->multiply(b->product, p->row_floats, b->rows, a_stride, b->weights, b_stride, b->count,
                       p->columns, by__panel_k(p->panel, p->inner), false, NULL);
}

static void clear_product(const recurrent_block *b)
{
    memset(b->product, 0, (size_t)(b->count * b->p->row_floats) * sizeof *b->product);
}

/* Row of step t of sample r of the block, among the steps of all samples. */
static int64_t row_of(const recurrent_block *b, int64_t r, int64_t t)
{
    return (b->first + r) * b->p->steps + t;
}

#define LOAD(data, i)     by__load_n(data, i, BY_F32, n)
#define STORE(data, i, x) by__store_n(data, i, x, BY_F32, n)

/* ---- forward ---- */

BY__INLINE void lstm_units(const by__device_call *call, const recurrent_block *b, int64_t r,
                           int64_t t, int64_t j, by_dtype type, int n)
{
    int64_t w = b->p->width;
    int64_t row = row_of(b, r, t);
    float *gates = (float *)call->out[1].data + row * 4 * w;
    const float *bias = call->in[4].data;
    const float *product = b->product + r * b->p->row_floats;
    by__vf in = by__sigmoid(LOAD(gates, j) + (LOAD(product, j) + LOAD(bias, j)));
    by__vf forget = by__sigmoid(LOAD(gates, w + j) + (LOAD(product, w + j) + LOAD(bias, w + j)));
    by__vf new =
        by__tanh(LOAD(gates, 2 * w + j) + (LOAD(product, 2 * w + j) + LOAD(bias, 2 * w + j)));
    by__vf out =
        by__sigmoid(LOAD(gates, 3 * w + j) + (LOAD(product, 3 * w + j) + LOAD(bias, 3 * w + j)));
    float *cells = b->carried + r * w;
    by__vf cell = by__multiply_add(forget, LOAD(cells, j), in * new);
    by__vf y = out * by__tanh(cell);
    STORE(gates, j, in);
    STORE(gates, w + j, forget);
    STORE(gates, 2 * w + j, new);
    STORE(gates, 3 * w + j, out);
    STORE(cells, j, cell);
    STORE(call->out[2].data, row * w + j, cell);
    STORE(b->states, r * w + j, y);
    by__store_n(call->out[0].data, row * w + j, y, type, n);
}

BY__INLINE void gru_units(const by__device_call *call, const recurrent_block *b, int64_t r,
                          int64_t t, int64_t j, by_dtype type, int n)
{
    int64_t w = b->p->width;
    int64_t row = row_of(b, r, t);
    float *gates = (float *)call->out[1].data + row * 4 * w;
    const float *bias = call->in[4].data;
    const float *product = b->product + r * b->p->row_floats;
    by__vf reset = by__sigmoid(LOAD(gates, j) + (LOAD(product, j) + LOAD(bias, j)));
    by__vf update = by__sigmoid(LOAD(gates, w + j) + (LOAD(product, w + j) + LOAD(bias, w + j)));
    by__vf hidden = LOAD(product, 2 * w + j) + LOAD(bias, 2 * w + j);
    by__vf new = by__tanh(by__multiply_add(reset, hidden, LOAD(gates, 2 * w + j)));
    by__vf y = by__multiply_add(update, LOAD(b->states, r * w + j) - new, new);
    STORE(gates, j, reset);
    STORE(gates, w + j, update);
    STORE(gates, 2 * w + j, new);
    STORE(gates, 3 * w + j, hidden);
    STORE(b->states, r * w + j, y);
    by__store_n(call->out[0].data, row * w + j, y, type, n);
}

/* Blocks begin .. end - 1 through all steps. */
BY__INLINE void forward(const by__device_call *call, int64_t begin, int64_t end, bool lstm,
                        by_dtype type)
{
    for (int64_t i = begin; i < end; i++) {
        recurrent_block b = block_of(call, i);
        size_t bytes = (size_t)(b.count * b.p->width) * sizeof(float);
        memset(b.states, 0, bytes);
        memset(b.carried, 0, bytes);
        clear_product(&b);
        for (int64_t t = 0; t < b.p->steps; t++) {
            if (t > 0) {
                multiply(&b, b.states);
            }
            for (int64_t r = 0; r < b.count; r++) {
#define STEP(j, n)                                                                                 \
    do {                                                                                           \
        if (lstm) {                                                                                \
            lstm_units(call, &b, r, t, j, type, n);                                                \
        } else {                                                                                   \
            gru_units(call, &b, r, t, j, type, n);                                                 \
        }                                                                                          \
    } while (0)
                BY__STEPS(0, b.p->width, STEP);
#undef STEP
            }
        }
    }
}

BY__ACT_RANGES_OF(lstm_blocks, forward, true)
BY__ACT_RANGES_OF(gru_blocks, forward, false)

/* ---- gradients ---- */

/* d * s * (1 - s): the gradient of what a sigmoid s is of. */
BY__INLINE by__vf through_sigmoid(by__vf d, by__vf s)
{
    return d * (s * (1.0f - s));
}

BY__INLINE void lstm_grad_units(const by__device_call *call, const recurrent_block *b, int64_t r,
                                int64_t t, int64_t j, by_dtype type, int n)
{
    int64_t w = b->p->width;
    int64_t row = row_of(b, r, t);
    const float *gates = (const float *)call->in[0].data + row * 4 * w;
    const float *cells = (const float *)call->in[1].data + row * w;
    by__vf in = LOAD(gates, j);
    by__vf forget = LOAD(gates, w + j);
    by__vf new = LOAD(gates, 2 * w + j);
    by__vf out = LOAD(gates, 3 * w + j);
    by__vf cell = by__tanh(LOAD(cells, j));
    by__vf before = t == 0 ? by__zero() : LOAD(cells - w, j);
    by__vf dy = by__load_n(call->in[3].data, row * w + j, type, n) +
                LOAD(b->product, r * b->p->row_floats + j);
    by__vf dc = by__multiply_add(dy * out, 1.0f - cell * cell, LOAD(b->carried, r * w + j));
    by__vf sums[4] = {through_sigmoid(dc * new, in), through_sigmoid(dc * before, forget),
                      dc * in * (1.0f - new *new), through_sigmoid(dy * cell, out)};
    STORE(b->carried, r * w + j, dc * forget);
    for (int64_t g = 0; g < 4; g++) {
        STORE(b->addends, (4 * r + g) * w + j, sums[g]);
        by__store_n(call->out[0].data, (4 * row + g) * w + j, sums[g], type, n);
    }
}

BY__INLINE void gru_grad_units(const by__device_call *call, const recurrent_block *b, int64_t r,
                               int64_t t, int64_t j, by_dtype type, int n)
{
    int64_t w = b->p->width;
    int64_t row = row_of(b, r, t);
    const float *gates = (const float *)call->in[0].data + row * 4 * w;
    by__vf reset = LOAD(gates, j);
    by__vf update = LOAD(gates, w + j);
    by__vf new = LOAD(gates, 2 * w + j);
    by__vf hidden = LOAD(gates, 3 * w + j);
    by__vf before = t == 0 ? by__zero() : by__load_n(call->in[1].data, (row - 1) * w + j, type, n);
    by__vf dy = by__load_n(call->in[3].data, row * w + j, type, n) +
                (LOAD(b->product, r * b->p->row_floats + j) + LOAD(b->carried, r * w + j));
    by__vf dn = dy * (1.0f - update) * (1.0f - new *new);
    by__vf sums[3] = {through_sigmoid(dn * hidden, reset),
                      through_sigmoid(dy * (before - new), update), dn * reset};
    STORE(b->carried, r * w + j, dy * update);
    for (int64_t g = 0; g < 3; g++) {
        STORE(b->addends, (3 * r + g) * w + j, sums[g]);
        by__store_n(call->out[0].data, (3 * row + g) * w + j, g == 2 ? dn : sums[g], type, n);
        by__store_n(call->out[1].data, (3 * row + g) * w + j, sums[g], type, n);
    }
}

BY__INLINE void backward(const by__device_call *call, int64_t begin, int64_t end, bool lstm,
                         by_dtype type)
{
    for (int64_t i = begin; i < end; i++) {
        recurrent_block b = block_of(call, i);
        memset(b.carried, 0, (size_t)(b.count * b.p->width) * sizeof(float));
        clear_product(&b);
        for (int64_t t = b.p->steps - 1; t >= 0; t--) {
            if (t + 1 < b.p->steps) {
                multiply(&b, b.addends);
            }
            for (int64_t r = 0; r < b.count; r++) {
#define STEP(j, n)                                                                                 \
    do {                                                                                           \
        if (lstm) {                                                                                \
            lstm_grad_units(call, &b, r, t, j, type, n);                                           \
        } else {                                                                                   \
            gru_grad_units(call, &b, r, t, j, type, n);                                            \
        }                                                                                          \
    } while (0)
                BY__STEPS(0, b.p->width, STEP);
#undef STEP
            }
        }
    }
}

BY__ACT_RANGES_OF(lstm_grad_blocks, backward, true)
BY__ACT_RANGES_OF(gru_grad_blocks, backward, false)

/* ---- plans ---- */

static bool is_forward(const by__device_call *call)
{
    return call->op == BY_OP_LSTM || call->op == BY_OP_GRU;
}

static bool supports(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[is_forward(call) ? 0 : 3];
    return by__tensor_is_act(x) && call->in[2].dtype == x->dtype && by__tensor_count(x) > 0 &&
           by__tensor_count(&call->in[2]) > 0;
}

static void release(by__device_call *call)
{
    recurrent_plan *p = call->state;
    if (p != NULL) {
        by__cpu_gemm_close(&p->input);
    }
    free(p);
    call->state = NULL;
}

static by_status open_input(recurrent_plan *p, const by__device_call *call, int threads,
                            by_error *error)
{
    by__cpu_gemm_options options = {.m = p->samples * p->steps,
                                    .n = p->sums,
                                    .k = by__tensor_columns(&call->in[0]),
                                    .trans_b = true,
                                    .ldc = 4 * p->width,
                                    .dtype = call->in[0].dtype,
                                    .out = BY_F32,
                                    .bias = true,
                                    .bias_dtype = BY_F32,
                                    .isa = BY__AT_LEVEL(BY__LEVEL),
                                    .threads = threads};
    return by__cpu_gemm_open(&p->input, &options, error);
}

static void place(recurrent_plan *p, const by__device_call *call)
{
    size_t own = 0;
    size_t states = (size_t)(p->block * p->width) * sizeof(float);
    int64_t rows = by__ceil_div(p->block, p->panel->mr) * p->panel->mr;
    size_t used = p->input == NULL ? 0 : by__round_up(by__cpu_gemm_work(p->input), BY_CACHE_LINE);
    bool narrow = call->in[2].dtype != BY_F32;
    p->states = by__work_reserve(&own, states);
    p->carried = by__work_reserve(&own, states);
    p->addends = by__work_reserve(&own, (size_t)(p->block * p->sums) * sizeof(float));
    p->product = by__work_reserve(&own, (size_t)(rows * p->row_floats) * sizeof(float));
    p->rows = by__work_reserve(&own, by__panel_a_bytes(p->panel, p->block, p->inner));
    p->block_bytes = own;
    p->wide = by__work_reserve(&used, narrow ? (size_t)(p->sums * p->width) * sizeof(float) : 0);
    p->weights = by__work_reserve(&used, by__panel_b_bytes(p->panel, p->columns, p->inner));
    p->blocks = by__work_reserve(&used, own * (size_t)by__ceil_div(p->samples, p->block));
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    recurrent_plan *p = NULL;
    bool is_grad = !is_forward(call);
    const by__device_tensor *y = is_grad ? &call->in[3] : &call->out[0];
    BY_TRY(by__alloc((void **)&p, 1, sizeof *p, "recurrent layer", error));
    call->state = p;
    *p = (recurrent_plan){.panel = &BY__AT_LEVEL(by__kernel_panel_f32),
                          .samples = y->shape.dim[0],
                          .steps = y->shape.dim[1],
                          .width = y->shape.dim[2],
                          .sums = call->in[2].shape.dim[0]};
    p->inner = is_grad ? p->sums : p->width;
    p->columns = is_grad ? p->width : p->sums;
    p->row_floats = by__ceil_div(p->columns, p->panel->nr) * p->panel->nr;
    p->block = p->samples >= MANY_SAMPLES ? 2 * p->panel->mr : p->panel->mr;
    by_status status = is_grad ? BY_OK : open_input(p, call, context->threads, error);
    if (status != BY_OK) {
        release(call);
        return status;
    }
    place(p, call);
    call->work_bytes = p->blocks + p->block_bytes * (size_t)by__ceil_div(p->samples, p->block);
    return BY_OK;
}

/* ---- runs ---- */

/* Packs the weights of the states [sums, width]: the columns of the product are their rows, or, for
 * the gradient, their columns. */
static void pack_weights(const by__device_call *call)
{
    const recurrent_plan *p = call->state;
    const void *weights = call->in[2].data;
    if (call->in[2].dtype != BY_F32) {
        float *wide = (float *)(void *)((char *)call->work + p->wide);
        by_dtype type = call->in[2].dtype;
#define STEP(i, n) by__store_n(wide, i, by__load_n(weights, i, type, n), BY_F32, n)
        BY__STEPS(0, p->sums * p->width, STEP);
#undef STEP
        weights = wide;
    }
    bool by_rows = is_forward(call);
    p->panel->pack_b((char *)call->work + p->weights, by__panel_b_stride(p->panel, p->inner),
                     weights, by_rows ? p->width : 1, by_rows ? 1 : p->width, p->columns, p->inner);
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    by__cpu_range_fn *const *blocks = call->op == BY_OP_LSTM        ? lstm_blocks_ranges
                                      : call->op == BY_OP_GRU       ? gru_blocks_ranges
                                      : call->op == BY_OP_LSTM_GRAD ? lstm_grad_blocks_ranges
                                                                    : gru_grad_blocks_ranges;
    const recurrent_plan *p = call->state;
    if (p->input != NULL) {
        by__cpu_gemm_operands operands = {.a = call->in[0].data,
                                          .b = call->in[1].data,
                                          .bias = call->in[3].data,
                                          .c = call->out[1].data,
                                          .work = call->work};
        by__cpu_gemm_run(p->input, &operands);
    }
    pack_weights(call);
    by_dtype type = call->in[2].dtype;
    by__cpu_parallel(context, call, by__ceil_div(p->samples, p->block), 1,
                     p->samples * p->steps * p->sums, blocks[type]);
    return BY_OK;
}

BY__KERNEL(lstm) = {BY_OP_LSTM, BY__KERNEL_NAME("lstm"), supports, prepare, release, run};
BY__KERNEL(lstm_grad) = {
    BY_OP_LSTM_GRAD, BY__KERNEL_NAME("lstm_grad"), supports, prepare, release, run};
BY__KERNEL(gru) = {BY_OP_GRU, BY__KERNEL_NAME("gru"), supports, prepare, release, run};
BY__KERNEL(gru_grad) = {
    BY_OP_GRU_GRAD, BY__KERNEL_NAME("gru_grad"), supports, prepare, release, run};
