/* ADAMW: p, g, m, v f32 of any shape, copy bf16, f16 or absent. One pass: four reads and three
 * writes of f32 per element, which is the least possible memory traffic. The copy is read only in
 * the next step, and by all cores: it is stored bypassing the caches. */
#include <math.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

#define GRAIN 16384

/* dtype: of the copy; BY_F32: there is none. */
BY__INLINE void update(const by__device_call *call, int64_t begin, int64_t end, by_dtype dtype)
{
    float *p = call->in[0].data;
    const float *g = call->in[1].data;
    float *m = call->in[2].data;
    float *v = call->in[3].data;
    const float *hyper = call->in[4].data;
    uint16_t *copy = dtype != BY_F32 ? call->out[0].data : NULL;
    float scale = *(const float *)call->in[5].data;
    double rate =
        (double)hyper[0] * (call->attrs.lr_scale == 0.0f ? 1.0 : (double)call->attrs.lr_scale);
    float beta1 = call->attrs.beta1;
    float beta2 = call->attrs.beta2;
    float rest1 = (float)(1.0 - (double)beta1);
    float rest2 = (float)(1.0 - (double)beta2);
    float keep = (float)(1.0 - rate * (double)call->attrs.decay);
    float step = (float)(rate / (double)hyper[1]);
    float correction = (float)(1.0 / sqrt((double)hyper[2]));
    float eps = call->attrs.eps;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf gradient = by__load_n(g, i, BY_F32, n) * scale;                                     \
        by__vf first = by__load_n(m, i, BY_F32, n) * beta1 + gradient * rest1;                     \
        by__vf second = by__load_n(v, i, BY_F32, n) * beta2 + gradient * gradient * rest2;         \
        by__vf root = by__sqrt(second) * correction + eps;                                         \
        by__vf x = by__load_n(p, i, BY_F32, n) * keep - step * (first / root);                     \
        by__store_n(p, i, x, BY_F32, n);                                                           \
        by__store_n(m, i, first, BY_F32, n);                                                       \
        by__store_n(v, i, second, BY_F32, n);                                                      \
        if (dtype == BY_BF16 && (n) == BY__LANES) {                                                \
            by__stream_bf16(copy + i, x);                                                          \
        } else if (dtype != BY_F32) {                                                              \
            by__store_n(copy, i, x, dtype, n);                                                     \
        }                                                                                          \
    } while (0)
    BY__STEPS(begin, end, STEP);
#undef STEP
    if (dtype == BY_BF16) {
        by__stream_end();
    }
}

BY__ACT_RANGES(update)

static by_dtype copy_dtype(const by__device_call *call)
{
    bool copied = call->output_count > 0 && by__present(&call->out[0]);
    return copied ? call->out[0].dtype : BY_F32;
}

static by_status run_adamw(const by__device_call *call, const by__device_context *context)
{
    int64_t count = by__tensor_count(&call->in[0]);
    if (!isfinite(*(const float *)call->in[5].data)) {
        return BY_OK; /* the step has failed: nothing is changed */
    }
    by__cpu_parallel(context, call, count, GRAIN, count, update_ranges[copy_dtype(call)]);
    return BY_OK;
}

static bool supports_adamw(const by__device_call *call)
{
    return by_dtype_is_float(copy_dtype(call));
}

BY__KERNEL(adamw) = {BY_OP_ADAMW, BY__KERNEL_NAME("adamw"), supports_adamw, NULL, NULL, run_adamw};
