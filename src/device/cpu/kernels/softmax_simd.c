/* SOFTMAX, SOFTMAX_GRAD, CROSS_ENTROPY, CROSS_ENTROPY_GRAD. Rows of [R, C], activations, each
 * processed by one thread, in f32. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"

static int64_t grain_of(const by__device_call *call)
{
    return by__ceil_div(8192, by__tensor_columns(&call->in[0]));
}

/* The maximum and the sum of the exponentials relative to it. */
BY__INLINE float exp_sum(const void *x, int64_t at, int64_t columns, by_dtype type, float *highest)
{
    by__vf top = by__splat(-INFINITY);
    by__vf sum = by__zero();
    by__vu lanes = by__lane_numbers();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vi real = (by__vi)lanes < (int32_t)(n);                                                \
        by__vf v = by__load_n(x, at + (i), type, n);                                               \
        top = by__larger(top, by__select(real, v, top));                                           \
    } while (0)
    BY__STEPS(0, columns, STEP);
#undef STEP
    float high = by__max(top);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vi real = (by__vi)lanes < (int32_t)(n);                                                \
        by__vf e = by__exp_of_negative(by__load_n(x, at + (i), type, n) - high);                   \
        sum += by__select(real, e, by__zero());                                                    \
    } while (0)
    BY__STEPS(0, columns, STEP);
#undef STEP
    *highest = high;
    return by__sum(sum);
}

BY__INLINE void softmax(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    bool logarithm = call->attrs.logarithm;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        float high;
        float sum = exp_sum(x, at, columns, type, &high);
        float factor = 1.0f / sum;
        float log_sum = logf(sum);
#define LOG(i, n)                                                                                  \
    by__store_n(y, at + (i), by__load_n(x, at + (i), type, n) - high - log_sum, type, n)
#define EXP(i, n)                                                                                  \
    by__store_flushed_n(y, at + (i),                                                               \
                        by__exp_of_negative(by__load_n(x, at + (i), type, n) - high) * factor,     \
                        type, n)
        if (logarithm) {
            BY__STEPS(0, columns, LOG);
        } else {
            BY__STEPS(0, columns, EXP);
        }
#undef LOG
#undef EXP
    }
}

BY__INLINE void softmax_grad(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *y = call->in[0].data;
    const void *dy = call->in[1].data;
    void *dx = call->out[0].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    bool logarithm = call->attrs.logarithm;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        by__vf sums = by__zero();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(dy, at + (i), type, n);                                              \
        sums += logarithm ? d : d * by__load_n(y, at + (i), type, n);                              \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
        float sum = by__sum(sums);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf d = by__load_n(dy, at + (i), type, n);                                              \
        by__vf p = by__load_n(y, at + (i), type, n);                                               \
        by__store_n(dx, at + (i), logarithm ? d - by__exp(p) * sum : p * (d - sum), type, n);      \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

static bool counts(const by__device_call *call, int64_t row)
{
    int32_t target = ((const int32_t *)call->in[1].data)[row];
    return target >= 0 && target < by__tensor_columns(&call->in[0]);
}

/* The loss of each row goes to the workspace. */
BY__INLINE void cross_entropy(const by__device_call *call, int64_t begin, int64_t end,
                              by_dtype type)
{
    const void *x = call->in[0].data;
    const int32_t *targets = call->in[1].data;
    const float *weights = call->input_count > 2 ? call->in[2].data : NULL;
    int64_t columns = by__tensor_columns(&call->in[0]);
    float smoothing = call->attrs.smoothing;
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        float high;
        float log_sum = logf(exp_sum(x, at, columns, type, &high));
        float loss = 0.0f;
        if (counts(call, row)) {
            float own = by__load_n(x, at + targets[row], type, 1)[0];
            loss = (1.0f - smoothing) * (high - own) + log_sum;
        }
        if (counts(call, row) && smoothing > 0.0f) {
            by__vf sum = by__zero();
            by__vu lanes = by__lane_numbers();
#define STEP(i, n)                                                                                 \
    sum += by__select((by__vi)lanes < (int32_t)(n), high - by__load_n(x, at + (i), type, n),       \
                      by__zero())
            BY__STEPS(0, columns, STEP);
#undef STEP
            loss += smoothing / (float)columns * by__sum(sum);
        }
        ((float *)call->out[1].data)[row] = high + log_sum;
        ((float *)call->work)[row] = weights == NULL ? loss : weights[row] * loss;
    }
}

BY__INLINE void cross_entropy_grad(const by__device_call *call, int64_t begin, int64_t end,
                                   by_dtype type)
{
    const void *x = call->in[0].data;
    const int32_t *targets = call->in[1].data;
    const float *lse = call->in[2].data;
    float dloss = *(const float *)call->in[3].data;
    const float *weights = call->input_count > 4 ? call->in[4].data : NULL;
    void *dx = call->out[0].data;
    int64_t columns = by__tensor_columns(&call->in[0]);
    float even = call->attrs.smoothing / (float)columns;
    float own = 1.0f - call->attrs.smoothing;
    by__vi lanes = (by__vi)by__lane_numbers();
    for (int64_t row = begin; row < end; row++) {
        int64_t at = row * columns;
        int64_t target = targets[row];
        float factor = !counts(call, row) ? 0.0f : weights == NULL ? dloss : weights[row] * dloss;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf p = by__exp(by__load_n(x, at + (i), type, n) - lse[row]);                           \
        by__vf hot = by__select(lanes == (int32_t)(target - (i)), by__splat(own), by__zero());     \
        by__vf slope = (p - hot - even) * factor;                                                  \
        by__store_n(dx, at + (i), factor == 0.0f ? by__zero() : slope, type, n);                   \
    } while (0)
        BY__STEPS(0, columns, STEP);
#undef STEP
    }
}

#define RANGES(name)                                                                               \
    BY__ACT_RANGES(name)                                                                           \
    static void run_rows_##name(const by__device_call *call, const by__device_context *context)    \
    {                                                                                              \
        by__cpu_parallel(context, call, by__tensor_rows(&call->in[0]), grain_of(call),             \
                         by__tensor_count(&call->in[0]), name##_ranges[call->in[0].dtype]);        \
    }
RANGES(softmax)
RANGES(softmax_grad)
RANGES(cross_entropy)
RANGES(cross_entropy_grad)
#undef RANGES

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_softmax(const by__device_call *call, const by__device_context *context)
{
    run_rows_softmax(call, context);
    return BY_OK;
}

static by_status run_softmax_grad(const by__device_call *call, const by__device_context *context)
{
    run_rows_softmax_grad(call, context);
    return BY_OK;
}

static by_status prepare_cross_entropy(by__device_call *call, const by__device_context *context,
                                       by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(error);
    call->work_bytes = (size_t)by__tensor_rows(&call->in[0]) * sizeof(float);
    return BY_OK;
}

static by_status run_cross_entropy(const by__device_call *call, const by__device_context *context)
{
    double loss = 0.0;
    run_rows_cross_entropy(call, context);
    for (int64_t row = 0, rows = by__tensor_rows(&call->in[0]); row < rows; row++) {
        loss += (double)((const float *)call->work)[row];
    }
    *(float *)call->out[0].data = (float)loss;
    return BY_OK;
}

static by_status run_cross_entropy_grad(const by__device_call *call,
                                        const by__device_context *context)
{
    run_rows_cross_entropy_grad(call, context);
    return BY_OK;
}

BY__KERNEL(softmax) = {BY_OP_SOFTMAX, BY__KERNEL_NAME("softmax"), supports, NULL, NULL,
                       run_softmax};
BY__KERNEL(softmax_grad) = {
    BY_OP_SOFTMAX_GRAD, BY__KERNEL_NAME("softmax_grad"), supports, NULL, NULL, run_softmax_grad};
BY__KERNEL(cross_entropy) = {
    BY_OP_CROSS_ENTROPY, BY__KERNEL_NAME("cross_entropy"), supports, prepare_cross_entropy, NULL,
    run_cross_entropy};
BY__KERNEL(cross_entropy_grad) = {
    BY_OP_CROSS_ENTROPY_GRAD, BY__KERNEL_NAME("cross_entropy_grad"), supports, NULL, NULL,
    run_cross_entropy_grad};
