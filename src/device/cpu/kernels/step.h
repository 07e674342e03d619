/* step: multiplies a vector of values that are adjacent in memory by one value of a row and adds it
 * to f32 sums. The code that depends on the dtype of the values is here, so that kernels over
 * layouts with adjacent columns (packed weights, pages of keys and values) need one loop for all
 * dtypes.
 *
 * A step is one input of f32, f16 or an integer code, or a pair of bf16 in 4 bytes, the first in
 * the lower half. For each step a row holds `by__step_units` numbers of 4 bytes: f32, or an
 * unconverted pair of bf16 where vdpbf16ps multiplies pairs.
 *
 * Never put here: loops, tensors.
 */
#ifndef BY_DEVICE_CPU_KERNELS_STEP_H
#define BY_DEVICE_CPU_KERNELS_STEP_H

#include "device/cpu/kernels/simd.h"

typedef enum by__kernel_arithmetic {
    BY__UNITS_F32,    /* f32 times f32 */
    BY__PAIRS_BF16,   /* pairs of bf16 by vdpbf16ps */
    BY__PAIRS_SPREAD, /* pairs of bf16, widened, times two f32 */
    BY__UNITS_F16,    /* f16, widened, times f32 */
    BY__CODES_I8      /* integers of 8 bits times f32 */
} by__kernel_arithmetic;

typedef float by__kernel_unit __attribute__((may_alias));

/* Values of a step; for PAIRS_SPREAD the even and the odd ones. */
typedef struct by__kernel_step {
    by__vf value, odd;
} by__kernel_step;

BY__INLINE by__kernel_arithmetic by__arithmetic_of(by_dtype dtype)
{
#if defined(__AVX512BF16__)
    by__kernel_arithmetic pairs = BY__PAIRS_BF16;
#else
    by__kernel_arithmetic pairs = BY__PAIRS_SPREAD;
#endif
    return dtype == BY_F32 ? BY__UNITS_F32 : dtype == BY_F16 ? BY__UNITS_F16 : pairs;
}

/* Bytes per lane. */
BY__INLINE int64_t by__step_size(by__kernel_arithmetic kind)
{
    return kind == BY__CODES_I8 ? 1 : kind == BY__UNITS_F16 ? 2 : 4;
}

/* Units of a row that a step uses. */
BY__INLINE int64_t by__step_units(by__kernel_arithmetic kind)
{
    return kind == BY__PAIRS_SPREAD ? 2 : 1;
}

BY__INLINE by__kernel_step by__step_of_words(by__kernel_arithmetic kind, by__vu words)
{
    if (kind != BY__PAIRS_SPREAD) {
        return (by__kernel_step){.value = (by__vf)words};
    }
    return (by__kernel_step){.value = (by__vf)(words << 16), .odd = (by__vf)(words & 0xffff0000u)};
}

BY__INLINE by__vf by__load_codes_n(const int8_t *codes, int n)
{
#if defined(__AVX512F__)
    __m128i bytes = n == BY__LANES ? _mm_loadu_si128((const __m128i *)(const void *)codes)
                                   : _mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), codes);
    return (by__vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#else
    typedef int8_t bytes __attribute__((vector_size(BY__LANES)));
    bytes values = {0};
    memcpy(&values, codes, (size_t)n);
    return __builtin_convertvector(__builtin_convertvector(values, by__vi), by__vf);
#endif
}

/* Loads the first n lanes of a step; zeros after them. */
BY__INLINE by__kernel_step by__step_load_n(by__kernel_arithmetic kind, const void *data, int n)
{
    if (kind == BY__CODES_I8) {
        return (by__kernel_step){.value = by__load_codes_n(data, n)};
    }
    if (kind == BY__UNITS_F16) {
        return (by__kernel_step){.value = by__load_n(data, 0, BY_F16, n)};
    }
    return by__step_of_words(kind, (by__vu)by__load_n(data, 0, BY_F32, n));
}

BY__INLINE by__kernel_step by__step_load(by__kernel_arithmetic kind, const void *data)
{
    return by__step_load_n(kind, data, BY__LANES);
}

/* sum + the step times the row's units for it. */
BY__INLINE by__vf by__step_add(by__kernel_arithmetic kind, by__vf sum, by__kernel_step step,
                               const by__kernel_unit *row)
{
    by__vf x = row[0] - by__zero();
#if defined(__AVX512BF16__)
    if (kind == BY__PAIRS_BF16) {
        return (by__vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)step.value);
    }
#endif
    sum += x * step.value;
    return kind == BY__PAIRS_SPREAD ? sum + (row[1] - by__zero()) * step.odd : sum;
}

#endif
