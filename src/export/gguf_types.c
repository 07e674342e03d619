/* Blocks of GGUF's types. Numbers are little-endian, scales f16.
 *
 *   q8_0  32 elements: scale d, 32 x i8; x = d q
 *   q4_0  32 elements: scale d, 16 bytes; x = d (q - 8). Element i < 16 is the low half of byte i,
 *         element 16 + i its high half
 *   q5_0  as q4_0, with 32 fifth bits after the scale; x = d (q - 16)
 *   q4_k  256 elements in 8 groups of 32: scales d and m for all, 12 bytes with a 6-bit scale s and
 *         a 6-bit minimum n for each group, 128 bytes of q; x = d s q - m n. Two groups share 32
 *         bytes, the first in the low halves
 *   q6_k  256 elements in 16 groups of 16: 128 bytes of low halves, 64 bytes of two high bits, 16 x
 *         i8 scales s, scale d; x = d s (q - 32)
 */
#include "export/gguf_types.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/half.h"

static uint16_t load16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void store16(uint8_t *p, uint16_t value)
{
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
}

static float scale_at(const uint8_t *p)
{
    return by__f16_to_f32(load16(p));
}

/* Stores a scale. Returns false if it does not fit into f16. */
static bool put_scale(uint8_t *p, float scale)
{
    uint16_t half = by__f32_to_f16(scale);
    store16(p, half);
    return isfinite(by__f16_to_f32(half));
}

/* ---- floats ---- */

static bool f32_encode(uint8_t *out, const float *in)
{
    memcpy(out, in, sizeof *in);
    return true;
}

static float f32_decode(const uint8_t *block, size_t i)
{
    BY_UNUSED(i);
    float value;
    memcpy(&value, block, sizeof value);
    return value;
}

static bool f16_encode(uint8_t *out, const float *in)
{
    return put_scale(out, in[0]);
}

static float f16_decode(const uint8_t *block, size_t i)
{
    BY_UNUSED(i);
    return scale_at(block);
}

static bool bf16_encode(uint8_t *out, const float *in)
{
    store16(out, by__f32_to_bf16(in[0]));
    return true;
}

static float bf16_decode(const uint8_t *block, size_t i)
{
    BY_UNUSED(i);
    return by__bf16_to_f32(load16(block));
}

/* ---- blocks of 32 ---- */

/* Returns the factor that turns elements into integers of this scale; 0 if the inverse overflows
 * f32, since such a scale is 0 in f16 as well. */
static float inverse_of(float scale)
{
    float inverse = scale == 0.0f ? 0.0f : 1.0f / scale;
    return isfinite(inverse) ? inverse : 0.0f;
}

static bool q8_0_encode(uint8_t *out, const float *in)
{
    float most = 0.0f;
    for (size_t i = 0; i < 32; i++) {
        most = fmaxf(most, fabsf(in[i]));
        if (!isfinite(in[i])) {
            return false;
        }
    }
    float d = most / 127.0f;
    float inverse = inverse_of(d);
    for (size_t i = 0; i < 32; i++) {
        out[2 + i] = (uint8_t)(int8_t)roundf(in[i] * inverse);
    }
    return put_scale(out, d);
}

static float q8_0_decode(const uint8_t *block, size_t i)
{
    return scale_at(block) * (float)(int8_t)block[2 + i];
}

/* The value of the largest magnitude becomes -8, the end of the range with the larger magnitude. */
static bool q4_0_encode(uint8_t *out, const float *in)
{
    float largest = 0.0f;
    for (size_t i = 0; i < 32; i++) {
        largest = fabsf(in[i]) > fabsf(largest) ? in[i] : largest;
        if (!isfinite(in[i])) {
            return false;
        }
    }
    float d = largest / -8.0f;
    float inverse = inverse_of(d);
    uint8_t q[32];
    for (size_t i = 0; i < 32; i++) {
        /* In double, so that the sum is rounded only once, as with a fused multiply-add. */
        double shifted = (double)in[i] * (double)inverse + 8.5;
        q[i] = (uint8_t)fmin(15.0, fmax(0.0, trunc(shifted)));
    }
    for (size_t i = 0; i < 16; i++) {
        out[2 + i] = (uint8_t)(q[i] | q[16 + i] << 4);
    }
    return put_scale(out, d);
}

static int nibble(const uint8_t *bytes, size_t i)
{
    return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4;
}

static float q4_0_decode(const uint8_t *block, size_t i)
{
    return scale_at(block) * (float)(nibble(block + 2, i) - 8);
}

static float q5_0_decode(const uint8_t *block, size_t i)
{
    int fifth = block[2 + i / 8] >> (i % 8) & 1;
    return scale_at(block) * (float)((nibble(block + 6, i) | fifth << 4) - 16);
}

/* ---- blocks of 256 ---- */

/* Unpacks the 6-bit scale and minimum of group j. Each of the first four groups has its own bytes,
 * whose two high bits belong to the last four groups. */
static void group_scales(const uint8_t *packed, size_t j, int *scale, int *minimum)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[4 + j] & 63;
    } else {
        *scale = (packed[4 + j] & 15) | packed[j - 4] >> 6 << 4;
        *minimum = packed[4 + j] >> 4 | packed[j] >> 6 << 4;
    }
}

static void put_group_scales(uint8_t *packed, size_t j, unsigned scale, unsigned minimum)
{
    if (j < 4) {
        packed[j] = (uint8_t)(packed[j] | scale);
        packed[4 + j] = (uint8_t)(packed[4 + j] | minimum);
    } else {
        packed[4 + j] = (uint8_t)((scale & 15u) | (minimum & 15u) << 4);
        packed[j - 4] = (uint8_t)(packed[j - 4] | scale >> 4 << 6);
        packed[j] = (uint8_t)(packed[j] | minimum >> 4 << 6);
    }
}

static float q4_k_decode(const uint8_t *block, size_t i)
{
    int scale;
    int minimum;
    size_t j = i / 32;
    group_scales(block + 4, j, &scale, &minimum);
    uint8_t byte = block[16 + j / 2 * 32 + i % 32];
    int q = j % 2 == 0 ? byte & 15 : byte >> 4;
    return scale_at(block) * (float)scale * (float)q - scale_at(block + 2) * (float)minimum;
}

static float q6_k_decode(const uint8_t *block, size_t i)
{
    size_t half = i / 128;
    size_t quarter = i % 128 / 32;
    size_t l = i % 32;
    uint8_t low = block[half * 64 + (quarter % 2) * 32 + l];
    int high = block[128 + half * 32 + l] >> (2 * quarter) & 3;
    int q = ((quarter < 2 ? low & 15 : low >> 4) | high << 4) - 32;
    return scale_at(block + 208) * (float)(int8_t)block[192 + i / 16] * (float)q;
}

/* The largest magnitude that fits a block with the largest scale, and the range below which any f16
 * scale would be too large. */
#define MAX_Q4_K  (65504.0f * 63.0f * 15.0f)
#define MIN_RANGE 1e-30f

/* x = scale q - minimum for a group of 32, q in 0 .. 15, minimum >= 0. */
typedef struct group_fit {
    float scale;
    float minimum;
} group_fit;

static int quantum(float x, float inverse, float minimum)
{
    float q = rintf((x + minimum) * inverse);
    return q < 0.0f ? 0 : q > 15.0f ? 15 : (int)q;
}

/* Fits scale and minimum by least squares to the integers that `inverse` and `minimum` yield.
 * Returns the sum of weighted squared errors. */
static double refit(group_fit *fit, const float *x, const float *weight, float inverse,
                    float minimum)
{
    double w = 0.0;
    double wq = 0.0;
    double wqq = 0.0;
    double wx = 0.0;
    double wqx = 0.0;
    double error = 0.0;
    for (size_t i = 0; i < 32; i++) {
        double q = quantum(x[i], inverse, minimum);
        w += weight[i];
        wq += weight[i] * q;
        wqq += weight[i] * q * q;
        wx += weight[i] * (double)x[i];
        wqx += weight[i] * q * (double)x[i];
    }
    double determinant = w * wqq - wq * wq;
    double scale = 1.0 / (double)inverse;
    double offset = (double)-minimum;
    if (determinant > 0.0) {
        scale = (w * wqx - wq * wx) / determinant;
        offset = (wqq * wx - wq * wqx) / determinant;
    }
    if (offset > 0.0) { /* the minimum cannot be positive */
        offset = 0.0;
        scale = wqq > 0.0 ? wqx / wqq : 0.0;
    }
    for (size_t i = 0; i < 32; i++) {
        double difference = scale * quantum(x[i], inverse, minimum) + offset - (double)x[i];
        error += weight[i] * difference * difference;
    }
    *fit = (group_fit){(float)scale, (float)-offset};
    return error;
}

/* Weights large values more, because they matter most in a product. */
static group_fit fit_group(const float *x)
{
    float weight[32];
    float low = 0.0f;
    float high = 0.0f;
    double squares = 0.0;
    for (size_t i = 0; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        squares += (double)x[i] * (double)x[i];
    }
    if (high - low < MIN_RANGE) {
        return (group_fit){0.0f, 0.0f};
    }
    for (size_t i = 0; i < 32; i++) {
        weight[i] = (float)sqrt(squares / 32.0) + fabsf(x[i]);
    }
    group_fit best = {0};
    double least = INFINITY;
    for (int step = -10; step <= 10; step++) { /* from slightly narrower to slightly wider grids */
        group_fit fit;
        float inverse = (15.0f + 0.1f * (float)step) / (high - low);
        double error = refit(&fit, x, weight, inverse, -low);
        if (error < least && fit.scale > 0.0f) {
            least = error;
            best = fit;
        }
    }
    return best;
}

static bool q4_k_encode(uint8_t *out, const float *in)
{
    group_fit fits[8];
    float scales = 0.0f;
    float minima = 0.0f;
    for (size_t i = 0; i < 256; i++) {
        if (!(fabsf(in[i]) <= MAX_Q4_K)) {
            return false;
        }
    }
    for (size_t j = 0; j < 8; j++) {
        fits[j] = fit_group(in + 32 * j);
        scales = fmaxf(scales, fits[j].scale);
        minima = fmaxf(minima, fits[j].minimum);
    }
    memset(out, 0, 144);
    bool good = put_scale(out, scales / 63.0f);
    good = put_scale(out + 2, minima / 63.0f) && good;
    for (size_t j = 0; j < 8; j++) {
        float s = scales == 0.0f ? 0.0f : rintf(63.0f * fits[j].scale / scales);
        float m = minima == 0.0f ? 0.0f : rintf(63.0f * fits[j].minimum / minima);
        put_group_scales(out + 4, j, (unsigned)s, (unsigned)m);
        float scale = scale_at(out) * s;
        float minimum = scale_at(out + 2) * m;
        for (size_t i = 0; i < 32; i++) {
            int q = scale == 0.0f ? 0 : quantum(in[32 * j + i], 1.0f / scale, minimum);
            uint8_t *byte = &out[16 + j / 2 * 32 + i];
            *byte = (uint8_t)(*byte | (unsigned)q << (j % 2 * 4));
        }
    }
    return good;
}

static const by__export_gguf_type types[] = {
    {"f32", 0, 0, 1, 4, false, f32_encode, f32_decode},
    {"f16", 1, 1, 1, 2, false, f16_encode, f16_decode},
    {"bf16", 30, 32, 1, 2, false, bf16_encode, bf16_decode},
    {"q8_0", 8, 7, 32, 34, true, q8_0_encode, q8_0_decode},
    {"q4_0", 2, 2, 32, 18, true, q4_0_encode, q4_0_decode},
    {"q5_0", 6, 8, 32, 22, true, NULL, q5_0_decode},
    {"q4_k", 12, 15, 256, 144, true, q4_k_encode, q4_k_decode},
    {"q6_k", 14, 18, 256, 210, true, NULL, q6_k_decode},
};

const by__export_gguf_type *by__export_gguf_type_named(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            return &types[i];
        }
    }
    return NULL;
}

const by__export_gguf_type *by__export_gguf_type_of(uint32_t id)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (types[i].id == id) {
            return &types[i];
        }
    }
    return NULL;
}
