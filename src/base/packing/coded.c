#include "base/packing/coded.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

#define F8_NAN 0x7fu

size_t by__coded_row_bytes(by__code_kind kind, int64_t k)
{
    return kind == BY__CODE_INT4 ? ((size_t)k + 7) / 8 * 4 : (size_t)k;
}

float by__f8_to_f32(uint8_t code)
{
    int exponent = code >> 3 & 15;
    int mantissa = code & 7;
    float size =
        exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
    if ((code & F8_NAN) == F8_NAN) {
        return NAN;
    }
    return (code & 0x80) != 0 ? -size : size;
}

uint8_t by__f32_to_f8(float value)
{
    uint8_t sign = signbit(value) ? 0x80 : 0;
    float size = fabsf(value);
    int exponent;
    if (isnan(value)) {
        return (uint8_t)(sign | F8_NAN);
    }
    size = size > BY__F8_LARGEST ? BY__F8_LARGEST : size;
    if (size < 0x1p-6f) { /* subnormal: steps of 2^-9; eight of them are the smallest normal */
        return (uint8_t)(sign | (int)rintf(size * 0x1p9f));
    }
    (void)frexpf(size, &exponent);                      /* size = [0.5, 1) 2^exponent */
    int steps = (int)rintf(ldexpf(size, 4 - exponent)); /* 8 .. 16 */
    return (uint8_t)(sign | ((exponent + 6) * 8 + steps - 8));
}

int by__coded_code(const by__coded *c, int64_t j, int64_t i)
{
    const uint8_t *row = c->codes + (size_t)j * by__coded_row_bytes(c->kind, c->k);
    switch (c->kind) {
    case BY__CODE_INT4:
        return (row[i / 2] >> (i % 2 * 4) & 15) - 8;
    case BY__CODE_INT8:
        return (int8_t)row[i];
    default:
        return row[i];
    }
}

float by__coded_scale(const by__coded *c, int64_t j, int64_t i)
{
    int64_t at = j * c->scale_row + (c->scale_row > 1 ? i / c->group : 0);
    float value;
    uint16_t half;
    if (c->scale_dtype == BY_F32) {
        memcpy(&value, c->scales + at * 4, sizeof value);
        return value;
    }
    memcpy(&half, c->scales + at * 2, sizeof half);
    return c->scale_dtype == BY_BF16 ? by__bf16_to_f32(half) : by__f16_to_f32(half);
}

float by__coded_at(const by__coded *c, int64_t j, int64_t i)
{
    int code = by__coded_code(c, j, i);
    return by__coded_scale(c, j, i) *
           (c->kind == BY__CODE_F8 ? by__f8_to_f32((uint8_t)code) : (float)code);
}

void by__coded_row(const by__coded *c, int64_t j, int64_t first, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = by__coded_at(c, j, first + i);
    }
}
