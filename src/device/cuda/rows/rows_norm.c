/* Layer norm, RMS norm and their gradients. */
#include "device/cuda/launch.h"

static bool supports_first(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static by_status run_norm(const by__device_call *call, const by__device_context *context)
{
    bool layer = call->op == BY_OP_LAYER_NORM;
    int64_t columns = by__tensor_columns(&call->in[0]);
    by__cuda_norm_args args = {
        .x = call->in[0].data,
        .w = call->in[1].data,
        .b = layer ? call->in[2].data : NULL,
        .y = call->out[0].data,
        .mean = layer ? call->out[1].data : NULL,
        .rstd = call->out[layer ? 2 : 1].data,
        .rows = by__tensor_rows(&call->in[0]),
        .columns = columns,
        .eps = call->attrs.eps,
        .dtype = (int32_t)call->in[0].dtype,
        .wide = columns > BY__CUDA_WIDE,
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_norm, args.rows, args.wide != 0, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_LAYER_NORM, layer_norm, supports_first, NULL, NULL, run_norm);
BY__CUDA_ROW_KERNEL(BY_OP_RMS_NORM, rms_norm, supports_first, NULL, NULL, run_norm);

/* The workspace: partial sums of dw, of db, and what adds them up. */
static by_status prepare_norm_grad(by__device_call *call, const by__device_context *context,
                                   by_error *error)
{
    BY_UNUSED(context);
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t pieces = by__ceil_div(by__tensor_rows(&call->in[0]), BY__CUDA_SUM_ROWS);
    return by__cuda_reserve(call, 2 * pieces * columns + by__cuda_sum_work(pieces, columns), error);
}

static by_status run_norm_grad(const by__device_call *call, const by__device_context *context)
{
    bool layer = call->op == BY_OP_LAYER_NORM_GRAD;
    int rstd = layer ? 3 : 2;
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t pieces = by__ceil_div(rows, BY__CUDA_SUM_ROWS);
    float *dw = call->work;
    float *db = dw + pieces * columns;
    float *part = db + pieces * columns;
    by__cuda_norm_weights_args weights = {
        .x = call->in[0].data,
        .dy = call->in[rstd + 1].data,
        .mean = layer ? call->in[2].data : NULL,
        .rstd = call->in[rstd].data,
        .dw = dw,
        .db = layer ? db : NULL,
        .rows = rows,
        .columns = columns,
        .dtype = (int32_t)call->in[0].dtype,
    };
    by__cuda_norm_grad_args args = {
        .x = weights.x,
        .dy = weights.dy,
        .add = by__cuda_present(call, rstd + 2) ? call->in[rstd + 2].data : NULL,
        .w = call->in[1].data,
        .mean = weights.mean,
        .rstd = weights.rstd,
        .dx = call->out[0].data,
        .rows = rows,
        .columns = columns,
        .dtype = weights.dtype,
        .wide = columns > BY__CUDA_WIDE,
    };
    /* The weights first: dx may be in the place of x or dy. */
    BY_TRY(by__cuda_over_columns(context, BY__CUDA_KERNEL_norm_weights, rows, columns, &weights));
    BY_TRY(by__cuda_over_rows(context, BY__CUDA_KERNEL_norm_grad, rows, args.wide != 0, &args));
    BY_TRY(by__cuda_sum_into(context, call->out[1].data, dw, BY_F32, pieces, columns, part));
    return layer ? by__cuda_sum_into(context, call->out[2].data, db, BY_F32, pieces, columns, part)
                 : BY_OK;
}

BY__CUDA_ROW_KERNEL(BY_OP_LAYER_NORM_GRAD, layer_norm_grad, supports_first, prepare_norm_grad, NULL,
                    run_norm_grad);
BY__CUDA_ROW_KERNEL(BY_OP_RMS_NORM_GRAD, rms_norm_grad, supports_first, prepare_norm_grad, NULL,
                    run_norm_grad);
