/* Generates normal values for initial weights (device/cpu/normal.c).
 *
 * Only + - * sqrt and integers, in this order and never contracted into fused operations (this file
 * is compiled with -ffp-contract=off): the values have the same bits at every level, on every
 * machine and with every C library, which logf and sincosf would not ensure. */
#include "device/cpu/cpu.h"
#include "device/cpu/kernels/simd_math.h"

/* Uniform in [0, 1) from the 24 upper bits, as by__unit_float. */
BY__INLINE by__vf unit(by__vu bits)
{
    return __builtin_convertvector((by__vi)(bits >> 8), by__vf) * (1.0f / 16777216.0f);
}

/* std sqrt(-2 ln u), u = 1 - bits / 2^32 in (0, 1]. With u = m 2^e and m in [sqrt(1/2), sqrt(2)),
 * ln u = e ln 2 + ln m; the polynomial of ln m is that of Moshier's Cephes library, and ln 2 is
 * split in two parts, the first short enough that its product with e is exact. */
BY__INLINE by__vf radius(by__vu bits, float std)
{
    by__vu pattern = (by__vu)(1.0f - unit(bits));
    by__vi e = (by__vi)(pattern - 0x3f3504f3u) >> 23; /* the pattern of sqrt(1/2) */
    by__vf exponent = __builtin_convertvector(e, by__vf);
    by__vf f = (by__vf)(pattern - ((by__vu)e << 23)) - 1.0f;
    by__vf p = by__splat(7.0376836292e-2f);
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    by__vf rest = p * f * (f * f) - exponent * 2.12194440e-4f - 0.5f * (f * f);
    by__vf log_u = f + rest + exponent * 0.693359375f;
    return std * by__sqrt(-2.0f * log_u);
}

/* x = r cos(2 pi u) and y = r sin(2 pi u), u = bits / 2^32. The circle is divided into quarters
 * around the axes, where Cephes' polynomials are valid; the quarter determines which of the two is
 * the sine, and the signs. */
BY__INLINE void on_circle(by__vf *x, by__vf *y, by__vu bits, by__vf r)
{
    by__vf u = unit(bits);
    by__vi quarter = __builtin_convertvector(4.0f * u + 0.5f, by__vi);
    by__vf a = (u - 0.25f * __builtin_convertvector(quarter, by__vf)) * 6.28318530717958647692f;
    by__vf z = a * a;
    by__vf sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * a + a;
    by__vf cosine =
        ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) *
            (z * z) -
        0.5f * z + 1.0f;
    by__vi odd = (quarter & 1) != 0;
    /* Bit 1 of the quarter, moved to the sign. */
    by__vi across_sign = ((quarter + 1) & 2) << 30;
    by__vi up_sign = (quarter & 2) << 30;
    *x = r * (by__vf)((by__vi)by__select(odd, sine, cosine) ^ across_sign);
    *y = r * (by__vf)((by__vi)by__select(odd, cosine, sine) ^ up_sign);
}

/* Values 64 i ... 64 i + 63 of a block: word w of counter 16 i + j gives value 16 w + j, so that
 * any vector width can generate them without a shuffle. Pairs of normal values come from pairs of
 * uniform ones (Box and Muller 1958). */
BY__INLINE void values_of_16_counters(float out[64], float std, const uint32_t key[2],
                                      uint32_t first, int64_t block)
{
    for (int64_t j = 0; j < 16; j += BY__LANES) {
        by__vu c[4] = {by__lane_numbers() + (first + (uint32_t)j), (by__vu){0} + (uint32_t)block,
                       (by__vu){0} + (uint32_t)(block >> 32), (by__vu){0}};
        by__philox_lanes(c, key[0], key[1]);
        for (int pair = 0; pair < 4; pair += 2) {
            by__vf x;
            by__vf y;
            on_circle(&x, &y, c[pair + 1], radius(c[pair], std));
            by__kernel_store(out, 16 * pair + j, x, BY_F32);
            by__kernel_store(out, 16 * (pair + 1) + j, y, BY_F32);
        }
    }
}

void BY__AT_LEVEL(by__kernel_fill_normal_block)(float *out, int64_t count, float std,
                                                const uint32_t key[2], int64_t block)
{
    int64_t i = 0;
    for (; i + 64 <= count; i += 64) {
        values_of_16_counters(out + i, std, key, (uint32_t)(i / 4), block);
    }
    if (i < count) {
        float values[64];
        values_of_16_counters(values, std, key, (uint32_t)(i / 4), block);
        memcpy(out + i, values, (size_t)(count - i) * sizeof *out);
    }
}
