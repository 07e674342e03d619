/* Convolutions and their gradients. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype) && call->in[1].dtype == call->in[0].dtype &&
           by_dtype_is_float(call->out[0].dtype);
}

static by_status run_conv(const by__device_call *call, const by__device_context *context)
{
    const int64_t *x = call->in[0].shape.dim;
    const int64_t *w = call->in[1].shape.dim;
    const int64_t *y = call->out[0].shape.dim;
    const by_window *window = &call->attrs.sliding;
    int64_t groups = call->attrs.groups;
    bool biased = by__cuda_present(call, 2);
    by__cuda_conv_args args = {
        .x = call->in[0].data,
        .w = call->in[1].data,
        .bias = biased ? call->in[2].data : NULL,
        .add = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .y = call->out[0].data,
        .count = by__tensor_count(&call->out[0]),
        .height = x[1],
        .width = x[2],
        .to_height = y[1],
        .to_width = y[2],
        .groups = groups,
        .inner = x[3] / groups,
        .outer = y[3] / groups,
        .size_h = w[2],
        .size_w = w[3],
        .stride_h = window->stride[0],
        .stride_w = window->stride[1],
        .dilation_h = window->dilation[0],
        .dilation_w = window->dilation[1],
        .before_h = window->before[0],
        .before_w = window->before[1],
        .dtype = (int32_t)call->in[0].dtype,
        .bias_dtype = biased ? (int32_t)call->in[2].dtype : 0,
        .to = (int32_t)call->out[0].dtype,
        .transposed = call->op == BY_OP_CONV_TRANSPOSED,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_conv, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_CONV, conv, supports, NULL, NULL, run_conv);
BY__CUDA_ROW_KERNEL(BY_OP_CONV_TRANSPOSED, conv_transposed, supports, NULL, NULL, run_conv);

static by_status run_weight_grad(const by__device_call *call, const by__device_context *context)
{
    const int64_t *x = call->in[0].shape.dim;
    const int64_t *dy = call->in[1].shape.dim;
    const int64_t *w = call->out[0].shape.dim;
    const by_window *window = &call->attrs.sliding;
    int64_t groups = call->attrs.groups;
    by__cuda_conv_weight_grad_args args = {
        .x = call->in[0].data,
        .dy = call->in[1].data,
        .dw = call->out[0].data,
        .rows = by__tensor_count(&call->out[0]),
        .pixels = dy[0] * dy[1] * dy[2],
        .height = x[1],
        .width = x[2],
        .to_height = dy[1],
        .to_width = dy[2],
        .groups = groups,
        .inner = x[3] / groups,
        .outer = dy[3] / groups,
        .size_h = w[2],
        .size_w = w[3],
        .stride_h = window->stride[0],
        .stride_w = window->stride[1],
        .dilation_h = window->dilation[0],
        .dilation_w = window->dilation[1],
        .before_h = window->before[0],
        .before_w = window->before[1],
        .dtype = (int32_t)call->in[0].dtype,
        .to = (int32_t)call->out[0].dtype,
        .wide = dy[0] * dy[1] * dy[2] > BY__CUDA_WIDE,
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_conv_weight_grad, args.rows, args.wide != 0,
                              &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_CONV_WEIGHT_GRAD, conv_weight_grad, supports, NULL, NULL,
                    run_weight_grad);
