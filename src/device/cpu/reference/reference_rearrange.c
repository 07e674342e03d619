#include "device/cpu/reference.h"

static by_status run_fill(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->out[0]); i < count; i++) {
        by__set(&call->out[0], i, (double)call->attrs.value);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_FILL, fill, NULL, run_fill);

static by_status run_reshape(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->in[0]); i < count; i++) {
        by__set(&call->out[0], i, by__get(&call->in[0], i));
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_RESHAPE, reshape, NULL, run_reshape);

/* Element i of y is the element of x at the sum of y's indices times these strides. */
static void gather(const by__device_call *call, const int64_t stride[BY_MAX_RANK])
{
    const by_shape *y = &call->out[0].shape;
    for (int64_t i = 0, count = by_shape_count(y); i < count; i++) {
        int64_t from = 0;
        int64_t rest = i;
        for (int axis = y->rank - 1; axis >= 0; axis--) {
            from += rest % y->dim[axis] * stride[axis];
            rest /= y->dim[axis];
        }
        by__set(&call->out[0], i, by__get(&call->in[0], from));
    }
}

static int64_t stride_of(const by_shape *shape, int64_t axis)
{
    int64_t stride = 1;
    for (int64_t i = axis + 1; i < shape->rank; i++) {
        stride *= shape->dim[i];
    }
    return stride;
}

static by_status run_permute(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t stride[BY_MAX_RANK] = {0};
    for (int i = 0; i < call->out[0].shape.rank; i++) {
        stride[i] = stride_of(&call->in[0].shape, call->attrs.order[i]);
    }
    gather(call, stride);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PERMUTE, permute, NULL, run_permute);

static by_status run_expand(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t stride[BY_MAX_RANK] = {0};
    int missing = call->out[0].shape.rank - call->in[0].shape.rank;
    for (int i = 0; i < call->in[0].shape.rank; i++) {
        stride[missing + i] = call->in[0].shape.dim[i] == 1 ? 0 : stride_of(&call->in[0].shape, i);
    }
    gather(call, stride);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_EXPAND, expand, NULL, run_expand);

/* Copies entries of an axis of x to those from `to` on of y, within the bounds of both. */
static void move(const by__device_tensor *y, int64_t to, const by__device_tensor *x, int64_t from,
                 int64_t axis)
{
    int64_t inner = stride_of(&x->shape, axis);
    int64_t have = x->shape.dim[axis];
    int64_t extent = y->shape.dim[axis];
    int64_t outer = by__tensor_count(x) / (have * inner);
    for (int64_t i = 0; i < outer * have * inner; i++) {
        int64_t at = i / inner % have - from;
        if (at >= 0 && at + to < extent) {
            by__set(y, (i / inner / have * extent + at + to) * inner + i % inner, by__get(x, i));
        }
    }
}

static by_status run_slice(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    move(&call->out[0], 0, &call->in[0], call->attrs.begin, call->attrs.axis);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SLICE, slice, NULL, run_slice);

static by_status run_pad(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    for (int64_t i = 0, count = by__tensor_count(&call->out[0]); i < count; i++) {
        by__set(&call->out[0], i, 0.0);
    }
    move(&call->out[0], call->attrs.begin, &call->in[0], 0, call->attrs.axis);
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_PAD, pad, NULL, run_pad);

static by_status run_concat(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    int64_t begin = 0;
    for (int i = 0; i < call->input_count; i++) {
        move(&call->out[0], begin, &call->in[i], 0, call->attrs.axis);
        begin += call->in[i].shape.dim[call->attrs.axis];
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_CONCAT, concat, NULL, run_concat);

static by_status prepare_sum(by__device_call *call, const by__device_context *context,
                             by_error *error)
{
    BY_UNUSED(context);
    return by__reference_work(call, by__tensor_count(&call->out[0]), error);
}

static by_status run_sum(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by_shape *x = &call->in[0].shape;
    double *sums = call->work;
    int64_t count = by_shape_count(x);
    int64_t results = by__tensor_count(&call->out[0]);
    for (int64_t i = 0; i < results; i++) {
        sums[i] = 0.0;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t to = 0;
        for (int axis = 0; axis < x->rank; axis++) {
            if ((call->attrs.axes >> axis & 1u) == 0) {
                to = to * x->dim[axis] + i / stride_of(x, axis) % x->dim[axis];
            }
        }
        sums[to] += by__get(&call->in[0], i);
    }
    int64_t summed = count / results; /* elements per sum */
    double terms = call->attrs.mean ? (double)summed : 1.0;
    for (int64_t i = 0; i < results; i++) {
        by__set(&call->out[0], i, sums[i] / terms);
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_SUM, sum, prepare_sum, run_sum);
