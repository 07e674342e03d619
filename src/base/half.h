/* Conversions between f32 and bf16 or f16, one element at a time, rounding to nearest, ties to
 * even. A bfloat16 is the upper 16 bits of an IEEE binary32, so widening is a shift and narrowing
 * is a rounding add. NaNs are made quiet first, so that the add cannot turn one into an
 * infinity. */
#ifndef BY_BASE_HALF_H
#define BY_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t by__float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float by__bits_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float by__bf16_to_f32(uint16_t h)
{
    return by__bits_float((uint32_t)h << 16);
}

static inline uint16_t by__f32_to_bf16(float f)
{
    uint32_t u = by__float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Stochastic rounding by 16 random bits (the upper 16 must be 0): rounds up with a probability
 * proportional to the discarded part. */
static inline uint16_t by__f32_to_bf16_random(float f, uint32_t bits)
{
    uint32_t u = by__float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + bits) >> 16);
}

static inline float by__f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) {
        return by__bits_float(sign | 0x7f800000u | (mantissa << 13));
    }
    if (exponent != 0) {
        return by__bits_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    }
    /* Zero or subnormal: mantissa * 2^-24 is exact in f32. */
    float magnitude = (float)mantissa * 5.9604644775390625e-8f;
    return by__bits_float(sign | by__float_bits(magnitude));
}

static inline uint16_t by__f32_to_f16(float f)
{
    uint32_t u = by__float_bits(f);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (u >= 0x477ff000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (u < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 aligns the mantissa */
        float shifted = by__bits_float(u) + 0.5f;
        return (uint16_t)(sign | (by__float_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = u + 0xfffu + ((u >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

#endif
