/* Batch norm, its gradient, and affine maps of channels. */
#include <math.h>

#include "device/cuda/launch.h"

#define LEAST_ROWS  128 /* of a range */
#define MOST_RANGES 256

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static int64_t range_rows(int64_t rows)
{
    int64_t each = by__ceil_div(rows, MOST_RANGES);
    return each < LEAST_ROWS ? LEAST_ROWS : each;
}

static int64_t range_count(int64_t rows)
{
    return by__ceil_div(rows, range_rows(rows));
}

static by_status over_ranges(const by__device_context *context, by__cuda_kernel kernel,
                             int64_t rows, int64_t columns, const void *args)
{
    by__cuda_queue *queue = context->queue;
    by__cuda_grid grid = {
        {(unsigned)range_count(rows), (unsigned)by__ceil_div(columns, BY__CUDA_RANGE_COLUMNS), 1},
        BY__CUDA_BLOCK,
        0};
    return rows == 0 || columns == 0 ? BY_OK : queue->launch(queue, kernel, &grid, args);
}

static float least(const by__device_call *call)
{
    return call->attrs.rectify ? 0.0f : -INFINITY;
}

static float most(const by__device_call *call)
{
    return call->attrs.clip > 0.0f ? call->attrs.clip : INFINITY;
}

/* The workspace: two vectors for each range, and three that the last kernel reads. */
static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    int64_t vectors = 2 * range_count(by__tensor_rows(&call->in[0])) + 3;
    return by__cuda_reserve(call, vectors * by__tensor_columns(&call->in[0]), error);
}

static by_status apply(const by__device_call *call, const by__device_context *context,
                       const float *mean, const float *scale)
{
    by__cuda_affine_args args = {
        .x = call->in[0].data,
        .add = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .mean = mean,
        .scale = scale,
        .shift = call->in[2].data,
        .y = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .columns = by__tensor_columns(&call->in[0]),
        .least = least(call),
        .most = most(call),
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_affine, args.count, &args);
}

static by_status run_affine(const by__device_call *call, const by__device_context *context)
{
    return apply(call, context, NULL, call->in[1].data);
}

BY__CUDA_ROW_KERNEL(BY_OP_AFFINE, affine, supports, NULL, NULL, run_affine);

static by_status run(const by__device_call *call, const by__device_context *context)
{
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t columns = by__tensor_columns(&call->in[0]);
    float *scale = call->work;
    float *means = scale + columns;
    by__cuda_batch_moments_args moments = {
        .x = call->in[0].data,
        .means = means,
        .squares = means + range_count(rows) * columns,
        .rows = rows,
        .columns = columns,
        .each = range_rows(rows),
        .dtype = (int32_t)call->in[0].dtype,
    };
    by__cuda_batch_merge_args merge = {
        .means = moments.means,
        .squares = moments.squares,
        .w = call->in[1].data,
        .mean = call->out[1].data,
        .variance = call->out[2].data,
        .scale = scale,
        .rows = rows,
        .columns = columns,
        .each = moments.each,
        .eps = call->attrs.eps,
    };
    BY_TRY(over_ranges(context, BY__CUDA_KERNEL_batch_moments, rows, columns, &moments));
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_batch_merge,
                                by__ceil_div(columns, BY__CUDA_RANGE_COLUMNS), &merge));
    return apply(call, context, merge.mean, scale);
}

BY__CUDA_ROW_KERNEL(BY_OP_BATCH_NORM, batch_norm, supports, prepare, NULL, run);

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t columns = by__tensor_columns(&call->in[0]);
    float *vectors = call->work;
    by__cuda_batch_sums_args sums = {
        .x = call->in[0].data,
        .dy = call->in[5].data,
        .w = call->in[1].data,
        .b = call->in[2].data,
        .mean = call->in[3].data,
        .variance = call->in[4].data,
        .plain = vectors + 3 * columns,
        .scaled = vectors + (3 + range_count(rows)) * columns,
        .rows = rows,
        .columns = columns,
        .each = range_rows(rows),
        .eps = call->attrs.eps,
        .most = most(call),
        .dtype = (int32_t)call->in[0].dtype,
        .rectify = call->attrs.rectify,
    };
    by__cuda_batch_slopes_args slopes = {
        .plain = sums.plain,
        .scaled = sums.scaled,
        .w = sums.w,
        .variance = sums.variance,
        .dw = call->out[1].data,
        .db = call->out[2].data,
        .scale = vectors,
        .offset = vectors + columns,
        .slope = vectors + 2 * columns,
        .rows = rows,
        .columns = columns,
        .each = sums.each,
        .eps = sums.eps,
    };
    by__cuda_batch_norm_grad_args args = {
        .x = sums.x,
        .dy = sums.dy,
        .b = sums.b,
        .mean = sums.mean,
        .scale = slopes.scale,
        .offset = slopes.offset,
        .slope = slopes.slope,
        .dx = call->out[0].data,
        .count = by__tensor_count(&call->in[0]),
        .columns = columns,
        .most = sums.most,
        .dtype = sums.dtype,
        .rectify = sums.rectify,
    };
    BY_TRY(over_ranges(context, BY__CUDA_KERNEL_batch_sums, rows, columns, &sums));
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_batch_slopes,
                                by__ceil_div(columns, BY__CUDA_RANGE_COLUMNS), &slopes));
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_batch_norm_grad, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_BATCH_NORM_GRAD, batch_norm_grad, supports, prepare, NULL, run_grad);
