#include <math.h>

#include "device/cpu/dynamic_codes.h"
#include "device/cpu/reference.h"

static by_status run_sum_squares(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t count = by__tensor_count(&call->in[0]);
    for (int64_t block = 0; block < by__tensor_count(&call->out[0]); block++) {
        double sum = 0.0;
        int64_t end = by__min_i64(count, (block + 1) * BY_SUM_BLOCK);
        for (int64_t i = block * BY_SUM_BLOCK; i < end; i++) {
            sum += by__get(&call->in[0], i) * by__get(&call->in[0], i);
        }
        by__set(&call->out[0], block, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SUM_SQUARES, sum_squares, NULL, run_sum_squares);

static by_status run_measure(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *y =
        call->input_count > 1 && by__present(&call->in[1]) ? &call->in[1] : NULL;
    int64_t count = by__tensor_count(x);
    for (int64_t begin = 0; begin < count; begin += BY_SUM_BLOCK) {
        double m[BY_MEASURES] = {0.0};
        int64_t end = by__min_i64(count, begin + BY_SUM_BLOCK);
        for (int64_t i = begin; i < end; i++) {
            double value = by__get(x, i);
            double apart = y == NULL ? 0.0 : value - by__get(y, i);
            m[BY_MEASURE_SUM] += value;
            m[BY_MEASURE_SQUARES] += value * value;
            m[BY_MEASURE_ZEROS] += value == 0.0 ? 1.0 : 0.0;
            m[BY_MEASURE_LARGEST] = fmax(m[BY_MEASURE_LARGEST], fabs(value));
            m[BY_MEASURE_APART] += apart * apart;
            m[BY_MEASURE_NONFINITE] += isfinite(value) ? 0.0 : 1.0;
        }
        for (int k = 0; k < BY_MEASURES; k++) {
            by__set(&call->out[0], begin / BY_SUM_BLOCK * BY_MEASURES + k, m[k]);
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_MEASURE, measure, NULL, run_measure);

static by_status run_clip_scale(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    double sum = 0.0;
    bool finite = true;
    for (int k = 1; k < call->input_count; k++) {
        if (k == 2) {
            continue;
        }
        int64_t count = by__present(&call->in[k]) ? by__tensor_count(&call->in[k]) : 0;
        for (int64_t i = 0; i < count; i++) {
            finite = finite && isfinite(by__get(&call->in[k], i));
            sum += k >= 3 ? by__get(&call->in[k], i) : 0.0;
        }
    }
    double factor = by__present(&call->in[2]) ? by__get(&call->in[2], 0) : 1.0;
    double norm = sqrt(sum) / factor;
    double scale = call->attrs.clip == 0.0f ? 1.0 : (double)call->attrs.clip / (norm + 1e-6);
    if (!finite) {
        by__set(&call->in[0], 0, 1.0);
    }
    by__set(&call->out[0], 0, norm);
    by__set(&call->out[1], 0,
            by__get(&call->in[0], 0) != 0.0 ? (double)NAN : (scale > 1.0 ? 1.0 : scale) / factor);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CLIP_SCALE, clip_scale, NULL, run_clip_scale);

/* Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019, algorithm 2. */
static by_status run_adamw(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *p = &call->in[0];
    const by__device_tensor *m = &call->in[2];
    const by__device_tensor *v = &call->in[3];
    const by__device_tensor *hyper = &call->in[4];
    double beta1 = (double)call->attrs.beta1;
    double beta2 = (double)call->attrs.beta2;
    double rate =
        by__get(hyper, 0) * (call->attrs.lr_scale == 0.0f ? 1.0 : (double)call->attrs.lr_scale);
    double scale = by__get(&call->in[5], 0);
    if (!isfinite(scale)) {
        return BY_OK;
    }
    for (int64_t i = 0, count = by__tensor_count(p); i < count; i++) {
        double g = by__get(&call->in[1], i) * scale;
        double first = beta1 * by__get(m, i) + (1.0 - beta1) * g;
        double second = beta2 * by__get(v, i) + (1.0 - beta2) * g * g;
        double decayed = by__get(p, i) * (1.0 - rate * (double)call->attrs.decay);
        double step = first / by__get(hyper, 1) /
                      (sqrt(second / by__get(hyper, 2)) + (double)call->attrs.eps);
        by__set(p, i, decayed - rate * step);
        by__set(m, i, first);
        by__set(v, i, second);
        if (call->output_count > 0 && by__present(&call->out[0])) {
            by__set(&call->out[0], i, by__get(p, i));
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ADAMW, adamw, NULL, run_adamw);

/* The number of the nearest code. */
static int nearest_code(const float values[BY__CODES], double x)
{
    int best = 0;
    for (int c = 1; c < BY__CODES; c++) {
        if (fabs((double)values[c] - x) < fabs((double)values[best] - x)) {
            best = c;
        }
    }
    return best;
}

/* Moment `index` of elements first .. last - 1 of a block becomes `moments`. */
static void encode_block(const by__device_call *call, int index, int64_t block, int64_t first,
                         int64_t last, const double *moments)
{
    float values[BY__CODES];
    double scale = 0.0;
    by__dynamic_values(values, index == 0);
    for (int64_t i = first; i < last; i++) {
        scale = fmax(scale, fabs(moments[i - first]));
    }
    for (int64_t i = first; i < last; i++) {
        double x = scale > 0.0 ? moments[i - first] / scale : 0.0;
        by__set(&call->in[2 + index], i, nearest_code(values, x));
    }
    by__set(&call->in[4 + index], block, scale);
}

/* Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022, section 2. */
static by_status run_adamw8(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    float values[2][BY__CODES];
    double beta[2] = {(double)call->attrs.beta1, (double)call->attrs.beta2};
    double rate = by__get(&call->in[6], 0) *
                  (call->attrs.lr_scale == 0.0f ? 1.0 : (double)call->attrs.lr_scale);
    double scale = by__get(&call->in[7], 0);
    int64_t count = by__tensor_count(&call->in[0]);
    by__dynamic_values(values[0], true);
    by__dynamic_values(values[1], false);
    for (int64_t block = 0; isfinite(scale) && block * BY_CODE_BLOCK < count; block++) {
        double moments[2][BY_CODE_BLOCK];
        int64_t first = block * BY_CODE_BLOCK;
        int64_t last = by__min_i64(count, first + BY_CODE_BLOCK);
        for (int64_t i = first; i < last; i++) {
            double g = by__get(&call->in[1], i) * scale;
            for (int k = 0; k < 2; k++) {
                int code = (int)by__get(&call->in[2 + k], i);
                double old = (double)values[k][code] * by__get(&call->in[4 + k], block);
                moments[k][i - first] = beta[k] * old + (1.0 - beta[k]) * (k == 0 ? g : g * g);
            }
            double step =
                moments[0][i - first] / by__get(&call->in[6], 1) /
                (sqrt(moments[1][i - first] / by__get(&call->in[6], 2)) + (double)call->attrs.eps);
            double decayed = by__get(&call->in[0], i) * (1.0 - rate * (double)call->attrs.decay);
            by__set(&call->in[0], i, decayed - rate * step);
            if (call->output_count > 0 && by__present(&call->out[0])) {
                by__set(&call->out[0], i, by__get(&call->in[0], i));
            }
        }
        encode_block(call, 0, block, first, last, moments[0]);
        encode_block(call, 1, block, first, last, moments[1]);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_ADAMW8, adamw8, NULL, run_adamw8);
