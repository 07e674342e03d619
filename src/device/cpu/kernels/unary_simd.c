/* UNARY, UNARY_GRAD, SWIGLU, SWIGLU_GRAD. Shapes: any. Dtypes: activations. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"

/* The smallest number that is not subnormal. */
#define SMALLEST 1.17549435e-38f
#define GRAIN    8192

/* GELU is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): 0.5 (1 + tanh u) without its
 * cancellation. This is 2u. */
BY__INLINE by__vf gelu_argument(by__vf x)
{
    return x * (1.5957691216f + 0.0713548163f * x * x);
}

/* sigmoid(x) and 1 - sigmoid(x), as accurate as results of `type` need. */
BY__INLINE by__vf sigmoid_pair(by_dtype type, by__vf x, by__vf *complement)
{
    return type == BY_BF16 ? by__sigmoid_pair_rough(x, complement)
                           : by__sigmoid_pair(x, complement);
}

/* x sigmoid(z) */
BY__INLINE by__vf gated(by_dtype type, by__vf x, by__vf z)
{
    by__vf complement;
    return type == BY_BF16 ? x * by__sigmoid_pair_rough(z, &complement) : x / (1.0f + by__exp(-z));
}

/* The normal distribution function P(x) and sqrt(2 pi) times its density, exp(-x^2 / 2): with t = 1
 * / (1 + 0.3 |x| / sqrt(2)), P(-|x|) = exp(-x^2 / 2) t q(t), with a polynomial q fitted for least
 * relative error (2e-8) up to |x| = 14, beyond which P is 0 or 1 in f32. */
BY__INLINE by__vf normal(by__vf x, by__vf *density)
{
    by__vf a = by__at_most(14.4f, by__abs(x));
    by__vf e = by__exp_within(a * a * -0.5f);
    by__vf t = 1.0f / (1.0f + 0.212132034f * a);
    by__vf q = by__splat(-0.0647615692f);
    q = q * t + 0.242782207f;
    q = q * t - 0.256140368f;
    q = q * t + 0.273861634f;
    q = q * t - 0.0473265671f;
    q = q * t + 0.107463585f;
    q = q * t + 0.0741694302f;
    q = q * t + 0.0853576373f;
    q = q * t + 0.0845940011f;
    by__vf tail = e * (t * q);
    *density = e;
    return by__select(x < 0.0f, tail, 1.0f - tail);
}

BY__INLINE by__vf apply(by_function function, by_dtype type, by__vf x)
{
    switch (function) {
    case BY_FN_GELU:
        return gated(type, x, gelu_argument(x));
    case BY_FN_SILU:
        return gated(type, x, x);
    case BY_FN_RELU:
        return by__select(x > 0.0f, x, by__zero());
    case BY_FN_TANH:
        return by__tanh(x);
    case BY_FN_NEGATE:
        return -x;
    case BY_FN_GELU_ERF: {
        by__vf density;
        return x * normal(x, &density);
    }
    case BY_FN_SOFTPLUS: /* log(1 + e^-|x|) has no cancellation */
        return by__at_least(0.0f, x) + by__log1p_of_unit(by__exp_of_negative(-by__abs(x)));
    case BY_FN_ELU: /* -1 in f32 below -17.4 */
        return by__select(x > 0.0f, x,
                          by__exp_less_one(by__at_least(-18.0f, by__at_most(0.0f, x))));
    case BY_FN_LOG_ABS:
        return by__log(by__at_least(SMALLEST, by__abs(x)));
    default:
        return by__sigmoid(x);
    }
}

BY__INLINE by__vf derivative(by_function function, by_dtype type, by__vf x)
{
    by__vf s;
    by__vf t; /* 1 - s */
    switch (function) {
    case BY_FN_GELU: {
        /* Beyond 12 the sigmoid is 0 or 1 in f32; the bound keeps the powers of x finite. */
        by__vf b = by__at_least(-12.0f, by__at_most(12.0f, x));
        s = sigmoid_pair(type, gelu_argument(b), &t);
        return s + s * t * b * (1.5957691216f + 0.2140644488f * b * b);
    }
    case BY_FN_SILU:
        s = sigmoid_pair(type, x, &t);
        return s + s * (x * t);
    case BY_FN_RELU:
        return by__select(x > 0.0f, by__splat(1.0f), by__zero());
    case BY_FN_TANH: /* 1 - tanh(x)^2 = 4 sigmoid(2x) (1 - sigmoid(2x)) */
        s = sigmoid_pair(type, 2.0f * x, &t);
        return 4.0f * s * t;
    case BY_FN_NEGATE:
        return by__splat(-1.0f);
    case BY_FN_GELU_ERF: /* 0.3989 = 1 / sqrt(2 pi); the bound avoids 0 times infinity */
        s = normal(x, &t);
        return s + 0.398942280f * by__at_least(-15.0f, by__at_most(15.0f, x)) * t;
    case BY_FN_SOFTPLUS:
        return sigmoid_pair(type, x, &t);
    case BY_FN_ELU:
        return by__select(x > 0.0f, by__splat(1.0f), by__exp(by__at_most(0.0f, x)));
    case BY_FN_LOG_ABS:
        return by__select(by__abs(x) < SMALLEST, by__zero(), 1.0f / x);
    default:
        s = sigmoid_pair(type, x, &t);
        return s * t;
    }
}

BY__INLINE void unary(const by__device_call *call, int64_t begin, int64_t end, by_function function,
                      by_dtype type)
{
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf z = apply(function, type, by__load_n(x, i, type, n));                               \
        if (function == BY_FN_NEGATE) {                                                            \
            by__store_n(y, i, z, type, n); /* exact */                                             \
        } else {                                                                                   \
            by__store_flushed_n(y, i, z, type, n);                                                 \
        }                                                                                          \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__INLINE void unary_grad(const by__device_call *call, int64_t begin, int64_t end,
                           by_function function, by_dtype type)
{
    const void *x = call->in[0].data;
    const void *dy = call->in[1].data;
    void *dx = call->out[0].data;
#define STEP(i, n)                                                                                 \
    by__store_flushed_n(                                                                           \
        dx, i, by__load_n(dy, i, type, n) * derivative(function, type, by__load_n(x, i, type, n)), \
        type, n)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

#define RANGES(name, function)                                                                     \
    BY__ACT_RANGES_OF(name, unary, function)                                                       \
    BY__ACT_RANGES_OF(name##_grad, unary_grad, function)
RANGES(gelu, BY_FN_GELU)
RANGES(silu, BY_FN_SILU)
RANGES(relu, BY_FN_RELU)
RANGES(tanh, BY_FN_TANH)
RANGES(sigmoid, BY_FN_SIGMOID)
RANGES(negate, BY_FN_NEGATE)
RANGES(gelu_erf, BY_FN_GELU_ERF)
RANGES(softplus, BY_FN_SOFTPLUS)
RANGES(elu, BY_FN_ELU)
RANGES(log_abs, BY_FN_LOG_ABS)
#undef RANGES

static bool supports_act(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by__cpu_range_fn *const *const unary_ranges[BY_FN_COUNT] = {
    [BY_FN_GELU] = gelu_ranges,         [BY_FN_SILU] = silu_ranges,
    [BY_FN_RELU] = relu_ranges,         [BY_FN_TANH] = tanh_ranges,
    [BY_FN_SIGMOID] = sigmoid_ranges,   [BY_FN_NEGATE] = negate_ranges,
    [BY_FN_GELU_ERF] = gelu_erf_ranges, [BY_FN_SOFTPLUS] = softplus_ranges,
    [BY_FN_ELU] = elu_ranges,           [BY_FN_LOG_ABS] = log_abs_ranges,
};

by__cpu_range_fn *BY__AT_LEVEL(by__kernel_unary_range)(by_function function)
{
    return unary_ranges[function][BY_F32];
}

static by_status run_unary(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count,
                     unary_ranges[call->attrs.function][call->in[0].dtype]);
    return BY_OK;
}

static by_status run_unary_grad(const by__device_call *call, const by__device_context *context)
{
    static by__cpu_range_fn *const *const ranges[BY_FN_COUNT] = {
        [BY_FN_GELU] = gelu_grad_ranges,         [BY_FN_SILU] = silu_grad_ranges,
        [BY_FN_RELU] = relu_grad_ranges,         [BY_FN_TANH] = tanh_grad_ranges,
        [BY_FN_SIGMOID] = sigmoid_grad_ranges,   [BY_FN_NEGATE] = negate_grad_ranges,
        [BY_FN_GELU_ERF] = gelu_erf_grad_ranges, [BY_FN_SOFTPLUS] = softplus_grad_ranges,
        [BY_FN_ELU] = elu_grad_ranges,           [BY_FN_LOG_ABS] = log_abs_grad_ranges,
    };
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count,
                     ranges[call->attrs.function][call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(unary) = {BY_OP_UNARY, BY__KERNEL_NAME("unary"), supports_act, NULL, NULL, run_unary};
BY__KERNEL(unary_grad) = {BY_OP_UNARY_GRAD, BY__KERNEL_NAME("unary_grad"), supports_act, NULL, NULL,
                          run_unary_grad};

BY__INLINE void swiglu(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *gate = call->in[0].data;
    const void *up = call->in[1].data;
    void *y = call->out[0].data;
#define STEP(i, n)                                                                                 \
    by__store_flushed_n(                                                                           \
        y, i, apply(BY_FN_SILU, type, by__load_n(gate, i, type, n)) * by__load_n(up, i, type, n),  \
        type, n)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__INLINE void swiglu_grad(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *gate = call->in[0].data;
    const void *up = call->in[1].data;
    const void *dy = call->in[2].data;
    void *dgate = call->out[0].data;
    void *dup = call->out[1].data;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf g = by__load_n(gate, i, type, n);                                                   \
        by__vf u = by__load_n(up, i, type, n);                                                     \
        by__vf d = by__load_n(dy, i, type, n);                                                     \
        by__vf t;                                                                                  \
        by__vf s = sigmoid_pair(type, g, &t);                                                      \
        by__store_flushed_n(dgate, i, d *u *(s + s * (g * t)), type, n);                           \
        by__store_flushed_n(dup, i, d *(g * s), type, n);                                          \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__ACT_RANGES(swiglu)

BY__ACT_RANGES(swiglu_grad)

static by_status run_swiglu(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count, swiglu_ranges[call->in[0].dtype]);
    return BY_OK;
}

static by_status run_swiglu_grad(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count, swiglu_grad_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(swiglu) = {BY_OP_SWIGLU, BY__KERNEL_NAME("swiglu"), supports_act, NULL, NULL,
                      run_swiglu};
BY__KERNEL(swiglu_grad) = {
    BY_OP_SWIGLU_GRAD, BY__KERNEL_NAME("swiglu_grad"), supports_act, NULL, NULL, run_swiglu_grad};
