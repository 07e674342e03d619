#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

/* The samples and groups of a call: a sample has `rows` rows of `channels` channels, `width` of
 * which are a group. */
typedef struct group_sizes {
    int64_t samples;
    int64_t rows;
    int64_t channels;
    int64_t groups;
    int64_t width;
} group_sizes;

static group_sizes sizes_of(const by__device_call *call)
{
    const by__device_tensor *x = &call->in[0];
    int64_t channels = by__tensor_columns(x);
    return (group_sizes){.samples = x->shape.dim[0],
                         .rows = by__tensor_rows(x) / x->shape.dim[0],
                         .channels = channels,
                         .groups = call->attrs.groups,
                         .width = channels / call->attrs.groups};
}

/* Runs `what` for each element of a group g of sample b; `at` is its place, c its channel. */
#define FOR_EACH_OF_GROUP(s, b, g, what)                                                           \
    for (int64_t row = 0; row < (s).rows; row++) {                                                 \
        for (int64_t c = (g) * (s).width; c < ((g) + 1) * (s).width; c++) {                        \
            int64_t at = ((b) * (s).rows + row) * (s).channels + c;                                \
            what;                                                                                  \
        }                                                                                          \
    }

static by_status run(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    group_sizes s = sizes_of(call);
    double count = (double)(s.rows * s.width);
    const by__device_tensor *x = &call->in[0];
    for (int64_t group = 0; group < s.samples * s.groups; group++) {
        int64_t b = group / s.groups;
        int64_t g = group % s.groups;
        double mean = 0.0;
        double variance = 0.0;
        FOR_EACH_OF_GROUP(s, b, g, mean += by__get(x, at) / count)
        FOR_EACH_OF_GROUP(s, b, g, double d = by__get(x, at) - mean; variance += d * d / count)
        double rstd = 1.0 / sqrt(variance + (double)call->attrs.eps);
        FOR_EACH_OF_GROUP(s, b, g,
                          by__set(&call->out[0], at,
                                  (by__get(x, at) - mean) * rstd * by__get(&call->in[1], c) +
                                      by__get(&call->in[2], c)))
        by__set(&call->out[1], group, mean);
        by__set(&call->out[2], group, rstd);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GROUP_NORM, group_norm, NULL, run);

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, 2 * by__tensor_columns(&call->in[0]), error);
}

/* With n the normalized entry and g = w dy:
 *   dx = rstd (g - mean(g) - n mean(g n)),   dw = sum dy n,   db = sum dy */
static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    group_sizes s = sizes_of(call);
    double count = (double)(s.rows * s.width);
    double *dw = call->work;
    double *db = dw + s.channels;
    const by__device_tensor *x = &call->in[0];
    const by__device_tensor *dy = &call->in[4];
    memset(dw, 0, 2 * (size_t)s.channels * sizeof *dw);
    for (int64_t group = 0; group < s.samples * s.groups; group++) {
        int64_t b = group / s.groups;
        int64_t g = group % s.groups;
        double mean = by__get(&call->in[2], group);
        double rstd = by__get(&call->in[3], group);
        double sum = 0.0;
        double scaled = 0.0;
        FOR_EACH_OF_GROUP(s, b, g, double n = (by__get(x, at) - mean) * rstd;
                          double d = by__get(dy, at); double w = by__get(&call->in[1], c);
                          dw[c] += d * n; db[c] += d; sum += w * d / count;
                          scaled += w * d * n / count)
        FOR_EACH_OF_GROUP(s, b, g, double n = (by__get(x, at) - mean) * rstd;
                          double wd = by__get(dy, at) * by__get(&call->in[1], c);
                          by__set(&call->out[0], at, rstd * (wd - sum - n * scaled)))
    }
    for (int64_t c = 0; c < s.channels; c++) {
        by__set(&call->out[1], c, dw[c]);
        by__set(&call->out[2], c, db[c]);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_GROUP_NORM_GRAD, group_norm_grad, prepare_grad, run_grad);
