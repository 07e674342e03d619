#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

static by_status run_layer_norm(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    for (int64_t row = 0, rows = by__tensor_rows(x); row < rows; row++) {
        int64_t at = row * columns;
        double mean = 0.0;
        for (int64_t i = 0; i < columns; i++) {
            mean += by__get(x, at + i) / (double)columns;
        }
        double variance = 0.0;
        for (int64_t i = 0; i < columns; i++) {
            double d = by__get(x, at + i) - mean;
            variance += d * d / (double)columns;
        }
        double rstd = 1.0 / sqrt(variance + (double)call->attrs.eps);
        for (int64_t i = 0; i < columns; i++) {
            double normal = (by__get(x, at + i) - mean) * rstd;
            by__set(&call->out[0], at + i,
                    normal * by__get(&call->in[1], i) + by__get(&call->in[2], i));
        }
        by__set(&call->out[1], row, mean);
        by__set(&call->out[2], row, rstd);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LAYER_NORM, layer_norm, NULL, run_layer_norm);

static by_status run_rms_norm(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    int64_t columns = by__tensor_columns(x);
    for (int64_t row = 0, rows = by__tensor_rows(x); row < rows; row++) {
        int64_t at = row * columns;
        double squares = 0.0;
        for (int64_t i = 0; i < columns; i++) {
            squares += by__get(x, at + i) * by__get(x, at + i) / (double)columns;
        }
        double rstd = 1.0 / sqrt(squares + (double)call->attrs.eps);
        for (int64_t i = 0; i < columns; i++) {
            by__set(&call->out[0], at + i, by__get(x, at + i) * rstd * by__get(&call->in[1], i));
        }
        by__set(&call->out[1], row, rstd);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_RMS_NORM, rms_norm, NULL, run_rms_norm);

static by_status prepare_norm_grad(by__device_call *call, const by__device_context *context,
                                   by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, 2 * by__tensor_columns(&call->in[0]), error);
}

/* With n the normalised row and g = dy * w:
 *   layer norm  dx = rstd (g - mean(g) - n mean(g n)),   dw = sum dy n,   db = sum dy
 *   RMS norm    dx = rstd (g - n mean(g n)),             dw = sum dy n */
static by_status run_norm_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    bool layer = call->op == BY_OP_LAYER_NORM_GRAD;
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *w = &call->in[1];
    const by__device_tensor *rstds = &call->in[layer ? 3 : 2];
    const by__device_tensor *dy = &call->in[layer ? 4 : 3];
    int add_index = layer ? 5 : 4;
    const by__device_tensor *add = call->input_count > add_index ? &call->in[add_index] : NULL;
    int64_t columns = by__tensor_columns(x);
    double *dw = call->work;
    double *db = dw + columns;
    memset(dw, 0, 2 * (size_t)columns * sizeof(double));
    for (int64_t row = 0, rows = by__tensor_rows(x); row < rows; row++) {
        int64_t at = row * columns;
        double mean = layer ? by__get(&call->in[2], row) : 0.0;
        double rstd = by__get(rstds, row);
        double mean_g = 0.0;
        double mean_gn = 0.0;
        for (int64_t i = 0; i < columns; i++) {
            double normal = (by__get(x, at + i) - mean) * rstd;
            double d = by__get(dy, at + i);
            dw[i] += d * normal;
            db[i] += d;
            mean_g += d * by__get(w, i) / (double)columns;
            mean_gn += d * by__get(w, i) * normal / (double)columns;
        }
        for (int64_t i = 0; i < columns; i++) {
            double normal = (by__get(x, at + i) - mean) * rstd;
            double g = by__get(dy, at + i) * by__get(w, i);
            double dx = rstd * (g - (layer ? mean_g : 0.0) - normal * mean_gn);
            double base = add != NULL && by__present(add) ? by__get(add, at + i) : 0.0;
            by__set(&call->out[0], at + i, dx + base);
        }
    }
    for (int64_t i = 0; i < columns; i++) {
        by__set(&call->out[1], i, dw[i]);
        if (layer) {
            by__set(&call->out[2], i, db[i]);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_LAYER_NORM_GRAD, layer_norm_grad, prepare_norm_grad, run_norm_grad);
BY__REFERENCE_KERNEL(BY_OP_RMS_NORM_GRAD, rms_norm_grad, prepare_norm_grad, run_norm_grad);
