/* emulated_calls: what emulated.h calls to stand for instructions of a GPU; C, as the emulator
 * is. */
#ifndef BY_TESTS_CUDA_EMULATED_CALLS_H
#define BY_TESTS_CUDA_EMULATED_CALLS_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The compiler may not copy calls at which threads meet. */
#ifdef __clang__
#define EMULATED_MEETING __attribute__((noinline, noduplicate, convergent))
#else
#define EMULATED_MEETING __attribute__((noinline))
#endif

EMULATED_MEETING void by_emulated_sync_block(void);
EMULATED_MEETING void by_emulated_sync_warp(void);
/* The value that lane `lane` of the warp calls this with. */
EMULATED_MEETING uint32_t by_emulated_shuffle(uint32_t value, unsigned lane);
/* mma.sync.m16n8k16, f32 sums of bf16 (or f16) products. */
EMULATED_MEETING void by_emulated_mma(float d[4], const uint32_t a[4], const uint32_t b[2],
                                      int bf16);
/* ldmatrix.x4 of the 16 bytes that each lane read. */
EMULATED_MEETING void by_emulated_ldmatrix(uint32_t r[4], const uint32_t row_words[4],
                                           int transposed);
/* cp.async of 16 bytes, of which those behind the first `bytes` are zeros. */
void by_emulated_copy_async(void *to, const void *from, unsigned bytes);
void by_emulated_copy_commit(void);
void by_emulated_copy_wait(unsigned pending);
void by_emulated_atomic_float(void);
int32_t by_emulated_atomic_add(int32_t *p, int32_t value);

/* Conversions as those instructions make them: to nearest, ties to even, one NaN. */
static inline float by_emulated_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t by_emulated_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float by_emulated_from_bf16(uint16_t h)
{
    return by_emulated_float((uint32_t)h << 16);
}

static inline uint16_t by_emulated_to_bf16(float f)
{
    uint32_t u = by_emulated_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fffu;
    }
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float by_emulated_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (uint32_t)h >> 10 & 0x1fu;
    uint32_t mantissa = h & 0x3ffu;
    if (exponent == 0x1fu) {
        return by_emulated_float(mantissa != 0 ? 0x7fffffffu : sign | 0x7f800000u);
    }
    if (exponent != 0) {
        return by_emulated_float(sign | (exponent + 112u) << 23 | mantissa << 13);
    }
    return by_emulated_float(sign | by_emulated_bits((float)mantissa * 0x1p-24f));
}

static inline uint16_t by_emulated_to_f16(float f)
{
    uint32_t u = by_emulated_bits(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000u);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u) {
        return 0x7fffu;
    }
    if (u >= 0x477ff000u) { /* 65520 and above become infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (u < 0x38800000u) { /* below 2^-14: adding 0.5 aligns the mantissa */
        float aligned = by_emulated_float(u) + 0.5f;
        return (uint16_t)(sign | (by_emulated_bits(aligned) - 0x3f000000u));
    }
    return (uint16_t)(sign | (u + 0xfffu + (u >> 13 & 1u) - 0x38000000u) >> 13);
}

#ifdef __cplusplus
}
#endif
#endif
