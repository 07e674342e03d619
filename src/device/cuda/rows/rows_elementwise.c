/* Ops of one element each, and moves of elements. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/cuda/launch.h"

/* The kernels have the numbers of dtypes, functions and binary ops. */
_Static_assert(BY_F32 == 0 && BY_BF16 == 1 && BY_F16 == 2 && BY_I32 == 3, "prelude.cuh");
_Static_assert(BY_FN_GELU == 0 && BY_FN_LOG_ABS == 9 && BY_FN_COUNT == 10, "functions.cuh");
_Static_assert(BY_MAX_RANK == BY__CUDA_RANK, "kernels.h");

static bool is_act(const by__device_tensor *tensor)
{
    return by_dtype_is_float(tensor->dtype);
}

static bool supports_first(const by__device_call *call)
{
    return is_act(&call->in[0]);
}

static bool supports_out(const by__device_call *call)
{
    return is_act(&call->out[0]);
}

static by_status run_fill(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->out[0]);
    by__cuda_fill_args args = {call->out[0].data, count, (int32_t)call->out[0].dtype,
                               call->attrs.value};
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_fill, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_FILL, fill, supports_out, NULL, NULL, run_fill);

static bool supports_cast(const by__device_call *call)
{
    return is_act(&call->in[0]) && is_act(&call->out[0]);
}

static by_status run_cast(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cuda_cast_args args = {call->in[0].data, call->out[0].data, count,
                               (int32_t)call->in[0].dtype, (int32_t)call->out[0].dtype};
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_cast, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_CAST, cast, supports_cast, NULL, NULL, run_cast);

static by_status run_offset_ids(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cuda_offset_ids_args args = {call->in[0].data, call->out[0].data, count, call->attrs.begin};
    return by__cuda_over_each(context, BY__CUDA_KERNEL_offset_ids, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_OFFSET_IDS, offset_ids, NULL, NULL, NULL, run_offset_ids);

/* ---- two operands ---- */

/* The period with which an operand repeats in y: it is all of y's last axes, behind axes of extent
 * 1. 0: it repeats otherwise. */
static int64_t period_of(const by_shape *operand, const by_shape *whole)
{
    int64_t period = by_shape_count(operand);
    int64_t last = 1;
    for (int k = 1; k <= whole->rank && last < period; k++) {
        int64_t extent = k <= operand->rank ? operand->dim[operand->rank - k] : 1;
        if (extent != whole->dim[whole->rank - k]) {
            return 0;
        }
        last *= extent;
    }
    return period;
}

/* The steps of an operand along the axes of y. */
static void broadcast_strides(int64_t stride[BY_MAX_RANK], const by_shape *operand,
                              const by_shape *whole)
{
    int64_t step = 1;
    for (int k = 1; k <= whole->rank; k++) {
        int64_t extent = k <= operand->rank ? operand->dim[operand->rank - k] : 1;
        stride[whole->rank - k] = extent == 1 ? 0 : step;
        step *= extent;
    }
}

static bool supports_binary(const by__device_call *call)
{
    return is_act(&call->in[0]) && is_act(&call->in[1]);
}

static by_status run_binary(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *a = &call->in[0];
    const by__device_tensor *b = &call->in[1];
    const by_shape *y = &call->out[0].shape;
    int32_t op = call->op == BY_OP_ADD   ? BY__CUDA_ADD
                 : call->op == BY_OP_SUB ? BY__CUDA_SUB
                                         : BY__CUDA_MUL;
    int64_t count = by_shape_count(y);
    int64_t a_period = period_of(&a->shape, y);
    int64_t b_period = period_of(&b->shape, y);
    if (a_period > 0 && b_period > 0) {
        by__cuda_binary_args args = {a->data, b->data,           call->out[0].data,
                                     count,   a_period,          b_period,
                                     op,      (int32_t)a->dtype, (int32_t)b->dtype};
        return by__cuda_over_elements(context, BY__CUDA_KERNEL_binary, count, &args);
    }
    by__cuda_broadcast_args args = {
        a->data, b->data,           call->out[0].data, count,  {0}, {0}, {0},
        op,      (int32_t)a->dtype, (int32_t)b->dtype, y->rank};
    memcpy(args.extent, y->dim, sizeof args.extent);
    broadcast_strides(args.a_stride, &a->shape, y);
    broadcast_strides(args.b_stride, &b->shape, y);
    return by__cuda_over_each(context, BY__CUDA_KERNEL_broadcast, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_ADD, add, supports_binary, NULL, NULL, run_binary);
BY__CUDA_ROW_KERNEL(BY_OP_SUB, sub, supports_binary, NULL, NULL, run_binary);
BY__CUDA_ROW_KERNEL(BY_OP_MUL, mul, supports_binary, NULL, NULL, run_binary);

static by_status run_scale(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cuda_scale_args args = {call->in[0].data, call->in[1].data, call->out[0].data, count,
                                (int32_t)call->in[0].dtype};
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_scale, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SCALE, scale, supports_first, NULL, NULL, run_scale);

/* ---- functions ---- */

static by_status run_unary(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    bool gradient = call->op == BY_OP_UNARY_GRAD;
    by__cuda_unary_args args = {call->in[0].data,
                                gradient ? call->in[1].data : NULL,
                                call->out[0].data,
                                count,
                                (int32_t)call->attrs.function,
                                (int32_t)call->in[0].dtype};
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_unary, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_UNARY, unary, supports_first, NULL, NULL, run_unary);
BY__CUDA_ROW_KERNEL(BY_OP_UNARY_GRAD, unary_grad, supports_first, NULL, NULL, run_unary);

static by_status run_swiglu(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    bool gradient = call->op == BY_OP_SWIGLU_GRAD;
    by__cuda_swiglu_args args = {
        .gate = call->in[0].data,
        .up = call->in[1].data,
        .dy = gradient ? call->in[2].data : NULL,
        .y = gradient ? NULL : call->out[0].data,
        .dgate = gradient ? call->out[0].data : NULL,
        .dup = gradient ? call->out[1].data : NULL,
        .count = count,
        .dtype = (int32_t)call->in[0].dtype,
    };
    return by__cuda_over_elements(context, BY__CUDA_KERNEL_swiglu, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_SWIGLU, swiglu, supports_first, NULL, NULL, run_swiglu);
BY__CUDA_ROW_KERNEL(BY_OP_SWIGLU_GRAD, swiglu_grad, supports_first, NULL, NULL, run_swiglu);

static by_status run_dropout(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t count = by__tensor_count(x);
    int64_t samples = x->shape.rank == 0 ? 1 : x->shape.dim[0];
    int64_t size = samples == 0 ? 0 : count / samples;
    by__cuda_dropout_args args = {
        .x = x->data,
        .rng = call->in[1].data,
        .y = call->out[0].data,
        .count = count,
        .size = size,
        .begin = call->attrs.begin,
        .turn = call->attrs.turn,
        .gap = call->attrs.gap,
        .stream = call->attrs.stream,
        .first_sample = (uint32_t)call->attrs.rows,
        .threshold = (uint32_t)ceilf(call->attrs.p * 16777216.0f),
        .scale = 1.0f / (1.0f - call->attrs.p),
        .dtype = (int32_t)x->dtype,
        .each = size % 8 == 0 ? 8 : 1,
    };
    return args.each == 8 ? by__cuda_over_elements(context, BY__CUDA_KERNEL_dropout, count, &args)
                          : by__cuda_over_each(context, BY__CUDA_KERNEL_dropout, count, &args);
}

BY__CUDA_ROW_KERNEL(BY_OP_DROPOUT, dropout, supports_first, NULL, NULL, run_dropout);

/* ---- moves ---- */

static bool supports_moves(const by__device_call *call)
{
    size_t bytes = by_dtype_size(call->out[0].dtype);
    return bytes == 1 || bytes == 2 || bytes == 4;
}

static int64_t stride_of(const by_shape *shape, int64_t axis)
{
    int64_t stride = 1;
    for (int64_t i = axis + 1; i < shape->rank; i++) {
        stride *= shape->dim[i];
    }
    return stride;
}

/* Element i of y is that of x at the sum of i's indices times the strides. */
static by_status gather(const by__device_call *call, const by__device_context *context,
                        const int64_t stride[BY_MAX_RANK])
{
    const by_shape *y = &call->out[0].shape;
    int64_t count = by_shape_count(y);
    by__cuda_gather_args args = {
        .x = call->in[0].data,
        .y = call->out[0].data,
        .count = count,
        .rank = y->rank,
        .bytes = (int32_t)by_dtype_size(call->out[0].dtype),
    };
    memcpy(args.extent, y->dim, sizeof args.extent);
    memcpy(args.stride, stride, sizeof args.stride);
    return by__cuda_over_each(context, BY__CUDA_KERNEL_gather, count, &args);
}

static by_status run_permute(const by__device_call *call, const by__device_context *context)
{
    int64_t stride[BY_MAX_RANK] = {0};
    for (int i = 0; i < call->out[0].shape.rank; i++) {
        stride[i] = stride_of(&call->in[0].shape, call->attrs.order[i]);
    }
    return gather(call, context, stride);
}

static by_status run_expand(const by__device_call *call, const by__device_context *context)
{
    int64_t stride[BY_MAX_RANK] = {0};
    broadcast_strides(stride, &call->in[0].shape, &call->out[0].shape);
    return gather(call, context, stride);
}

BY__CUDA_ROW_KERNEL(BY_OP_PERMUTE, permute, supports_moves, NULL, NULL, run_permute);
BY__CUDA_ROW_KERNEL(BY_OP_EXPAND, expand, supports_moves, NULL, NULL, run_expand);

/* Copies `rows` entries of an axis of x from `from` on to those of y from `to` on; x NULL: makes
 * them zeros. */
static by_status move(const by__device_call *call, const by__device_context *context, int64_t to,
                      const by__device_tensor *x, int64_t from, int64_t rows)
{
    const by__device_tensor *y = &call->out[0];
    int64_t axis = call->attrs.axis;
    int64_t inner = stride_of(&y->shape, axis);
    size_t bytes = by_dtype_size(y->dtype);
    int64_t y_step = y->shape.dim[axis] * inner;
    int64_t x_step = x == NULL ? 0 : x->shape.dim[axis] * inner;
    int64_t outer = y_step == 0 ? 0 : by__tensor_count(y) / y_step;
    by__cuda_move_args args = {
        .x = x == NULL ? NULL : (const char *)x->data + (size_t)(from * inner) * bytes,
        .y = (char *)y->data + (size_t)(to * inner) * bytes,
        .count = outer * rows * inner,
        .inner = rows * inner,
        .x_stride = x_step,
        .y_stride = y_step,
        .bytes = (int32_t)bytes,
    };
    return by__cuda_over_each(context, BY__CUDA_KERNEL_move, args.count, &args);
}

static by_status run_slice(const by__device_call *call, const by__device_context *context)
{
    return move(call, context, 0, &call->in[0], call->attrs.begin, call->attrs.rows);
}

static by_status run_pad(const by__device_call *call, const by__device_context *context)
{
    int64_t have = call->in[0].shape.dim[call->attrs.axis];
    int64_t end = call->attrs.begin + have;
    BY_TRY(move(call, context, 0, NULL, 0, call->attrs.begin));
    BY_TRY(move(call, context, end, NULL, 0, call->attrs.rows - end));
    return move(call, context, call->attrs.begin, &call->in[0], 0, have);
}

static by_status run_concat(const by__device_call *call, const by__device_context *context)
{
    int64_t begin = 0;
    for (int i = 0; i < call->input_count; i++) {
        int64_t have = call->in[i].shape.dim[call->attrs.axis];
        BY_TRY(move(call, context, begin, &call->in[i], 0, have));
        begin += have;
    }
    return BY_OK;
}

BY__CUDA_ROW_KERNEL(BY_OP_SLICE, slice, supports_moves, NULL, NULL, run_slice);
BY__CUDA_ROW_KERNEL(BY_OP_PAD, pad, supports_moves, NULL, NULL, run_pad);
BY__CUDA_ROW_KERNEL(BY_OP_CONCAT, concat, supports_moves, NULL, NULL, run_concat);
