/* The soft Dice loss and its gradient. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

/* The workspace: two numbers of each row. */
static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, 2 * by__tensor_rows(&call->in[0]), error);
}

static by_status run_dice(const by__device_call *call, const by__device_context *context)
{
    int64_t samples = call->in[0].shape.dim[0];
    int64_t classes = by__tensor_columns(&call->in[0]);
    float *largest = call->work;
    by__cuda_dice_rows_args rows = {
        .logits = call->in[0].data,
        .largest = largest,
        .inverse = largest + by__tensor_rows(&call->in[0]),
        .all_rows = by__tensor_rows(&call->in[0]),
        .classes = classes,
        .dtype = (int32_t)call->in[0].dtype,
        .wide = classes > BY__CUDA_WIDE,
    };
    by__cuda_dice_sums_args sums = {
        .logits = rows.logits,
        .targets = call->in[1].data,
        .largest = rows.largest,
        .inverse = rows.inverse,
        .sums = call->out[1].data,
        .rows = rows.all_rows / samples,
        .classes = classes,
        .dtype = rows.dtype,
    };
    by__cuda_dice_args args = {
        .sums = sums.sums,
        .loss = call->out[0].data,
        .samples = samples,
        .classes = classes,
        .eps = call->attrs.eps,
    };
    BY_TRY(by__cuda_over_rows(context, BY__CUDA_KERNEL_dice_rows, rows.all_rows, rows.wide != 0,
                              &rows));
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_dice_sums, samples * classes, &sums));
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_dice, 1, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_DICE, dice, supports, prepare, NULL, run_dice);

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    int64_t classes = by__tensor_columns(&call->in[0]);
    by__cuda_dice_grad_args args = {
        .logits = call->in[0].data,
        .targets = call->in[1].data,
        .sums = call->in[2].data,
        .dloss = call->in[3].data,
        .dlogits = call->out[0].data,
        .all_rows = by__tensor_rows(&call->in[0]),
        .rows = by__tensor_rows(&call->in[0]) / call->in[0].shape.dim[0],
        .classes = classes,
        .eps = call->attrs.eps,
        .dtype = (int32_t)call->in[0].dtype,
        .wide = classes > BY__CUDA_WIDE,
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_dice_grad, args.all_rows, args.wide != 0,
                              &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_DICE_GRAD, dice_grad, supports, NULL, NULL, run_grad);
