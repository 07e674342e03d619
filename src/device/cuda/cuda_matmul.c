/* MATMUL. Weight gradients have few results and much depth, the rows of a batch: 768 x 768 are 36
 * tiles, for more than 100 multiprocessors. They are cut into parts of the depth, by shape alone: a
 * batch of products with results in f32, and one sum of these in order. */
#include <stdlib.h>

#include "device/cuda/cuda_products.h"

#define ALIGNMENT   256 /* of what is in the workspace */
#define TILE        128 /* rows and columns of results that a block of the library computes */
#define MOST_TILES  128 /* as many blocks occupy a GPU, whichever it is: bits follow from shapes */
#define LEAST_DEPTH 512 /* of a part */
#define MOST_PARTS  32

typedef struct cuda_matmul {
    by__cuda_product *product;
    int64_t parts;
    int64_t results;
    size_t parts_bytes; /* of the parts' results, before the library's workspace */
} cuda_matmul;

/* The number of parts of the depth. Their operands and results begin at multiples of 256 bytes. */
static int64_t count_parts(const by__cuda_product_shape *s)
{
    int64_t tiles = by__ceil_div(s->m, TILE) * by__ceil_div(s->n, TILE);
    int64_t parts = 1;
    bool whole = s->has_bias || s->adds || !s->trans_a || s->trans_b || s->y_dtype != BY_F32 ||
                 s->m * s->n % 64 != 0;
    while (!whole && parts < MOST_PARTS && tiles * parts < MOST_TILES &&
           s->k % (2 * parts * TILE) == 0 && s->k / (2 * parts) >= LEAST_DEPTH) {
        parts *= 2;
    }
    return parts;
}

/* The library wants a bias in the format of all the others: an f32 one of halves is rounded first,
 * as it would be if the sum were made of halves. */
static bool rounds_bias(const by__device_call *call)
{
    return by__cuda_present(call, 2) && call->in[2].dtype != call->out[0].dtype;
}

static bool supports_matmul(const by__device_call *call)
{
    by_dtype dtype = call->in[0].dtype;
    by_dtype y = call->out[0].dtype;
    bool plain = !by__cuda_present(call, 2) ||
                 (y == dtype && (call->in[2].dtype == y || call->in[2].dtype == BY_F32));
    return plain && by_dtype_is_float(dtype) && call->in[1].dtype == dtype &&
           (y == dtype || y == BY_F32) && by_shape_count(&call->in[0].shape) > 0 &&
           by_shape_count(&call->in[1].shape) > 0;
}

static by_status prepare_matmul(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    cuda_matmul *o;
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
    BY_TRY(by__alloc((void **)&o, 1, sizeof *o, "product", error));
    o->parts = count_parts(&shape);
    o->results = shape.m * shape.n;
    if (o->parts > 1) {
        shape.k /= o->parts;
        shape.batches = (int32_t)o->parts;
        shape.a_step = shape.k * shape.a_stride;
        shape.b_step = shape.k * shape.b_stride;
        shape.y_step = o->results;
        o->parts_bytes = by__round_up((size_t)(o->parts * o->results) * sizeof(float), ALIGNMENT);
    }
    by_status status = by__cuda_product_open(&o->product, context, &shape, error);
    if (status != BY_OK) {
        free(o);
        return status;
    }
    call->state = o;
    call->work_bytes = o->parts_bytes + by__cuda_product_work(o->product);
    if (rounds_bias(call)) {
        call->work_bytes = by__round_up(call->work_bytes, ALIGNMENT) +
                           (size_t)shape.n * by_dtype_size(shape.y_dtype);
    }
    return BY_OK;
}

static void release_matmul(by__device_call *call)
{
    cuda_matmul *o = call->state;
    by__cuda_product_close(o->product);
    free(o);
}

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    const cuda_matmul *o = call->state;
    void *work = (char *)call->work + o->parts_bytes;
    by__cuda_product_operands operands = {.a = call->in[0].data,
                                          .b = call->in[1].data,
                                          .bias = call->in[2].data,
                                          .add = call->in[3].data,
                                          .y = o->parts > 1 ? call->work : call->out[0].data};
    if (rounds_bias(call)) {
        size_t at = by__round_up(o->parts_bytes + by__cuda_product_work(o->product), ALIGNMENT);
        by__cuda_cast_args args = {.x = call->in[2].data,
                                   .y = (char *)call->work + at,
                                   .count = by__tensor_count(&call->in[2]),
                                   .from = (int32_t)call->in[2].dtype,
                                   .to = (int32_t)call->out[0].dtype};
        BY_TRY(by__cuda_over_elements(context, BY__CUDA_KERNEL_cast, args.count, &args));
        operands.bias = args.y;
    }
    BY_TRY(by__cuda_product_run(o->product, &operands, work, context->queue));
    return o->parts == 1 ? BY_OK
                         : by__cuda_sum_into(context, call->out[0].data, call->work, BY_F32,
                                             o->parts, o->results, NULL);
}

const by__device_kernel by__cuda_matmul = {.op = BY_OP_MATMUL,
                                           .name = "matmul cublasLt",
                                           .supports = supports_matmul,
                                           .prepare = prepare_matmul,
                                           .release = release_matmul,
                                           .run = run_matmul};
