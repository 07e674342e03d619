/* Sums, and the optimizer's step. */
#include "device/cuda/launch.h"

static bool supports_first(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

/* ---- SUM_ROWS: a sum over leading axes is one over rows of the rest ---- */

static int64_t columns_of(const by__device_call *call)
{
    return by__tensor_count(&call->out[0]);
}

static int64_t rows_of(const by__device_call *call)
{
    int64_t columns = columns_of(call);
    return columns == 0 ? 0 : by__tensor_count(&call->in[0]) / columns;
}

static by_status prepare_sum_rows(by__device_call *call, const by__device_context *context,
                                  by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, by__cuda_sum_work(rows_of(call), columns_of(call)), error);
}

static by_status run_sum_rows(const by__device_call *call, const by__device_context *context)
{
    return by__cuda_sum_into(context, call->out[0].data, call->in[0].data, call->in[0].dtype,
                             rows_of(call), columns_of(call), call->work);
}

BY__CUDA_ROW_KERNEL(BY_OP_SUM_ROWS, sum_rows, supports_first, prepare_sum_rows, NULL, run_sum_rows);

static by_status run_sum_squares(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cuda_sum_squares_args args = {call->in[0].data, call->out[0].data, count, BY_SUM_BLOCK};
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_sum_squares,
                                by__ceil_div(count, BY_SUM_BLOCK), &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SUM_SQUARES, sum_squares, NULL, NULL, NULL, run_sum_squares);

static by_status run_sum(const by__device_call *call, const by__device_context *context)
{
    const by_shape *x = &call->in[0].shape;
    by__cuda_sum_args args = {
        .x = call->in[0].data,
        .y = call->out[0].data,
        .results = by__tensor_count(&call->out[0]),
        .terms = 1,
        .divisor = 1.0f,
        .dtype = (int32_t)call->in[0].dtype,
        .to = (int32_t)call->out[0].dtype,
    };
    for (int axis = 0; axis < x->rank; axis++) {
        int64_t stride = 1;
        for (int i = axis + 1; i < x->rank; i++) {
            stride *= x->dim[i];
        }
        if ((call->attrs.axes >> axis & 1u) != 0) {
            args.summed_extent[args.summed] = x->dim[axis];
            args.summed_stride[args.summed++] = stride;
            args.terms *= x->dim[axis];
        } else {
            args.kept_extent[args.kept] = x->dim[axis];
            args.kept_stride[args.kept++] = stride;
        }
    }
    args.divisor = call->attrs.mean ? (float)args.terms : 1.0f;
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_sum, args.results, false, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SUM, sum, supports_first, NULL, NULL, run_sum);

static by_status run_measure(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cuda_measure_args args = {
        call->in[0].data,  by__cuda_present(call, 1) ? call->in[1].data : NULL,
        call->out[0].data, count,
        BY_SUM_BLOCK,      (int32_t)call->in[0].dtype};
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_measure, by__ceil_div(count, BY_SUM_BLOCK),
                                &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_MEASURE, measure, supports_first, NULL, NULL, run_measure);

/* ---- the optimizer's step ---- */

/* Squares are operands from here on. */
#define FIRST_PART 3

static int64_t calls_for(int64_t parts)
{
    return by__ceil_div(parts, BY__CUDA_CLIP_PARTS);
}

static by_status prepare_clip_scale(by__device_call *call, const by__device_context *context,
                                    by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, calls_for(call->input_count - FIRST_PART), error);
}

/* Up to BY__CUDA_CLIP_PARTS parts are summed at a time; where there are more, their sums are the
 * parts of the last call. */
static by_status run_clip_scale(const by__device_call *call, const by__device_context *context)
{
    int parts = call->input_count - FIRST_PART;
    float *sums = call->work;
    by__cuda_clip_scale_args args = {.clip = call->attrs.clip};
    for (int first = 0; calls_for(parts) > 1 && first < parts; first += BY__CUDA_CLIP_PARTS) {
        args.parts = 0;
        args.norm = sums + first / BY__CUDA_CLIP_PARTS;
        for (int i = first; i < parts && args.parts < BY__CUDA_CLIP_PARTS; i++) {
            args.part[args.parts] = call->in[FIRST_PART + i].data;
            args.count[args.parts++] = by__tensor_count(&call->in[FIRST_PART + i]);
        }
        BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_clip_scale, 1, &args));
    }
    if (calls_for(parts) > 1) {
        args.parts = 1;
        args.part[0] = sums;
        args.count[0] = calls_for(parts);
    } else {
        args.parts = parts;
        for (int i = 0; i < parts; i++) {
            args.part[i] = call->in[FIRST_PART + i].data;
            args.count[i] = by__tensor_count(&call->in[FIRST_PART + i]);
        }
    }
    args.failed = call->in[0].data;
    args.losses = by__cuda_present(call, 1) ? call->in[1].data : NULL;
    args.loss_count = by__cuda_present(call, 1) ? by__tensor_count(&call->in[1]) : 0;
    args.factor = by__cuda_present(call, 2) ? call->in[2].data : NULL;
    args.norm = call->out[0].data;
    args.scale = call->out[1].data;
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_clip_scale, 1, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_CLIP_SCALE, clip_scale, NULL, prepare_clip_scale, NULL, run_clip_scale);

static bool has_copy(const by__device_call *call)
{
    return call->output_count > 0 && call->out[0].shape.rank >= 0;
}

static by_status run_adamw(const by__device_call *call, const by__device_context *context)
{
    const by_attrs *attrs = &call->attrs;
    int64_t count = by__tensor_count(&call->in[0]);
    by__cuda_adamw_args args = {
        .p = call->in[0].data,
        .g = call->in[1].data,
        .m = call->in[2].data,
        .v = call->in[3].data,
        .hyper = call->in[4].data,
        .scale = call->in[5].data,
        .copy = has_copy(call) ? call->out[0].data : NULL,
        .count = count,
        .beta1 = attrs->beta1,
        .beta2 = attrs->beta2,
        .rest1 = (float)(1.0 - (double)attrs->beta1),
        .rest2 = (float)(1.0 - (double)attrs->beta2),
        .eps = attrs->eps,
        .decay = attrs->decay,
        .lr_scale = attrs->lr_scale,
        .copy_dtype = has_copy(call) ? (int32_t)call->out[0].dtype : 0,
    };
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_adamw, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ADAMW, adamw, NULL, NULL, NULL, run_adamw);
