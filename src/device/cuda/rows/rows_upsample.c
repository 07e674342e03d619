/* Images in another size, and the gradient. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->out[0].dtype);
}

/* small, large: the images before and after. */
static by__cuda_upsample_args describe(const by__device_call *call, const by_shape *small,
                                       const by_shape *large)
{
    return (by__cuda_upsample_args){
        .from = call->in[0].data,
        .to = call->out[0].data,
        .count = by__tensor_count(&call->out[0]),
        .height = small->dim[1],
        .width = small->dim[2],
        .to_height = large->dim[1],
        .to_width = large->dim[2],
        .channels = large->dim[3],
        .dtype = (int32_t)call->out[0].dtype,
        .linear = call->attrs.linear,
    };
}

static by_status run_upsample(const by__device_call *call, const by__device_context *context)
{
    by__cuda_upsample_args args = describe(call, &call->in[0].shape, &call->out[0].shape);
    return by__cuda_over_each(context, BY__CUDA_KERNEL_upsample, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_UPSAMPLE, upsample, supports, NULL, NULL, run_upsample);

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    by__cuda_upsample_grad_args args = describe(call, &call->out[0].shape, &call->in[0].shape);
    return by__cuda_over_each(context, BY__CUDA_KERNEL_upsample_grad, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_UPSAMPLE_GRAD, upsample_grad, supports, NULL, NULL, run_grad);
