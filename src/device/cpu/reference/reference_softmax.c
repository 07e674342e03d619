#include <math.h>

#include "device/cpu/reference.h"

/* log(sum(exp(x))) of row `row` of [..., C]. */
static double log_sum_exp(const by__device_tensor *x, int64_t row)
{
    int64_t columns = by__tensor_columns(x);
    double highest = -INFINITY;
    double sum = 0.0;
    for (int64_t i = 0; i < columns; i++) {
        highest = fmax(highest, by__get(x, row * columns + i));
    }
    for (int64_t i = 0; i < columns; i++) {
        sum += exp(by__get(x, row * columns + i) - highest);
    }
    return highest + log(sum);
}

static by_status run_softmax(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t columns = by__tensor_columns(&call->in[0]);
    for (int64_t row = 0, rows = by__tensor_rows(&call->in[0]); row < rows; row++) {
        double lse = log_sum_exp(&call->in[0], row);
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
            double y = by__get(&call->in[0], i) - lse;
            by__set(&call->out[0], i, call->attrs.logarithm ? y : exp(y));
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SOFTMAX, softmax, NULL, run_softmax);

static by_status run_softmax_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *y = &call->in[0];
    const by__device_tensor *dy = &call->in[1];
    bool logarithm = call->attrs.logarithm;
    int64_t columns = by__tensor_columns(y);
    for (int64_t row = 0, rows = by__tensor_rows(y); row < rows; row++) {
        double sum = 0.0;
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
            sum += by__get(dy, i) * (logarithm ? 1.0 : by__get(y, i));
        }
        for (int64_t i = row * columns; i < (row + 1) * columns; i++) {
            double d = by__get(dy, i);
            double p = by__get(y, i);
            by__set(&call->out[0], i, logarithm ? d - exp(p) * sum : p * (d - sum));
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SOFTMAX_GRAD, softmax_grad, NULL, run_softmax_grad);

static bool counts(const by__device_call *call, int64_t row)
{
    int32_t target = by__id(&call->in[1], row);
    return target >= 0 && target < by__tensor_columns(&call->in[0]);
}

static by_status run_cross_entropy(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    double smoothing = (double)call->attrs.smoothing;
    double loss = 0.0;
    for (int64_t row = 0, rows = by__tensor_rows(x); row < rows; row++) {
        double lse = log_sum_exp(x, row);
        by__set(&call->out[1], row, lse);
        if (counts(call, row)) {
            double sum = 0.0;
            for (int64_t i = 0; i < columns; i++) {
                sum += by__get(x, row * columns + i);
            }
            double weight = call->input_count > 2 ? by__get(&call->in[2], row) : 1.0;
            double own = by__get(x, row * columns + by__id(&call->in[1], row));
            loss += weight * (lse - (1.0 - smoothing) * own - smoothing * sum / (double)columns);
        }
    }
    by__set(&call->out[0], 0, loss);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CROSS_ENTROPY, cross_entropy, NULL, run_cross_entropy);

static by_status run_cross_entropy_grad(const by__device_call *call,
                                        const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    double smoothing = (double)call->attrs.smoothing;
    double dloss = by__get(&call->in[3], 0);
    for (int64_t i = 0, count = by__tensor_count(x); i < count; i++) {
        int64_t row = i / columns;
        double hot = by__id(&call->in[1], row) == i % columns ? 1.0 - smoothing : 0.0;
        double p = exp(by__get(x, i) - by__get(&call->in[2], row));
        double slope = p - hot - smoothing / (double)columns;
        double weight = call->input_count > 4 ? by__get(&call->in[4], row) : 1.0;
        by__set(&call->out[0], i, counts(call, row) ? weight * slope * dloss : 0.0);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CROSS_ENTROPY_GRAD, cross_entropy_grad, NULL, run_cross_entropy_grad);

static double weight_of(const by__device_call *call, int64_t i)
{
    bool weighted = call->input_count > 2 && by__present(&call->in[2]);
    double weight = weighted ? by__get(&call->in[2], i / by__tensor_columns(&call->in[0])) : 1.0;
    return weighted && call->in[2].dtype == BY_I32 ? (weight >= 0.0 ? 1.0 : 0.0) : weight;
}

static by_status run_difference(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    double beta = (double)call->attrs.beta;
    double loss = 0.0;
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        double d = by__get(&call->in[0], i) - by__get(&call->in[1], i);
        double term = d * d;
        if (call->op == BY_OP_SMOOTH_L1) {
            term = fabs(d) < beta ? d * d / (2.0 * beta) : fabs(d) - beta / 2.0;
        }
        loss += weight_of(call, i) * term;
    }
    by__set(&call->out[0], 0, loss);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SQUARED_ERROR, squared_error, NULL, run_difference);
BY__REFERENCE_KERNEL(BY_OP_SMOOTH_L1, smooth_l1, NULL, run_difference);

static by_status run_difference_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    double beta = (double)call->attrs.beta;
    double dloss = by__get(&call->in[3], 0);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        double d = by__get(&call->in[0], i) - by__get(&call->in[1], i);
        double slope = 2.0 * d;
        if (call->op == BY_OP_SMOOTH_L1_GRAD) {
            slope = fabs(d) < beta ? d / beta : d > 0.0 ? 1.0 : d < 0.0 ? -1.0 : 0.0;
        }
        by__set(&call->out[0], i, weight_of(call, i) * slope * dloss);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SQUARED_ERROR_GRAD, squared_error_grad, NULL, run_difference_grad);
BY__REFERENCE_KERNEL(BY_OP_SMOOTH_L1_GRAD, smooth_l1_grad, NULL, run_difference_grad);
