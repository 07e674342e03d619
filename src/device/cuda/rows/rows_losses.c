/* Softmax and losses. */
#include "device/cuda/launch.h"

static bool supports_first(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static bool is_wide(int64_t columns)
{
    return columns > BY__CUDA_WIDE;
}

static by_status run_softmax(const by__device_call *call, const by__device_context *context)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    by__cuda_softmax_args args = {
        .x = call->in[0].data,
        .dy = call->op == BY_OP_SOFTMAX_GRAD ? call->in[1].data : NULL,
        .y = call->out[0].data,
        .rows = by__tensor_rows(&call->in[0]),
        .columns = columns,
        .dtype = (int32_t)call->in[0].dtype,
        .logarithm = call->attrs.logarithm,
        .wide = is_wide(columns),
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_softmax, args.rows, args.wide != 0, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SOFTMAX, softmax, supports_first, NULL, NULL, run_softmax);
BY__CUDA_ROW_KERNEL(BY_OP_SOFTMAX_GRAD, softmax_grad, supports_first, NULL, NULL, run_softmax);

/* ---- CROSS_ENTROPY ---- */

static by_status prepare_row_losses(by__device_call *call, const by__device_context *context,
                                    by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, by__tensor_rows(&call->in[0]), error);
}

static by__cuda_cross_entropy_args rows_of(const by__device_call *call, int weight)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    return (by__cuda_cross_entropy_args){
        .x = call->in[0].data,
        .targets = call->in[1].data,
        .weight = by__cuda_present(call, weight) ? call->in[weight].data : NULL,
        .rows = by__tensor_rows(&call->in[0]),
        .columns = columns,
        .stride = columns,
        .dx_stride = columns,
        .classes = columns,
        .smoothing = call->attrs.smoothing,
        .dtype = (int32_t)call->in[0].dtype,
        .dx_dtype = (int32_t)call->in[0].dtype,
        .wide = is_wide(columns),
    };
}

static by_status add_up(const by__device_context *context, const float *x, int64_t count, void *y)
{
    by__cuda_total_args args = {x, y, count};
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_total, 1, &args);
}

static by_status run_cross_entropy(const by__device_call *call, const by__device_context *context)
{
    by__cuda_cross_entropy_args args = rows_of(call, 2);
    args.lse = call->out[1].data;
    args.loss = call->work;
    BY_TRY(by__cuda_over_rows(context, BY__CUDA_KERNEL_cross_entropy, args.rows, args.wide != 0,
                              &args));
    return add_up(context, args.loss, args.rows, call->out[0].data);
}

static by_status run_cross_entropy_grad(const by__device_call *call,
                                        const by__device_context *context)
{
    by__cuda_cross_entropy_args args = rows_of(call, 4);
    args.lse_in = call->in[2].data;
    args.dloss = call->in[3].data;
    args.dx = call->out[0].data;
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_cross_entropy, args.rows, args.wide != 0,
                              &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_CROSS_ENTROPY, cross_entropy, supports_first, prepare_row_losses, NULL,
                    run_cross_entropy);
BY__CUDA_ROW_KERNEL(BY_OP_CROSS_ENTROPY_GRAD, cross_entropy_grad, supports_first, NULL, NULL,
                    run_cross_entropy_grad);

/* ---- CROSS_ENTROPY_COMBINE ---- */

static by_status prepare_combine(by__device_call *call, const by__device_context *context,
                                 by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, by__tensor_columns(&call->in[0]), error);
}

static by_status run_combine(const by__device_call *call, const by__device_context *context)
{
    by__cuda_combine_losses_args args = {
        .parts = call->in[0].data,
        .targets = call->in[1].data,
        .weight = by__cuda_present(call, 2) ? call->in[2].data : NULL,
        .lse = call->out[1].data,
        .loss = call->work,
        .rows = by__tensor_columns(&call->in[0]),
        .slices = by__tensor_rows(&call->in[0]) / 2,
        .classes = call->attrs.rows,
    };
    BY_TRY(by__cuda_over_each(context, BY__CUDA_KERNEL_combine_losses, args.rows, &args));
    return add_up(context, args.loss, args.rows, call->out[0].data);
}

BY__CUDA_ROW_KERNEL(BY_OP_CROSS_ENTROPY_COMBINE, cross_entropy_combine, supports_first,
                    prepare_combine, NULL, run_combine);

/* ---- SQUARED_ERROR, SMOOTH_L1 ---- */

static int64_t partials(const by__device_call *call)
{
    return by__ceil_div(by__tensor_count(&call->in[0]), BY__CUDA_PARTIAL);
}

static by_status prepare_difference(by__device_call *call, const by__device_context *context,
                                    by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, partials(call), error);
}

static by__cuda_difference_args difference_of(const by__device_call *call)
{
    bool weighted = by__cuda_present(call, 2);
    return (by__cuda_difference_args){
        .x = call->in[0].data,
        .t = call->in[1].data,
        .weight = weighted ? call->in[2].data : NULL,
        .count = by__tensor_count(&call->in[0]),
        .columns = by__tensor_columns(&call->in[0]),
        .beta = call->attrs.beta,
        .dtype = (int32_t)call->in[0].dtype,
        .smooth = call->op == BY_OP_SMOOTH_L1 || call->op == BY_OP_SMOOTH_L1_GRAD,
        .integers = weighted && call->in[2].dtype == BY_I32,
    };
}

static by_status run_difference(const by__device_call *call, const by__device_context *context)
{
    by__cuda_difference_args args = difference_of(call);
    args.y = call->work;
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_difference, partials(call), &args));
    return add_up(context, args.y, partials(call), call->out[0].data);
}

static by_status run_difference_grad(const by__device_call *call, const by__device_context *context)
{
    by__cuda_difference_args args = difference_of(call);
    args.dloss = call->in[3].data;
    args.dx = call->out[0].data;
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_difference, partials(call), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SQUARED_ERROR, squared_error, supports_first, prepare_difference, NULL,
                    run_difference);
BY__CUDA_ROW_KERNEL(BY_OP_SQUARED_ERROR_GRAD, squared_error_grad, supports_first, NULL, NULL,
                    run_difference_grad);
BY__CUDA_ROW_KERNEL(BY_OP_SMOOTH_L1, smooth_l1, supports_first, prepare_difference, NULL,
                    run_difference);
BY__CUDA_ROW_KERNEL(BY_OP_SMOOTH_L1_GRAD, smooth_l1_grad, supports_first, NULL, NULL,
                    run_difference_grad);
