/* ADD, SUB, MUL (the second operand has the shape of the first or repeats over its leading axes),
 * SCALE, CAST. Shapes: any. Dtypes: activations, and b f32 or like a; CAST between f32, bf16 and
 * f16. */
#include "device/cpu/kernels/binary.h"

#define GRAIN 16384
/* A second operand shorter than this is first repeated in the workspace, so that the loop over it
 * is long enough to be efficient. */
#define TILE 1024

/* The address of the second operand, and the number of elements after which it repeats. */
static const void *second(const by__device_call *call, int64_t *period)
{
    if (call->work_bytes > 0) {
        *period = (int64_t)(call->work_bytes / by_dtype_size(call->in[1].dtype));
        return call->work;
    }
    *period = by__tensor_count(&call->in[1]);
    return call->in[1].data;
}

BY__INLINE void binary(const by__device_call *call, int64_t begin, int64_t end, by_op op,
                       by_dtype type_a, by_dtype type_b)
{
    int64_t period;
    const void *b = second(call, &period);
    const void *a = call->in[0].data;
    void *y = call->out[0].data;
    while (begin < end) {
        int64_t offset = begin % period;
        int64_t stop = by__min_i64(end, begin - offset + period);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf p = by__load_n(a, i, type_a, n);                                                    \
        by__vf q = by__load_n(b, (i)-begin + offset, type_b, n);                                   \
        by__vf z = by__binary_value(op, p, q);                                                     \
        by__store_n(y, i, z, type_a, n);                                                           \
    } while (0)
        BY__STEPS(begin, stop, STEP);
#undef STEP
        begin = stop;
    }
}

BY__BINARY_RANGES(binary)

/* Returns true if the second operand has the shape of the first, or repeats over its leading axes:
 * without leading axes of extent 1, its shape is a suffix. broadcast_simd.c handles other cases. */
static bool is_suffix(const by_shape *b, const by_shape *a)
{
    int first = 0;
    while (first < b->rank && b->dim[first] == 1) {
        first++;
    }
    for (int i = 1; i <= b->rank - first; i++) {
        if (i > a->rank || b->dim[b->rank - i] != a->dim[a->rank - i]) {
            return false;
        }
    }
    return true;
}

static bool supports_binary(const by__device_call *call)
{
    return by__binary_accepts_types(call) &&
           by__tensor_count(&call->in[0]) == by__tensor_count(&call->out[0]) &&
           is_suffix(&call->in[1].shape, &call->in[0].shape);
}

static by_status prepare_binary(by__device_call *call, const by__device_context *context,
                                by_error *error)
{
    BY_UNUSED(context);
    BY_UNUSED(error);
    int64_t period = by__tensor_count(&call->in[1]);
    if (period > 0 && period < TILE && period < by__tensor_count(&call->in[0])) {
        int64_t tile = by__ceil_div(TILE, period) * period;
        call->work_bytes = (size_t)tile * by_dtype_size(call->in[1].dtype);
    }
    return BY_OK;
}

static by_status run_binary(const by__device_call *call, const by__device_context *context)
{
    size_t bytes = (size_t)by__tensor_count(&call->in[1]) * by_dtype_size(call->in[1].dtype);
    for (size_t at = 0; at < call->work_bytes; at += bytes) {
        memcpy((char *)call->work + at, call->in[1].data, bytes);
    }
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count, range_of(call));
    return BY_OK;
}

BY__KERNEL(add) = {BY_OP_ADD, BY__KERNEL_NAME("add"), supports_binary, prepare_binary, NULL,
                   run_binary};
BY__KERNEL(sub) = {BY_OP_SUB, BY__KERNEL_NAME("sub"), supports_binary, prepare_binary, NULL,
                   run_binary};
BY__KERNEL(mul) = {BY_OP_MUL, BY__KERNEL_NAME("mul"), supports_binary, prepare_binary, NULL,
                   run_binary};

BY__INLINE void scale(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    float s = *(const float *)call->in[1].data;
#define STEP(i, n) by__store_n(y, i, by__load_n(x, i, type, n) * s, type, n)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

BY__ACT_RANGES(scale)

static bool supports_scale(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status run_scale(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count, scale_ranges[call->in[0].dtype]);
    return BY_OK;
}

BY__KERNEL(scale) = {BY_OP_SCALE, BY__KERNEL_NAME("scale"), supports_scale, NULL, NULL, run_scale};

BY__INLINE void cast(const by__device_call *call, int64_t begin, int64_t end, by_dtype from,
                     by_dtype to)
{
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
#define STEP(i, n) by__store_n(y, i, by__load_n(x, i, from, n), to, n)
    BY__STEPS(begin, end, STEP);
#undef STEP
}

#define RANGE(name, from, to)                                                                      \
    static void name(const by__device_call *call, int64_t begin, int64_t end)                      \
    {                                                                                              \
        cast(call, begin, end, from, to);                                                          \
    }
RANGE(f32_to_f32, BY_F32, BY_F32)
RANGE(f32_to_bf16, BY_F32, BY_BF16)
RANGE(f32_to_f16, BY_F32, BY_F16)
RANGE(bf16_to_f32, BY_BF16, BY_F32)
RANGE(bf16_to_bf16, BY_BF16, BY_BF16)
RANGE(bf16_to_f16, BY_BF16, BY_F16)
RANGE(f16_to_f32, BY_F16, BY_F32)
RANGE(f16_to_bf16, BY_F16, BY_BF16)
RANGE(f16_to_f16, BY_F16, BY_F16)
#undef RANGE

static bool supports_cast(const by__device_call *call)
{
    return by_dtype_is_float(call->in[0].dtype) && by_dtype_is_float(call->out[0].dtype);
}

static by_status run_cast(const by__device_call *call, const by__device_context *context)
{
    static by__cpu_range_fn *const ranges[3][3] = {
        [BY_F32] = {[BY_F32] = f32_to_f32, [BY_BF16] = f32_to_bf16, [BY_F16] = f32_to_f16},
        [BY_BF16] = {[BY_F32] = bf16_to_f32, [BY_BF16] = bf16_to_bf16, [BY_F16] = bf16_to_f16},
        [BY_F16] = {[BY_F32] = f16_to_f32, [BY_BF16] = f16_to_bf16, [BY_F16] = f16_to_f16}};
    int64_t count = by__tensor_count(&call->in[0]);
    by__cpu_parallel(context, call, count, GRAIN, count,
                     ranges[call->in[0].dtype][call->out[0].dtype]);
    return BY_OK;
}

BY__KERNEL(cast) = {BY_OP_CAST, BY__KERNEL_NAME("cast"), supports_cast, NULL, NULL, run_cast};
