/* MATMUL. */
#include "device/cuda/cuda_products.h"

/* Of a bias in the workspace. */
#define ALIGNMENT 256

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
    BY_TRY(by__cuda_product_open(&product, by__cuda_products_of(context), &shape, error));
    call->state = product;
    call->work_bytes = by__cuda_product_work(product);
    if (rounds_bias(call)) {
        call->work_bytes = by__round_up(call->work_bytes, ALIGNMENT) +
                           (size_t)shape.n * by_dtype_size(shape.y_dtype);
    }
    return BY_OK;
}

static void release_matmul(by__device_call *call)
{
    by__cuda_product_close(call->state);
}

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    by__cuda_product_operands operands = {.a = call->in[0].data,
                                          .b = call->in[1].data,
                                          .bias = call->in[2].data,
                                          .add = call->in[3].data,
                                          .y = call->out[0].data};
    if (rounds_bias(call)) {
        by__cuda_cast_args args = {.x = call->in[2].data,
                                   .y = (char *)call->work +
                                        by__round_up(by__cuda_product_work(call->state), ALIGNMENT),
                                   .count = by__tensor_count(&call->in[2]),
                                   .from = (int32_t)call->in[2].dtype,
                                   .to = (int32_t)call->out[0].dtype};
        BY_TRY(by__cuda_over_elements(context, BY__CUDA_KERNEL_cast, args.count, &args));
        operands.bias = args.y;
    }
    return by__cuda_product_run(call->state, &operands, call->work, context->queue);
}

const by__device_kernel by__cuda_matmul = {.op = BY_OP_MATMUL,
                                           .name = "matmul cublasLt",
                                           .supports = supports_matmul,
                                           .prepare = prepare_matmul,
                                           .release = release_matmul,
                                           .run = run_matmul};
