/* The vocabulary loss over so many logits that its rows go in several chunks, the last one shorter:
 * it must agree with the same kernel called on a few rows at a time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/half.h"
#include "device/cpu/cpu.h"

enum { ROWS = 100, COLUMNS = 2, VOCABULARY = 700000, SLICE = 25 };

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    assert_int_equal(by__alloc_aligned(&memory, bytes, "a tensor", NULL), BY_OK);
    return memory;
}

static float uniform(uint32_t stream, int64_t i)
{
    uint32_t key[2] = {20240229u, stream};
    uint32_t counter[4] = {(uint32_t)i, 0, 0, 0};
    uint32_t bits[4];
    by__philox(bits, key, counter);
    return by__unit_float(bits[0]) * 4.0f - 2.0f;
}

static void *fill(by_dtype dtype, int64_t count, uint32_t stream)
{
    void *data = allocate((size_t)count * by_dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        float value = uniform(stream, i);
        if (dtype == BY_F32) {
            ((float *)data)[i] = value;
        } else {
            ((uint16_t *)data)[i] = by__f32_to_bf16(value);
        }
    }
    return data;
}

static double get(const void *data, by_dtype dtype, int64_t i)
{
    return dtype == BY_F32 ? (double)((const float *)data)[i]
                           : (double)by__bf16_to_f32(((const uint16_t *)data)[i]);
}

typedef struct problem {
    by_dtype dtype;
    char *x;
    void *w;
    int32_t *targets;
    float dloss;
} problem;

typedef struct result {
    float loss;
    void *dx;
    float *dw;
} result;

static result train(const problem *p, int64_t first, int64_t rows, int threads)
{
    result r = {0};
    r.dx = allocate((size_t)(rows * COLUMNS) * by_dtype_size(p->dtype));
    r.dw = allocate(VOCABULARY * COLUMNS * sizeof(float));
    memset(r.dw, 0xff, VOCABULARY * COLUMNS * sizeof(float)); /* NaN: all must be written */
    by__device_tensor in[4] = {
        {p->x + (size_t)(first * COLUMNS) * by_dtype_size(p->dtype),
         p->dtype,
         {2, {rows, COLUMNS}}},
        {p->w, p->dtype, {2, {VOCABULARY, COLUMNS}}},
        {p->targets + first, BY_I32, {1, {rows}}},
        {(void *)(uintptr_t)&p->dloss, BY_F32, {1, {1}}},
    };
    by__device_call call = {
        .op = BY_OP_LINEAR_CROSS_ENTROPY_TRAIN, .input_count = 4, .output_count = 3, .in = in};
    call.out[0] = (by__device_tensor){&r.loss, BY_F32, {1, {1}}};
    call.out[1] = (by__device_tensor){r.dx, p->dtype, {2, {rows, COLUMNS}}};
    call.out[2] = (by__device_tensor){r.dw, BY_F32, {2, {VOCABULARY, COLUMNS}}};
    by__device_context context = {.threads = threads};
    const by__device_kernel *kernel = NULL;
    assert_int_equal(by__cpu_kernel(&kernel, &call, by__cpu_best_isa(), NULL), BY_OK);
    assert_int_equal(kernel->prepare(&call, &context, NULL), BY_OK);
    assert_true(call.work_bytes < (size_t)160 << 20); /* all logits would take 267 MiB */
    call.work = allocate(call.work_bytes);
    assert_int_equal(kernel->run(&call, &context), BY_OK);
    kernel->release(&call);
    free(call.work);
    return r;
}

static void check(by_dtype dtype)
{
    problem p = {.dtype = dtype, .dloss = 3.0f};
    p.x = fill(dtype, ROWS * COLUMNS, 1);
    p.w = fill(dtype, VOCABULARY * COLUMNS, 2);
    p.targets = allocate(ROWS * sizeof(int32_t));
    for (int32_t i = 0; i < ROWS; i++) {
        p.targets[i] = i % 7 == 0 ? -1 : i * 6007;
    }
    result whole = train(&p, 0, ROWS, 1);
    result again = train(&p, 0, ROWS, 2);
    assert_memory_equal(&whole.loss, &again.loss, sizeof whole.loss);
    assert_memory_equal(whole.dx, again.dx, ROWS * COLUMNS * by_dtype_size(dtype));
    assert_memory_equal(whole.dw, again.dw, VOCABULARY * COLUMNS * sizeof(float));
    double *dw = calloc(VOCABULARY * COLUMNS, sizeof *dw);
    assert_non_null(dw);
    double loss = 0.0;
    double slack = dtype == BY_F32 ? 1e-5 : 1e-2;
    for (int64_t first = 0; first < ROWS; first += SLICE) {
        result slice = train(&p, first, SLICE, 1);
        loss += (double)slice.loss;
        for (int64_t i = 0; i < SLICE * COLUMNS; i++) {
            double want = get(slice.dx, dtype, i);
            double got = get(whole.dx, dtype, first * COLUMNS + i);
            assert_true(fabs(got - want) <= slack * (fabs(want) + 1.0));
        }
        for (int64_t i = 0; i < VOCABULARY * COLUMNS; i++) {
            dw[i] += (double)slice.dw[i];
        }
        free(slice.dx);
        free(slice.dw);
    }
    assert_true(loss > 0.0);
    assert_true(fabs((double)whole.loss - loss) <= 1e-5 * loss);
    double largest = 0.0;
    for (int64_t i = 0; i < VOCABULARY * COLUMNS; i++) {
        largest = fabs(dw[i]) > largest ? fabs(dw[i]) : largest;
        assert_true(fabs((double)whole.dw[i] - dw[i]) <= slack * fabs(dw[i]) + 1e-8);
    }
    assert_true(largest > 1.0); /* a target's own gradient is about -dloss x */
    free(dw);
    free(whole.dx);
    free(whole.dw);
    free(again.dx);
    free(again.dw);
    free(p.x);
    free(p.w);
    free(p.targets);
}

static void test_chunks_f32(void **state)
{
    BY_UNUSED(state);
    check(BY_F32);
}

static void test_chunks_bf16(void **state)
{
    BY_UNUSED(state);
    check(BY_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_f32),
        cmocka_unit_test(test_chunks_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
