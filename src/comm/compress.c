#include "comm/compress.h"

#include <math.h>

#include "base/half.h"

static float value_of(const float *residual, const float *in, size_t i)
{
    return residual == NULL ? in[i] : in[i] + residual[i];
}

/* Largest magnitude; NaN when a value is not finite. */
static float largest_of(const float *residual, const float *in, size_t count)
{
    float largest = 0.0f;
    bool finite = true;
    for (size_t i = 0; i < count; i++) {
        float magnitude = fabsf(value_of(residual, in, i));
        finite = finite && isfinite(magnitude);
        largest = magnitude > largest ? magnitude : largest;
    }
    return finite ? largest : NAN;
}

static void compress_block(int8_t *out, float *scale, float *residual, const float *in,
                           size_t count)
{
    float largest = largest_of(residual, in, count);
    *scale = largest / 127.0f;
    /* Of magnitudes near the smallest float, 1 / scale would be infinite: all of them are left to
     * the residual. */
    bool tiny = *scale < 1e-37f;
    if (tiny) {
        *scale = 0.0f;
    }
    for (size_t i = 0; i < count; i++) {
        float value = value_of(residual, in, i);
        float quotient = tiny || isnan(largest) ? 0.0f : rintf(value / *scale);
        quotient = quotient > 127.0f ? 127.0f : quotient < -127.0f ? -127.0f : quotient;
        out[i] = (int8_t)quotient;
        if (residual != NULL) {
            residual[i] = isnan(largest) ? 0.0f : value - quotient * *scale;
        }
    }
}

void by__compress_int8(int8_t *out, float *scales, float *residual, const float *in, size_t count)
{
    for (size_t at = 0; at < count; at += BY__INT8_BLOCK) {
        size_t n = count - at < BY__INT8_BLOCK ? count - at : BY__INT8_BLOCK;
        compress_block(out + at, &scales[at / BY__INT8_BLOCK],
                       residual == NULL ? NULL : residual + at, in + at, n);
    }
}

void by__decompress_int8(float *out, const int8_t *in, const float *scales, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)in[i] * scales[i / BY__INT8_BLOCK];
    }
}

void by__compress_bf16(uint16_t *out, float *residual, const float *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float value = value_of(residual, in, i);
        out[i] = by__f32_to_bf16(value);
        if (residual != NULL) {
            float lost = value - by__bf16_to_f32(out[i]);
            residual[i] = isfinite(lost) ? lost : 0.0f;
        }
    }
}

void by__decompress_bf16(float *out, const uint16_t *in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = by__bf16_to_f32(in[i]);
    }
}
