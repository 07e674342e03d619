/* Products that the library of products does not take. */
#include "device/cuda/launch.h"

static by_status start(const by__device_context *context, by__cuda_kernel kernel, int64_t m,
                       int64_t n, int64_t matrices, const void *args)
{
    by__cuda_queue *queue = by__cuda_queue_of(context);
    by__cuda_grid grid = {{(unsigned)by__ceil_div(n, BY__CUDA_TILE),
                           (unsigned)by__ceil_div(m, BY__CUDA_TILE), (unsigned)matrices},
                          BY__CUDA_BLOCK,
                          0};
    return m == 0 || n == 0 || matrices == 0 ? BY_OK : queue->launch(queue, kernel, &grid, args);
}

static bool is_act(const by__device_call *call, int input)
{
    return !by__cuda_present(call, input) || by_dtype_is_float(call->in[input].dtype);
}

/* Rows of tiles are along the y axis of a grid. */
static bool rows_fit(int64_t rows)
{
    return by__ceil_div(rows, BY__CUDA_TILE) <= 65535;
}

static bool supports_matmul(const by__device_call *call)
{
    const by__device_tensor *a = &call->in[0];
    int64_t m = call->attrs.trans_a ? by__tensor_columns(a) : by__tensor_rows(a);
    return is_act(call, 0) && is_act(call, 1) && is_act(call, 2) && is_act(call, 3) && rows_fit(m);
}

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    bool trans_a = call->attrs.trans_a;
    bool trans_b = call->attrs.trans_b;
    int64_t a_columns = by__tensor_columns(a);
    int64_t b_columns = by__tensor_columns(b);
    by__cuda_matmul_args args = {
        .a = a->data,
        .b = b->data,
        .bias = by__cuda_present(call, 2) ? call->in[2].data : NULL,
        .add = by__cuda_present(call, 3) ? call->in[3].data : NULL,
        .y = call->out[0].data,
        .m = trans_a ? a_columns : by__tensor_rows(a),
        .n = trans_b ? by__tensor_rows(b) : b_columns,
        .k = trans_a ? by__tensor_rows(a) : a_columns,
        .a_row = trans_a ? 1 : a_columns,
        .a_column = trans_a ? a_columns : 1,
        .b_row = trans_b ? 1 : b_columns,
        .b_column = trans_b ? b_columns : 1,
        .a_dtype = (int32_t)a->dtype,
        .b_dtype = (int32_t)b->dtype,
        .bias_dtype = by__cuda_present(call, 2) ? (int32_t)call->in[2].dtype : 0,
        .dtype = (int32_t)call->out[0].dtype,
    };
    return start(context, BY__CUDA_KERNEL_matmul, args.m, args.n, 1, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_MATMUL, matmul, supports_matmul, NULL, NULL, run_matmul);

static bool supports_grouped(const by__device_call *call)
{
    return is_act(call, 0) && is_act(call, 1) && rows_fit(by__tensor_rows(&call->in[0]));
}

static by_status run_grouped_matmul(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    int64_t groups = call->in[2].shape.dim[0];
    by__cuda_grouped_matmul_args args = {
        .a = a->data,
        .b = b->data,
        .range = call->in[2].data,
        .y = call->out[0].data,
        .rows = by__tensor_rows(a),
        .n = by__tensor_columns(&call->out[0]),
        .k = by__tensor_columns(a),
        .groups = groups,
        .ranges_each = groups / b->shape.dim[0],
        .capacity = call->attrs.capacity,
        .dtype = (int32_t)a->dtype,
        .b_dtype = (int32_t)b->dtype,
        .y_dtype = (int32_t)call->out[0].dtype,
        .trans_b = call->attrs.trans_b,
    };
    return start(context, BY__CUDA_KERNEL_grouped_matmul, args.rows, args.n, 1, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_GROUPED_MATMUL, grouped_matmul, supports_grouped, NULL, NULL,
                    run_grouped_matmul);

static bool supports_grouped_grad(const by__device_call *call)
{
    return supports_grouped(call) && call->in[0].dtype == call->in[1].dtype &&
           rows_fit(by__tensor_columns(&call->in[0]));
}

static by_status run_grouped_grad(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *a = &call->in[0];
    by__cuda_grouped_grad_args args = {
        .a = a->data,
        .b = call->in[1].data,
        .range = call->in[2].data,
        .y = call->out[0].data,
        .rows = by__tensor_rows(a),
        .m = by__tensor_columns(a),
        .n = by__tensor_columns(&call->in[1]),
        .ranges_each = call->in[2].shape.dim[0] / call->attrs.rows,
        .capacity = call->attrs.capacity,
        .dtype = (int32_t)a->dtype,
        .y_dtype = (int32_t)call->out[0].dtype,
    };
    return start(context, BY__CUDA_KERNEL_grouped_grad, args.m, args.n, call->attrs.rows, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_GROUPED_MATMUL_GRAD, grouped_matmul_grad, supports_grouped_grad, NULL,
                    NULL, run_grouped_grad);
