/* Codecs of compressed exchanges and PowerSGD: against plain definitions, the bounds of each code,
 * and what error feedback promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/half.h"
#include "comm/codec.h"
#include "comm/power_sgd.h"

enum { COUNT = 3 * BY__CODEC_BLOCK + 1234 };

static const double DENSITY = 0.01;

typedef struct buffers {
    float *values;
    float *residual;
    float *out;
    uint8_t *code;
} buffers;

/* Values of both signs over four decades, a function of (seed, index). */
static float value_at(uint32_t seed, uint32_t i)
{
    uint32_t key[2];
    uint32_t bits[4];
    const uint32_t counter[4] = {i, 0, 0, 0};
    by__philox_key(key, seed, 3);
    by__philox(bits, key, counter);
    return (by__unit_float(bits[0]) - 0.5f) * powf(10.0f, (float)(bits[1] % 5) - 3.0f);
}

static void open_buffers(buffers *b)
{
    b->values = calloc(COUNT, sizeof(float));
    b->residual = calloc(COUNT, sizeof(float));
    b->out = calloc(COUNT, sizeof(float));
    b->code = calloc(COUNT, 2 * sizeof(float));
    assert_true(b->values != NULL && b->residual != NULL && b->out != NULL && b->code != NULL);
    for (uint32_t i = 0; i < COUNT; i++) {
        b->values[i] = value_at(1, i);
    }
}

static void close_buffers(buffers *b)
{
    free(b->values);
    free(b->residual);
    free(b->out);
    free(b->code);
}

static const by__comm_codec *find(const char *name)
{
    const by__comm_codec *codec;
    by_error error;
    assert_int_equal(by__comm_codec_find(&codec, name, &error), BY_OK);
    return codec;
}

static void code(buffers *b, const by__comm_codec *codec, size_t count, bool feedback, int threads)
{
    size_t bytes = by__comm_codec_bytes(codec, count, DENSITY);
    by_error error;
    b->code[bytes] = 0xa5; /* a guard */
    assert_int_equal(by__comm_codec_send(codec, b->values, feedback ? b->residual : NULL, count,
                                         DENSITY, b->code, threads, &error),
                     BY_OK);
    assert_int_equal(b->code[bytes], 0xa5);
    assert_int_equal(
        by__comm_codec_receive(codec, b->code, count, DENSITY, false, b->out, threads, &error),
        BY_OK);
}

static void test_bounds(void **state)
{
    buffers b;
    BY_UNUSED(state);
    open_buffers(&b);
    code(&b, find("bf16"), COUNT, false, 1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(b.out[i] == by__bf16_to_f32(by__f32_to_bf16(b.values[i])));
    }
    code(&b, find("int8"), COUNT, false, 1);
    for (size_t first = 0; first < COUNT; first += 256) {
        size_t end = first + 256 < COUNT ? first + 256 : COUNT;
        float largest = 0.0f;
        for (size_t i = first; i < end; i++) {
            largest = fmaxf(largest, fabsf(b.values[i]));
        }
        for (size_t i = first; i < end; i++) {
            assert_true(fabsf(b.out[i] - b.values[i]) <= 0.5001f * largest / 127.0f);
        }
    }
    code(&b, find("one_bit"), COUNT, false, 1);
    for (size_t i = 0; i < COUNT; i++) {
        assert_true(signbit(b.out[i]) == signbit(b.values[i]));
        assert_true(fabsf(b.out[i]) == fabsf(b.out[i / 1024 * 1024]));
    }
    close_buffers(&b);
}

static int compare_down(const void *a, const void *b)
{
    float x = *(const float *)a;
    float y = *(const float *)b;
    return (x < y) - (x > y);
}

/* Per block: the k largest by sorting; of equals, those that come first. */
static void test_top_k(void **state)
{
    buffers b;
    float *sorted = malloc(BY__CODEC_BLOCK * sizeof *sorted);
    BY_UNUSED(state);
    assert_non_null(sorted);
    open_buffers(&b);
    for (size_t i = 0; i < 4000; i++) {
        b.values[2 * i] = i % 2 == 0 ? 2.0f : -2.0f; /* more equals at the top than are kept */
    }
    code(&b, find("top_k"), COUNT, false, 1);
    for (size_t first = 0; first < COUNT; first += BY__CODEC_BLOCK) {
        size_t n = COUNT - first < BY__CODEC_BLOCK ? COUNT - first : BY__CODEC_BLOCK;
        size_t k = (size_t)ceil((double)n * DENSITY);
        size_t equals = 0;
        for (size_t i = 0; i < n; i++) {
            sorted[i] = fabsf(b.values[first + i]);
        }
        qsort(sorted, n, sizeof *sorted, compare_down);
        for (size_t i = 0; i < k; i++) {
            equals += sorted[i] == sorted[k - 1];
        }
        for (size_t i = 0; i < n; i++) {
            float magnitude = fabsf(b.values[first + i]);
            bool kept = magnitude > sorted[k - 1] || (magnitude == sorted[k - 1] && equals > 0);
            equals -= kept && magnitude == sorted[k - 1] ? 1u : 0u;
            assert_true(b.out[first + i] == (kept ? b.values[first + i] : 0.0f));
        }
    }
    free(sorted);
    close_buffers(&b);
}

/* What was decoded and the last residual add up to all values. */
static void test_feedback(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; by__comm_codec_at(k) != NULL; k++) {
        buffers b;
        double *sent = calloc(COUNT, sizeof *sent);
        double *received = calloc(COUNT, sizeof *received);
        assert_true(sent != NULL && received != NULL);
        open_buffers(&b);
        for (uint32_t step = 0; step < 12; step++) {
            for (uint32_t i = 0; i < COUNT; i++) {
                b.values[i] = value_at(step, i);
                sent[i] += (double)b.values[i];
            }
            code(&b, by__comm_codec_at(k), COUNT, true, 1);
            for (size_t i = 0; i < COUNT; i++) {
                received[i] += (double)b.out[i];
            }
        }
        double off = 0.0;
        double residual = 0.0;
        for (size_t i = 0; i < COUNT; i++) {
            double all = received[i] + (double)b.residual[i];
            off = fmax(off, fabs(all - sent[i]));
            residual += fabs((double)b.residual[i]);
        }
        assert_true(off < 1e-4);
        assert_true(residual > 0.0); /* each of them loses something */
        free(sent);
        free(received);
        close_buffers(&b);
    }
}

/* Same code for any number of threads, for a range of blocks and for the whole; adding adds. */
static void test_ranges(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; by__comm_codec_at(k) != NULL; k++) {
        const by__comm_codec *codec = by__comm_codec_at(k);
        buffers whole;
        buffers part;
        by_error error;
        open_buffers(&whole);
        open_buffers(&part);
        code(&whole, codec, COUNT, true, 1);
        code(&part, codec, COUNT, true, 3);
        size_t bytes = by__comm_codec_bytes(codec, COUNT, DENSITY);
        assert_memory_equal(whole.code, part.code, bytes);
        assert_memory_equal(whole.residual, part.residual, COUNT * sizeof(float));
        size_t skipped = by__comm_codec_bytes(codec, BY__CODEC_BLOCK, DENSITY);
        assert_int_equal(by__comm_codec_send(codec, part.values + BY__CODEC_BLOCK, NULL,
                                             COUNT - BY__CODEC_BLOCK, DENSITY, part.code, 1,
                                             &error),
                         BY_OK);
        assert_memory_equal(whole.code + skipped, part.code, bytes - skipped);
        assert_int_equal(
            by__comm_codec_receive(codec, whole.code, COUNT, DENSITY, true, whole.out, 2, &error),
            BY_OK);
        for (size_t i = 0; i < COUNT; i++) {
            assert_true(whole.out[i] == 2.0f * part.out[i]);
        }
        close_buffers(&whole);
        close_buffers(&part);
    }
}

/* A value that is not finite shows at the receiver and leaves no trace in the residual. */
static void test_not_finite(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; by__comm_codec_at(k) != NULL; k++) {
        for (int kind = 0; kind < 2; kind++) {
            buffers b;
            open_buffers(&b);
            b.values[777] = kind == 0 ? NAN : -INFINITY;
            code(&b, by__comm_codec_at(k), COUNT, true, 1);
            assert_true(!isfinite(b.out[777]));
            for (size_t i = 0; i < COUNT; i++) {
                assert_true(isfinite(b.residual[i]) != 0);
            }
            close_buffers(&b);
        }
    }
}

static void test_small_and_zero(void **state)
{
    BY_UNUSED(state);
    for (size_t k = 0; by__comm_codec_at(k) != NULL; k++) {
        const by__comm_codec *codec = by__comm_codec_at(k);
        for (size_t count = 0; count < 40; count++) {
            buffers b;
            open_buffers(&b);
            memset(b.values, 0, count * sizeof(float));
            code(&b, codec, count, true, 1);
            for (size_t i = 0; i < count; i++) {
                assert_true(b.out[i] == 0.0f);
                b.values[i] = 1e-44f; /* subnormal */
            }
            code(&b, codec, count, true, 1);
            for (size_t i = 0; i < count; i++) {
                assert_true(fabsf(b.out[i]) <= 1e-43f);
            }
            close_buffers(&b);
        }
    }
    by_error error;
    const by__comm_codec *none;
    assert_int_equal(by__comm_codec_find(&none, "gzip", &error), BY_EARG);
    assert_non_null(strstr(error.message, "gzip"));
    assert_non_null(strstr(error.message, "one_bit"));
}

/* ---- PowerSGD ---- */

enum { ROWS = 37, COLUMNS = 53, RANK = 4 };

static float error_of(const float *m, const float *approximation)
{
    double off = 0.0;
    double all = 0.0;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++) {
        double d = (double)m[i] - (double)approximation[i];
        off += d * d;
        all += (double)m[i] * (double)m[i];
    }
    return (float)sqrt(off / all);
}

static void iterate(const float *m, size_t rank, int times, float *out)
{
    float p[RANK * ROWS];
    float q[RANK * COLUMNS];
    by__comm_power_begin(q, COLUMNS, rank, 5, 2);
    for (int i = 0; i < times; i++) {
        by__comm_power_left(m, ROWS, COLUMNS, rank, q, p);
        by__comm_power_orthonormalize(p, ROWS, rank);
        for (size_t a = 0; a < rank; a++) {
            for (size_t b = 0; b < rank; b++) {
                double sum = 0.0;
                for (size_t r = 0; r < ROWS; r++) {
                    sum += (double)p[a * ROWS + r] * (double)p[b * ROWS + r];
                }
                assert_true(fabs(sum - (a == b ? 1.0 : 0.0)) < 1e-4 || sum == 0.0);
            }
        }
        by__comm_power_right(m, ROWS, COLUMNS, rank, p, q);
    }
    by__comm_power_product(p, q, ROWS, COLUMNS, rank, out);
}

/* A matrix of rank 2 is found exactly; one of full rank as well as its singular values allow. */
static void test_power(void **state)
{
    float m[ROWS * COLUMNS];
    float out[ROWS * COLUMNS];
    BY_UNUSED(state);
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t j = 0; j < COLUMNS; j++) {
            m[i * COLUMNS + j] =
                value_at(8, i) * value_at(9, j) + 0.1f * value_at(10, i) * value_at(11, j);
        }
    }
    iterate(m, 2, 6, out);
    assert_true(error_of(m, out) < 1e-4f);
    iterate(m, 4, 6, out); /* columns that are left over are zero */
    assert_true(error_of(m, out) < 1e-4f);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++) {
        m[i] += 1e-3f * value_at(12, i);
    }
    iterate(m, 1, 20, out);
    float one = error_of(m, out);
    iterate(m, 2, 20, out);
    float two = error_of(m, out);
    assert_true(two < one && one < 1.0f && two > 1e-6f);
    m[5] = NAN;
    float p[RANK * ROWS];
    float q[RANK * COLUMNS];
    by__comm_power_begin(q, COLUMNS, 2, 5, 2);
    by__comm_power_left(m, ROWS, COLUMNS, 2, q, p);
    by__comm_power_orthonormalize(p, ROWS, 2);
    assert_true(isnan(p[0]) != 0 && isnan(p[ROWS]) != 0); /* it is not hidden */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),     cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_feedback),   cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_small_and_zero),
        cmocka_unit_test(test_power),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
