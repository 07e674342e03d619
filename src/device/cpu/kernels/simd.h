/* simd: vector types and operations at the instruction-set level that a kernel is compiled for.
 *
 * gcc's and clang's vector extensions provide the arithmetic (+ - * / & | ^ << >> and comparisons,
 * whose result is an integer vector of 0 and -1), so one source serves 16, 8 and 4 lanes and
 * aarch64. Intrinsics are used only where the extensions lack an operation or compile poorly.
 *
 * Loads and stores widen bf16 and f16 to f32 and round back to nearest, ties to even, exactly as
 * base/half.h does, subnormals and NaNs included; the `_flushed` forms use avx512_bf16's
 * vcvtneps2bf16, which takes subnormals for zero. The `_n` forms access n <= BY__LANES elements and
 * fill the other lanes with zeros: with BY__STEPS the last elements of a range go through the same
 * instructions as the rest, so an element's bits do not depend on its place.
 *
 * Functions of vectors are in simd_math.h.
 *
 * Never put here: anything that knows a tensor or an op.
 */
#ifndef BY_DEVICE_CPU_KERNELS_SIMD_H
#define BY_DEVICE_CPU_KERNELS_SIMD_H

#include <stdint.h>
#include <string.h>

#include "banyan/dtype.h"
#include "base/half.h"
#include "device/cpu/kernels/shuffle.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define BY__LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define BY__LANES 8
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#define BY__LANES 4
#endif

#define BY__INLINE static inline __attribute__((always_inline))

typedef float by__vf __attribute__((vector_size(4 * BY__LANES)));
typedef int32_t by__vi __attribute__((vector_size(4 * BY__LANES)));
typedef uint32_t by__vu __attribute__((vector_size(4 * BY__LANES)));
typedef uint64_t by__vu64 __attribute__((vector_size(4 * BY__LANES)));
typedef uint16_t by__vh __attribute__((vector_size(2 * BY__LANES)));
/* The same in memory: any alignment, any underlying type. */
typedef float by__kernel_vf_any __attribute__((vector_size(4 * BY__LANES), aligned(4), may_alias));
typedef uint16_t by__kernel_vh_any
    __attribute__((vector_size(2 * BY__LANES), aligned(2), may_alias));

/* Runs `step(i, n)` for i = begin, begin + BY__LANES, ...: n is the constant BY__LANES, except for
 * a shorter last step. `step` is a macro or an always-inline function call. */
#define BY__STEPS(begin, end, step)                                                                \
    do {                                                                                           \
        int64_t steps_i = (begin);                                                                 \
        for (; steps_i + BY__LANES <= (end); steps_i += BY__LANES) {                               \
            step(steps_i, BY__LANES);                                                              \
        }                                                                                          \
        if (steps_i < (end)) {                                                                     \
            step(steps_i, (int)((end)-steps_i));                                                   \
        }                                                                                          \
    } while (0)

BY__INLINE by__vf by__splat(float x)
{
    return (by__vf){0} + x;
}

BY__INLINE by__vf by__zero(void)
{
    return (by__vf){0};
}

BY__INLINE by__vu by__lane_numbers(void)
{
    static const uint32_t numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    by__vu v;
    memcpy(&v, numbers, sizeof v);
    return v;
}

/* mask ? a : b, lane by lane; the lanes of mask are 0 or -1. */
BY__INLINE by__vf by__select(by__vi mask, by__vf a, by__vf b)
{
    return (by__vf)((mask & (by__vi)a) | (~mask & (by__vi)b));
}

/* Clamp x to a lower or an upper bound; NaN stays NaN. */
BY__INLINE by__vf by__at_least(float bound, by__vf x)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_max_ps(_mm512_set1_ps(bound), (__m512)x);
#elif defined(__AVX2__)
    return (by__vf)_mm256_max_ps(_mm256_set1_ps(bound), (__m256)x);
#elif defined(__SSE2__)
    return (by__vf)_mm_max_ps(_mm_set1_ps(bound), (__m128)x);
#else
    return by__select(x < bound, by__splat(bound), x);
#endif
}

BY__INLINE by__vf by__at_most(float bound, by__vf x)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_min_ps(_mm512_set1_ps(bound), (__m512)x);
#elif defined(__AVX2__)
    return (by__vf)_mm256_min_ps(_mm256_set1_ps(bound), (__m256)x);
#elif defined(__SSE2__)
    return (by__vf)_mm_min_ps(_mm_set1_ps(bound), (__m128)x);
#else
    return by__select(x > bound, by__splat(bound), x);
#endif
}

BY__INLINE by__vf by__abs(by__vf x)
{
    return (by__vf)((by__vi)x & 0x7fffffff);
}

/* a b + c, rounded once at the levels that have the instruction. The compiler fuses such
 * expressions by itself, but may do so in one of two copies of a function and not in the other: use
 * this where the bits of both must be equal. */
BY__INLINE by__vf by__multiply_add(by__vf a, by__vf b, by__vf c)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (by__vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (by__vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

BY__INLINE by__vf by__sqrt(by__vf x)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_sqrt_ps((__m512)x);
#elif defined(__AVX2__)
    return (by__vf)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
    return (by__vf)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
    return (by__vf)vsqrtq_f32((float32x4_t)x);
#else
    for (int i = 0; i < BY__LANES; i++) {
        x[i] = __builtin_sqrtf(x[i]);
    }
    return x;
#endif
}

/* Lane indices of one butterfly of a transposition: the lanes where bit d is clear (low) or set. */
#define BY__LOW(d, l)  (((l) & (d)) == 0 ? (l) : BY__LANES + (l) - (d))
#define BY__HIGH(d, l) (((l) & (d)) == 0 ? (l) + (d) : BY__LANES + (l))
#if BY__LANES == 16
#define BY__EACH_LANE(F, d)                                                                        \
    F(d, 0), F(d, 1), F(d, 2), F(d, 3), F(d, 4), F(d, 5), F(d, 6), F(d, 7), F(d, 8), F(d, 9),      \
        F(d, 10), F(d, 11), F(d, 12), F(d, 13), F(d, 14), F(d, 15)
#elif BY__LANES == 8
#define BY__EACH_LANE(F, d) F(d, 0), F(d, 1), F(d, 2), F(d, 3), F(d, 4), F(d, 5), F(d, 6), F(d, 7)
#else
#define BY__EACH_LANE(F, d) F(d, 0), F(d, 1), F(d, 2), F(d, 3)
#endif
#define BY__BUTTERFLIES(d)                                                                         \
    _Pragma("GCC unroll 16") for (int i = 0; i < BY__LANES; i++)                                   \
    {                                                                                              \
        if ((i & (d)) == 0) {                                                                      \
            by__vu low = BY__SHUFFLE(v[i], v[i + (d)], BY__EACH_LANE(BY__LOW, d));                 \
            v[i + (d)] = BY__SHUFFLE(v[i], v[i + (d)], BY__EACH_LANE(BY__HIGH, d));                \
            v[i] = low;                                                                            \
        }                                                                                          \
    }

/* v[i][j] becomes v[j][i]. */
BY__INLINE void by__transpose(by__vu v[BY__LANES])
{
    BY__BUTTERFLIES(1)
    BY__BUTTERFLIES(2)
#if BY__LANES > 4
    BY__BUTTERFLIES(4)
#endif
#if BY__LANES > 8
    BY__BUTTERFLIES(8)
#endif
}

/* Sum of the lanes: halves are added until one lane is left. */
BY__INLINE float by__sum(by__vf x)
{
    typedef float four __attribute__((vector_size(16)));
#if BY__LANES == 16
    typedef float eight __attribute__((vector_size(32)));
    eight e =
        BY__SHUFFLE(x, x, 0, 1, 2, 3, 4, 5, 6, 7) + BY__SHUFFLE(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
    four f = BY__SHUFFLE(e, e, 0, 1, 2, 3) + BY__SHUFFLE(e, e, 4, 5, 6, 7);
#elif BY__LANES == 8
    four f = BY__SHUFFLE(x, x, 0, 1, 2, 3) + BY__SHUFFLE(x, x, 4, 5, 6, 7);
#else
    four f = x;
#endif
    f += BY__SHUFFLE(f, f, 2, 3, 0, 1);
    return f[0] + f[1];
}

/* by__sum of four vectors, the same bits for less than half the work: halves of two vectors are
 * added side by side in one. */
BY__INLINE void by__sum4(float out[4], by__vf a, by__vf b, by__vf c, by__vf d)
{
    typedef float four __attribute__((vector_size(16)));
#if BY__LANES == 16
#define LOWER(x, y) BY__SHUFFLE(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define UPPER(x, y) BY__SHUFFLE(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define EVEN(x, y)  BY__SHUFFLE(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define ODD(x, y)   BY__SHUFFLE(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
    by__vf ab = LOWER(a, b) + UPPER(a, b);
    by__vf cd = LOWER(c, d) + UPPER(c, d);
    by__vf q = EVEN(ab, cd) + ODD(ab, cd);
    q += BY__SHUFFLE(q, q, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    q += BY__SHUFFLE(q, q, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
    four sums = BY__SHUFFLE(q, q, 0, 4, 8, 12);
#undef LOWER
#undef UPPER
#undef EVEN
#undef ODD
#else
#if BY__LANES == 8
#define HALVES(x) (BY__SHUFFLE(x, x, 0, 1, 2, 3) + BY__SHUFFLE(x, x, 4, 5, 6, 7))
#else
#define HALVES(x) (x)
#endif
    four fa = HALVES(a);
    four fb = HALVES(b);
    four fc = HALVES(c);
    four fd = HALVES(d);
#undef HALVES
    four ab = BY__SHUFFLE(fa, fb, 0, 1, 4, 5) + BY__SHUFFLE(fa, fb, 2, 3, 6, 7);
    four cd = BY__SHUFFLE(fc, fd, 0, 1, 4, 5) + BY__SHUFFLE(fc, fd, 2, 3, 6, 7);
    four sums = BY__SHUFFLE(ab, cd, 0, 2, 4, 6) + BY__SHUFFLE(ab, cd, 1, 3, 5, 7);
#endif
    memcpy(out, &sums, sizeof sums);
}

/* The larger of two, lane by lane; b where either is NaN. */
BY__INLINE by__vf by__larger(by__vf a, by__vf b)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (by__vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (by__vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return by__select(a > b, a, b);
#endif
}

/* The largest lane; no lane is NaN. */
BY__INLINE float by__max(by__vf x)
{
    float lanes[BY__LANES];
    memcpy(lanes, &x, sizeof lanes);
#pragma GCC unroll 4
    for (int half = BY__LANES / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < half; i++) {
            lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
        }
    }
    return lanes[0];
}

/* ---- memory ---- */

BY__INLINE by__vf by__from_bf16(by__vh h)
{
#if defined(__AVX512F__)
    const __m512i spread = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7,
                                            0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    __m512i wide = _mm512_castsi256_si512((__m256i)h);
    return (by__vf)_mm512_maskz_permutexvar_epi16(0xAAAAAAAAu, spread, wide);
#elif defined(__AVX2__)
    return (by__vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#elif defined(__SSE2__)
    __m128i low = _mm_loadl_epi64((const __m128i *)(const void *)&h);
    return (by__vf)_mm_unpacklo_epi16(_mm_setzero_si128(), low);
#else
    return (by__vf)(__builtin_convertvector(h, by__vu) << 16);
#endif
}

/* Extracts bits 16 to 31 of each lane. */
BY__INLINE by__vh by__upper_halves(by__vu x)
{
#if defined(__AVX512F__)
    const __m512i odd = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 29, 27,
                                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return (by__vh)_mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, (__m512i)x));
#elif defined(__AVX2__)
    __m256i pairs = _mm256_packus_epi32((__m256i)(x >> 16), (__m256i)(x >> 16));
    return (by__vh)_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08));
#elif defined(__SSE2__)
    __m128i high = _mm_srai_epi32((__m128i)x, 16); /* keeps its value through signed packing */
    by__vh h;
    _mm_storel_epi64((__m128i *)(void *)&h, _mm_packs_epi32(high, high));
    return h;
#else
    return __builtin_convertvector(x >> 16, by__vh);
#endif
}

BY__INLINE by__vh by__to_bf16(by__vf x)
{
    by__vu u = (by__vu)x;
#if defined(__AVX512F__)
    __m512i sum = _mm512_add_epi32((__m512i)u, _mm512_set1_epi32(0x7fff));
    __mmask16 odd = _mm512_test_epi32_mask((__m512i)u, _mm512_set1_epi32(0x10000));
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q);
    sum = _mm512_mask_add_epi32(sum, odd, sum, _mm512_set1_epi32(1));
    sum = _mm512_mask_or_epi32(sum, nan, (__m512i)u, _mm512_set1_epi32(0x400000));
    return by__upper_halves((by__vu)sum);
#else
    by__vu sum = u + 0x7fff + ((u >> 16) & 1);
    by__vu nan = (by__vu)(x != x); /* NOLINT(misc-redundant-expression): true of NaN alone */
    return by__upper_halves((nan & (u | 0x400000)) | (~nan & sum));
#endif
}

BY__INLINE by__vf by__from_f16(by__vh h)
{
#if defined(__AVX512F__)
    return (by__vf)_mm512_cvtph_ps((__m256i)h);
#elif defined(__F16C__)
    return (by__vf)_mm256_cvtph_ps((__m128i)h);
#else
    /* The exponent's bias is larger by 112. Subnormal numbers are multiples of 2^-24: with the
     * exponent of 2^-14, and without the 1 that this adds to the mantissa. */
    by__vu upper = (by__vu)by__from_bf16(h);
    by__vu size = (upper & 0x7fff0000) >> 3;
    by__vu least = (by__vu){0} + 0x38800000;
    by__vu normal = size + (112u << 23);
    by__vu small = (by__vu)((by__vf)(size + least) - (by__vf)least);
    by__vu is_small = (by__vu)((by__vi)size < 1 << 23);
    by__vu is_huge = (by__vu)((by__vi)size >= 0x1f << 23); /* infinity and NaN */
    by__vu x = (is_small & small) | (~is_small & (normal | (is_huge & 0x7f800000)));
    return (by__vf)(x | (upper & 0x80000000));
#endif
}

BY__INLINE by__vh by__to_f16(by__vf x)
{
#if defined(__AVX512F__)
    return (by__vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
#elif defined(__F16C__)
    return (by__vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
#else
    /* To nearest, ties to even. Subnormal results are multiples of 2^-24, as is the last bit of
     * numbers from 0.5 to 1: the addition rounds. */
    by__vu u = (by__vu)x;
    by__vi size = (by__vi)(u & 0x7fffffff);
    by__vi normal = ((size + 0xfff + ((size >> 13) & 1)) >> 13) - (112 << 10);
    by__vi small = (by__vi)((by__vf)size + 0.5f) - 0x3f000000;
    by__vi is_small = size < 0x38800000;
    by__vi is_huge = size >= 0x47800000; /* 65536 */
    by__vi huge = 0x7c00 | ((size > 0x7f800000) & 0x200);
    by__vi h = (is_small & small) | (is_huge & huge) | (~(is_small | is_huge) & normal);
    return by__upper_halves((by__vu)h << 16 | (u & 0x80000000));
#endif
}

BY__INLINE by__vh by__load_halves_n(const uint16_t *p, int n)
{
    if (n == BY__LANES) {
        return *(const by__kernel_vh_any *)p;
    }
#if defined(__AVX512F__)
    return (by__vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
    uint64_t parts[2] = {0, 0};
    uint64_t last = 0;
    uint32_t two;
    if ((n & 4) != 0) {
        memcpy(&parts[0], p, sizeof parts[0]);
        p += 4;
    }
    if ((n & 2) != 0) {
        memcpy(&two, p, sizeof two);
        last = two;
    }
    if ((n & 1) != 0) {
        last |= (uint64_t)p[n & 2] << (16 * (n & 2));
    }
    parts[(n & 4) != 0] = last;
    return (by__vh)_mm_set_epi64x((long long)parts[1], (long long)parts[0]);
#else
    by__vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof(uint16_t));
    return h;
#endif
}

#if defined(__AVX512F__)
/* Interleaves the lower and the upper 16 elements. */
BY__INLINE by__vu by__interleave(__m512i both)
{
    const __m512i interleaved =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (by__vu)_mm512_permutexvar_epi16(interleaved, both);
}
#endif

/* Loads n <= 2 BY__LANES neighbouring halves, two per lane; zeros after them. */
BY__INLINE by__vu by__load_pairs_n(const uint16_t *p, int n)
{
    by__vu v = {0};
    if (n == 2 * BY__LANES) {
        memcpy(&v, p, sizeof v);
        return v;
    }
#if defined(__AVX512F__)
    return (by__vu)_mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1), p);
#else
    memcpy(&v, p, (size_t)n * sizeof(uint16_t));
    return v;
#endif
}

/* Lane i has low[i] in its lower half and high[i] in its upper half. */
BY__INLINE by__vu by__pairs(by__vh low, by__vh high)
{
#if defined(__AVX512F__)
    __m512i both = _mm512_castsi256_si512((__m256i)low);
    return by__interleave(_mm512_inserti64x4(both, (__m256i)high, 1));
#else
    return __builtin_convertvector(low, by__vu) | __builtin_convertvector(high, by__vu) << 16;
#endif
}

/* Loads elements i .. i + n of an array of f32, bf16 or f16. dtype and, in loops, n are
 * constants. */
BY__INLINE by__vf by__load_n(const void *data, int64_t i, by_dtype dtype, int n)
{
    if (dtype == BY_F32) {
        const float *p = (const float *)data + i;
        if (n == BY__LANES) {
            return *(const by__kernel_vf_any *)p;
        }
#if defined(__AVX512F__)
        return (by__vf)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
#elif defined(__AVX2__)
        return (by__vf)_mm256_maskload_ps(p, (__m256i)(by__lane_numbers() < (uint32_t)n));
#else
        by__vf x = {0};
        memcpy(&x, p, (size_t)n * sizeof(float));
        return x;
#endif
    }
    by__vh h = by__load_halves_n((const uint16_t *)data + i, n);
    return dtype == BY_BF16 ? by__from_bf16(h) : by__from_f16(h);
}

BY__INLINE void by__store_halves_n(uint16_t *p, by__vh h, int n)
{
    if (n == BY__LANES) {
        *(by__kernel_vh_any *)p = h;
        return;
    }
#if defined(__AVX512F__)
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1), (__m256i)h);
#elif defined(__AVX2__)
    __m128i part = (__m128i)h;
    if ((n & 4) != 0) {
        _mm_storel_epi64((__m128i *)p, part);
        part = _mm_unpackhi_epi64(part, part);
        p += 4;
    }
    if ((n & 2) != 0) {
        uint32_t two = (uint32_t)_mm_cvtsi128_si32(part);
        memcpy(p, &two, sizeof two);
        part = _mm_srli_epi64(part, 32);
        p += 2;
    }
    if ((n & 1) != 0) {
        *p = (uint16_t)_mm_extract_epi16(part, 0);
    }
#else
    memcpy(p, &h, (size_t)n * sizeof(uint16_t));
#endif
}

BY__INLINE void by__store_n(void *data, int64_t i, by__vf x, by_dtype dtype, int n)
{
    if (dtype != BY_F32) {
        by__store_halves_n((uint16_t *)data + i, dtype == BY_BF16 ? by__to_bf16(x) : by__to_f16(x),
                           n);
        return;
    }
    float *p = (float *)data + i;
    if (n == BY__LANES) {
        *(by__kernel_vf_any *)p = x;
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)x);
#elif defined(__AVX2__)
    /* In parts: a store with a mask is microcode on processors of AMD. */
    __m128 part = _mm256_castps256_ps128((__m256)x);
    if ((n & 4) != 0) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps((__m256)x, 1);
        p += 4;
    }
    if ((n & 2) != 0) {
        _mm_storel_pi((__m64 *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if ((n & 1) != 0) {
        _mm_store_ss(p, part);
    }
#else
    memcpy(p, &x, (size_t)n * sizeof(float));
#endif
}

/* Stores as by__store_n, but bf16 results below 2^-126 may become zero: one instruction instead of
 * six. For results of arithmetic, whose error is larger; pure conversions must be exact. */
BY__INLINE void by__store_flushed_n(void *data, int64_t i, by__vf x, by_dtype dtype, int n)
{
#if defined(__AVX512BF16__)
    if (dtype == BY_BF16) {
        by__store_halves_n((uint16_t *)data + i, (by__vh)_mm512_cvtneps_pbh((__m512)x), n);
        return;
    }
#endif
    by__store_n(data, i, x, dtype, n);
}

BY__INLINE by__vf by__kernel_load(const void *data, int64_t i, by_dtype dtype)
{
    return by__load_n(data, i, dtype, BY__LANES);
}

BY__INLINE void by__kernel_store(void *data, int64_t i, by__vf x, by_dtype dtype)
{
    by__store_n(data, i, x, dtype, BY__LANES);
}

BY__INLINE void by__store_flushed(void *data, int64_t i, by__vf x, by_dtype dtype)
{
    by__store_flushed_n(data, i, x, dtype, BY__LANES);
}

/* Stores x as bf16 bypassing the caches, to a multiple of its own size: for results that are not
 * read soon. An ordinary store first reads the line that it overwrites, and takes it from every
 * cache that has it, one line after the other (Zen 4: 13 ns each if the cores share a cache, 120 ns
 * if not). */
BY__INLINE void by__stream_bf16(uint16_t *data, by__vf x)
{
#if defined(__AVX512F__)
    _mm256_stream_si256((__m256i *)data, (__m256i)by__to_bf16(x));
#elif defined(__AVX2__)
    _mm_stream_si128((__m128i *)data, (__m128i)by__to_bf16(x));
#else
    by__kernel_store(data, 0, x, BY_BF16);
#endif
}

/* Required between by__stream_bf16 and the end of a kernel's work on a thread: before it other
 * threads may not see what was stored. */
BY__INLINE void by__stream_end(void)
{
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Pairs of low and high rounded to bf16; results below 2^-126 may become zero. */
BY__INLINE by__vu by__bf16_pairs_flushed(by__vf low, by__vf high)
{
#if defined(__AVX512BF16__)
    return by__interleave((__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
#else
    return by__pairs(by__to_bf16(low), by__to_bf16(high));
#endif
}

/* Rounds to nearest, ties to even; undefined where x is not finite. */
BY__INLINE by__vi by__round(by__vf x)
{
#if defined(__AVX512F__)
    return (by__vi)_mm512_cvtps_epi32((__m512)x);
#elif defined(__AVX2__)
    return (by__vi)_mm256_cvtps_epi32((__m256)x);
#elif defined(__SSE2__)
    return (by__vi)_mm_cvtps_epi32((__m128)x);
#elif defined(__aarch64__)
    return (by__vi)vcvtnq_s32_f32((float32x4_t)x);
#else
    by__vi n;
    for (int i = 0; i < BY__LANES; i++) {
        n[i] = (int32_t)__builtin_rintf(x[i]);
    }
    return n;
#endif
}

#endif
