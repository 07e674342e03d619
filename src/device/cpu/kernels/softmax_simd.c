/* SOFTMAX, CROSS_ENTROPY, DICE and their gradients. Rows of [R, C], activations, each processed by
 * one thread, in f32. */
#include <assert.h>
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

/* ---- DICE ---- */

#define DICE_ELEMENTS 1024

/* The rows of a sample are cut into ranges by the shape, whose sums are added in order. */
typedef struct dice_plan {
    int64_t samples;
    int64_t rows; /* of a sample */
    int64_t columns;
    int64_t step;   /* rows of a range */
    int64_t ranges; /* of a sample */
} dice_plan;

static dice_plan dice_plan_of(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    dice_plan p = {.samples = x->shape.dim[0], .columns = by__tensor_columns(x)};
    p.rows = by__tensor_rows(x) / p.samples;
    p.step = by__ceil_div(DICE_ELEMENTS, p.columns);
    p.ranges = by__ceil_div(p.rows, p.step);
    return p;
}

/* Three sums of each range, as of each sample; the gradient has two vectors of each sample. */
static by_status prepare_dice(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    dice_plan p = dice_plan_of(call);
    size_t vectors = (size_t)(call->op == BY_OP_DICE ? 3 * p.samples * p.ranges : 2 * p.samples);
    BY_UNUSED(context);
    if (!by__size_mul(vectors * sizeof(float), (size_t)p.columns, &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "%s: the workspace overflows", by_op_name(call->op));
    }
    return BY_OK;
}

BY__INLINE void dice_sums(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    dice_plan p = dice_plan_of(call);
    const void *x = call->in[0].data;
    const int32_t *targets = call->in[1].data;
    for (int64_t range = begin; range < end; range++) {
        int64_t first = range % p.ranges * p.step;
        int64_t row = range / p.ranges * p.rows;
        int64_t last = row + by__min_i64(p.rows, first + p.step);
        float *own = (float *)call->work + range * 3 * p.columns;
        float *all = own + p.columns;
        float *count = all + p.columns;
        memset(own, 0, 3 * (size_t)p.columns * sizeof *own);
        for (row += first; row < last; row++) {
            int64_t at = row * p.columns;
            float high;
            if (!counts(call, row)) {
                continue;
            }
            float factor = 1.0f / exp_sum(x, at, p.columns, type, &high);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf e = by__exp_of_negative(by__load_n(x, at + (i), type, n) - high);                   \
        by__vf sum = by__multiply_add(e, by__splat(factor), by__load_n(all, i, BY_F32, n));        \
        by__store_n(all, i, sum, BY_F32, n);                                                       \
    } while (0)
            BY__STEPS(0, p.columns, STEP);
#undef STEP
            by__vf e = by__exp_of_negative(by__load_n(x, at + targets[row], type, 1) - high);
            own[targets[row]] += e[0] * factor;
            count[targets[row]] += 1.0f;
        }
    }
}

BY__ACT_RANGES(dice_sums)

/* Adds the ranges of a sample in order. */
static void dice_add_ranges(const by__device_call *call, int64_t begin, int64_t end)
{
    dice_plan p = dice_plan_of(call);
    for (int64_t sample = begin; sample < end; sample++) {
        const float *ranges = (const float *)call->work + sample * p.ranges * 3 * p.columns;
        float *sums = (float *)call->out[1].data + sample * 3 * p.columns;
        for (int64_t i = 0; i < 3 * p.columns; i++) {
            double sum = 0.0;
            for (int64_t range = 0; range < p.ranges; range++) {
                sum += (double)ranges[range * 3 * p.columns + i];
            }
            sums[i] = (float)sum;
        }
    }
}

/* The number of targets of a sample through that of classes. */
static double dice_share(const dice_plan *p, const float *sums)
{
    double count = 0.0;
    for (int64_t c = 0; c < p->columns; c++) {
        count += (double)sums[2 * p->columns + c];
    }
    return count / (double)p->columns;
}

static by_status run_dice(const by__device_call *call, const by__device_context *context)
{
    dice_plan p = dice_plan_of(call);
    double e = (double)call->attrs.eps;
    double loss = 0.0;
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, p.samples * p.ranges, 1, count,
                     dice_sums_ranges[call->in[0].dtype]);
    by__cpu_parallel(context, call, p.samples, 1, 3 * p.samples * p.ranges * p.columns,
                     dice_add_ranges);
    for (int64_t sample = 0; sample < p.samples; sample++) {
        const float *sums = (const float *)call->out[1].data + sample * 3 * p.columns;
        double part = 0.0;
        for (int64_t c = 0; c < p.columns; c++) {
            double both = (double)sums[p.columns + c] + (double)sums[2 * p.columns + c] + e;
            part += 1.0 - (2.0 * (double)sums[c] + e) / both;
        }
        loss += part * dice_share(&p, sums);
    }
    *(float *)call->out[0].data = (float)loss;
    return BY_OK;
}

BY__KERNEL(dice) = {BY_OP_DICE, BY__KERNEL_NAME("dice"), supports, prepare_dice, NULL, run_dice};

/* The derivatives by p of a class, in rows of another target and what is added to them in rows of
 * its own. */
static void dice_slopes(const by__device_call *call, int64_t begin, int64_t end)
{
    dice_plan p = dice_plan_of(call);
    double dloss = (double)*(const float *)call->in[3].data;
    double e = (double)call->attrs.eps;
    for (int64_t sample = begin; sample < end; sample++) {
        const float *sums = (const float *)call->in[2].data + sample * 3 * p.columns;
        float *other = (float *)call->work + sample * 2 * p.columns;
        double share = dice_share(&p, sums) * dloss;
        for (int64_t c = 0; c < p.columns; c++) {
            double both = (double)sums[p.columns + c] + (double)sums[2 * p.columns + c] + e;
            other[c] = (float)(share * (2.0 * (double)sums[c] + e) / (both * both));
            other[p.columns + c] = (float)(-2.0 * share / both);
        }
    }
}

BY__INLINE void dice_grad(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    dice_plan p = dice_plan_of(call);
    assert(p.rows > 0);
    const void *x = call->in[0].data;
    const int32_t *targets = call->in[1].data;
    void *dx = call->out[0].data;
    by__vi lanes = (by__vi)by__lane_numbers();
    for (int64_t row = begin; row < end; row++) {
        const float *other = (const float *)call->work + row / p.rows * 2 * p.columns;
        bool is_target = counts(call, row);
        int64_t at = row * p.columns;
        int64_t target = is_target ? targets[row] : 0;
        float more = is_target ? other[p.columns + target] : 0.0f;
        float high;
        float factor = 1.0f / exp_sum(x, at, p.columns, type, &high);
        by__vf sums = by__zero();
#define SLOPE(i, n)                                                                                \
    (by__load_n(other, i, BY_F32, n) +                                                             \
     by__select(lanes == (int32_t)(target - (i)), by__splat(more), by__zero()))
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vi real = lanes < (int32_t)(n);                                                        \
        by__vf q = by__exp_of_negative(by__load_n(x, at + (i), type, n) - high) * factor;          \
        sums += by__select(real, q * SLOPE(i, n), by__zero());                                     \
    } while (0)
        BY__STEPS(0, p.columns, STEP);
#undef STEP
        float mean = by__sum(sums);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf q = by__exp_of_negative(by__load_n(x, at + (i), type, n) - high) * factor;          \
        by__vf slope = q * (SLOPE(i, n) - mean);                                                   \
        by__store_n(dx, at + (i), is_target ? slope : by__zero(), type, n);                        \
    } while (0)
        BY__STEPS(0, p.columns, STEP);
#undef STEP
#undef SLOPE
    }
}

BY__ACT_RANGES(dice_grad)

static by_status run_dice_grad(const by__device_call *call, const by__device_context *context)
{
    dice_plan p = dice_plan_of(call);
    by__cpu_parallel(context, call, p.samples, 1, 2 * p.samples * p.columns, dice_slopes);
    by__cpu_parallel(context, call, p.samples * p.rows, grain_of(call),
                     by__tensor_count(&call->in[0]), dice_grad_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(dice_grad) = {
    BY_OP_DICE_GRAD, BY__KERNEL_NAME("dice_grad"), supports, prepare_dice, NULL, run_dice_grad};
