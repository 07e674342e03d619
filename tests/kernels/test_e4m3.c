/* Every code of an e4m3 is multiplied exactly, at every level of this machine and by the reference:
 * rows that pick one input each give the values of the codes times the outputs' scales. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/packing/packing.h"
#include "kernel_test.h"

#define CODES   256
#define OUTPUTS 33 /* a panel, and one that is nearly empty */

static const op_case source = {
    .op = BY_OP_PACKED_MATMUL,
    .attrs = {.dtype = BY_F32,
              .packing = {.kind = BY_PACKING_FP8, .dtype = ACT, .n = OUTPUTS, .k = CODES}},
    .in = (const operand[]){{{ACT, {.rank = 2, .dim = {CODES, CODES}}}, PLAIN},
                            {{BY_U8, {.rank = 1, .dim = {1}}}, CONSTANT}},
    .input_count = 2};

static bool is_nan(int code)
{
    return (code & 0x7f) == 0x7f;
}

/* Output j has the scale 2^(j - 16), and code i as its weight of input i; the two NaN are zeros,
 * but in output `bad`. */
static void fill(problem *p, int bad)
{
    uint8_t codes[OUTPUTS * CODES];
    float scales[OUTPUTS];
    by_error error = {0};
    const by__coded coded = {.kind = BY__CODE_F8,
                             .n = OUTPUTS,
                             .k = CODES,
                             .group = CODES,
                             .scale_row = 1,
                             .scale_dtype = BY_F32,
                             .codes = codes,
                             .scales = (const uint8_t *)scales};
    for (int j = 0; j < OUTPUTS; j++) {
        scales[j] = ldexpf(1.0f, j - 16);
        for (int i = 0; i < CODES; i++) {
            codes[j * CODES + i] = (uint8_t)(is_nan(i) && j != bad ? 0 : i);
        }
    }
    assert_true(by__packing_accepts(&p->attrs.packing, &coded));
    assert_int_equal(by__pack_coded(p->data[1], &p->attrs.packing, 0, &coded, 1, &error), BY_OK);
    const float one = 1.0f;
    uint16_t half = p->in[0].dtype == BY_BF16 ? by__f32_to_bf16(one) : by__f32_to_f16(one);
    size_t size = by_dtype_size(p->in[0].dtype);
    memset(p->data[0], 0, CODES * CODES * size);
    for (size_t i = 0; i < CODES; i++) {
        memcpy((char *)p->data[0] + i * (CODES + 1) * size,
               size == sizeof one ? (const void *)&one : (const void *)&half, size);
    }
}

static void check(const by__device_kernel *kernel, const problem *p, int bad)
{
    result r;
    const char *wrong = kernel_run(kernel, p, &plain_run, &r);
    assert_null(wrong);
    for (int i = 0; i < CODES; i++) {
        for (int j = 0; j < OUTPUTS; j++) {
            double got = element(r.data[0], BY_F32, i * OUTPUTS + j);
            double want = is_nan(i) ? 0.0 : ldexp((double)by__f8_to_f32((uint8_t)i), j - 16);
            if (j == bad ? !isnan(got) : got != want) {
                fail_msg("%s on %s: code %d of output %d gives %g instead of %g", kernel->name,
                         by_dtype_name(p->in[0].dtype), i, j, got, want);
            }
        }
    }
    result_close(&r);
}

static void test_codes(void **state)
{
    BY_UNUSED(state);
    for (int act = BY_F32; act <= BY_F16; act++) {
        for (int bad = -1; bad < OUTPUTS; bad += 17) {
            problem p;
            by__device_tensor in[BY__MAX_INPUTS];
            int found = 0;
            problem_open(&p, &source, (by_dtype)act, PATTERN_RANDOM);
            fill(&p, bad);
            by__device_call call = problem_call(&p, in);
            for (int level = BY__ISA_REFERENCE; level <= (int)by__cpu_best_isa(); level++) {
                const by__device_kernel *kernel = by__cpu_kernel_at(&call, (by__cpu_isa)level);
                if (kernel != NULL) {
                    check(kernel, &p, bad);
                    found++;
                }
            }
            assert_true(found > 0);
            problem_close(&p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
