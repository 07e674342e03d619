#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

/* The rectifier of a call, or x itself. */
static double rectified(const by__device_call *call, double x)
{
    double least = call->attrs.rectify && x < 0.0 ? 0.0 : x;
    double most = (double)call->attrs.clip;
    return most > 0.0 && least > most ? most : least;
}

static by_status run(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *add = call->input_count > 3 ? &call->in[3] : NULL;
    int64_t columns = by__tensor_columns(x);
    int64_t rows = by__tensor_rows(x);
    for (int64_t i = 0; i < columns; i++) {
        double mean = 0.0;
        double variance = 0.0;
        for (int64_t row = 0; row < rows; row++) {
            mean += by__get(x, row * columns + i) / (double)rows;
        }
        for (int64_t row = 0; row < rows; row++) {
            double d = by__get(x, row * columns + i) - mean;
            variance += d * d / (double)rows;
        }
        double rstd = 1.0 / sqrt(variance + (double)call->attrs.eps);
        double w = by__get(&call->in[1], i);
        double b = by__get(&call->in[2], i);
        for (int64_t row = 0; row < rows; row++) {
            int64_t at = row * columns + i;
            double y = (by__get(x, at) - mean) * rstd * w + b;
            y += add != NULL && by__present(add) ? by__get(add, at) : 0.0;
            by__set(&call->out[0], at, rectified(call, y));
        }
        by__set(&call->out[1], i, mean);
        by__set(&call->out[2], i, variance);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_BATCH_NORM, batch_norm, NULL, run);

static by_status run_affine(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *add = call->input_count > 3 ? &call->in[3] : NULL;
    int64_t columns = by__tensor_columns(x);
    for (int64_t at = 0; at < by__tensor_count(x); at++) {
        double y = by__get(x, at) * by__get(&call->in[1], at % columns);
        y += by__get(&call->in[2], at % columns);
        y += add != NULL && by__present(add) ? by__get(add, at) : 0.0;
        by__set(&call->out[0], at, rectified(call, y));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_AFFINE, affine, NULL, run_affine);

/* With n the normalized channel and g the part of dy that the rectifier lets through:
 *   dx = w rstd (g - mean(g) - n mean(g n)),   dw = sum g n,   db = sum g */
static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *dy = &call->in[5];
    int64_t columns = by__tensor_columns(x);
    int64_t rows = by__tensor_rows(x);
    for (int64_t i = 0; i < columns; i++) {
        double w = by__get(&call->in[1], i);
        double b = by__get(&call->in[2], i);
        double mean = by__get(&call->in[3], i);
        double rstd = 1.0 / sqrt(by__get(&call->in[4], i) + (double)call->attrs.eps);
        double sum_g = 0.0;
        double sum_gn = 0.0;
#define FOR_EACH_ROW(what)                                                                         \
    for (int64_t row = 0; row < rows; row++) {                                                     \
        int64_t at = row * columns + i;                                                            \
        double normal = (by__get(x, at) - mean) * rstd;                                            \
        double z = normal * w + b;                                                                 \
        bool passes = !call->attrs.rectify || (z > 0.0 && rectified(call, z) == z);                \
        double g = passes ? by__get(dy, at) : 0.0;                                                 \
        what;                                                                                      \
    }
        FOR_EACH_ROW(sum_g += g; sum_gn += g * normal)
        FOR_EACH_ROW(
            by__set(&call->out[0], at, w * rstd * (g - (sum_g + normal * sum_gn) / (double)rows)))
#undef FOR_EACH_ROW
        by__set(&call->out[1], i, sum_gn);
        by__set(&call->out[2], i, sum_g);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_BATCH_NORM_GRAD, batch_norm_grad, NULL, run_grad);
