#include "device/cuda/launch.h"

static const struct {
    const char *symbol;
    size_t bytes;
} kernels[] = {
#define BY__CUDA_KERNEL(name) {"by_cuda_" #name, sizeof(by__cuda_##name##_args)},
#include "device/cuda/kernels.inc"
#undef BY__CUDA_KERNEL
};

const char *by__cuda_kernel_symbol(by__cuda_kernel kernel)
{
    return kernels[kernel].symbol;
}

size_t by__cuda_kernel_bytes(by__cuda_kernel kernel)
{
    return kernels[kernel].bytes;
}

static by_status over_grid(const by__device_context *context, by__cuda_kernel kernel, int64_t x,
                           int64_t y, const void *args)
{
    by__cuda_queue *queue = context->queue;
    by__cuda_grid grid = {{(unsigned)x, (unsigned)y, 1}, BY__CUDA_BLOCK, 0};
    return x == 0 || y == 0 ? BY_OK : queue->launch(queue, kernel, &grid, args);
}

by_status by__cuda_over_elements(const by__device_context *context, by__cuda_kernel kernel,
                                 int64_t count, const void *args)
{
    return over_grid(context, kernel, by__ceil_div(count, (int64_t)BY__CUDA_BLOCK * 8), 1, args);
}

by_status by__cuda_over_each(const by__device_context *context, by__cuda_kernel kernel,
                             int64_t count, const void *args)
{
    return over_grid(context, kernel, by__ceil_div(count, BY__CUDA_BLOCK), 1, args);
}

by_status by__cuda_over_rows(const by__device_context *context, by__cuda_kernel kernel,
                             int64_t count, bool wide, const void *args)
{
    return over_grid(context, kernel, wide ? count : by__ceil_div(count, BY__CUDA_BLOCK / 32), 1,
                     args);
}

by_status by__cuda_over_blocks(const by__device_context *context, by__cuda_kernel kernel,
                               int64_t blocks, const void *args)
{
    return over_grid(context, kernel, blocks, 1, args);
}

by_status by__cuda_over_columns(const by__device_context *context, by__cuda_kernel kernel,
                                int64_t count, int64_t columns, const void *args)
{
    return over_grid(context, kernel, by__ceil_div(count, BY__CUDA_SUM_ROWS),
                     by__ceil_div(columns, 256), args);
}

int64_t by__cuda_sum_work(int64_t count, int64_t columns)
{
    int64_t floats = 0;
    while (count > BY__CUDA_SUM_ROWS) {
        count = by__ceil_div(count, BY__CUDA_SUM_ROWS);
        floats += count * columns;
    }
    return floats;
}

by_status by__cuda_sum_into(const by__device_context *context, float *y, const void *x,
                            by_dtype dtype, int64_t count, int64_t columns, float *part)
{
    if (count == 0) {
        by__cuda_queue *queue = context->queue;
        return queue->fill(queue, y, 0, (size_t)columns * sizeof *y);
    }
    for (;;) {
        int64_t pieces = by__ceil_div(count, BY__CUDA_SUM_ROWS);
        float *to = pieces == 1 ? y : part;
        by__cuda_sum_rows_args args = {x, to, count, columns, (int32_t)dtype};
        BY_TRY(by__cuda_over_columns(context, BY__CUDA_KERNEL_sum_rows, count, columns, &args));
        if (pieces == 1) {
            return BY_OK;
        }
        x = part;
        part += pieces * columns;
        dtype = BY_F32;
        count = pieces;
    }
}

by_status by__cuda_reserve(by__device_call *call, int64_t floats, by_error *error)
{
    if (floats < 0 || !by__size_mul((size_t)floats, sizeof(float), &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "%s: the workspace overflows", by_op_name(call->op));
    }
    return BY_OK;
}

unsigned by__cuda_kernel_shared(by__cuda_kernel kernel)
{
    switch ((int)kernel) {
    case BY__CUDA_KERNEL_map:
        return 48 << 10;
    case BY__CUDA_KERNEL_attention:
        return BY__CUDA_ATTENTION_SHARED(BY__CUDA_MOST_WIDTH);
    case BY__CUDA_KERNEL_keys_grad_bf16_128:
    case BY__CUDA_KERNEL_keys_grad_f16_128:
    case BY__CUDA_KERNEL_queries_grad_bf16_128:
    case BY__CUDA_KERNEL_queries_grad_f16_128:
        return BY__CUDA_GRAD_MMA_SHARED(128);
    case BY__CUDA_KERNEL_attention_bf16_128:
    case BY__CUDA_KERNEL_attention_f16_128:
        return BY__CUDA_ATTENTION_MMA_SHARED(128);
    case BY__CUDA_KERNEL_attention_keys_grad:
        return BY__CUDA_KEYS_GRAD_SHARED(BY__CUDA_MOST_WIDTH);
    case BY__CUDA_KERNEL_attention_queries_grad:
        return BY__CUDA_QUERIES_GRAD_SHARED(BY__CUDA_MOST_WIDTH);
    case BY__CUDA_KERNEL_linear_keys_grad:
        return BY__CUDA_LINEAR_SHARED(BY__CUDA_MOST_WIDTH);
    default:
        return 0;
    }
}
