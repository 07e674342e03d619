/* LIKELIHOOD and its gradient: a and b activations, targets and weights f32 of their shape. Normal
 * distributions compute in f32, negative binomial ones element by element in double, because their
 * gamma functions cancel. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"

/* Elements of a block, which f32 sums alone; the workspace is one double per block. */
#define BLOCK 1024
#define LEAST 1e-5f
/* log(2 pi) / 2 */
#define HALF_LOG_2_PI 0.918938533204672742f

static const float *weights_of(const by__device_call *call)
{
    bool weighted = call->input_count > 3 && by__present(&call->in[3]);
    return weighted ? call->in[3].data : NULL;
}

/* ---- normal distributions ---- */

BY__INLINE by__vf weight_n(const float *weights, int64_t i, int n)
{
    return weights == NULL ? by__splat(1.0f) : by__load_n(weights, i, BY_F32, n);
}

BY__INLINE void normal_loss(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const float *weights = weights_of(call);
    by__vf sum = by__zero();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf b = by__at_least(LEAST, by__abs(by__load_n(call->in[1].data, i, type, n)));         \
        by__vf t = by__load_n(call->in[2].data, i, BY_F32, n);                                     \
        by__vf d = (t - by__load_n(call->in[0].data, i, type, n)) / b;                             \
        by__vf term = d * d * 0.5f + (by__log(b) + HALF_LOG_2_PI);                                 \
        by__vf weight = weight_n(weights, i, n);                                                   \
        by__vi counts = ((by__vi)by__lane_numbers() < (int32_t)(n)) & (weight != 0.0f);            \
        sum += by__select(counts, term * weight, by__zero());                                      \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
    ((double *)call->work)[begin / BLOCK] = (double)by__sum(sum);
}

BY__INLINE void normal_grad(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const float *weights = weights_of(call);
    float dloss = *(const float *)call->in[4].data;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf raw = by__load_n(call->in[1].data, i, type, n);                                     \
        by__vf t = by__load_n(call->in[2].data, i, BY_F32, n);                                     \
        by__vf inverse = 1.0f / by__at_least(LEAST, by__abs(raw));                                 \
        by__vf d = (t - by__load_n(call->in[0].data, i, type, n)) * inverse;                       \
        by__vf factor = weight_n(weights, i, n) * dloss * inverse;                                 \
        by__vf sign = by__select(raw < 0.0f, by__splat(-1.0f), by__splat(1.0f));                   \
        by__store_n(call->out[0].data, i, -d *factor, type, n);                                    \
        by__store_n(call->out[1].data, i, sign *(1.0f - d * d) * factor, type, n);                 \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

/* ---- negative binomial distributions ---- */

/* Stirling's series of log gamma, from 8 on. */
static double stirling(double x)
{
    double q = 1.0 / (x * x);
    double series =
        (1.0 / 12.0 - q * (1.0 / 360.0 - q * (1.0 / 1260.0 - q * (1.0 / 1680.0 - q / 1188.0)))) / x;
    return (x - 0.5) * log(x) - x + 0.91893853320467274178 + series;
}

/* log gamma(x) and its derivative, for x > 0: a recurrence to 8 or more, and a series there. */
static double log_gamma(double x)
{
    double product = 1.0;
    while (x < 8.0) {
        product *= x;
        x += 1.0;
    }
    return stirling(x) - log(product);
}

static double digamma(double x)
{
    double sum = 0.0;
    while (x < 8.0) {
        sum -= 1.0 / x;
        x += 1.0;
    }
    double q = 1.0 / (x * x);
    double series =
        q * (1.0 / 12.0 -
             q * (1.0 / 120.0 -
                  q * (1.0 / 252.0 - q * (1.0 / 240.0 - q * (1.0 / 132.0 - q * 691.0 / 32760.0)))));
    return sum + log(x) - 0.5 / x - series;
}

/* What of an element is read: mean, dispersion and target, within their bounds. */
typedef struct counted {
    double mean, dispersion, t;
} counted;

static double magnitude(float x)
{
    return fmax(fabs((double)x), 1e-5);
}

static counted counted_of(float a, float b, float t)
{
    return (counted){magnitude(a), magnitude(b), t > 0.0f ? (double)t : 0.0};
}

static double counted_loss(const counted *e)
{
    double r = 1.0 / e->dispersion;
    double product = e->mean * e->dispersion;
    double grown = log1p(product);
    return log_gamma(r) + log_gamma(e->t + 1.0) - log_gamma(e->t + r) + r * grown +
           e->t * (grown - log(product));
}

BY__INLINE void counted_losses(const by__device_call *call, int64_t begin, int64_t end,
                               by_dtype type)
{
    const float *weights = weights_of(call);
    const float *t = call->in[2].data;
    double sum = 0.0;
    for (int64_t i = begin; i < end; i++) {
        float weight = weights == NULL ? 1.0f : weights[i];
        if (weight != 0.0f) {
            counted e = counted_of(by__load_n(call->in[0].data, i, type, 1)[0],
                                   by__load_n(call->in[1].data, i, type, 1)[0], t[i]);
            sum += (double)weight * counted_loss(&e);
        }
    }
    ((double *)call->work)[begin / BLOCK] = sum;
}

BY__INLINE void counted_grads(const by__device_call *call, int64_t begin, int64_t end,
                              by_dtype type)
{
    const float *weights = weights_of(call);
    const float *t = call->in[2].data;
    double dloss = (double)*(const float *)call->in[4].data;
    for (int64_t i = begin; i < end; i++) {
        float a = by__load_n(call->in[0].data, i, type, 1)[0];
        float b = by__load_n(call->in[1].data, i, type, 1)[0];
        double factor = (weights == NULL ? 1.0 : (double)weights[i]) * dloss;
        counted e = counted_of(a, b, t[i]);
        double r = 1.0 / e.dispersion;
        double product = e.mean * e.dispersion;
        double da = (e.mean - e.t) / (e.mean * (1.0 + product));
        double db =
            r * r *
            (digamma(e.t + r) - digamma(r) - log1p(product) + (e.mean - e.t) / (r + e.mean));
        by__store_n(call->out[0].data, i, by__splat((float)(a < 0.0f ? -factor * da : factor * da)),
                    type, 1);
        by__store_n(call->out[1].data, i, by__splat((float)(b < 0.0f ? -factor * db : factor * db)),
                    type, 1);
    }
}

/* ---- kernels ---- */

BY__INLINE void loss(const by__device_call *call, int64_t begin, int64_t end, bool normal,
                     by_dtype type)
{
    if (normal) {
        normal_loss(call, begin, end, type);
    } else {
        counted_losses(call, begin, end, type);
    }
}

BY__INLINE void gradient(const by__device_call *call, int64_t begin, int64_t end, bool normal,
                         by_dtype type)
{
    if (normal) {
        normal_grad(call, begin, end, type);
    } else {
        counted_grads(call, begin, end, type);
    }
}

BY__ACT_RANGES_OF(normal, loss, true)
BY__ACT_RANGES_OF(counted, loss, false)
BY__ACT_RANGES_OF(normal_grad, gradient, true)
BY__ACT_RANGES_OF(counted_grad, gradient, false)

static bool supports(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status prepare(by__device_call *call, const by__device_context *context, by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(error);
    call->work_bytes = (size_t)by__ceil_div(by__tensor_count(&call->in[0]), BLOCK) * sizeof(double);
    return BY_OK;
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    bool normal = call->attrs.density == BY_DENSITY_NORMAL;
    by_dtype type = call->in[0].dtype;
    int64_t count = by__tensor_count(&call->in[0]);
    double total = 0.0;
    by__cpu_parallel(context, call, count, BLOCK, count,
                     normal ? normal_ranges[type] : counted_ranges[type]);
    for (int64_t block = 0; block < by__ceil_div(count, BLOCK); block++) {
        total += ((const double *)call->work)[block];
    }
    *(float *)call->out[0].data = (float)total;
    return BY_OK;
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    bool normal = call->attrs.density == BY_DENSITY_NORMAL;
    by_dtype type = call->in[0].dtype;
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, BLOCK, count,
                     normal ? normal_grad_ranges[type] : counted_grad_ranges[type]);
    return BY_OK;
}

BY__KERNEL(likelihood) = {
    BY_OP_LIKELIHOOD, BY__KERNEL_NAME("likelihood"), supports, prepare, NULL, run};
BY__KERNEL(likelihood_grad) = {
    BY_OP_LIKELIHOOD_GRAD, BY__KERNEL_NAME("likelihood_grad"), supports, NULL, NULL, run_grad};
