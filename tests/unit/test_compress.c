/* Smaller forms of values: bounds of what they lose, error feedback, pieces, odd values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "comm/compress.h"

enum { COUNT = 3 * BY__INT8_BLOCK + 77, ROUNDS = 200 };

static void fill(float *out, size_t count, uint64_t seed)
{
    uint32_t key[2];
    by__philox_key(key, seed, 2);
    for (size_t i = 0; i < count; i++) {
        uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
        uint32_t bits[4];
        by__philox(bits, key, counter);
        out[i] = (by__unit_float(bits[0]) - 0.5f) * (float)(1u << bits[1] % 16);
    }
}

typedef struct int8_form {
    int8_t values[COUNT];
    float scales[COUNT / BY__INT8_BLOCK + 1];
} int8_form;

static void int8_is_within_half_a_step(void **state)
{
    (void)state;
    float in[COUNT];
    float out[COUNT];
    int8_form form;
    assert_int_equal(by__int8_scales(COUNT), 4);
    assert_int_equal(by__int8_scales(0), 0);
    fill(in, COUNT, 1);
    by__compress_int8(form.values, form.scales, NULL, in, COUNT);
    by__decompress_int8(out, form.values, form.scales, COUNT);
    for (size_t b = 0; b < 4; b++) {
        size_t end = b == 3 ? COUNT : (b + 1) * BY__INT8_BLOCK;
        float largest = 0.0f;
        for (size_t i = b * BY__INT8_BLOCK; i < end; i++) {
            largest = fabsf(in[i]) > largest ? fabsf(in[i]) : largest;
        }
        assert_true(form.scales[b] == largest / 127.0f);
        for (size_t i = b * BY__INT8_BLOCK; i < end; i++) {
            assert_true(fabsf(out[i] - in[i]) <= 0.50001f * form.scales[b]);
        }
    }
}

static void pieces_are_the_same(void **state)
{
    (void)state;
    float in[COUNT];
    int8_form whole;
    int8_form pieces;
    memset(&whole, 0, sizeof whole);
    memset(&pieces, 0, sizeof pieces);
    fill(in, COUNT, 2);
    by__compress_int8(whole.values, whole.scales, NULL, in, COUNT);
    by__compress_int8(pieces.values, pieces.scales, NULL, in, BY__INT8_BLOCK);
    by__compress_int8(pieces.values + BY__INT8_BLOCK, pieces.scales + 1, NULL, in + BY__INT8_BLOCK,
                      COUNT - BY__INT8_BLOCK);
    assert_memory_equal(&whole, &pieces, sizeof whole);
}

/* The sum of what arrived over many calls is that of what was sent, up to one residual. */
static void feedback(void **state)
{
    (void)state;
    static double sent[COUNT];
    static double arrived[COUNT];
    static double arrived_bf16[COUNT];
    float in[COUNT];
    float out[COUNT];
    float residual[COUNT] = {0};
    float residual_bf16[COUNT] = {0};
    uint16_t half[COUNT];
    int8_form form;
    memset(sent, 0, sizeof sent);
    for (int round = 0; round < ROUNDS; round++) {
        fill(in, COUNT, (uint64_t)round);
        by__compress_int8(form.values, form.scales, residual, in, COUNT);
        by__decompress_int8(out, form.values, form.scales, COUNT);
        by__compress_bf16(half, residual_bf16, in, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            sent[i] += (double)in[i];
            arrived[i] += (double)out[i];
            arrived_bf16[i] += (double)by__bf16_to_f32(half[i]);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(fabs(sent[i] - arrived[i] - (double)residual[i]) < 0.5);
        assert_true(fabs(sent[i] - arrived_bf16[i] - (double)residual_bf16[i]) < 0.02);
        assert_true(fabsf(residual[i]) <= 0.51f * form.scales[i / BY__INT8_BLOCK]);
    }
    /* A constant below half a step arrives too, in time: alone it would be lost for ever. */
    double small = 0.0;
    memset(residual, 0, sizeof residual);
    for (int round = 0; round < ROUNDS; round++) {
        memset(in, 0, sizeof in);
        in[0] = 127.0f;
        in[1] = 0.3f;
        by__compress_int8(form.values, form.scales, residual, in, BY__INT8_BLOCK);
        small += (double)((float)form.values[1] * form.scales[0]);
    }
    assert_true(fabs(small - 0.3 * ROUNDS) < 1.1);
}

static void odd_values(void **state)
{
    (void)state;
    float in[BY__INT8_BLOCK + 1] = {0};
    float out[BY__INT8_BLOCK + 1];
    float residual[BY__INT8_BLOCK + 1] = {0};
    uint16_t half[2];
    int8_form form;
    by__compress_int8(form.values, form.scales, residual, in, BY__INT8_BLOCK + 1);
    by__decompress_int8(out, form.values, form.scales, BY__INT8_BLOCK + 1);
    assert_true(out[0] == 0.0f && out[BY__INT8_BLOCK] == 0.0f && residual[0] == 0.0f);
    in[0] = 1e-42f; /* it waits in the residual */
    by__compress_int8(form.values, form.scales, residual, in, BY__INT8_BLOCK + 1);
    by__decompress_int8(out, form.values, form.scales, BY__INT8_BLOCK + 1);
    assert_true(out[0] == 0.0f && residual[0] == 1e-42f);
    residual[0] = 0.0f;
    in[0] = INFINITY;
    in[1] = 5.0f;
    in[BY__INT8_BLOCK] = 3.0f;
    by__compress_int8(form.values, form.scales, residual, in, BY__INT8_BLOCK + 1);
    by__decompress_int8(out, form.values, form.scales, BY__INT8_BLOCK + 1);
    assert_true(isnan(out[0]) && isnan(out[1]) && residual[0] == 0.0f && residual[1] == 0.0f);
    assert_true(fabsf(out[BY__INT8_BLOCK] - 3.0f) < 1e-6f);
    in[1] = NAN;
    residual[0] = 0.0f;
    by__compress_bf16(half, residual, in, 2);
    by__decompress_bf16(out, half, 2);
    assert_true(isinf(out[0]) && isnan(out[1]) && residual[0] == 0.0f && residual[1] == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_is_within_half_a_step),
        cmocka_unit_test(pieces_are_the_same),
        cmocka_unit_test(feedback),
        cmocka_unit_test(odd_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
