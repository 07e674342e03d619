/* LSTM, GRU and their gradients.
 *
 * Samples are independent of each other: they are cut into blocks, and a block goes through all
 * steps on one thread, without waiting for others. A step multiplies the input and the states of a
 * block, side by side, by weights that were packed once (panel.h), so that sums of gates are never
 * in memory for more than one step. A sample's bits do not depend on its block. States, cells and
 * their gradients are f32, whatever the operands are. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"
#include "device/cpu/kernels/simd_math.h"
#include "device/cpu/panel.h"

/* Panels of rows of a block, at most: their states and sums stay in the cache of a core. */
#define MOST_PANELS 4

/* A product of a step: columns of its result from columns of the rows. */
typedef struct recurrent_part {
    int64_t from, k;     /* columns of the rows */
    int64_t at, columns; /* of the result */
    size_t weights;      /* place in the workspace, packed */
} recurrent_part;

enum { MOST_PARTS = 3 };

typedef struct recurrent_plan {
    const by__cpu_panel *panel;
    int64_t samples, steps, width;
    int64_t channels;   /* forward: of the input */
    int64_t sums;       /* of a step: rows of the weights of the states */
    int64_t block;      /* samples of a block */
    int64_t inner;      /* columns of the rows that a step multiplies */
    int64_t row_floats; /* from one row of the result to the next */
    int64_t gates[4];   /* forward: columns of the result where the sums of each gate begin */
    recurrent_part parts[MOST_PARTS];
    int part_count;
    /* Places in the workspace. */
    size_t wide; /* weights as f32, if they are narrower */
    size_t biases;
    size_t blocks, block_bytes;
    /* Places in the memory of a block. */
    size_t rows, carried, product;
} recurrent_plan;

typedef struct recurrent_block {
    const recurrent_plan *p;
    const char *work;
    int64_t first; /* sample */
    int64_t count;
    float *rows;    /* [count, inner]: input and states, or gradients of sums */
    float *carried; /* [count, width]: cells, or gradients */
    float *product; /* [count, row_floats] */
} recurrent_block;

static recurrent_block block_of(const by__device_call *call, int64_t b)
{
    const recurrent_plan *p = call->state;
    char *memory = (char *)call->work + p->blocks + (size_t)b * p->block_bytes;
    return (recurrent_block){.p = p,
                             .work = call->work,
                             .first = b * p->block,
                             .count = by__min_i64(p->block, p->samples - b * p->block),
                             .rows = (float *)(void *)(memory + p->rows),
                             .carried = (float *)(void *)(memory + p->carried),
                             .product = (float *)(void *)(memory + p->product)};
}

/* product = rows times the packed weights. */
static void multiply(const recurrent_block *b)
{
    const recurrent_plan *p = b->p;
    for (int i = 0; i < p->part_count; i++) {
        const recurrent_part *part = &p->parts[i];
        p->panel->multiply_rows(b->product + part->at, p->row_floats, b->rows + part->from,
                                (size_t)p->inner * sizeof(float), b->work + part->weights,
                                by__panel_b_stride(p->panel, part->k), b->count, part->columns,
                                part->k, false, NULL);
    }
}

/* Row of step t of sample r of the block, among the steps of all samples. */
static int64_t row_of(const recurrent_block *b, int64_t r, int64_t t)
{
    return (b->first + r) * b->p->steps + t;
}

#define LOAD(data, i)     by__load_n(data, i, BY_F32, n)
#define STORE(data, i, x) by__store_n(data, i, x, BY_F32, n)

/* ---- forward ---- */

/* 1 / (1 + exp(-x)), and beyond the range of exp the value at its end. */
BY__INLINE by__vf sigmoid(by__vf x)
{
    by__vf n;
    by__vf r = by__exp_reduced(by__at_least(-87.0f, by__at_most(87.0f, -x)), &n);
    by__vf two_n = by__power_of_two(__builtin_convertvector(n, by__vi));
    return by__reciprocal(by__multiply_add(two_n, r, two_n) + 1.0f);
}

/* The sum of gate g of units j .. j + n - 1. */
BY__INLINE by__vf sum_of(const recurrent_block *b, int64_t r, int g, int64_t j, int n)
{
    const recurrent_plan *p = b->p;
    const float *biases = (const float *)(const void *)(b->work + p->biases);
    return LOAD(b->product, r * p->row_floats + p->gates[g] + j) + LOAD(biases, p->gates[g] + j);
}

BY__INLINE void lstm_units(const by__device_call *call, const recurrent_block *b, int64_t r,
                           int64_t t, int64_t j, by_dtype type, int n)
{
    int64_t w = b->p->width;
    int64_t row = row_of(b, r, t);
    float *gates = (float *)call->out[1].data + row * 4 * w;
    by__vf in = sigmoid(sum_of(b, r, 0, j, n));
    by__vf forget = sigmoid(sum_of(b, r, 1, j, n));
    by__vf new = by__tanh(sum_of(b, r, 2, j, n));
    by__vf out = sigmoid(sum_of(b, r, 3, j, n));
    float *cells = b->carried + r * w;
    by__vf cell = by__multiply_add(forget, LOAD(cells, j), in * new);
    by__vf y = out * by__tanh(cell);
    STORE(gates, j, in);
    STORE(gates, w + j, forget);
    STORE(gates, 2 * w + j, new);
    STORE(gates, 3 * w + j, out);
    STORE(cells, j, cell);
    STORE(call->out[2].data, row * w + j, cell);
    STORE(b->rows, r * b->p->inner + b->p->channels + j, y);
    by__store_n(call->out[0].data, row * w + j, y, type, n);
}

BY__INLINE void gru_units(const by__device_call *call, const recurrent_block *b, int64_t r,
                          int64_t t, int64_t j, by_dtype type, int n)
{
    int64_t w = b->p->width;
    int64_t row = row_of(b, r, t);
    float *gates = (float *)call->out[1].data + row * 4 * w;
    float *state = b->rows + r * b->p->inner + b->p->channels;
    by__vf reset = sigmoid(sum_of(b, r, 0, j, n));
    by__vf update = sigmoid(sum_of(b, r, 1, j, n));
    by__vf hidden = sum_of(b, r, 3, j, n);
    by__vf new = by__tanh(by__multiply_add(reset, hidden, sum_of(b, r, 2, j, n)));
    by__vf y = by__multiply_add(update, LOAD(state, j) - new, new);
    STORE(gates, j, reset);
    STORE(gates, w + j, update);
    STORE(gates, 2 * w + j, new);
    STORE(gates, 3 * w + j, hidden);
    STORE(state, j, y);
    by__store_n(call->out[0].data, row * w + j, y, type, n);
}

/* Puts the input of step t into the rows. */
BY__INLINE void load_input(const by__device_call *call, const recurrent_block *b, int64_t t,
                           by_dtype type)
{
    int64_t channels = b->p->channels;
    for (int64_t r = 0; r < b->count; r++) {
        int64_t row = row_of(b, r, t) * channels;
        float *to = b->rows + r * b->p->inner;
#define STEP(j, n) by__store_n(to, j, by__load_n(call->in[0].data, row + (j), type, n), BY_F32, n)
        BY__STEPS(0, channels, STEP);
#undef STEP
    }
}

/* Blocks begin .. end - 1 through all steps. */
BY__INLINE void forward(const by__device_call *call, int64_t begin, int64_t end, bool lstm,
                        by_dtype type)
{
    for (int64_t i = begin; i < end; i++) {
        recurrent_block b = block_of(call, i);
        memset(b.rows, 0, (size_t)(b.count * b.p->inner) * sizeof(float));
        memset(b.carried, 0, (size_t)(b.count * b.p->width) * sizeof(float));
        for (int64_t t = 0; t < b.p->steps; t++) {
            load_input(call, &b, t, type);
            multiply(&b);
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

/* Gradients vanish from step to step, and processors take a hundred times as long for products with
 * subnormal numbers. What is smaller than this becomes 0, so that its products with weights are not
 * subnormal either. */
#define LEAST_GRADIENT 1e-30f

BY__INLINE by__vf vanished(by__vf d)
{
    return by__select(by__abs(d) < LEAST_GRADIENT, by__zero(), d);
}

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
    by__vf sums[4] = {
        vanished(through_sigmoid(dc * new, in)), vanished(through_sigmoid(dc * before, forget)),
        vanished(dc * in * (1.0f - new *new)), vanished(through_sigmoid(dy * cell, out))};
    STORE(b->carried, r * w + j, vanished(dc * forget));
    for (int64_t g = 0; g < 4; g++) {
        STORE(b->rows, (4 * r + g) * w + j, sums[g]);
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
    by__vf sums[3] = {vanished(through_sigmoid(dn * hidden, reset)),
                      vanished(through_sigmoid(dy * (before - new), update)), vanished(dn * reset)};
    dn = vanished(dn);
    STORE(b->carried, r * w + j, vanished(dy * update));
    for (int64_t g = 0; g < 3; g++) {
        STORE(b->rows, (3 * r + g) * w + j, sums[g]);
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
        memset(b.product, 0, (size_t)(b.count * b.p->row_floats) * sizeof(float));
        for (int64_t t = b.p->steps - 1; t >= 0; t--) {
            if (t + 1 < b.p->steps) {
                multiply(&b);
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
    free(call->state);
    call->state = NULL;
}

/* Appends a product to a step; gives the column of the result where it begins. */
static int64_t add_part(recurrent_plan *p, int64_t from, int64_t k, int64_t columns)
{
    int64_t at = p->row_floats;
    p->parts[p->part_count++] =
        (recurrent_part){.from = from, .k = k, .at = at, .columns = columns};
    p->row_floats += by__ceil_div(columns, p->panel->nr) * p->panel->nr;
    return at;
}

/* The gates of a GRU's new state need the products with input and states by themselves. */
static void plan_forward(recurrent_plan *p, bool lstm)
{
    int64_t w = p->width;
    p->inner = p->channels + w;
    (void)add_part(p, 0, p->inner, lstm ? 4 * w : 2 * w);
    for (int64_t g = 0; g < 4; g++) {
        p->gates[g] = g * w;
    }
    if (!lstm) {
        p->gates[2] = add_part(p, 0, p->channels, w);
        p->gates[3] = add_part(p, p->channels, w, w);
    }
}

/* As many blocks as keep all threads busy with about as many samples each. */
static int64_t samples_of_block(const recurrent_plan *p, int threads)
{
    int64_t blocks = by__ceil_div(p->samples, (int64_t)MOST_PANELS * p->panel->mr);
    int64_t samples = by__ceil_div(p->samples, by__ceil_div(blocks, threads) * threads);
    return samples + samples % 2; /* products have an even number of rows */
}

static void place(recurrent_plan *p, const by__device_call *call)
{
    size_t own = 0;
    size_t used = 0;
    bool narrow = call->in[2].dtype != BY_F32;
    int64_t rows = by__ceil_div(p->block, p->panel->mr) * p->panel->mr;
    int64_t most = p->sums * (p->width > p->channels ? p->width : p->channels);
    p->rows = by__work_reserve(&own, (size_t)(rows * p->inner) * sizeof(float));
    p->carried = by__work_reserve(&own, (size_t)(p->block * p->width) * sizeof(float));
    p->product = by__work_reserve(&own, (size_t)(rows * p->row_floats) * sizeof(float));
    p->block_bytes = own;
    p->wide = by__work_reserve(&used, narrow ? (size_t)most * sizeof(float) : 0);
    p->biases = by__work_reserve(&used, (size_t)p->row_floats * sizeof(float));
    for (int i = 0; i < p->part_count; i++) {
        p->parts[i].weights = by__work_reserve(
            &used, by__panel_b_bytes(p->panel, p->parts[i].columns, p->parts[i].k));
    }
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
    if (is_grad) {
        p->inner = p->sums;
        (void)add_part(p, 0, p->sums, p->width);
    } else {
        p->channels = by__tensor_columns(&call->in[0]);
        plan_forward(p, call->op == BY_OP_LSTM);
    }
    p->block = samples_of_block(p, context->threads);
    place(p, call);
    call->work_bytes = p->blocks + p->block_bytes * (size_t)by__ceil_div(p->samples, p->block);
    return BY_OK;
}

/* ---- runs ---- */

/* The weights of an operand as f32. */
static const float *widened(const by__device_call *call, int operand)
{
    const by__device_tensor *in = &call->in[operand];
    const recurrent_plan *p = call->state;
    float *wide = (float *)(void *)((char *)call->work + p->wide);
    if (in->dtype == BY_F32) {
        return in->data;
    }
#define STEP(i, n) by__store_n(wide, i, by__load_n(in->data, i, in->dtype, n), BY_F32, n)
    BY__STEPS(0, by__tensor_count(in), STEP);
#undef STEP
    return wide;
}

/* Packs rows `first` and on of weights [sums, k] as columns of a part, from row `at` of its k
 * on. */
static void pack_rows(const by__device_call *call, int index, int64_t at, const float *weights,
                      int64_t first, int64_t k)
{
    const recurrent_plan *p = call->state;
    const recurrent_part *part = &p->parts[index];
    size_t stride = by__panel_b_stride(p->panel, part->k);
    const char *to = by__panel_b_at(p->panel, (char *)call->work + part->weights, 0, at, stride);
    p->panel->pack_b((void *)(uintptr_t)to, stride, weights + first * k, k, 1, part->columns, k);
}

/* The biases of all sums, each where its sum is. */
static void add_biases(const by__device_call *call)
{
    const recurrent_plan *p = call->state;
    const float *input = call->in[3].data;
    const float *hidden = call->in[4].data;
    float *biases = (float *)(void *)((char *)call->work + p->biases);
    bool lstm = call->op == BY_OP_LSTM;
    int64_t w = p->width;
    for (int64_t i = 0; i < (lstm ? 4 : 2) * w; i++) {
        biases[i] = input[i] + hidden[i];
    }
    if (!lstm) {
        memcpy(biases + p->gates[2], input + 2 * w, (size_t)w * sizeof *biases);
        memcpy(biases + p->gates[3], hidden + 2 * w, (size_t)w * sizeof *biases);
    }
}

static void pack_weights(const by__device_call *call)
{
    const recurrent_plan *p = call->state;
    int64_t w = p->width;
    if (!is_forward(call)) { /* columns of the product are columns of the weights [sums, width] */
        p->panel->pack_b((char *)call->work + p->parts[0].weights,
                         by__panel_b_stride(p->panel, p->sums), widened(call, 2), 1, w, w, p->sums);
        return;
    }
    const float *weights = widened(call, 1);
    pack_rows(call, 0, 0, weights, 0, p->channels);
    if (p->part_count > 1) {
        pack_rows(call, 1, 0, weights, 2 * w, p->channels);
    }
    weights = widened(call, 2);
    pack_rows(call, 0, p->channels, weights, 0, w);
    if (p->part_count > 1) {
        pack_rows(call, 2, 0, weights, 2 * w, w);
    }
    add_biases(call);
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    by__cpu_range_fn *const *blocks = call->op == BY_OP_LSTM        ? lstm_blocks_ranges
                                      : call->op == BY_OP_GRU       ? gru_blocks_ranges
                                      : call->op == BY_OP_LSTM_GRAD ? lstm_grad_blocks_ranges
                                                                    : gru_grad_blocks_ranges;
    const recurrent_plan *p = call->state;
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
