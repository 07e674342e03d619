/* Minus log-likelihoods of a normal and a negative binomial distribution, and their derivatives. */
#include <math.h>

#include "device/cpu/reference.h"

#define LEAST 1e-5

static double size_of(double x)
{
    return fmax(fabs(x), LEAST);
}

/* The derivative of lgamma: its asymptotic series, from 12 on. */
static double digamma(double x)
{
    double sum = 0.0;
    while (x < 12.0) {
        sum -= 1.0 / x;
        x += 1.0;
    }
    double q = 1.0 / (x * x);
    return sum + log(x) - 0.5 / x -
           q * (1.0 / 12.0 - q * (1.0 / 120.0 - q * (1.0 / 252.0 - q * (1.0 / 240.0 - q / 132.0))));
}

/* Operands of element i. */
typedef struct likelihood_element {
    double a, b, t, weight;
    double sign_a, sign_b;
} likelihood_element;

static likelihood_element element_of(const by__device_call *call, int64_t i)
{
    bool normal = call->attrs.density == BY_DENSITY_NORMAL;
    double a = by__get(&call->in[0], i);
    double b = by__get(&call->in[1], i);
    double t = by__get(&call->in[2], i);
    bool weighted = call->input_count > 3 && by__present(&call->in[3]);
    return (likelihood_element){.a = normal ? a : size_of(a),
                                .b = size_of(b),
                                .t = normal ? t : fmax(t, 0.0),
                                .weight = weighted ? by__get(&call->in[3], i) : 1.0,
                                .sign_a = a < 0.0 ? -1.0 : 1.0,
                                .sign_b = b < 0.0 ? -1.0 : 1.0};
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    double loss = 0.0;
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        likelihood_element e = element_of(call, i);
        double d = (e.t - e.a) / e.b;
        double r = 1.0 / e.b;
        double product = e.a * e.b;
        double term = call->attrs.density == BY_DENSITY_NORMAL
                          ? 0.5 * d * d + log(e.b) + 0.5 * log(2.0 * M_PI)
                          : lgamma(r) + lgamma(e.t + 1.0) - lgamma(e.t + r) + r * log1p(product) +
                                e.t * (log1p(product) - log(product));
        loss += e.weight == 0.0 ? 0.0 : e.weight * term;
    }
    by__set(&call->out[0], 0, loss);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LIKELIHOOD, likelihood, NULL, run);

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    double dloss = by__get(&call->in[4], 0);
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        likelihood_element e = element_of(call, i);
        double factor = e.weight * dloss;
        double d = (e.t - e.a) / e.b;
        double r = 1.0 / e.b;
        double da = -d / e.b;
        double db = (1.0 - d * d) / e.b;
        if (call->attrs.density == BY_DENSITY_NEGATIVE_BINOMIAL) {
            da = e.sign_a * (e.a - e.t) / (e.a * (1.0 + e.a * e.b));
            db = r * r *
                 (digamma(e.t + r) - digamma(r) - log1p(e.a * e.b) + (e.a - e.t) / (r + e.a));
        }
        by__set(&call->out[0], i, factor * da);
        by__set(&call->out[1], i, factor * e.sign_b * db);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LIKELIHOOD_GRAD, likelihood_grad, NULL, run_grad);
