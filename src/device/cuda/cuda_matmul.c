/* The rows of products: MATMUL, and the losses over a vocabulary, whose logits exist for a chunk of
 * rows at a time. */
#include <stdlib.h>

#include "device/cuda/cuda_products.h"

static bool is_float(by_dtype dtype)
{
    return dtype == BY_F32 || dtype == BY_BF16 || dtype == BY_F16;
}

static const by__cuda_products *products_of(const by__device_context *context)
{
    return ((const by__cuda_device *)context->device)->products;
}

/* ---- MATMUL ---- */

/* The library wants a bias in the format of all the others. */
static bool supports_matmul(const by__device_call *call)
{
    by_dtype dtype = call->in[0].dtype;
    by_dtype y = call->out[0].dtype;
    bool plain = !by__cuda_present(call, 2) || (call->in[2].dtype == y && y == dtype);
    return plain && is_float(dtype) && call->in[1].dtype == dtype && (y == dtype || y == BY_F32) &&
           by_shape_count(&call->in[0].shape) > 0 && by_shape_count(&call->in[1].shape) > 0;
}

static by_status prepare_matmul(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    by__cuda_product *product;
    bool trans_a = call->attrs.trans_a;
    bool trans_b = call->attrs.trans_b;
    by__cuda_product_shape shape = {.m = trans_a ? by__tensor_columns(a) : by__tensor_rows(a),
                                    .n = trans_b ? by__tensor_rows(b) : by__tensor_columns(b),
                                    .k = trans_a ? by__tensor_rows(a) : by__tensor_columns(a),
                                    .trans_a = trans_a,
                                    .trans_b = trans_b,
                                    .a_stride = by__tensor_columns(a),
                                    .b_stride = by__tensor_columns(b),
                                    .dtype = a->dtype,
                                    .y_dtype = call->out[0].dtype,
                                    .has_bias = by__cuda_present(call, 2),
                                    .adds = by__cuda_present(call, 3)};
    shape.y_stride = shape.n;
    BY_TRY(by__cuda_product_open(&product, products_of(context), &shape, error));
    call->state = product;
    call->work_bytes = by__cuda_product_work(product);
    return BY_OK;
}

static void release_matmul(by__device_call *call)
{
    by__cuda_product_close(call->state);
}

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    const by__cuda_product_operands operands = {.a = call->in[0].data,
                                                .b = call->in[1].data,
                                                .bias = call->in[2].data,
                                                .add = call->in[3].data,
                                                .y = call->out[0].data};
    return by__cuda_product_run(call->state, &operands, call->work, context->queue);
}

const by__device_kernel by__cuda_matmul = {.op = BY_OP_MATMUL,
                                           .name = "matmul cublasLt",
                                           .supports = supports_matmul,
                                           .prepare = prepare_matmul,
                                           .release = release_matmul,
                                           .run = run_matmul};

/* ---- losses over a vocabulary ---- */

/* Bytes of the logits of a chunk. */
#define CHUNK_BYTES ((int64_t)64 << 20)
/* Chunks begin at multiples of this many rows, which keeps operands aligned. */
#define CHUNK_ROWS 128
/* Of the parts of the workspace. */
#define ALIGNMENT 256

typedef enum vocabulary_part { LOGITS, DX, FIRST_DW, DW, PARTS } vocabulary_part;

/* Products of a loss: for whole chunks, and for a shorter last one. */
typedef struct loss_plan {
    by_dtype dtype; /* of x, w, dx and the gradients of logits; logits are f32 */
    int64_t rows, columns, words, stride, chunk;
    by__cuda_product *products[2][PARTS];
    size_t gradients_at; /* offsets in the workspace: of the gradients of logits, */
    size_t losses_at;    /* of the losses of rows, */
    size_t sums_at;      /* of partial sums of these, */
    size_t work_at;      /* and of the products' scratch memory */
} loss_plan;

static bool has_gradients(const by__device_call *call)
{
    return call->op != BY_OP_LINEAR_CROSS_ENTROPY;
}

/* Outputs: loss, lse | dx, dw | loss, dx, dw. */
static bool supports_loss(const by__device_call *call)
{
    by_dtype dtype = call->in[0].dtype;
    bool fits = call->input_count < 6; /* kept logits */
    fits =
        fits && is_float(dtype) && call->in[1].dtype == dtype && by__tensor_rows(&call->in[0]) > 0;
    return fits && by__tensor_rows(&call->in[1]) > 0 && by__tensor_columns(&call->in[0]) > 0;
}

static by_status open_products(loss_plan *v, int which, int64_t rows, bool gradients,
                               const by__cuda_products *products, by_error *error)
{
    by__cuda_product **out = v->products[which];
    const by__cuda_product_shape shapes[PARTS] = {
        [LOGITS] = {.m = rows,
                    .n = v->words,
                    .k = v->columns,
                    .dtype = v->dtype,
                    .trans_b = true,
                    .a_stride = v->columns,
                    .b_stride = v->columns,
                    .y_stride = v->stride},
        [DX] = {.m = rows,
                .n = v->columns,
                .k = v->words,
                .dtype = v->dtype,
                .y_dtype = v->dtype,
                .a_stride = v->stride,
                .b_stride = v->columns,
                .y_stride = v->columns},
        [FIRST_DW] = {.m = v->words,
                      .n = v->columns,
                      .k = rows,
                      .dtype = v->dtype,
                      .trans_a = true,
                      .a_stride = v->stride,
                      .b_stride = v->columns,
                      .y_stride = v->columns},
        [DW] = {.m = v->words,
                .n = v->columns,
                .k = rows,
                .dtype = v->dtype,
                .trans_a = true,
                .adds = true,
                .a_stride = v->stride,
                .b_stride = v->columns,
                .y_stride = v->columns},
    };
    for (int part = 0; part < (gradients ? PARTS : DX); part++) {
        BY_TRY(by__cuda_product_open(&out[part], products, &shapes[part], error));
    }
    return BY_OK;
}

static void close_plan(loss_plan *v)
{
    for (int part = 0; part < PARTS; part++) {
        by__cuda_product_close(v->products[0][part]);
        by__cuda_product_close(v->products[1][part]);
    }
    free(v);
}

static size_t most_work(const loss_plan *v)
{
    size_t most = 0;
    for (int i = 0; i < 2 * PARTS; i++) {
        const by__cuda_product *product = v->products[i / PARTS][i % PARTS];
        size_t bytes = product == NULL ? 0 : by__cuda_product_work(product);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static by_status prepare_loss(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    loss_plan *v;
    bool gradients = has_gradients(call);
    BY_TRY(by__alloc((void **)&v, 1, sizeof *v, "loss", error));
    v->dtype = call->in[0].dtype;
    v->rows = by__tensor_rows(&call->in[0]);
    v->columns = by__tensor_columns(&call->in[0]);
    v->words = by__tensor_rows(&call->in[1]);
    v->stride = (int64_t)by__round_up((size_t)v->words, CHUNK_ROWS);
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there are words, supports_loss says */
    int64_t most = CHUNK_BYTES / (v->stride * (int64_t)sizeof(float)) / CHUNK_ROWS * CHUNK_ROWS;
    most = most < CHUNK_ROWS ? CHUNK_ROWS : most;
    v->chunk = v->rows < most ? v->rows : most;
    by_status status = open_products(v, 0, v->chunk, gradients, products_of(context), error);
    if (status == BY_OK && v->rows % v->chunk != 0) {
        status = open_products(v, 1, v->rows % v->chunk, gradients, products_of(context), error);
    }
    if (status != BY_OK) {
        close_plan(v);
        return status;
    }
    /* Gradients of the logits' format take their place. */
    size_t logits = (size_t)(v->chunk * v->stride);
    v->gradients_at = v->dtype == BY_F32 ? 0 : logits * sizeof(float);
    v->losses_at = v->gradients_at + logits * by_dtype_size(v->dtype);
    v->sums_at = v->losses_at + by__round_up((size_t)v->rows * sizeof(float), ALIGNMENT);
    v->work_at =
        v->sums_at + by__round_up((size_t)by__cuda_sum_work(v->rows, 1) * sizeof(float), ALIGNMENT);
    call->work_bytes = v->work_at + most_work(v);
    call->state = v;
    return BY_OK;
}

static void release_loss(by__device_call *call)
{
    if (call->state != NULL) {
        close_plan(call->state);
    }
}

/* Where a call's operands and results are. */
typedef struct loss_operands {
    const void *x, *w;
    const float *lse_in, *dloss;
    const int32_t *targets;
    float *loss, *lse, *dw;
    void *dx;
} loss_operands;

static loss_operands operands_of(const by__device_call *call)
{
    loss_operands o = {.x = call->in[0].data, .w = call->in[1].data, .targets = call->in[2].data};
    switch (call->op) {
    case BY_OP_LINEAR_CROSS_ENTROPY:
        o.loss = call->out[0].data;
        o.lse = call->out[1].data;
        break;
    case BY_OP_LINEAR_CROSS_ENTROPY_GRAD:
        o.lse_in = call->in[3].data;
        o.dloss = call->in[4].data;
        o.dx = call->out[0].data;
        o.dw = call->out[1].data;
        break;
    default:
        o.dloss = call->in[3].data;
        o.loss = call->out[0].data;
        o.dx = call->out[1].data;
        o.dw = call->out[2].data;
        break;
    }
    return o;
}

static by_status launch_rows(const by__device_call *call, const loss_operands *o, int64_t begin,
                             int64_t rows, const by__device_context *context)
{
    const loss_plan *v = call->state;
    bool wide = v->words > BY__CUDA_WIDE;
    const by__cuda_cross_entropy_args args = {
        .x = call->work,
        .targets = o->targets + begin,
        .lse_in = o->lse_in == NULL ? NULL : o->lse_in + begin,
        .dloss = o->dloss,
        .lse = o->lse == NULL ? NULL : o->lse + begin,
        .loss =
            o->loss == NULL ? NULL : (float *)(void *)((char *)call->work + v->losses_at) + begin,
        .dx = o->dloss == NULL ? NULL : (char *)call->work + v->gradients_at,
        .rows = rows,
        .columns = v->words,
        .stride = v->stride,
        .dx_stride = v->stride,
        .first = call->attrs.begin,
        .classes = call->attrs.rows > 0 ? call->attrs.rows : v->words,
        .dtype = BY_F32,
        .dx_dtype = (int32_t)v->dtype,
        .wide = wide};
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_cross_entropy, rows, wide, &args);
}

static by_status run_chunk(const by__device_call *call, const loss_operands *o, int64_t begin,
                           const by__device_context *context)
{
    const loss_plan *v = call->state;
    by__cuda_queue *queue = by__cuda_queue_of(context);
    int64_t rows = v->rows - begin < v->chunk ? v->rows - begin : v->chunk;
    by__cuda_product *const *products = v->products[rows < v->chunk];
    void *work = (char *)call->work + v->work_at;
    const void *gradients = (const char *)call->work + v->gradients_at;
    size_t first = (size_t)(begin * v->columns) * by_dtype_size(v->dtype);
    const void *x = (const char *)o->x + first;
    const by__cuda_product_operands logits = {.a = x, .b = o->w, .y = call->work};
    BY_TRY(by__cuda_product_run(products[LOGITS], &logits, work, queue));
    BY_TRY(launch_rows(call, o, begin, rows, context));
    if (!has_gradients(call)) {
        return BY_OK;
    }
    const by__cuda_product_operands dx = {.a = gradients, .b = o->w, .y = (char *)o->dx + first};
    const by__cuda_product_operands dw = {.a = gradients, .b = x, .add = o->dw, .y = o->dw};
    BY_TRY(by__cuda_product_run(products[DX], &dx, work, queue));
    return by__cuda_product_run(products[begin == 0 ? FIRST_DW : DW], &dw, work, queue);
}

static by_status run_loss(const by__device_call *call, const by__device_context *context)
{
    const loss_plan *v = call->state;
    loss_operands o = operands_of(call);
    for (int64_t begin = 0; begin < v->rows; begin += v->chunk) {
        BY_TRY(run_chunk(call, &o, begin, context));
    }
    return o.loss == NULL
               ? BY_OK
               : by__cuda_sum_into(context, o.loss, (const char *)call->work + v->losses_at, BY_F32,
                                   v->rows, 1, (float *)(void *)((char *)call->work + v->sums_at));
}

const by__device_kernel by__cuda_loss = {.op = BY_OP_LINEAR_CROSS_ENTROPY,
                                         .name = "linear_cross_entropy cublasLt",
                                         .supports = supports_loss,
                                         .prepare = prepare_loss,
                                         .release = release_loss,
                                         .run = run_loss};
const by__device_kernel by__cuda_loss_grad = {.op = BY_OP_LINEAR_CROSS_ENTROPY_GRAD,
                                              .name = "linear_cross_entropy_grad cublasLt",
                                              .supports = supports_loss,
                                              .prepare = prepare_loss,
                                              .release = release_loss,
                                              .run = run_loss};
const by__device_kernel by__cuda_loss_train = {.op = BY_OP_LINEAR_CROSS_ENTROPY_TRAIN,
                                               .name = "linear_cross_entropy_train cublasLt",
                                               .supports = supports_loss,
                                               .prepare = prepare_loss,
                                               .release = release_loss,
                                               .run = run_loss};
