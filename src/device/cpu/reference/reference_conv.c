#include "device/cpu/reference.h"

/* A convolution as its definition has it: `large` is its operand, `small` its result. */
typedef struct conv_sizes {
    const by__device_tensor *large, *small;
    int64_t channels, outputs; /* of a group */
    int64_t size[2];
} conv_sizes;

static conv_sizes sizes_of(const by__device_call *call, const by__device_tensor *large,
                           const by__device_tensor *small, const by__device_tensor *w)
{
    return (conv_sizes){.large = large,
                        .small = small,
                        .channels = large->shape.dim[3] / call->attrs.groups,
                        .outputs = small->shape.dim[3] / call->attrs.groups,
                        .size = {w->shape.dim[2], w->shape.dim[3]}};
}

/* The pixel of entry (r, s) of the window at (i, j) of image b; -1: outside. */
static int64_t pixel_of(const by__device_call *call, const conv_sizes *c, int64_t b, int64_t i,
                        int64_t j, int64_t r, int64_t s)
{
    const by_window *w = &call->attrs.sliding;
    const int64_t *dim = c->large->shape.dim;
    int64_t h = i * w->stride[0] + r * w->dilation[0] - w->before[0];
    int64_t v = j * w->stride[1] + s * w->dilation[1] - w->before[1];
    return h < 0 || v < 0 || h >= dim[1] || v >= dim[2] ? -1 : (b * dim[1] + h) * dim[2] + v;
}

/* The number of pixels of an image. */
static int64_t count_pixels(const by__device_tensor *image)
{
    return image->shape.dim[0] * image->shape.dim[1] * image->shape.dim[2];
}

/* bias + add of element i. */
static double additions(const by__device_call *call, int64_t i)
{
    double sum = 0.0;
    if (call->input_count > 2 && by__present(&call->in[2])) {
        sum += by__get(&call->in[2], i % call->out[0].shape.dim[3]);
    }
    if (call->input_count > 3 && by__present(&call->in[3])) {
        sum += by__get(&call->in[3], i);
    }
    return sum;
}

static double dot(const by__device_call *call, const conv_sizes *c, int64_t p, int64_t o)
{
    const int64_t *dim = c->small->shape.dim;
    double sum = 0.0;
    for (int64_t r = 0; r < c->size[0]; r++) {
        for (int64_t s = 0; s < c->size[1]; s++) {
            int64_t at =
                pixel_of(call, c, p / dim[2] / dim[1], p / dim[2] % dim[1], p % dim[2], r, s);
            for (int64_t k = 0; k < c->channels && at >= 0; k++) {
                int64_t w = ((o * c->channels + k) * c->size[0] + r) * c->size[1] + s;
                int64_t x = at * c->large->shape.dim[3] + o / c->outputs * c->channels + k;
                sum += by__get(&call->in[0], x) * by__get(&call->in[1], w);
            }
        }
    }
    return sum;
}

static by_status run_conv(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *y = &call->out[0];
    conv_sizes c = sizes_of(call, &call->in[0], y, &call->in[1]);
    int64_t outputs = y->shape.dim[3];
    for (int64_t i = 0; i < by__tensor_count(y); i++) {
        by__set(y, i, dot(call, &c, i / outputs, i % outputs) + additions(call, i));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CONV, conv, NULL, run_conv);

static by_status prepare_transposed(by__device_call *call, const by__device_context *context,
                                    by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_count(&call->out[0]), error);
}

/* Adds what element (p, o) of the operand gives to the sums of the result. */
static void spread(const by__device_call *call, const conv_sizes *c, int64_t p, int64_t o)
{
    const int64_t *dim = c->small->shape.dim;
    double *sums = call->work;
    double x = by__get(&call->in[0], p * dim[3] + o);
    for (int64_t r = 0; r < c->size[0]; r++) {
        for (int64_t s = 0; s < c->size[1]; s++) {
            int64_t at =
                pixel_of(call, c, p / dim[2] / dim[1], p / dim[2] % dim[1], p % dim[2], r, s);
            for (int64_t k = 0; k < c->channels && at >= 0; k++) {
                int64_t w = ((o * c->channels + k) * c->size[0] + r) * c->size[1] + s;
                int64_t y = at * c->large->shape.dim[3] + o / c->outputs * c->channels + k;
                sums[y] += x * by__get(&call->in[1], w);
            }
        }
    }
}

static by_status run_transposed(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *y = &call->out[0];
    conv_sizes c = sizes_of(call, y, &call->in[0], &call->in[1]);
    double *sums = call->work;
    int64_t outputs = call->in[0].shape.dim[3];
    for (int64_t i = 0; i < by__tensor_count(y); i++) {
        sums[i] = additions(call, i);
    }
    for (int64_t i = 0; i < by__tensor_count(&call->in[0]); i++) {
        spread(call, &c, i / outputs, i % outputs);
    }
    for (int64_t i = 0; i < by__tensor_count(y); i++) {
        by__set(y, i, sums[i]);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CONV_TRANSPOSED, conv_transposed, prepare_transposed, run_transposed);

static by_status run_weight_grad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by__device_tensor *dw = &call->out[0];
    conv_sizes c = sizes_of(call, &call->in[0], &call->in[1], dw);
    const int64_t *dim = c.small->shape.dim;
    for (int64_t i = 0; i < by__tensor_count(dw); i++) {
        int64_t s = i % c.size[1];
        int64_t r = i / c.size[1] % c.size[0];
        int64_t k = i / c.size[1] / c.size[0] % c.channels;
        int64_t o = i / c.size[1] / c.size[0] / c.channels;
        double sum = 0.0;
        for (int64_t p = 0; p < count_pixels(c.small); p++) {
            int64_t at =
                pixel_of(call, &c, p / dim[2] / dim[1], p / dim[2] % dim[1], p % dim[2], r, s);
            int64_t x = at * c.large->shape.dim[3] + o / c.outputs * c.channels + k;
            sum += at < 0 ? 0.0 : by__get(&call->in[0], x) * by__get(&call->in[1], p * dim[3] + o);
        }
        by__set(dw, i, sum);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CONV_WEIGHT_GRAD, conv_weight_grad, NULL, run_weight_grad);
