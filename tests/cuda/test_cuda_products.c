/* Products of a GPU on a stand-in: what cuBLASLt is asked for, and products of much depth, which
 * are cut into parts that are added in order. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/device.h"
#include "runner.h"
#include "temporary.h"

#ifdef BY_STANDINS

/* Runs a weight gradient, x^T [m, k] y [k, n] in f32. Returns the bytes of its workspace. */
static size_t run_gradient(float *out, const float *x, const float *y, int64_t m, int64_t n,
                           int64_t k)
{
    by_error error = {0};
    by_device *device;
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
    check_ok(by_device_open(&device, "cuda", 1, &error), &error);
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
    by_device_close(&device);
    return bytes[3];
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
        cmocka_unit_test(test_split),
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
