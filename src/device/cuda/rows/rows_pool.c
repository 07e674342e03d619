/* Pools and their gradients. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->out[0].dtype);
}

/* Of a pool from an image like `x` to one like `y`. */
static by__cuda_pool_args describe(const by__device_call *call, const by_shape *x,
                                   const by_shape *y)
{
    const by_window *window = &call->attrs.sliding;
    return (by__cuda_pool_args){
        .count = by_shape_count(y),
        .height = x->dim[1],
        .width = x->dim[2],
        .to_height = y->dim[1],
        .to_width = y->dim[2],
        .channels = x->dim[3],
        .size_h = window->size[0],
        .size_w = window->size[1],
        .stride_h = window->stride[0],
        .stride_w = window->stride[1],
        .before_h = window->before[0],
        .before_w = window->before[1],
        .dtype = (int32_t)call->out[0].dtype,
        .mean = call->attrs.mean,
        .keep = call->attrs.keep,
    };
}

static by_status run_pool(const by__device_call *call, const by__device_context *context)
{
    by__cuda_pool_args args = describe(call, &call->in[0].shape, &call->out[0].shape);
    args.x = call->in[0].data;
    args.y = call->out[0].data;
    return by__cuda_over_each(context, BY__CUDA_KERNEL_pool, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_POOL, pool, supports, NULL, NULL, run_pool);

/* The workspace: which entry of each window is the largest. */
static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, call->attrs.mean ? 0 : by__tensor_count(&call->in[1]), error);
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    const by_shape *x = &call->out[0].shape;
    const by_shape *y = &call->in[1].shape;
    by__cuda_pool_grad_args args = describe(call, y, x);
    args.x = call->in[1].data;
    args.y = call->out[0].data;
    if (!call->attrs.mean) {
        by__cuda_pool_args largest = describe(call, x, y);
        largest.x = call->in[0].data;
        largest.index = args.index = call->work;
        BY_TRY(by__cuda_over_each(context, BY__CUDA_KERNEL_pool, largest.count, &largest));
    }
    return by__cuda_over_each(context, BY__CUDA_KERNEL_pool_grad, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_POOL_GRAD, pool_grad, supports, prepare_grad, NULL, run_grad);
