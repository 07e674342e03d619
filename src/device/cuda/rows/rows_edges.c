/* Sums, maxima and attention over the edges of graphs. */
#include "device/cuda/launch.h"

static bool supports(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype);
}

/* The matrices at these operands, with so many columns; sources and numbers may be absent (-1). */
static by__cuda_edges edges_of(const by__device_call *call, int offsets, int sources, int numbers,
                               int64_t columns)
{
    return (by__cuda_edges){
        .offsets = call->in[offsets].data,
        .sources = sources < 0 ? NULL : call->in[sources].data,
        .numbers = numbers >= 0 && by__cuda_present(call, numbers) ? call->in[numbers].data : NULL,
        .rows = call->in[offsets].shape.dim[1] - 1,
        .columns = columns,
        .entries = sources < 0 ? call->in[0].shape.dim[1] : call->in[sources].shape.dim[1],
    };
}

static by_status run_sparse_matmul(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    bool weighted = by__cuda_present(call, 4);
    by__cuda_sparse_matmul_args args = {
        .x = x->data,
        .w = weighted ? call->in[4].data : NULL,
        .y = call->out[0].data,
        .edges = edges_of(call, 1, 2, 3, x->shape.dim[1]),
        .count = by__tensor_count(&call->out[0]),
        .width = x->shape.dim[2],
        .groups = weighted ? call->in[4].shape.dim[2] : 1,
        .dtype = (int32_t)x->dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_sparse_matmul, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SPARSE_MATMUL, sparse_matmul, supports, NULL, NULL, run_sparse_matmul);

static by_status run_edge_dots(const by__device_call *call, const by__device_context *context)
{
    by__cuda_edge_dots_args args = {
        .a = call->in[0].data,
        .b = call->in[1].data,
        .y = call->out[0].data,
        .edges = edges_of(call, 2, 3, -1, call->in[1].shape.dim[1]),
        .count = by__tensor_count(&call->out[0]),
        .heads = call->attrs.heads,
        .width = call->in[0].shape.dim[2] / call->attrs.heads,
        .dtype = (int32_t)call->in[0].dtype,
        .lanes = 1,
    };
    while (args.lanes < 32 && args.lanes < args.width) {
        args.lanes *= 2;
    }
    return by__cuda_over_each(context, BY__CUDA_KERNEL_edge_dots, args.count * args.lanes, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_EDGE_DOTS, edge_dots, supports, NULL, NULL, run_edge_dots);

static by_status run_edge_sum(const by__device_call *call, const by__device_context *context)
{
    by__cuda_edge_sum_args args = {
        .v = call->in[0].data,
        .y = call->out[0].data,
        .edges = edges_of(call, 1, -1, 2, 0),
        .count = by__tensor_count(&call->out[0]),
        .heads = call->in[0].shape.dim[2],
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_edge_sum, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_EDGE_SUM, edge_sum, NULL, NULL, NULL, run_edge_sum);

/* Entries of no row are zero. */
static by_status clear_entries(const by__device_context *context, const by__device_tensor *y)
{
    by__cuda_queue *queue = by__cuda_queue_of(context);
    size_t bytes = (size_t)by__tensor_count(y) * sizeof(float);
    return bytes == 0 ? BY_OK : queue->fill(queue, y->data, 0, bytes);
}

static by_status run_edge_attention(const by__device_call *call, const by__device_context *context)
{
    by__cuda_edge_attention_args args = {
        .s = call->in[0].data,
        .d = call->in[1].data,
        .y = call->out[0].data,
        .edges = edges_of(call, 2, 3, -1, call->in[0].shape.dim[1]),
        .count = by__tensor_count(&call->in[1]),
        .heads = call->in[0].shape.dim[2],
        .slope = call->attrs.value,
    };
    BY_TRY(clear_entries(context, &call->out[0]));
    return by__cuda_over_each(context, BY__CUDA_KERNEL_edge_attention, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_EDGE_ATTENTION, edge_attention, NULL, NULL, NULL, run_edge_attention);

static by_status run_edge_attention_grad(const by__device_call *call,
                                         const by__device_context *context)
{
    by__cuda_edge_attention_grad_args args = {
        .s = call->in[0].data,
        .d = call->in[1].data,
        .dy = call->in[5].data,
        .y = call->in[4].data,
        .de = call->out[0].data,
        .dd = call->out[1].data,
        .edges = edges_of(call, 2, 3, -1, call->in[0].shape.dim[1]),
        .count = by__tensor_count(&call->in[1]),
        .heads = call->in[0].shape.dim[2],
        .slope = call->attrs.value,
    };
    BY_TRY(clear_entries(context, &call->out[0]));
    return by__cuda_over_each(context, BY__CUDA_KERNEL_edge_attention_grad, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_EDGE_ATTENTION_GRAD, edge_attention_grad, NULL, NULL, NULL,
                    run_edge_attention_grad);

static by_status run_sparse_max(const by__device_call *call, const by__device_context *context)
{
    by__cuda_sparse_max_args args = {
        .x = call->in[0].data,
        .y = call->out[0].data,
        .entry = call->out[1].data,
        .edges = edges_of(call, 1, 2, -1, call->in[0].shape.dim[1]),
        .count = by__tensor_count(&call->out[0]),
        .width = call->in[0].shape.dim[2],
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_sparse_max, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SPARSE_MAX, sparse_max, supports, NULL, NULL, run_sparse_max);

static by_status run_sparse_max_grad(const by__device_call *call, const by__device_context *context)
{
    by__cuda_sparse_max_grad_args args = {
        .x = call->in[0].data,
        .y = call->out[0].data,
        .entry = call->in[1].data,
        .edges = edges_of(call, 2, 3, 4, call->in[0].shape.dim[1]),
        .count = by__tensor_count(&call->out[0]),
        .width = call->in[0].shape.dim[2],
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_sparse_max_grad, args.count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SPARSE_MAX_GRAD, sparse_max_grad, supports, NULL, NULL,
                    run_sparse_max_grad);
