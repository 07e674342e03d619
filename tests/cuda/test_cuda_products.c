/* Products of a GPU on a stand-in: what cuBLASLt is asked for, and products of much depth, which
 * are cut into parts that are added in order; what it chooses, and whether it multiplies rightly.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "device/device.h"
#include "runner.h"
#include "temporary.h"

#ifdef BY_STANDINS

/* Runs a weight gradient, x^T [m, k] y [k, n] in f32. Returns the bytes of its workspace. */
static size_t run_gradient_on(by_device *device, float *out, const float *x, const float *y,
                              int64_t m, int64_t n, int64_t k)
{
    by_error error = {0};
    by_memory memory[4];
    const by__device_kernel *kernel;
    by__device_tensor in[BY__MAX_INPUTS];
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        in[i] = (by__device_tensor){.shape = {.rank = -1}};
    }
    in[0] = (by__device_tensor){.dtype = BY_F32, .shape = BY_SHAPE(k, m)};
    in[1] = (by__device_tensor){.dtype = BY_F32, .shape = BY_SHAPE(k, n)};
    by__device_call call = {.op = BY_OP_MATMUL, .input_count = 2, .output_count = 1, .in = in};
    call.attrs.trans_a = true;
    call.out[0] = (by__device_tensor){.dtype = BY_F32, .shape = BY_SHAPE(m, n)};
    check_ok(by__device_find_kernel(&kernel, device, &call, &error), &error);
    check_ok(kernel->prepare(&call, by__device_context_of(device), &error), &error);
    const size_t bytes[4] = {(size_t)(k * m) * 4, (size_t)(k * n) * 4, (size_t)(m * n) * 4,
                             call.work_bytes};
    for (int i = 0; i < 4; i++) {
        check_ok(by_device_alloc(&memory[i], device, bytes[i], "a test", &error), &error);
    }
    check_ok(by_device_write(memory[0], x, &error), &error);
    check_ok(by_device_write(memory[1], y, &error), &error);
    in[0].data = (void *)memory[0].address;
    in[1].data = (void *)memory[1].address;
    call.out[0].data = (void *)memory[2].address;
    call.work = (void *)memory[3].address;
    const by__device_kernel *const kernels[] = {kernel};
    const by__device_command command = {BY__COMMAND_CALL, BY__QUEUE_COMPUTE, 0, SIZE_MAX};
    const by__device_command_list list = {.name = "a test",
                                          .calls = &call,
                                          .kernels = kernels,
                                          .call_count = 1,
                                          .commands = &command,
                                          .command_count = 1};
    by__device_recording *recording;
    check_ok(by__device_recording_open(&recording, device, &list, &error), &error);
    check_ok(by__device_recording_submit(recording, true, NULL, NULL, &error), &error);
    check_ok(by_device_read(out, memory[2], &error), &error);
    by__device_recording_close(&recording);
    kernel->release(&call);
    for (int i = 0; i < 4; i++) {
        by_device_free(&memory[i]);
    }
    return bytes[3];
}

static size_t run_gradient(float *out, const float *x, const float *y, int64_t m, int64_t n,
                           int64_t k)
{
    by_error error = {0};
    by_device *device;
    check_ok(by_device_open(&device, "cuda", 1, &error), &error);
    size_t bytes = run_gradient_on(device, out, x, y, m, n, k);
    by_device_close(&device);
    return bytes;
}

/* The parts follow from the shape, and so does the workspace; their sum is the product, with the
 * same bits whatever the order of work. */
static void test_split(void **state)
{
    static const struct {
        int64_t m, n, k, parts;
    } cases[] = {
        {8, 16, 512, 1},                    /* too little depth */
        {8, 16, 1024, 2},                   /* two parts of 512 */
        {4, 16, 4096, 8}, {8, 16, 1280, 2}, /* two of 640 */
        {8, 16, 1100, 1},                   /* parts would not begin at aligned addresses, */
        {5, 3, 4096, 1},                    /* nor would their results */
    };
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        int64_t m = cases[i].m;
        int64_t n = cases[i].n;
        int64_t k = cases[i].k;
        float *x = malloc((size_t)(k * m) * sizeof *x);
        float *y = malloc((size_t)(k * n) * sizeof *y);
        float first[128];
        float out[128];
        for (int64_t e = 0; e < k * m; e++) {
            x[e] = (float)random_unit(1, i, (uint64_t)e);
        }
        for (int64_t e = 0; e < k * n; e++) {
            y[e] = (float)random_unit(2, i, (uint64_t)e);
        }
        for (int seed = 1; seed <= 3; seed++) {
            char text[16];
            (void)snprintf(text, sizeof text, "%d", seed);
            assert_int_equal(setenv("BANYAN_STANDIN_SEED", text, 1), 0);
            size_t work = run_gradient(out, x, y, m, n, k);
            size_t parts = (size_t)(m * n) * sizeof(float) * (size_t)cases[i].parts;
            parts = cases[i].parts == 1 ? 0 : (parts + 255) / 256 * 256;
            assert_int_equal(work, parts + 4096); /* what the stand-in's algorithms want */
            if (seed > 1) {
                assert_memory_equal(out, first, (size_t)(m * n) * sizeof *out);
            }
            memcpy(first, out, sizeof first);
        }
        for (int64_t e = 0; e < m * n; e++) {
            double sum = 0.0;
            for (int64_t r = 0; r < k; r++) {
                sum += (double)x[r * m + e / n] * (double)y[r * n + e % n];
            }
            assert_true(fabs(sum - (double)out[e]) <= 1e-6 * (double)k);
        }
        free(x);
        free(y);
    }
    (void)unsetenv("BANYAN_STANDIN_SEED");
}

/* ---- what the library chooses ---- */

enum { M = 4, N = 16, K = 4096 };

typedef struct chosen_product {
    float y[M * N];
    by_string choices;
    bool foreign; /* `kept` is of another device or library */
} chosen_product;

/* A product on a device that first takes the choices in `kept` (may be NULL). */
static chosen_product multiply(const char *kept, bool tf32)
{
    by_error error = {0};
    by_device *device;
    chosen_product p = {.foreign = false};
    size_t length;
    static float x[K * M];
    static float y[K * N];
    for (int i = 0; i < K * M; i++) {
        x[i] = (float)random_unit(1, 2, (uint64_t)i);
    }
    for (int i = 0; i < K * N; i++) {
        y[i] = (float)random_unit(2, 2, (uint64_t)i);
    }
    check_ok(by_device_open(&device, "cuda", 1, &error), &error);
    assert_true(by__device_use_tf32(device, tf32));
    check_ok(by__device_take_choices(device, kept, &error), &error);
    (void)run_gradient_on(device, p.y, x, y, M, N, K);
    p.foreign = by__device_foreign_choices(&length, device, kept) != NULL;
    if (kept != NULL) {
        check_ok(by__device_join_choices(&p.choices, kept, &error), &error);
    }
    check_ok(by__device_add_choices(&p.choices, device, &error), &error);
    by_device_close(&device);
    return p;
}

static size_t lines_of(const by_string *text)
{
    size_t lines = 0;
    for (size_t i = 0; i < text->length; i++) {
        lines += text->data[i] == '\n';
    }
    return lines;
}

/* A library that chooses otherwise today gives the bits of before because what it chose then is
 * kept; another version of it chooses anew, and finds its own choice again later. */
static void test_choices(void **state)
{
    BY_UNUSED(state);
    chosen_product first = multiply(NULL, false);
    assert_int_equal(lines_of(&first.choices), 1);
    assert_non_null(strstr(first.choices.data, "stand-in 0, cublasLt 12.9.1\tf32 f32 4x16x512 tn"));
    assert_int_equal(setenv("BANYAN_STANDIN_ALGORITHM", "2", 1), 0);
    chosen_product other = multiply(NULL, false);
    chosen_product same = multiply(first.choices.data, false);
    assert_memory_not_equal(first.y, other.y, sizeof first.y);
    assert_memory_equal(first.y, same.y, sizeof first.y);
    assert_string_equal(first.choices.data, same.choices.data);
    assert_false(same.foreign);
    assert_int_equal(setenv("BANYAN_STANDIN_LIBRARY", "121000", 1), 0);
    chosen_product newer = multiply(first.choices.data, false);
    assert_true(newer.foreign);
    assert_memory_equal(newer.y, other.y, sizeof newer.y);
    assert_int_equal(lines_of(&newer.choices), 2);
    (void)unsetenv("BANYAN_STANDIN_ALGORITHM");
    chosen_product again = multiply(newer.choices.data, false);
    assert_false(again.foreign);
    assert_memory_equal(again.y, other.y, sizeof again.y);
    (void)unsetenv("BANYAN_STANDIN_LIBRARY");
    by_string *texts[] = {&first.choices, &other.choices, &same.choices, &newer.choices,
                          &again.choices};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(texts); i++) {
        by_string_free(texts[i]);
    }
}

/* Texts that are none, and a choice that the library refuses. */
static void test_wrong_choices(void **state)
{
    static const char *const wrong[] = {"a line",   "a\tb",    "a\tb\t",     "a\tb\t0",
                                        "a\tb\tAB", "a\t\t00", "a\tb\t00\tc"};
    by_error error = {0};
    by_device *device;
    by_string text = {0};
    BY_UNUSED(state);
    check_ok(by_device_open(&device, "cuda", 1, &error), &error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(wrong); i++) {
        check_error(by__device_take_choices(device, wrong[i], &error), BY_EFORMAT, &error,
                    "is not a device");
        check_error(by__device_join_choices(&text, wrong[i], &error), BY_EFORMAT, &error,
                    "is not a device");
    }
    by_string_format(&text, "%s\tf32 f32 %dx%dx512 tn %d %d %d batch 8 2048 8192 64\t",
                     by__device_chooser(device), M, N, M, N, N);
    for (int i = 0; i < 64; i++) {
        by__string_append(&text, "ff");
    }
    check_ok(by__device_take_choices(device, text.data, &error), &error);
    by__device_tensor in[BY__MAX_INPUTS];
    for (int i = 0; i < BY__MAX_INPUTS; i++) {
        in[i] = (by__device_tensor){.shape = {.rank = -1}};
    }
    in[0] = (by__device_tensor){.dtype = BY_F32, .shape = BY_SHAPE(K, M)};
    in[1] = (by__device_tensor){.dtype = BY_F32, .shape = BY_SHAPE(K, N)};
    by__device_call call = {.op = BY_OP_MATMUL, .input_count = 2, .output_count = 1, .in = in};
    call.attrs.trans_a = true;
    call.out[0] = (by__device_tensor){.dtype = BY_F32, .shape = BY_SHAPE(M, N)};
    const by__device_kernel *kernel;
    check_ok(by__device_find_kernel(&kernel, device, &call, &error), &error);
    check_error(kernel->prepare(&call, by__device_context_of(device), &error), BY_EFORMAT, &error,
                "refuses the algorithm that was chosen before");
    by_string_free(&text);
    by_device_close(&device);
    /* The host makes no choices, and takes none. */
    check_ok(by_device_open(&device, "cpu", 1, &error), &error);
    check_ok(by__device_take_choices(device, "a\tb\t00\n", &error), &error);
    check_ok(by__device_add_choices(&text, device, &error), &error);
    assert_int_equal(text.length, 0);
    assert_false(by__device_use_tf32(device, true));
    by_device_close(&device);
}

/* Operands of 11 significant bits; the choices for both are kept apart. */
static void test_tf32(void **state)
{
    BY_UNUSED(state);
    chosen_product wide = multiply(NULL, false);
    chosen_product narrow = multiply(wide.choices.data, true);
    double worst = 0.0;
    for (int i = 0; i < M * N; i++) {
        worst = fmax(worst, fabs((double)wide.y[i] - (double)narrow.y[i]));
    }
    assert_true(worst > 1e-5 && worst < 0.1);
    assert_int_equal(lines_of(&narrow.choices), 2);
    by_string_free(&wide.choices);
    by_string_free(&narrow.choices);
}

/* A library or a GPU that multiplies wrongly is not used. */
static void test_wrong_products(void **state)
{
    static const char *const formats[] = {"f32", "tf32", "bf16", "fp16"};
    by_error error = {0};
    by_device *device;
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(formats); i++) {
        char message[64];
        (void)snprintf(message, sizeof message, "a sum of 1040 products of %s is 1039, not 1040",
                       formats[i]);
        assert_int_equal(setenv("BANYAN_STANDIN_WRONG", formats[i], 1), 0);
        check_error(by_device_open(&device, "cuda", 1, &error), BY_EDEVICE, &error, message);
    }
    (void)unsetenv("BANYAN_STANDIN_WRONG");
}

static int use_standins(void **state)
{
    *state = temporary_make();
    return *state == NULL || setenv("XDG_CACHE_HOME", *state, 1) != 0 ||
           setenv("BANYAN_CUDA_PATH", BY_STANDINS "/all", 1) != 0;
}

static int remove_cache(void **state)
{
    temporary_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),          cmocka_unit_test(test_choices),
        cmocka_unit_test(test_wrong_choices),  cmocka_unit_test(test_tf32),
        cmocka_unit_test(test_wrong_products),
    };
    return cmocka_run_group_tests(tests, use_standins, remove_cache);
}
#else
int main(void)
{
    printf("no stand-ins: they need clang++ on x86-64, and no sanitizer\n");
    return 0;
}
#endif
