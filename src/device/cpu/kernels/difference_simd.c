/* SQUARED_ERROR, SMOOTH_L1 and their gradients: x activations, targets f32; weights f32 [R], or i32
 * [R] where a negative value excludes the row, or absent. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

/* Rows of a block have about this many elements in total; the workspace is one double per block. */
#define BLOCK 4096

static int64_t block_rows(const by__device_call *call)
{
    return by__ceil_div(BLOCK, by__tensor_columns(&call->in[0]));
}

static float weight_of(const by__device_call *call, int64_t row)
{
    bool weighted = call->input_count > 2 && by__present(&call->in[2]);
    if (weighted && call->in[2].dtype == BY_I32) {
        return ((const int32_t *)call->in[2].data)[row] >= 0 ? 1.0f : 0.0f;
    }
    return weighted ? ((const float *)call->in[2].data)[row] : 1.0f;
}

/* The term for d = x - t, and its derivative. inverse: 1 / beta. */
BY__INLINE by__vf term_of(by__vf d, bool smooth, float beta, float inverse)
{
    by__vf size = by__abs(d);
    return smooth ? by__select(size < beta, size * size * (0.5f * inverse), size - 0.5f * beta)
                  : d * d;
}

BY__INLINE by__vf slope_of(by__vf d, bool smooth, float beta, float inverse)
{
    by__vf sign = by__select(d > 0.0f, by__splat(1.0f), by__select(d < 0.0f, by__splat(-1.0f), d));
    return smooth ? by__select(by__abs(d) < beta, d * inverse, sign) : d * 2.0f;
}

/* The weights of n rows from `row` on. */
BY__INLINE by__vf weights_at(const by__device_call *call, int64_t row, int64_t n)
{
    by__vf weights = by__zero();
    if (call->input_count > 2 && by__present(&call->in[2]) && call->in[2].dtype == BY_F32) {
        return by__load_n(call->in[2].data, row, BY_F32, (int)n);
    }
    for (int64_t k = 0; k < n; k++) {
        weights[k] = weight_of(call, row + k);
    }
    return weights;
}

/* Of rows of one element each, which are taken by vectors; the sum is in their order. */
BY__INLINE double loss_of_elements(const by__device_call *call, int64_t begin, int64_t end,
                                   bool smooth, by_dtype type)
{
    const void *x = call->in[0].data;
    const void *t = call->in[1].data;
    float beta = call->attrs.beta;
    float inverse = beta > 0.0f ? 1.0f / beta : 0.0f;
    double total = 0.0;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(x, i, type, n) - by__load_n(t, i, BY_F32, n);                        \
        by__vf terms = weights_at(call, i, n) * term_of(d, smooth, beta, inverse);                 \
        for (int64_t k = 0; k < (n); k++) {                                                        \
            total += (double)terms[k];                                                             \
        }                                                                                          \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
    return total;
}

BY__INLINE void loss(const by__device_call *call, int64_t begin, int64_t end, bool smooth,
                     by_dtype type)
{
    const void *x = call->in[0].data;
    const void *t = call->in[1].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    float beta = call->attrs.beta;
    float inverse = beta > 0.0f ? 1.0f / beta : 0.0f;
    double total = columns == 1 ? loss_of_elements(call, begin, end, smooth, type) : 0.0;
    for (int64_t row = begin; row < end && columns > 1; row++) {
        int64_t at = row * columns;
        by__vf sum = by__zero();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(x, at + (i), type, n) - by__load_n(t, at + (i), BY_F32, n);          \
        by__vf term = term_of(d, smooth, beta, inverse);                                           \
        sum += by__select((by__vi)by__lane_numbers() < (int32_t)(n), term, by__zero());            \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
        total += (double)(weight_of(call, row) * by__sum(sum));
    }
    ((double *)call->work)[begin / block_rows(call)] = total;
}

BY__INLINE void gradient_of_elements(const by__device_call *call, int64_t begin, int64_t end,
                                     bool smooth, by_dtype type)
{
    const void *x = call->in[0].data;
    const void *t = call->in[1].data;
    float beta = call->attrs.beta;
    float inverse = beta > 0.0f ? 1.0f / beta : 0.0f;
    float dloss = *(const float *)call->in[3].data;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(x, i, type, n) - by__load_n(t, i, BY_F32, n);                        \
        by__vf slope = slope_of(d, smooth, beta, inverse);                                         \
        by__store_n(call->out[0].data, i, slope *(weights_at(call, i, n) * dloss), type, n);       \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__INLINE void gradient(const by__device_call *call, int64_t begin, int64_t end, bool smooth,
                         by_dtype type)
{
    const void *x = call->in[0].data;
    const void *t = call->in[1].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    float beta = call->attrs.beta;
    float inverse = beta > 0.0f ? 1.0f / beta : 0.0f;
    float dloss = *(const float *)call->in[3].data;
    if (columns == 1) {
        gradient_of_elements(call, begin, end, smooth, type);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        float factor = weight_of(call, row) * dloss;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(x, at + (i), type, n) - by__load_n(t, at + (i), BY_F32, n);          \
        by__vf slope = slope_of(d, smooth, beta, inverse);                                         \
        by__store_n(call->out[0].data, at + (i), slope * factor, type, n);                         \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

BY__ACT_RANGES_OF(squared, loss, false)
BY__ACT_RANGES_OF(smooth, loss, true)
BY__ACT_RANGES_OF(squared_grad, gradient, false)
BY__ACT_RANGES_OF(smooth_grad, gradient, true)

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static int64_t block_count(const by__device_call *call)
{
    return by__ceil_div(by__tensor_rows(&call->in[0]), block_rows(call));
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(error);
    call->work_bytes = (size_t)block_count(call) * sizeof(double);
    return BY_OK;
}

static by_status run_difference(const by__device_call *call, const by__device_context *context)
{
    by_dtype type = call->in[0].dtype;
    double total = 0.0;
    by__cpu_parallel(context, call, by__tensor_rows(&call->in[0]), block_rows(call),
                     by__tensor_count(&call->in[0]),
                     call->op == BY_OP_SMOOTH_L1 ? smooth_ranges[type] : squared_ranges[type]);
    for (int64_t block = 0; block < block_count(call); block++) {
        total += ((const double *)call->work)[block];
    }
    *(float *)call->out[0].data = (float)total;
    return BY_OK;
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    by_dtype type = call->in[0].dtype;
    by__cpu_parallel(context, call, by__tensor_rows(&call->in[0]), block_rows(call),
                     by__tensor_count(&call->in[0]),
                     call->op == BY_OP_SMOOTH_L1_GRAD ? smooth_grad_ranges[type]
                                                      : squared_grad_ranges[type]);
    return BY_OK;
}

BY__KERNEL(squared_error) = {
    BY_OP_SQUARED_ERROR, BY__KERNEL_NAME("squared_error"), supports, prepare, NULL, run_difference};
BY__KERNEL(smooth_l1) = {BY_OP_SMOOTH_L1, BY__KERNEL_NAME("smooth_l1"), supports, prepare, NULL,
                         run_difference};
BY__KERNEL(squared_error_grad) = {BY_OP_SQUARED_ERROR_GRAD,
                                  BY__KERNEL_NAME("squared_error_grad"),
                                  supports,
                                  NULL,
                                  NULL,
                                  run_grad};
BY__KERNEL(smooth_l1_grad) = {
    BY_OP_SMOOTH_L1_GRAD, BY__KERNEL_NAME("smooth_l1_grad"), supports, NULL, NULL, run_grad};
