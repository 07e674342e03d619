/* Embeddings and positions. */
#include "device/cuda/launch.h"

static bool supports_second(const by__device_call *call)
{
    return by_dtype_is_float(call->in[1].dtype);
}

static by_status run_embedding(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *table = &call->in[1];
    by__cuda_embedding_args args = {
        .ids = call->in[0].data,
        .table = table->data,
        .y = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .columns = by__tensor_columns(table),
        .rows = by__tensor_rows(table),
        .dtype = (int32_t)table->dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_embedding, args.count * args.columns, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_EMBEDDING, embedding, supports_second, NULL, NULL, run_embedding);

static by_status run_embedding_grad(const by__device_call *call, const by__device_context *context)
{
    by__cuda_embedding_grad_args args = {
        .ids = call->in[0].data,
        .dy = call->in[1].data,
        .base = by__cuda_present(call, 2) ? call->in[2].data : NULL,
        .y = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .columns = by__tensor_columns(&call->out[0]),
        .rows = by__tensor_rows(&call->out[0]),
        .dtype = (int32_t)call->in[1].dtype,
    };
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_embedding_grad,
                                by__ceil_div(args.rows, BY__CUDA_EMBEDDING_ROWS), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_EMBEDDING_GRAD, embedding_grad, supports_second, NULL, NULL,
                    run_embedding_grad);

static bool supports_position(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype) && by_dtype_is_float(call->in[1].dtype);
}

static by_status run_position(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    by__cuda_position_args args = {
        .x = x->data,
        .table = call->in[1].data,
        .y = call->out[0].data,
        .count = by__tensor_count(x),
        .length = x->shape.dim[x->shape.rank - 2],
        .columns = columns,
        .begin = call->attrs.begin,
        .turn = call->attrs.turn,
        .gap = call->attrs.gap,
        .dtype = (int32_t)x->dtype,
        .table_dtype = (int32_t)call->in[1].dtype,
        .each = columns % 8 == 0 ? 8 : 1,
    };
    return args.each == 8
               ? by__cuda_over_elements(context, BY__CUDA_KERNEL_position, args.count, &args)
               : by__cuda_over_each(context, BY__CUDA_KERNEL_position, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_POSITION, position, supports_position, NULL, NULL, run_position);

static bool supports_first(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static by_status run_position_grad(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *dy = &call->in[0];
    int64_t columns = by__tensor_columns(dy);
    int64_t length = dy->shape.dim[dy->shape.rank - 2];
    int64_t size = length * columns;
    by__cuda_position_grad_args args = {
        .dy = dy->data,
        .y = call->out[0].data,
        .samples = size == 0 ? 0 : by__tensor_count(dy) / size,
        .length = length,
        .columns = columns,
        .rows = by__tensor_rows(&call->out[0]),
        .begin = call->attrs.begin,
        .turn = call->attrs.turn,
        .gap = call->attrs.gap,
        .dtype = (int32_t)dy->dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_position_grad, args.rows * columns, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_POSITION_GRAD, position_grad, supports_first, NULL, NULL,
                    run_position_grad);

/* ---- ROPE ---- */

static int64_t half_of(const by__device_call *call)
{
    return by__tensor_columns(&call->in[0]) / call->attrs.heads / 2;
}

static bool supports_rope(const by__device_call *call)
{
    return supports_first(call) && half_of(call) <= BY__CUDA_MOST_PAIRS;
}

static by_status run_rope(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    bool given = by__cuda_present(call, 1);
    by_rotation rotation = by_rotation_of(&call->attrs);
    by__cuda_rope_args args = {
        .x = x->data,
        .position = given ? call->in[1].data : NULL,
        .y = call->out[0].data,
        .rows = by__tensor_rows(x),
        .length = x->shape.dim[1],
        .heads = call->attrs.heads,
        .half = half_of(call),
        .begin = call->attrs.begin,
        .turn = call->attrs.turn,
        .gap = call->attrs.gap,
        .amplitude = rotation.amplitude,
        .dtype = (int32_t)x->dtype,
        .by_row = given && by__tensor_count(&call->in[1]) > 1,
        .inverse = call->attrs.inverse,
    };
    for (int64_t i = 0; i < args.half; i++) {
        args.frequency[i] = by_rotation_frequency(&rotation, i, 2 * args.half);
    }
    return by__cuda_over_each(context, BY__CUDA_KERNEL_rope, args.rows * args.half, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ROPE, rope, supports_rope, NULL, NULL, run_rope);
