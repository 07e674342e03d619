#include "device/cpu/reference.h"

static by_status run_matmul(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    const by__device_tensor *y = &call->out[0];
    bool trans_a = call->attrs.trans_a;
    bool trans_b = call->attrs.trans_b;
    bool biased = call->input_count > 2 && by__present(&call->in[2]);
    bool added = call->input_count > 3 && by__present(&call->in[3]);
    int64_t n = by__tensor_columns(y);
    int64_t m = by__tensor_rows(y);
    int64_t k = trans_a ? by__tensor_rows(a) : by__tensor_columns(a);
    for (int64_t row = 0; row < m; row++) {
        for (int64_t column = 0; column < n; column++) {
            double sum = biased ? by__get(&call->in[2], column) : 0.0;
            for (int64_t i = 0; i < k; i++) {
                sum += by__get(a, trans_a ? i * m + row : row * k + i) *
                       by__get(b, trans_b ? column * k + i : i * n + column);
            }
            sum += added ? by__get(&call->in[3], row * n + column) : 0.0;
            by__set(y, row * n + column, sum);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_MATMUL, matmul, NULL, run_matmul);

static by_status run_sum_rows(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_count(&call->out[0]);
    int64_t rows = by__tensor_count(x) / columns;
    for (int64_t i = 0; i < columns; i++) {
        double sum = 0.0;
        for (int64_t row = 0; row < rows; row++) {
            sum += by__get(x, row * columns + i);
        }
        by__set(&call->out[0], i, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SUM_ROWS, sum_rows, NULL, run_sum_rows);
