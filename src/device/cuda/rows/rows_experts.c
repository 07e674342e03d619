/* Mixtures of experts. */
#include "device/cuda/launch.h"

static bool supports_router(const by__device_call *call)
{
    return by__tensor_columns(&call->in[0]) <= BY__CUDA_MOST_EXPERTS && call->in[0].dtype == BY_F32;
}

/* The workspace: the softmax of each row, and what sums them. */
static by_status prepare_router(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    BY_UNUSED(context);
    int64_t rows = by__tensor_rows(&call->in[0]);
    int64_t experts = by__tensor_columns(&call->in[0]);
    return by__cuda_reserve(call, rows * experts + by__cuda_sum_work(rows, experts), error);
}

static by_status run_router(const by__device_call *call, const by__device_context *context)
{
    by__cuda_router_args args = {
        .logits = call->in[0].data,
        .weight = call->out[0].data,
        .softmax = call->work,
        .index = call->out[1].data,
        .rows = by__tensor_rows(&call->in[0]),
        .experts = by__tensor_columns(&call->in[0]),
        .chosen = call->attrs.chosen,
    };
    BY_TRY(by__cuda_over_rows(context, BY__CUDA_KERNEL_router, args.rows, false, &args));
    return by__cuda_sum_into(context, call->out[2].data, args.softmax, BY_F32, args.rows,
                             args.experts, args.softmax + args.rows * args.experts);
}

BY__CUDA_ROW_KERNEL(BY_OP_ROUTER, router, supports_router, prepare_router, NULL, run_router);

static by_status run_router_grad(const by__device_call *call, const by__device_context *context)
{
    by__cuda_router_grad_args args = {
        .logits = call->in[0].data,
        .dweight = by__cuda_present(call, 2) ? call->in[2].data : NULL,
        .dmass = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .index = call->in[1].data,
        .dlogits = call->out[0].data,
        .rows = by__tensor_rows(&call->in[0]),
        .experts = by__tensor_columns(&call->in[0]),
        .chosen = by__tensor_columns(&call->in[1]),
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_router_grad, args.rows, false, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ROUTER_GRAD, router_grad, supports_router, NULL, NULL, run_router_grad);

/* ---- GROUP ---- */

static int64_t ranges_of(const by__device_call *call)
{
    return call->attrs.rows * (call->attrs.blocks > 1 ? call->attrs.blocks : 1);
}

static by_status prepare_group(by__device_call *call, const by__device_context *context,
                               by_error *error)
{
    BY_UNUSED(context);
    return by__cuda_reserve(call, ranges_of(call), error);
}

static by_status run_group(const by__device_call *call, const by__device_context *context)
{
    int64_t entries = by__tensor_count(&call->in[0]);
    int64_t blocks = call->attrs.blocks > 1 ? call->attrs.blocks : 1;
    by__cuda_queue *queue = by__cuda_queue_of(context);
    by__cuda_group_count_args count = {call->in[0].data, call->work, NULL, entries, blocks};
    by__cuda_group_begin_args begin = {call->work, call->out[2].data, ranges_of(call),
                                       call->attrs.capacity};
    by__cuda_group_place_args place = {call->in[0].data,  call->out[2].data, call->out[0].data,
                                       call->out[1].data, entries,           blocks};
    size_t members = (size_t)by__tensor_count(&call->out[1]);
    BY_TRY(queue->fill(queue, call->out[0].data, 0xff, (size_t)entries * sizeof(int32_t)));
    BY_TRY(queue->fill(queue, call->out[1].data, 0xff, members * sizeof(int32_t)));
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_group_count, begin.ranges, &count));
    BY_TRY(by__cuda_over_blocks(context, BY__CUDA_KERNEL_group_begin, 1, &begin));
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_group_place, begin.ranges, &place);
}

BY__CUDA_ROW_KERNEL(BY_OP_GROUP, group, NULL, prepare_group, NULL, run_group);

static by_status run_count_ids(const by__device_call *call, const by__device_context *context)
{
    by__cuda_group_count_args args = {call->in[0].data, NULL, call->out[0].data,
                                      by__tensor_count(&call->in[0]), 1};
    return by__cuda_over_blocks(context, BY__CUDA_KERNEL_group_count, call->attrs.rows, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_COUNT_IDS, count_ids, NULL, NULL, NULL, run_count_ids);

/* ---- rows ---- */

static bool supports_first(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

static by_status run_scatter_rows(const by__device_call *call, const by__device_context *context)
{
    by__cuda_scatter_rows_args args = {
        .x = call->in[0].data,
        .member = call->in[2].data,
        .weight = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .y = call->out[0].data,
        .rows = by__tensor_rows(&call->out[0]),
        .columns = by__tensor_columns(&call->in[0]),
        .chosen = by__tensor_columns(&call->in[1]),
        .entries = by__tensor_count(&call->in[1]),
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_scatter_rows, args.rows * args.columns,
                              &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SCATTER_ROWS, scatter_rows, supports_first, NULL, NULL, run_scatter_rows);

static by_status run_gather_rows(const by__device_call *call, const by__device_context *context)
{
    by__cuda_gather_rows_args args = {
        .x = call->in[0].data,
        .slot = call->in[1].data,
        .weight = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .y = call->out[0].data,
        .rows = by__tensor_rows(&call->out[0]),
        .columns = by__tensor_columns(&call->in[0]),
        .chosen = by__tensor_columns(&call->in[1]),
        .slots = by__tensor_rows(&call->in[0]),
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_gather_rows, args.rows * args.columns,
                              &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_GATHER_ROWS, gather_rows, supports_first, NULL, NULL, run_gather_rows);

static by_status run_row_dots(const by__device_call *call, const by__device_context *context)
{
    by__cuda_row_dots_args args = {
        .a = call->in[0].data,
        .b = call->in[1].data,
        .slot = call->in[2].data,
        .y = call->out[0].data,
        .entries = by__tensor_count(&call->in[2]),
        .columns = by__tensor_columns(&call->in[0]),
        .chosen = by__tensor_columns(&call->in[2]),
        .slots = by__tensor_rows(&call->in[1]),
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_rows(context, BY__CUDA_KERNEL_row_dots, args.entries, false, &args);
}

static bool supports_row_dots(const by__device_call *call)
{
    return supports_first(call) && call->in[0].dtype == call->in[1].dtype;
}

BY__CUDA_ROW_KERNEL(BY_OP_ROW_DOTS, row_dots, supports_row_dots, NULL, NULL, run_row_dots);
