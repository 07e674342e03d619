/* ROPE: x [B, T, H * D] activations, D even. Cosines and sines of the T positions (of the B T rows,
 * if each has its own) are computed for each call in the workspace, [T][D / 2] each: that costs a
 * few per cent of the rotation itself, works for any position, and needs no persistent table. */
#include <stdlib.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd.h"

static int64_t half_width(const by__device_call *call)
{
    return by__tensor_columns(&call->in[0]) / call->attrs.heads / 2;
}

/* Number of rows of the table. */
static int64_t positions_of(const by__device_call *call)
{
    return by__rope_is_by_row(call) ? by__tensor_rows(&call->in[0]) : call->in[0].shape.dim[1];
}

/* cos and sin of count angles = position * frequency (the f32 product, as in Hugging Face's code),
 * within 1 ulp of f32. In double: x = n pi/2 + r with |r| <= pi/4 and pi/2 in two parts (the first
 * has 33 bits, so that its product with n is exact for n < 2^20), then Taylor polynomials up to
 * r^13 and r^12. */
static void cos_sin(float position, const float *frequency, float *cosine, float *sine,
                    int64_t count)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    for (int64_t i = 0; i < count; i++) {
        double x = (double)(position * frequency[i]);
        double shifted = x * 0.63661977236758134308 + magic;
        double n = shifted - magic;
        double r = (x - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
        double r2 = r * r;
        double s = 1.0 / 6227020800.0;
        s = s * r2 - 1.0 / 39916800.0;
        s = s * r2 + 1.0 / 362880.0;
        s = s * r2 - 1.0 / 5040.0;
        s = s * r2 + 1.0 / 120.0;
        s = s * r2 - 1.0 / 6.0;
        s = s * r2 * r + r;
        double c = 1.0 / 479001600.0;
        c = c * r2 - 1.0 / 3628800.0;
        c = c * r2 + 1.0 / 40320.0;
        c = c * r2 - 1.0 / 720.0;
        c = c * r2 + 1.0 / 24.0;
        c = c * r2 - 0.5;
        c = c * r2 + 1.0;
        /* Quadrant n mod 4: odd ones swap sine and cosine; the signs follow. */
        double quadrant = n - 4.0 * ((n * 0.25 - 0.375 + magic) - magic);
        bool odd = quadrant == 1.0 || quadrant == 3.0;
        double cosine_of = odd ? s : c;
        double sine_of = odd ? c : s;
        cosine[i] = (float)(quadrant == 1.0 || quadrant == 2.0 ? -cosine_of : cosine_of);
        sine[i] = (float)(quadrant >= 2.0 ? -sine_of : sine_of);
    }
}

/* Computes rows [begin, end) of the table. The frequencies are the kernel's state. */
static void make_table(const by__device_call *call, int64_t begin, int64_t end)
{
    int64_t half = half_width(call);
    float amplitude = by_rotation_of(&call->attrs).amplitude;
    for (int64_t t = begin; t < end; t++) {
        float *cosine = (float *)call->work + t * 2 * half;
        cos_sin((float)by__rope_position(call, t), call->state, cosine, cosine + half, half);
        for (int64_t i = 0; i < 2 * half; i++) {
            cosine[i] *= amplitude;
        }
    }
}

BY__INLINE void rotate(const by__device_call *call, int64_t begin, int64_t end, by_dtype type)
{
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    int64_t half = half_width(call);
    int64_t heads = call->attrs.heads;
    int64_t length = positions_of(call);
    float sign = call->attrs.inverse ? -1.0f : 1.0f;
    for (int64_t row = begin; row < end; row++) {
        const float *cosine = (const float *)call->work + row % length * 2 * half;
        for (int64_t head = 0; head < heads; head++) {
            int64_t at = (row * heads + head) * 2 * half;
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        by__vf c = by__load_n(cosine, i, BY_F32, n);                                               \
        by__vf s = by__load_n(cosine, half + (i), BY_F32, n) * sign;                               \
        by__vf low = by__load_n(x, at + (i), type, n);                                             \
        by__vf high = by__load_n(x, at + half + (i), type, n);                                     \
        by__store_flushed_n(y, at + (i), low * c - high * s, type, n);                             \
        by__store_flushed_n(y, at + half + (i), high * c + low * s, type, n);                      \
    } while (0)
            BY__STEPS(0, half, STEP);
#undef STEP
        }
    }
}

BY__ACT_RANGES(rotate)

static bool supports_rope(const by__device_call *call)
{
    return by__tensor_is_act(&call->in[0]);
}

static by_status prepare_rope(by__device_call *call, const by__device_context *context,
                              by_error *error)
{
    BY_UNUSED(context);
    int64_t half = half_width(call);
    by_rotation rotation = by_rotation_of(&call->attrs);
    if (!by__size_mul((size_t)positions_of(call), 2 * (size_t)half * sizeof(float),
                      &call->work_bytes)) {
        return by_error_set(error, BY_EMEMORY, "rope: the workspace overflows");
    }
    void *frequencies;
    BY_TRY(by__alloc(&frequencies, (size_t)half, sizeof(float), "the frequencies of rope", error));
    for (int64_t i = 0; i < half; i++) {
        ((float *)frequencies)[i] = by_rotation_frequency(&rotation, i, 2 * half);
    }
    call->state = frequencies;
    return BY_OK;
}

static void release_rope(by__device_call *call)
{
    free(call->state);
    call->state = NULL;
}

static by_status run_rope(const by__device_call *call, const by__device_context *context)
{
    const by__device_tensor *x = &call->in[0];
    int64_t length = positions_of(call);
    int64_t half = half_width(call);
    by__cpu_parallel(context, call, length, by__ceil_div(1024, half), length * half * 4,
                     make_table);
    by__cpu_parallel(context, call, by__tensor_rows(x), by__ceil_div(8192, by__tensor_columns(x)),
                     by__tensor_count(x), rotate_ranges[x->dtype]);
    return BY_OK;
}

BY__KERNEL(rope) = {BY_OP_ROPE, BY__KERNEL_NAME("rope"), supports_rope, prepare_rope, release_rope,
                    run_rope};
