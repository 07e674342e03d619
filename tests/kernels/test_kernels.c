/* Every kernel at every level of this machine against its C reference: values, bytes around the
 * tensors, in-place use as the op table allows it, and the same bits for 1, 2 and 3 threads.
 * `test_kernels --bench [op [threads [level]]]` prints the speed of each level instead, from the
 * given one on (1: baseline, 3: avx512). */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/half.h"
#include "kernel_test.h"

static const by__device_context one_thread = {.threads = 1};

static bool uses_act(const op_case *source)
{
    bool found = source->attrs.dtype == ACT || source->attrs.packing.dtype == ACT;
    for (int i = 0; i < source->input_count; i++) {
        found = found || source->in[i].type.dtype == ACT;
    }
    return found;
}

static void describe(const problem *p, const char *kernel, pattern kind, char *text, size_t size)
{
    static const char *const patterns[PATTERN_COUNT] = {"random", "wide", "zero"};
    size_t used = (size_t)snprintf(text, size, "%s, %s inputs", kernel, patterns[kind]);
    for (int i = 0; i < p->source->input_count && used + 160 < size; i++) {
        char shape[128];
        used +=
            (size_t)snprintf(text + used, size - used, " %s%s",
                             p->in[i].shape.rank < 0 ? "-" : by_dtype_name(p->in[i].dtype),
                             p->in[i].shape.rank < 0 ? "" : by_shape_print(&p->in[i].shape, shape));
    }
}

static void must(bool good, const char *what, const char *where)
{
    if (!good) {
        fail_msg("%s: %s", where, what);
    }
}

/* Output o on input `on`, for each that the op table allows and whose type fits. */
static void check_overlays(const by__device_kernel *kernel, const problem *p, const result *plain,
                           const char *where)
{
    const by__op_row *row = by__op_row_of(p->source->op);
    for (int choice = 0; choice < BY_MAX_OUTPUTS * BY__MAX_INPUTS; choice++) {
        int o = choice / BY__MAX_INPUTS;
        int i = choice % BY__MAX_INPUTS;
        if ((row->overlay[o] >> i & 1) == 0 || i >= p->source->input_count ||
            p->out[o].shape.rank < 0 || !by__op_type_equal(&p->in[i], &p->out[o])) {
            continue;
        }
        run_options options = plain_run;
        options.overlay[o] = i;
        for (int other = 0; other < 2; other++) { /* alone, and with all outputs in place */
            result r;
            const char *wrong = kernel_run(kernel, p, &options, &r);
            must(wrong == NULL, wrong == NULL ? "" : wrong, where);
            must(result_same_bits(&r, plain),
                 "other bits when the output is in the place of an input", where);
            result_close(&r);
            if (p->source->op != BY_OP_SWIGLU_GRAD) {
                break;
            }
            options.overlay[0] = 0;
            options.overlay[1] = 1;
        }
    }
}

static void check_problem(const problem *p, pattern kind)
{
    by__device_tensor in[BY__MAX_INPUTS];
    by__device_call call = problem_call(p, in);
    const by__device_kernel *reference = by__cpu_kernel_at(&call, BY__ISA_REFERENCE);
    result want;
    char where[600];
    describe(p, reference->name, kind, where, sizeof where);
    const char *wrong = kernel_run(reference, p, &plain_run, &want);
    must(wrong == NULL, wrong == NULL ? "" : wrong, where);
    check_overlays(reference, p, &want, where);
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        const by__device_kernel *kernel = by__cpu_kernel_at(&call, (by__cpu_isa)level);
        if (kernel == NULL) {
            continue;
        }
        describe(p, kernel->name, kind, where, sizeof where);
        result got;
        wrong = kernel_run(kernel, p, &plain_run, &got);
        must(wrong == NULL, wrong == NULL ? "" : wrong, where);
        double error = result_error(&got, &want, p->source->op, p->in[0].dtype);
        if (!(error <= 1.0)) {
            fail_msg("%s: off by %.3g times the tolerance", where, error);
        }
        check_overlays(kernel, p, &got, where);
        for (int threads = 2; threads <= 3; threads++) {
            run_options options = plain_run;
            options.threads = threads;
            result r;
            wrong = kernel_run(kernel, p, &options, &r);
            must(wrong == NULL, wrong == NULL ? "" : wrong, where);
            must(result_same_bits(&r, &got), "other bits with other threads", where);
            result_close(&r);
        }
        result_close(&got);
    }
    result_close(&want);
}

static void test_op(void **state)
{
    by_op op = *(const by_op *)*state;
    int seen = by__op_row_of(op)->waits; /* which has no kernel */
    for (size_t c = 0; c < op_case_count; c++) {
        const op_case *source = &op_cases[c];
        if (source->op != op || source->use == FOR_BENCH) {
            continue;
        }
        for (int act = BY_F32; act <= (uses_act(source) ? BY_F16 : BY_F32); act++) {
            for (int kind = 0; kind < PATTERN_COUNT; kind++) {
                problem p;
                problem_open(&p, source, (by_dtype)act, (pattern)kind);
                check_problem(&p, (pattern)kind);
                problem_close(&p);
                seen++;
            }
        }
    }
    assert_int_not_equal(seen, 0);
}

/* ---- the functions of kernels/simd.h over the whole range of f32, in units in the last place ----
 */

/* Distance in steps of f32 from the correctly rounded value. */
static double ulps(float got, double want)
{
    float rounded = (float)want;
    if (isnan(want) || isnan(got)) {
        return isnan(want) && isnan(got) ? 0.0 : INFINITY;
    }
    if (isinf(rounded) || isinf(got)) {
        return rounded == got ? 0.0 : INFINITY;
    }
    double step = (double)nextafterf(fabsf(rounded), INFINITY) - (double)fabsf(rounded);
    return fabs((double)got - want) / step;
}

static double exact(by_function function, double x)
{
    return function == BY_FN_TANH  ? tanh(x)
           : function == BY_FN_ELU ? x > 0.0 ? x : expm1(x)
                                   : 1.0 / (1.0 + exp(-x));
}

/* Every 1021st f32 in order of its bits, so all exponents, both signs, NaNs, infinities and
 * subnormals; sigmoid(x) is exp(x) for x below -18, which tests the exponential itself. */
static void test_functions(void **state)
{
    BY_UNUSED(state);
    static const struct {
        by_function function;
        double bound;
    } functions[] = {{BY_FN_SIGMOID, 3.0}, {BY_FN_TANH, 3.0}, {BY_FN_ELU, 3.0}};
    const int64_t count = (int64_t)((1ull << 32) / 1021);
    float *x = malloc((size_t)count * sizeof(float));
    float *y = malloc((size_t)count * sizeof(float));
    assert_non_null(x);
    assert_non_null(y);
    for (int64_t i = 0; i < count; i++) {
        x[i] = by__bits_float((uint32_t)(i * 1021));
    }
    for (size_t f = 0; f < BY_ARRAY_LENGTH(functions); f++) {
        by__device_tensor in = {x, BY_F32, {1, {count}}};
        by__device_call call = {.op = BY_OP_UNARY, .input_count = 1, .output_count = 1, .in = &in};
        call.attrs.function = functions[f].function;
        call.out[0] = (by__device_tensor){y, BY_F32, {1, {count}}};
        for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
            const by__device_kernel *kernel = by__cpu_kernel_at(&call, (by__cpu_isa)level);
            assert_int_equal(kernel->run(&call, &one_thread), BY_OK);
            double worst = 0.0;
            float at = 0.0f;
            for (int64_t i = 0; i < count; i++) {
                double error = ulps(y[i], exact(functions[f].function, (double)x[i]));
                if (error > worst) {
                    worst = error;
                    at = x[i];
                }
            }
            print_message("%s %s: at most %.2f ulp, at %g\n", kernel->name,
                          by_function_name(functions[f].function), worst, (double)at);
            assert_true(worst <= functions[f].bound);
        }
    }
    free(x);
    free(y);
}

/* Two keys with scores 0 and x <= 0, and values 0 and 1: attention returns sigmoid(x), which is
 * exp(x) for small x. The score times log2(e) is rounded, which costs about |x| ulp. */
static void test_softmax_weights(void **state)
{
    BY_UNUSED(state);
    enum { SAMPLES = 90 * 64 };
    float *x = calloc(SAMPLES, 6 * sizeof(float));
    float *y = malloc(SAMPLES * 2 * sizeof(float));
    float *lse = malloc(SAMPLES * 2 * sizeof(float));
    assert_non_null(x);
    assert_non_null(y);
    assert_non_null(lse);
    by__device_tensor in[BY__MAX_INPUTS];
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        in[i] = (by__device_tensor){.shape.rank = -1};
    }
    in[0] = (by__device_tensor){x, BY_F32, BY_SHAPE(SAMPLES, 2, 3)};
    for (int i = 0; i < SAMPLES; i++) {
        memcpy(x + i * 6 + 3, (float[]){1.0f, (float)-i / 64.0f, 1.0f}, 3 * sizeof(float));
    }
    by__device_call call = {.op = BY_OP_ATTENTION,
                            .attrs = {.heads = 1, .kv_heads = 1},
                            .in = in,
                            .input_count = 1,
                            .output_count = 2};
    call.out[0] = (by__device_tensor){y, BY_F32, BY_SHAPE(SAMPLES, 2, 1)};
    call.out[1] = (by__device_tensor){lse, BY_F32, BY_SHAPE(SAMPLES, 1, 2)};
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        const by__device_kernel *kernel = by__cpu_kernel_at(&call, (by__cpu_isa)level);
        assert_int_equal(kernel->prepare(&call, &one_thread, NULL), BY_OK);
        assert_int_equal(posix_memalign(&call.work, 64, call.work_bytes), 0);
        assert_int_equal(kernel->run(&call, &one_thread), BY_OK);
        double worst = 0.0;
        for (int i = 0; i < SAMPLES; i++) {
            double score = -i / 64.0;
            double want = 1.0 / (1.0 + exp(-score));
            double error = ulps(y[i * 2 + 1], want) / (4.0 - 1.5 * score);
            worst = error > worst && want > 2.0 * FLT_MIN ? error : worst;
            assert_true(want >= FLT_MIN || y[i * 2 + 1] <= FLT_MIN);
        }
        print_message("%s: at most %.2f of 4 + 1.5 |x| ulp\n", kernel->name, worst);
        assert_true(worst <= 1.0);
        free(call.work);
        kernel->release(&call);
    }
    free(x);
    free(y);
    free(lse);
}

/* ---- limits of attention ---- */

enum { LIMIT_TIME = 300, LIMIT_WIDTH = 32, LIMIT_COLUMNS = 3 * LIMIT_WIDTH };

/* y and lse of some heads; starts may be NULL. */
static void attend_heads(const float *qkv, int64_t heads, int64_t window, const int32_t *starts,
                         by__cpu_isa level, float *y, float *lse)
{
    by__device_tensor in[BY__MAX_INPUTS];
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        in[i] = (by__device_tensor){.shape.rank = -1};
    }
    in[0] =
        (by__device_tensor){(void *)(uintptr_t)qkv, BY_F32, BY_SHAPE(1, LIMIT_TIME, LIMIT_COLUMNS)};
    in[4] = (by__device_tensor){(void *)(uintptr_t)starts, BY_I32, BY_SHAPE(1, LIMIT_TIME)};
    by__device_call call = {.op = BY_OP_ATTENTION,
                            .attrs = {.heads = heads, .kv_heads = heads, .window = window},
                            .in = in,
                            .input_count = starts == NULL ? 1 : 5,
                            .output_count = 2};
    call.out[0] = (by__device_tensor){y, BY_F32, BY_SHAPE(1, LIMIT_TIME, LIMIT_WIDTH)};
    call.out[1] = (by__device_tensor){lse, BY_F32, BY_SHAPE(1, heads, LIMIT_TIME)};
    const by__device_kernel *kernel = by__cpu_kernel_at(&call, level);
    assert_int_equal(kernel->prepare(&call, &one_thread, NULL), BY_OK);
    assert_int_equal(posix_memalign(&call.work, 64, call.work_bytes), 0);
    assert_int_equal(kernel->run(&call, &one_thread), BY_OK);
    free(call.work);
    kernel->release(&call);
}

/* The same of one head. */
static void attend(const float *qkv, int64_t window, const int32_t *starts, by__cpu_isa level,
                   float *y, float *lse)
{
    attend_heads(qkv, 1, window, starts, level, y, lse);
}

/* A document that begins behind the first block of keys of its tile: all keys of that block are
 * hidden from it. Its first row sees itself alone. */
static void test_late_starts(void **state)
{
    enum { FIRST = 290 };
    static float qkv[LIMIT_TIME * LIMIT_COLUMNS];
    static float y[LIMIT_TIME * LIMIT_WIDTH];
    static float lse[4 * LIMIT_TIME];
    int32_t starts[LIMIT_TIME];
    BY_UNUSED(state);
    for (int i = 0; i < LIMIT_TIME * LIMIT_COLUMNS; i++) {
        qkv[i] = (float)(i * 7919 % 1009) / 500.0f - 1.0f;
    }
    for (int t = 0; t < LIMIT_TIME; t++) {
        starts[t] = t < FIRST ? 0 : FIRST;
    }
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        for (int64_t heads = 1; heads <= 4; heads *= 2) {
            attend_heads(qkv, heads, 0, starts, (by__cpu_isa)level, y, lse);
            for (int i = 0; i < LIMIT_TIME * LIMIT_WIDTH; i++) {
                assert_true(isfinite(y[i]));
            }
            for (int c = 0; c < LIMIT_WIDTH; c++) {
                float v = qkv[FIRST * LIMIT_COLUMNS + 2 * LIMIT_WIDTH + c];
                assert_true(fabsf(y[FIRST * LIMIT_WIDTH + c] - v) < 1e-6f);
            }
        }
    }
}

/* A limit that hides nothing changes no bit, and keys far before all limits are not read: what
 * stands there may be anything. */
static void test_limits(void **state)
{
    static float qkv[LIMIT_TIME * LIMIT_COLUMNS];
    static float y[2][LIMIT_TIME * LIMIT_WIDTH];
    static float lse[2][LIMIT_TIME];
    int32_t starts[LIMIT_TIME] = {0};
    BY_UNUSED(state);
    for (int i = 0; i < LIMIT_TIME * LIMIT_COLUMNS; i++) {
        qkv[i] = (float)(i * 7919 % 1009) / 500.0f - 1.0f;
    }
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        attend(qkv, 0, NULL, (by__cpu_isa)level, y[0], lse[0]);
        attend(qkv, LIMIT_TIME, NULL, (by__cpu_isa)level, y[1], lse[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
        attend(qkv, 0, starts, (by__cpu_isa)level, y[1], lse[1]);
        assert_memory_equal(y[0], y[1], sizeof y[0]);
        assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
    }
    for (int t = 0; t < LIMIT_TIME; t++) {
        starts[t] = t < 200 ? 0 : 200;
        for (int c = 0; c < LIMIT_COLUMNS && t < 100; c++) {
            qkv[t * LIMIT_COLUMNS + c] = NAN;
        }
    }
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        for (int k = 0; k < 2; k++) {
            attend(qkv, k == 0 ? 0 : 20, k == 0 ? starts : NULL, (by__cpu_isa)level, y[0], lse[0]);
            for (int t = 256; t < LIMIT_TIME; t++) { /* tiles behind row 200 alone */
                assert_true(isfinite(y[0][t * LIMIT_WIDTH]) && isfinite(lse[0][t]));
            }
        }
    }
}

/* ---- conversions: every bf16 and f16, and every f32 near a rounding boundary, must be exact ----
 */

static void check_cast(by_dtype from, by_dtype to, const void *data, int64_t count)
{
    by__device_tensor in = {(void *)(uintptr_t)data, from, {1, {count}}};
    float *want = malloc((size_t)count * sizeof(float));
    float *got = malloc((size_t)count * sizeof(float));
    assert_non_null(want);
    assert_non_null(got);
    by__device_call call = {.op = BY_OP_CAST, .input_count = 1, .output_count = 1, .in = &in};
    call.attrs.dtype = to;
    call.out[0] = (by__device_tensor){want, to, {1, {count}}};
    assert_int_equal(by__cpu_kernel_at(&call, BY__ISA_REFERENCE)->run(&call, &one_thread), BY_OK);
    for (int level = BY__ISA_BASELINE; level <= (int)by__cpu_best_isa(); level++) {
        call.out[0].data = got;
        assert_int_equal(by__cpu_kernel_at(&call, (by__cpu_isa)level)->run(&call, &one_thread),
                         BY_OK);
        for (int64_t i = 0; i < count; i++) {
            double a = element(got, to, i);
            double b = element(want, to, i);
            if (!(a == b && signbit(a) == signbit(b)) && !(isnan(a) && isnan(b))) {
                fail_msg("%s: %a becomes %a, not %a", by__cpu_isa_name((by__cpu_isa)level),
                         element(data, from, i), a, b);
            }
        }
    }
    free(want);
    free(got);
}

static void test_conversions(void **state)
{
    BY_UNUSED(state);
    uint16_t *halves = malloc(65536 * sizeof *halves);
    /* Of each upper half the lower halves around 0, the middle and the end: ties and both
     * neighbours. */
    static const uint32_t lower[8] = {0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001};
    float *floats = malloc(65536 * 8 * sizeof *floats);
    assert_non_null(halves);
    assert_non_null(floats);
    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
        for (uint32_t k = 0; k < 8; k++) {
            floats[i * 8 + k] = by__bits_float(i << 16 | lower[k]);
        }
    }
    check_cast(BY_BF16, BY_F32, halves, 65536);
    check_cast(BY_F16, BY_F32, halves, 65536);
    check_cast(BY_F16, BY_BF16, halves, 65536);
    check_cast(BY_BF16, BY_F16, halves, 65536);
    check_cast(BY_F32, BY_BF16, floats, 65536 * 8);
    check_cast(BY_F32, BY_F16, floats, 65536 * 8);
    free(halves);
    free(floats);
}

/* ---- normal values ---- */

/* One Box-Muller value in double precision from the words of its counter: base/random.c and
 * libm. */
static double normal_at(int64_t i, float std, const uint32_t key[2])
{
    int64_t in_block = i % 4096;
    uint32_t word = (uint32_t)(in_block % 64 / 16);
    uint32_t counter[4] = {(uint32_t)(in_block / 64 * 16 + in_block % 16), (uint32_t)(i / 4096), 0,
                           0};
    uint32_t bits[4];
    by__philox(bits, key, counter);
    double r = (double)std * sqrt(-2.0 * log(1.0 - (double)by__unit_float(bits[word & 2])));
    double angle = 6.283185307179586 * (double)by__unit_float(bits[word | 1]);
    return r * ((word & 1) != 0 ? sin(angle) : cos(angle));
}

static void test_normal_values(void **state)
{
    BY_UNUSED(state);
    enum { COUNT = 3 * 4096 + 64 + 37 };
    const uint32_t key[2] = {0x12345678u, 0x9abcdef0u};
    const float std = 0.02f;
    float *first = calloc(COUNT + 1, sizeof *first);
    float *other = calloc(COUNT + 1, sizeof *other);
    assert_true(first != NULL && other != NULL);
    by__cpu_fill_normal(first, 0, COUNT, std, key, BY__ISA_BASELINE);
    for (int64_t i = 0; i < COUNT; i++) {
        double expected = normal_at(i, std, key);
        double error = fabs((double)first[i] - expected);
        if (!(error <= 4e-7 * ((double)std + fabs(expected)))) {
            fail_msg("value %d is %.9g instead of %.9g", (int)i, (double)first[i], expected);
        }
    }
    assert_true(first[COUNT] == 0.0f);
    /* The same on every machine: a digest of the bits. */
    assert_true(by__hash64(first, COUNT * sizeof *first) == 0x99403dcafbda9d48u);
    for (int level = BY__ISA_REFERENCE; level <= (int)by__cpu_best_isa(); level++) {
        by__cpu_fill_normal(other, 0, COUNT, std, key, (by__cpu_isa)level);
        assert_memory_equal(first, other, (COUNT + 1) * sizeof *first);
    }
    free(first);
    free(other);
}

/* ---- dispatch ---- */

static void test_isa_variable(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by__cpu_isa isa;
    assert_int_equal(setenv("BANYAN_ISA", "reference", 1), 0);
    assert_int_equal(by__cpu_isa_read(&isa, &error), BY_OK);
    assert_int_equal(isa, BY__ISA_REFERENCE);
    assert_int_equal(setenv("BANYAN_ISA", "avx512", 1), 0);
    assert_int_equal(by__cpu_isa_read(&isa, &error), BY_OK);
    assert_int_equal(isa, by__cpu_best_isa());
    assert_int_equal(setenv("BANYAN_ISA", "sse9", 1), 0);
    assert_int_equal(by__cpu_isa_read(&isa, &error), BY_EARG);
    assert_non_null(strstr(error.message, "sse9"));
    assert_int_equal(unsetenv("BANYAN_ISA"), 0);
    assert_int_equal(by__cpu_isa_read(&isa, &error), BY_OK);
    assert_int_equal(isa, by__cpu_best_isa());
}

/* Types that no level above supports fall to the reference; each op has one. */
static void test_fallback(void **state)
{
    BY_UNUSED(state);
    by__device_tensor in[2] = {{NULL, BY_I32, {1, {3}}}, {NULL, BY_I32, {1, {3}}}};
    by__device_call call = {.op = BY_OP_ADD, .input_count = 2, .output_count = 1, .in = in};
    call.out[0] = in[0];
    const by__device_kernel *kernel;
    by_error error = {0};
    assert_int_equal(by__cpu_kernel(&kernel, &call, by__cpu_best_isa(), &error), BY_OK);
    assert_string_equal(kernel->name, "add reference");
    call.op = BY_OP_COUNT;
    assert_int_equal(by__cpu_kernel(&kernel, &call, by__cpu_best_isa(), &error), BY_EDEVICE);
    assert_non_null(strstr(error.message, "i32"));
}

/* ---- bench ---- */

static double bytes_moved(const problem *p)
{
    double bytes = 0.0;
    for (int i = 0; i < p->source->input_count; i++) {
        if (p->in[i].shape.rank >= 0) {
            bytes += (p->mutates >> i & 1 ? 2.0 : 1.0) * (double)by_shape_count(&p->in[i].shape) *
                     (double)by_dtype_size(p->in[i].dtype);
        }
    }
    for (int o = 0; o < BY_MAX_OUTPUTS; o++) {
        if (p->out[o].shape.rank >= 0) {
            bytes +=
                (double)by_shape_count(&p->out[o].shape) * (double)by_dtype_size(p->out[o].dtype);
        }
    }
    return bytes;
}

/* FLOPs of a product; 0 for other operations, which memory bounds. */
static double flops_of(const problem *p)
{
    const by__op_row *row = by__op_row_of(p->source->op);
    by__op_signature s = {p->source->op, &p->attrs, p->in, p->source->input_count};
    by__op_cost cost = {0};
    if (row->factors != 0 && row->cost != NULL) {
        row->cost(&s, p->out, &cost);
    }
    return cost.flops;
}

static int bench(const char *op, int threads, int lowest)
{
    printf("operands read and written once, fastest of 20 runs, %d thread%s\n", threads,
           threads == 1 ? " (processor time)" : "s");
    for (size_t c = 0; c < op_case_count; c++) {
        const op_case *source = &op_cases[c];
        if (source->use != FOR_BENCH || (op != NULL && strcmp(by_op_name(source->op), op) != 0)) {
            continue;
        }
        for (int act = BY_F32; act <= (uses_act(source) ? BY_F16 : BY_F32); act++) {
            problem p;
            problem_open(&p, source, (by_dtype)act, PATTERN_RANDOM);
            by__device_tensor in[BY__MAX_INPUTS];
            by__device_call call = problem_call(&p, in);
            for (int level = lowest; level <= (int)by__cpu_best_isa(); level++) {
                const by__device_kernel *kernel = by__cpu_kernel_at(&call, (by__cpu_isa)level);
                if (kernel == NULL) {
                    continue;
                }
                char where[600];
                describe(&p, kernel->name, PATTERN_RANDOM, where, sizeof where);
                double seconds = kernel_time(kernel, &p, threads, 20);
                printf("%8.2f GB/s %8.1f GFLOP/s %10.1f us  %s\n", bytes_moved(&p) / seconds * 1e-9,
                       flops_of(&p) / seconds * 1e-9, seconds * 1e6, where);
                (void)fflush(stdout);
            }
            problem_close(&p);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        return bench(argc > 2 ? argv[2] : NULL, argc > 3 ? atoi(argv[3]) : 1,
                     argc > 4 ? atoi(argv[4]) : BY__ISA_BASELINE);
    }
    static by_op ops[BY_OP_COUNT];
    struct CMUnitTest tests[BY_OP_COUNT + 8];
    for (int op = 0; op < BY_OP_COUNT; op++) {
        ops[op] = (by_op)op;
        tests[op] = (struct CMUnitTest){by_op_name((by_op)op), test_op, NULL, NULL, &ops[op]};
    }
    tests[BY_OP_COUNT] = (struct CMUnitTest)cmocka_unit_test(test_functions);
    tests[BY_OP_COUNT + 1] = (struct CMUnitTest)cmocka_unit_test(test_conversions);
    tests[BY_OP_COUNT + 2] = (struct CMUnitTest)cmocka_unit_test(test_isa_variable);
    tests[BY_OP_COUNT + 3] = (struct CMUnitTest)cmocka_unit_test(test_fallback);
    tests[BY_OP_COUNT + 4] = (struct CMUnitTest)cmocka_unit_test(test_softmax_weights);
    tests[BY_OP_COUNT + 5] = (struct CMUnitTest)cmocka_unit_test(test_normal_values);
    tests[BY_OP_COUNT + 6] = (struct CMUnitTest)cmocka_unit_test(test_limits);
    tests[BY_OP_COUNT + 7] = (struct CMUnitTest)cmocka_unit_test(test_late_starts);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
