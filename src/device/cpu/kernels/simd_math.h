/* simd_math: functions of vectors (simd.h): exponentials and functions derived from them, random
 * bits.
 *
 * Functions over the whole range of f32, errors measured by the kernel tests against double:
 *   by__exp      2 ulp; 0 and infinity beyond the range; subnormal results within one step
 *   by__exp2_of_negative  3 ulp; below 2^-126 subnormal or 0
 *   by__tanh     3 ulp
 *   by__reciprocal  1 ulp, where the result is not subnormal
 *   by__exp_less_one  2 ulp
 *   by__sigmoid  3 ulp
 *   by__sigmoid_pair_rough  about 4 + |x| ulp; only for results rounded to bf16
 *   by__log      2 ulp, of positive numbers that are not subnormal
 *   by__log1p_of_unit  2 ulp, of numbers in [0, 1]
 * NaN gives NaN.
 *
 * Never put here: anything that knows a tensor or an op.
 */
#ifndef BY_DEVICE_CPU_KERNELS_SIMD_MATH_H
#define BY_DEVICE_CPU_KERNELS_SIMD_MATH_H

#include "device/cpu/kernels/simd.h"

#define LOG2_E 1.44269504088896341f
#define LN_2   0.693147180559945309f

/* Rounds x to the nearest integer; |x| is at most 2^22. */
BY__INLINE by__vf by__nearest(by__vf x)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#else
    const float magic = 12582912.0f; /* 1.5 * 2^23: the sum has no bits below 1 */
    return (x + magic) - magic;
#endif
}

/* Range reduction: x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer in
 * the low bits; ln 2 is split in two parts, the first short enough that its product with n is
 * exact. Returns (e^r - 1) as r + r^2 p(r), with the polynomial p of Moshier's Cephes library. */
BY__INLINE by__vf by__exp_reduced(by__vf x, by__vf *n)
{
    const float magic = 12582912.0f;
    by__vf k = (x * 1.44269504088896341f + magic) - magic;
    by__vf r = x - k * 0.693359375f;
    r = r + k * 2.12194440e-4f;
    by__vf p = by__splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    *n = k;
    return r * r * p + r;
}

/* 2^n for integral n in [-126, 127]. */
BY__INLINE by__vf by__power_of_two(by__vi n)
{
    return (by__vf)((n + 127) << 23);
}

/* exp(x) for x in [-104, 89], beyond which it is 0 or infinity. */
BY__INLINE by__vf by__exp_within(by__vf x)
{
    by__vf n;
    by__vf m = by__exp_reduced(x, &n) + 1.0f;
#if defined(__AVX512F__)
    return (by__vf)_mm512_scalef_ps((__m512)m, (__m512)n);
#else
    /* In two steps, so that results near the ends of the range stay in it. */
    by__vi k = __builtin_convertvector(n, by__vi);
    by__vi half = k >> 1;
    return m * by__power_of_two(half) * by__power_of_two(k - half);
#endif
}

BY__INLINE by__vf by__exp(by__vf x)
{
    return by__exp_within(by__at_least(-104.0f, by__at_most(89.0f, x)));
}

/* exp(x) for x at most slightly above 0, as in a softmax. With AVX-512, scalef maps any large
 * negative exponent to 0 by itself. */
BY__INLINE by__vf by__exp_of_negative(by__vf x)
{
#if defined(__AVX512F__)
    return by__exp_within(x);
#else
    return by__exp_within(by__at_least(-104.0f, x));
#endif
}

/* 2 atanh(s) for |s| <= 1/3, by its power series up to s^17. */
BY__INLINE by__vf by__atanh_twice(by__vf s)
{
    by__vf q = s * s;
    by__vf p = by__splat(2.0f / 17.0f);
    p = p * q + 2.0f / 15.0f;
    p = p * q + 2.0f / 13.0f;
    p = p * q + 2.0f / 11.0f;
    p = p * q + 2.0f / 9.0f;
    p = p * q + 2.0f / 7.0f;
    p = p * q + 2.0f / 5.0f;
    p = p * q + 2.0f / 3.0f;
    return s * q * p + 2.0f * s;
}

/* log(1 + x) for x in [0, 1]: 2 atanh(x / (2 + x)). */
BY__INLINE by__vf by__log1p_of_unit(by__vf x)
{
    return by__atanh_twice(x / (x + 2.0f));
}

/* The natural logarithm: x = m 2^n with m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh((m - 1) /
 * (m + 1)); ln 2 is split as in by__exp_reduced. */
BY__INLINE by__vf by__log(by__vf x)
{
    by__vi bits = (by__vi)x - 0x3f3504f3; /* sqrt(1/2) becomes 0 */
    by__vf n = __builtin_convertvector(bits >> 23, by__vf);
    by__vf m = (by__vf)((bits & 0x7fffff) + 0x3f3504f3);
    by__vf y = by__atanh_twice((m - 1.0f) / (m + 1.0f));
    return (y - n * 2.12194440e-4f) + n * 0.693359375f;
}

/* 2^x: x = n + r with |r| <= 1/2, and 2^r = 1 + r p(r), p of degree 4 (Lawson's algorithm: error
 * 9.2e-8 before rounding). Unlike exp it needs no ln 2 in two parts. With AVX-512 x is arbitrary;
 * elsewhere it must be in [-126, 127]. */
BY__INLINE by__vf by__exp2_within(by__vf x)
{
    by__vf n = by__nearest(x);
    by__vf r = x - n;
    by__vf p = by__splat(1.326472720e-3f);
    p = p * r + 9.671512640e-3f;
    p = p * r + 5.550733743e-2f;
    p = p * r + 2.402224209e-1f;
    p = p * r + 6.931469776e-1f;
    p = p * r + 1.0f;
#if defined(__AVX512F__)
    return (by__vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return p * by__power_of_two(__builtin_convertvector(n, by__vi));
#endif
}

/* 2^x for x at most slightly above 0, as in a softmax in base 2: log2(e) is folded into the scale
 * of its scores. */
BY__INLINE by__vf by__exp2_of_negative(by__vf x)
{
#if defined(__AVX512F__)
    return by__exp2_within(x);
#else
    by__vf y = by__exp2_within(by__at_least(-126.0f, x));
    return by__select(x < -126.0f, by__zero(), y);
#endif
}

/* 1 / x for x whose reciprocal is not subnormal, to 1 ulp. With AVX-512 by a step of Newton's
 * method from the processor's estimate of 14 bits: a division takes as long as sixteen
 * multiplications. */
BY__INLINE by__vf by__reciprocal(by__vf x)
{
#if defined(__AVX512F__)
    by__vf y = (by__vf)_mm512_rcp14_ps((__m512)x);
    return by__multiply_add(y, by__multiply_add(-x, y, by__splat(1.0f)), y);
#else
    return 1.0f / x;
#endif
}

/* With e = exp(-2|x|) - 1, tanh |x| = -e / (e + 2): there is no cancellation. It is 1 in f32 from
 * 9.02 on.
 */
BY__INLINE by__vf by__tanh(by__vf x)
{
    by__vf n;
    by__vf r = by__exp_reduced(by__at_most(10.0f, by__abs(x)) * -2.0f, &n);
    by__vf two_n = by__power_of_two(__builtin_convertvector(n, by__vi));
    by__vf e = two_n * r + (two_n - 1.0f);
    by__vf t = -e * by__reciprocal(e + 2.0f);
    return (by__vf)((by__vi)t | ((by__vi)x & INT32_MIN));
}

/* exp(x) - 1 for x from -18 to 0, without cancellation. */
BY__INLINE by__vf by__exp_less_one(by__vf x)
{
    by__vf n;
    by__vf r = by__exp_reduced(x, &n);
    by__vf two_n = by__power_of_two(__builtin_convertvector(n, by__vi));
    return two_n * r + (two_n - 1.0f);
}

/* sigmoid(x) and 1 - sigmoid(x) from one exponential that cannot overflow; both keep full relative
 * precision. */
BY__INLINE by__vf by__sigmoid_pair(by__vf x, by__vf *complement)
{
    by__vf e = by__exp_within(by__at_least(-104.0f, -by__abs(x)));
    by__vf large = 1.0f / (1.0f + e);
    by__vf small = e * large;
    by__vi negative = x < 0.0f;
    *complement = by__select(negative, large, small);
    return by__select(negative, small, large);
}

BY__INLINE by__vf by__sigmoid(by__vf x)
{
    by__vf complement;
    return by__sigmoid_pair(x, &complement);
}

/* The same with errors of about (4 + |x|) ulp, for results that are rounded to bf16: x log2(e) is
 * rounded, and the reciprocal is one step of Newton's method from the processor's estimate. */
BY__INLINE by__vf by__sigmoid_pair_rough(by__vf x, by__vf *complement)
{
    by__vf e = by__exp2_within(by__at_least(-126.0f, by__at_most(126.0f, x * -LOG2_E)));
    by__vf d = 1.0f + e;
#if defined(__AVX512F__)
    by__vf s = (by__vf)_mm512_rcp14_ps((__m512)d);
    s = s + s * (1.0f - d * s);
#else
    by__vf s = 1.0f / d;
#endif
    *complement = e * s;
    return s;
}

/* ---- Philox4x32-10 (base/random.c), one counter a lane ---- */

/* Upper and lower halves of the 64-bit products of the lanes with m. */
BY__INLINE void by__mul_wide(by__vu a, uint32_t m, by__vu *high, by__vu *low)
{
    by__vu64 even_lanes = (by__vu64)a;
    by__vu64 odd_lanes = (by__vu64)a >> 32;
#if defined(__AVX512F__)
    __m512i factor = _mm512_set1_epi64((long long)m);
    by__vu64 even = (by__vu64)_mm512_mul_epu32((__m512i)even_lanes, factor);
    by__vu64 odd = (by__vu64)_mm512_mul_epu32((__m512i)odd_lanes, factor);
#elif defined(__AVX2__)
    __m256i factor = _mm256_set1_epi64x((long long)m);
    by__vu64 even = (by__vu64)_mm256_mul_epu32((__m256i)even_lanes, factor);
    by__vu64 odd = (by__vu64)_mm256_mul_epu32((__m256i)odd_lanes, factor);
#elif defined(__SSE2__)
    __m128i factor = _mm_set1_epi64x((long long)m);
    by__vu64 even = (by__vu64)_mm_mul_epu32((__m128i)even_lanes, factor);
    by__vu64 odd = (by__vu64)_mm_mul_epu32((__m128i)odd_lanes, factor);
#else
    by__vu64 even = (even_lanes & 0xffffffffu) * m;
    by__vu64 odd = odd_lanes * m;
#endif
    const by__vu64 upper = (by__vu64){0} + 0xffffffff00000000u;
    *high = (by__vu)((even >> 32) | (odd & upper));
    *low = (by__vu)((even & ~upper) | (odd << 32));
}

/* c: the four words of the counters; becomes the four words of random bits. */
BY__INLINE void by__philox_lanes(by__vu c[4], uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        by__vu high0;
        by__vu high1;
        by__vu low0;
        by__vu low1;
        by__mul_wide(c[0], 0xD2511F53u, &high0, &low0);
        by__mul_wide(c[2], 0xCD9E8D57u, &high1, &low1);
        c[0] = high1 ^ c[1] ^ key0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ key1;
        c[3] = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* Products of neighbouring 16-bit integers, added in pairs. */
BY__INLINE by__vi by__multiply_pairs(by__vi a, by__vi b)
{
#if defined(__AVX512F__)
    return (by__vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (by__vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (by__vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
#endif
}

#endif
