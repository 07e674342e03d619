#include <float.h>
#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

/* Index in an operand of element i of the broadcast shape. */
static int64_t broadcast_place(const by_shape *whole, const by_shape *operand, int64_t i)
{
    int64_t place = 0;
    int64_t stride = 1;
    for (int axis = 1; axis <= operand->rank; axis++) {
        int64_t extent = operand->dim[operand->rank - axis];
        int64_t at = i % whole->dim[whole->rank - axis];
        i /= whole->dim[whole->rank - axis];
        place += extent == 1 ? 0 : at * stride;
        stride *= extent;
    }
    return place;
}

static by_status run_binary(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    const by_shape *shape = &call->out[0].shape;
    for (int64_t i = 0, count = by_shape_count(shape); i < count; i++) {
        double x = by__get(a, broadcast_place(shape, &a->shape, i));
        double y = by__get(b, broadcast_place(shape, &b->shape, i));
        double z = call->op == BY_OP_ADD ? x + y : call->op == BY_OP_SUB ? x - y : x * y;
        by__set(&call->out[0], i, z);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ADD, add, NULL, run_binary);
BY__REFERENCE_KERNEL(BY_OP_SUB, sub, NULL, run_binary);
BY__REFERENCE_KERNEL(BY_OP_MUL, mul, NULL, run_binary);

static by_status run_scale(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    double s = by__get(&call->in[1], 0);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        by__set(&call->out[0], i, by__get(&call->in[0], i) * s);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SCALE, scale, NULL, run_scale);

static by_status run_cast(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        by__set(&call->out[0], i, by__get(&call->in[0], i));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CAST, cast, NULL, run_cast);

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* 0.5 (1 + tanh(u)) is sigmoid(2u), which does not cancel. */
static double gelu_argument(double x)
{
    return 2.0 * sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
}

double by__cpu_reference_function(by_function function, double x)
{
    switch (function) {
    case BY_FN_GELU:
        return x * sigmoid(gelu_argument(x));
    case BY_FN_SILU:
        return x * sigmoid(x);
    case BY_FN_RELU:
        return x > 0.0 ? x : 0.0;
    case BY_FN_TANH:
        return tanh(x);
    case BY_FN_NEGATE:
        return -x;
    case BY_FN_GELU_ERF:
        return 0.5 * x * erfc(-x * sqrt(0.5));
    case BY_FN_SOFTPLUS:
        return fmax(x, 0.0) + log1p(exp(-fabs(x)));
    case BY_FN_ELU:
        return x > 0.0 ? x : expm1(x);
    case BY_FN_LOG_ABS:
        return log(fmax(fabs(x), (double)FLT_MIN));
    default:
        return sigmoid(x);
    }
}

static double derivative(by_function function, double x)
{
    double s = sigmoid(function == BY_FN_GELU ? gelu_argument(x) : x);
    switch (function) {
    case BY_FN_GELU: {
        double slope = 2.0 * sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * x * x);
        return s + x * s * (1.0 - s) * slope;
    }
    case BY_FN_SILU:
        return s * (1.0 + x * (1.0 - s));
    case BY_FN_RELU:
        return x > 0.0 ? 1.0 : 0.0;
    case BY_FN_TANH:
        return 1.0 - tanh(x) * tanh(x);
    case BY_FN_NEGATE:
        return -1.0;
    case BY_FN_GELU_ERF: /* the normal distribution's function and x times its density */
        return 0.5 * erfc(-x * sqrt(0.5)) + x * exp(-0.5 * x * x) / sqrt(2.0 * M_PI);
    case BY_FN_SOFTPLUS:
        return s;
    case BY_FN_ELU:
        return x > 0.0 ? 1.0 : exp(x);
    case BY_FN_LOG_ABS:
        return fabs(x) < (double)FLT_MIN ? 0.0 : 1.0 / x;
    default:
        return s * (1.0 - s);
    }
}

static by_status run_unary(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        by__set(&call->out[0], i,
                by__cpu_reference_function(call->attrs.function, by__get(&call->in[0], i)));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_UNARY, unary, NULL, run_unary);

static by_status run_unary_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        double slope = derivative(call->attrs.function, by__get(&call->in[0], i));
        by__set(&call->out[0], i, by__get(&call->in[1], i) * slope);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_UNARY_GRAD, unary_grad, NULL, run_unary_grad);

static by_status run_swiglu(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        double gate = by__get(&call->in[0], i);
        by__set(&call->out[0], i,
                by__cpu_reference_function(BY_FN_SILU, gate) * by__get(&call->in[1], i));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SWIGLU, swiglu, NULL, run_swiglu);

static by_status run_swiglu_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        double gate = by__get(&call->in[0], i);
        double up = by__get(&call->in[1], i);
        double dy = by__get(&call->in[2], i);
        by__set(&call->out[0], i, dy * up * derivative(BY_FN_SILU, gate));
        by__set(&call->out[1], i, dy * by__cpu_reference_function(BY_FN_SILU, gate));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SWIGLU_GRAD, swiglu_grad, NULL, run_swiglu_grad);

static by_status run_dropout(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    by__cpu_dropout dropout = by__cpu_dropout_setup(call);
    const by__device_tensor *x = &call->in[0];
    int64_t samples = x->shape.rank == 0 ? 1 : x->shape.dim[0];
    int64_t size = samples == 0 ? 0 : by__tensor_count(x) / samples;
    for (int64_t sample = 0; sample < samples; sample++) {
        for (int64_t place = 0; place < size; place++) {
            uint32_t counter[4];
            uint32_t bits[4];
            int64_t at = by__place_of(&call->attrs, place);
            by__dropout_counter(counter, &dropout, (uint32_t)sample, at);
            by__philox(bits, dropout.key, counter);
            bool kept = by__unit_float(bits[at % 64 / 16]) >= call->attrs.p;
            int64_t i = sample * size + place;
            double value = kept ? by__get(x, i) / (1.0 - (double)call->attrs.p) : 0.0;
            by__set(&call->out[0], i, value);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_DROPOUT, dropout, NULL, run_dropout);

/* Each pair (i, i + D/2) of a head is rotated by position * frequency(i). */
static by_status run_rope(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t length = x->shape.dim[1];
    int64_t half = by__tensor_columns(x) / call->attrs.heads / 2;
    bool by_row = by__rope_is_by_row(call);
    by_rotation rotation = by_rotation_of(&call->attrs);
    for (int64_t row = 0, rows = by__tensor_rows(x); row < rows; row++) {
        for (int64_t pair = 0; pair < call->attrs.heads * half; pair++) {
            int64_t i = pair % half;
            int64_t place = row * by__tensor_columns(x) + pair / half * 2 * half + i;
            float angle = (float)by__rope_position(call, by_row ? row : row % length) *
                          by_rotation_frequency(&rotation, i, 2 * half);
            double size = (double)rotation.amplitude;
            double c = size * cos((double)angle);
            double s = size * (call->attrs.inverse ? -sin((double)angle) : sin((double)angle));
            double low = by__get(x, place);
            double high = by__get(x, place + half);
            by__set(&call->out[0], place, low * c - high * s);
            by__set(&call->out[0], place + half, high * c + low * s);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ROPE, rope, NULL, run_rope);
