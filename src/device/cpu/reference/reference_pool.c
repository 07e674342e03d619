#include <math.h>
#include <string.h>

#include "device/cpu/reference.h"

/* Images in memory: the extents of x and y. */
typedef struct pool_sizes {
    int64_t x[2];
    int64_t y[2];
    int64_t batch;
    int64_t channels;
} pool_sizes;

static pool_sizes sizes_of(const by_shape *x, const by_shape *y)
{
    return (pool_sizes){.x = {x->dim[1], x->dim[2]},
                        .y = {y->dim[1], y->dim[2]},
                        .batch = x->dim[0],
                        .channels = x->dim[3]};
}

/* The place of entry (h, w) of the window of y's entry (row, column), -1 if it is padding. */
static int64_t place(const by_attrs *a, const pool_sizes *s, int64_t b, int64_t row, int64_t column,
                     int64_t h, int64_t w, int64_t channel)
{
    int64_t y = row * a->sliding.stride[0] - a->sliding.before[0] + h;
    int64_t x = column * a->sliding.stride[1] - a->sliding.before[1] + w;
    bool inside = y >= 0 && y < s->x[0] && x >= 0 && x < s->x[1];
    return inside ? ((b * s->x[0] + y) * s->x[1] + x) * s->channels + channel : -1;
}

/* What a window is pooled to; *best is the place of the first of its largest entries, *count the
 * number of its entries that a mean counts. */
static double pooled(const by__device_call *call, const pool_sizes *s, const by__device_tensor *x,
                     int64_t b, int64_t row, int64_t column, int64_t channel, int64_t *best,
                     int64_t *count)
{
    const by_window *window = &call->attrs.sliding;
    double most = -INFINITY;
    double sum = 0.0;
    *best = -1;
    *count = 0;
    for (int64_t h = 0; h < window->size[0]; h++) {
        for (int64_t w = 0; w < window->size[1]; w++) {
            int64_t at = place(&call->attrs, s, b, row, column, h, w, channel);
            double v = at < 0 || x == NULL ? 0.0 : by__get(x, at);
            *count += at >= 0 || call->attrs.keep;
            sum += v;
            if (at >= 0 && (*best < 0 || v > most || isnan(v))) {
                most = v;
                *best = at;
            }
        }
    }
    return call->attrs.mean ? sum / (double)*count : most;
}

#define FOR_EACH_OUTPUT(s)                                                                         \
    for (int64_t b = 0; b < (s).batch; b++)                                                        \
        for (int64_t row = 0; row < (s).y[0]; row++)                                               \
            for (int64_t column = 0; column < (s).y[1]; column++)                                  \
                for (int64_t c = 0; c < (s).channels; c++)

static by_status run(const by__device_call *call, const by__device_context *context)
{
    int64_t best;
    int64_t count;
    int64_t at = 0;
    pool_sizes s = sizes_of(&call->in[0].shape, &call->out[0].shape);
    BY_UNUSED(context);
    FOR_EACH_OUTPUT(s)
    {
        by__set(&call->out[0], at++,
                pooled(call, &s, &call->in[0], b, row, column, c, &best, &count));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_POOL, pool, NULL, run);

static by_status prepare_grad(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_count(&call->out[0]), error);
}

static by_status run_grad(const by__device_call *call, const by__device_context *context)
{
    int64_t best;
    int64_t count;
    int64_t at = 0;
    double *dx = call->work;
    bool mean = call->attrs.mean;
    pool_sizes s = sizes_of(&call->out[0].shape, &call->in[1].shape);
    BY_UNUSED(context);
    memset(dx, 0, (size_t)by__tensor_count(&call->out[0]) * sizeof *dx);
    FOR_EACH_OUTPUT(s)
    {
        double dy = by__get(&call->in[1], at++);
        (void)pooled(call, &s, mean ? NULL : &call->in[0], b, row, column, c, &best, &count);
        for (int64_t h = 0; h < call->attrs.sliding.size[0]; h++) {
            for (int64_t w = 0; w < call->attrs.sliding.size[1]; w++) {
                int64_t to = place(&call->attrs, &s, b, row, column, h, w, c);
                if (to >= 0) {
                    dx[to] += mean ? dy / (double)count : to == best ? dy : 0.0;
                }
            }
        }
    }
    for (int64_t i = 0; i < by__tensor_count(&call->out[0]); i++) {
        by__set(&call->out[0], i, dx[i]);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_POOL_GRAD, pool_grad, prepare_grad, run_grad);
