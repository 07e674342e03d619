/* Group norm and its gradient. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static int64_t sample_rows(const by__device_call *call)
{
    return by__tensor_rows(&call->in[0]) / call->in[0].shape.dim[0];
}

/* Groups of all samples. */
static int64_t all_groups(const by__device_call *call)
{
    return call->in[0].shape.dim[0] * call->attrs.groups;
}

static by_status run_norm(const by__device_call *call, const by__device_context *context)
{
    by__cuda_group_moments_args moments = {
        .x = call->in[0].data,
        .mean = call->out[1].data,
        .rstd = call->out[2].data,
        .rows = sample_rows(call),
        .columns = by__tensor_columns(&call->in[0]),
        .groups = call->attrs.groups,
        .eps = call->attrs.eps,
        .dtype = (int32_t)call->in[0].dtype,
    };
    by__cuda_group_norm_args args = {
        .x = moments.x,
        .w = call->in[1].data,
        .b = call->in[2].data,
        .mean = moments.mean,
        .rstd = moments.rstd,
        .y = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .rows = moments.rows,
        .columns = moments.columns,
        .groups = moments.groups,
        .dtype = moments.dtype,
    };
    BY_TRY(
        by__cuda_over_blocks(context, BY__CUDA_KERNEL_group_moments, all_groups(call), &moments));
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_group_norm, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_GROUP_NORM, group_norm, supports, NULL, NULL, run_norm);

/* The workspace: two means of each group, partial sums of dw and db, and what adds them up. */
static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t pieces = by__ceil_div(by__tensor_rows(&call->in[0]), BY__CUDA_SUM_ROWS);
    return by__cuda_reserve(
        call, 2 * all_groups(call) + 2 * pieces * columns + by__cuda_sum_work(pieces, columns),
        error);
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    int64_t columns = by__tensor_columns(&call->in[0]);
    int64_t pieces = by__ceil_div(by__tensor_rows(&call->in[0]), BY__CUDA_SUM_ROWS);
    float *plain = call->work;
    by__cuda_group_sums_args sums = {
        .x = call->in[0].data,
        .dy = call->in[4].data,
        .w = call->in[1].data,
        .mean = call->in[2].data,
        .rstd = call->in[3].data,
        .plain = plain,
        .scaled = plain + all_groups(call),
        .rows = sample_rows(call),
        .columns = columns,
        .groups = call->attrs.groups,
        .dtype = (int32_t)call->in[0].dtype,
    };
    by__cuda_group_weights_args weights = {
        .x = sums.x,
        .dy = sums.dy,
        .mean = sums.mean,
        .rstd = sums.rstd,
        .dw = plain + 2 * all_groups(call),
        .db = plain + 2 * all_groups(call) + pieces * columns,
        .all_rows = by__tensor_rows(&call->in[0]),
        .rows = sums.rows,
        .columns = columns,
        .groups = sums.groups,
        .dtype = sums.dtype,
    };
    by__cuda_group_norm_grad_args args = {
        .x = sums.x,
        .dy = sums.dy,
        .w = sums.w,
        .mean = sums.mean,
        .rstd = sums.rstd,
        .plain = sums.plain,
        .scaled = sums.scaled,
        .dx = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .rows = sums.rows,
        .columns = columns,
        .groups = sums.groups,
        .dtype = sums.dtype,
    };
    float *part = weights.db + pieces * columns;
    /* dx last: it may be in the place of x or dy. */
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_group_sums, all_groups(call), &sums));
    BY_TRY(by__cuda_over_columns(context, BY__CUDA_KERNEL_group_weights, weights.all_rows, columns,
                                 &weights));
    BY_TRY(by__cuda_over_elements(context, BY__CUDA_KERNEL_group_norm_grad, args.count, &args));
    BY_TRY(
        by__cuda_sum_into(context, call->out[1].data, weights.dw, BY_F32, pieces, columns, part));
    return by__cuda_sum_into(context, call->out[2].data, weights.db, BY_F32, pieces, columns, part);
}

BY__CUDA_ROW_KERNEL(BY_OP_GROUP_NORM_GRAD, group_norm_grad, supports, prepare_grad, NULL, run_grad);
