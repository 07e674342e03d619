/* What is said of a machine that lacks something that a GPU needs, on stand-ins for NVIDIA's
 * libraries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "runner.h"

#ifdef BY_STANDINS
#include "device/cuda/cuda.h"
#include "temporary.h"

/* The machine of a test: a folder of libraries, and a variable of the stand-ins with its value. */
typedef struct machine_case {
    const char *folder;
    const char *name;
    const char *value;
    const char *message;
} machine_case;

static const machine_case cases[] = {
    {"none", NULL, NULL, "libcuda.so.1 was not found in BANYAN_CUDA_PATH="},
    {"old", NULL, NULL, "libcuda.so.1 lacks cuInit: the NVIDIA driver is older than 525"},
    {"all", "BANYAN_STANDIN_DEVICES", "0", "the NVIDIA driver finds no GPU"},
    {"all", "BANYAN_STANDIN_VERSION", "11080",
     "the NVIDIA driver knows CUDA 11.8; 12.0 is needed: install driver 525 or later"},
    {"all", "BANYAN_STANDIN_FAIL", "cuInit:1=803", "different versions, as after an update"},
    {"all", "BANYAN_STANDIN_FAIL", "cuInit:1=34", "the toolkit's stub"},
    {"all", "BANYAN_STANDIN_FAIL", "cuInit:1=999", "the NVIDIA driver does not start"},
    {"all", "BANYAN_STANDIN_CAPABILITY", "75",
     "stand-in 0 has compute capability 7.5; 8.0 is needed (RTX 30, A100 and later)"},
    {"all", "BANYAN_STANDIN_FAIL", "cuDevicePrimaryCtxRetain:1=46",
     "is used by another process alone"},
    {"all", "BANYAN_STANDIN_FAIL", "cuDevicePrimaryCtxRetain:1=2", "no memory left for a context"},
    {"all", "BANYAN_STANDIN_FAIL", "cuModuleLoadData:1=222", "a newer driver can"},
    {"all", "BANYAN_STANDIN_FAIL", "cuStreamCreate:3=2", "cuda: copy-out: "},
    {"driver", NULL, NULL, "libcublasLt.so.12 was not found: pip install nvidia-cublas-cu12"},
    {"new", NULL, NULL,
     "knows CUDA 12.9, and libcublasLt.so.13, which was found, needs driver 580"},
    {"old_products", NULL, NULL, "libcublasLt lacks cublasLtCreate"},
    {"all", "BANYAN_STANDIN_FAIL", "cublasLtCreate:1=1",
     "cublasLt 12.9 does not start: 1: it finds no GPU, or no memory is left on it"},
};

static void use_folder(const char *folder)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", BY_STANDINS, folder);
    assert_int_equal(setenv("BANYAN_CUDA_PATH", path, 1), 0);
}

static void test_machines(void **state)
{
    BY_UNUSED(state);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(cases); i++) {
        const machine_case *c = &cases[i];
        by_error error = {0};
        by_device *device = NULL;
        use_folder(c->folder);
        if (c->name != NULL) {
            assert_int_equal(setenv(c->name, c->value, 1), 0);
        }
        by_status status = by_device_open(&device, "cuda", 1, &error);
        if (status == BY_OK || strstr(error.message, c->message) == NULL) {
            fail_msg("%s: %s, wanted: %s", c->folder, error.message, c->message);
        }
        assert_null(device);
        if (c->name != NULL) {
            assert_int_equal(unsetenv(c->name), 0);
        }
    }
}

/* Without a folder of libraries, a machine without a driver is one at first sight. */
static void test_no_driver(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    by_device *device = NULL;
    (void)unsetenv("BANYAN_CUDA_PATH");
    by_status status = by_device_open(&device, "cuda", 1, &error);
    if (access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0) {
        check_error(status, BY_EDEVICE, &error, "this machine has no NVIDIA driver");
    }
    by_device_close(&device);
}

/* auto takes the GPU where there is one, and the CPU where none can be used. */
static void test_auto(void **state)
{
    BY_UNUSED(state);
    by_error error = {0};
    char name[BY_DEVICE_NAME];
    use_folder("all");
    check_ok(by_device_resolve(name, "auto", &error), &error);
    assert_string_equal(name, "cuda");
    check_error(by_device_resolve(name, "cuda:3", &error), BY_EARG, &error,
                "this machine has 1 of the kind cuda");
    use_folder("old");
    check_ok(by_device_resolve(name, "auto", &error), &error);
    assert_string_equal(name, "cpu");
    use_folder("all");
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "7", 1), 0);
    assert_int_equal(setenv("BANYAN_STANDIN_DEVICES", "0", 1), 0);
    check_error(by_device_resolve(name, "cuda", &error), BY_EDEVICE, &error,
                "finds no GPU: CUDA_VISIBLE_DEVICES is '7'");
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    (void)unsetenv("BANYAN_STANDIN_DEVICES");
}

/* The compiler of kernels at run time: what it makes is kept; without it, and when it fails. */
static void test_compiler(void **state)
{
    BY_UNUSED(state);
    static const unsigned char text[] = "kernel";
    const by__cuda_image source = {"test", 0, text, sizeof text - 1, false};
    const by__cuda_device device = {.driver = {.supports = 12090}, .capability = 90, .name = "X"};
    by_error error = {0};
    char *image = NULL;
    use_folder("bare");
    check_error(by__cuda_nvrtc_image(&image, &device, &source, &error), BY_EDEVICE, &error,
                "this build has no kernels for sm_90 (X), and libnvrtc.so.12");
    use_folder("all");
    assert_int_equal(setenv("BANYAN_STANDIN_FAIL", "nvrtcCompileProgram:1=6", 1), 0);
    by__cuda_driver driver;
    check_ok(by__cuda_driver_open(&driver, &error), &error);
    check_error(by__cuda_nvrtc_image(&image, &device, &source, &error), BY_EDEVICE, &error,
                "NVRTC cannot compile the kernels of test: the stand-in compiles nothing");
    (void)unsetenv("BANYAN_STANDIN_FAIL");
    check_ok(by__cuda_nvrtc_image(&image, &device, &source, &error), &error);
    assert_string_equal(image, "kernel");
    free(image);
    /* Now it is in the cache. */
    assert_int_equal(setenv("BANYAN_STANDIN_FAIL", "nvrtcCompileProgram:1=6", 1), 0);
    check_ok(by__cuda_driver_open(&driver, &error), &error);
    check_ok(by__cuda_nvrtc_image(&image, &device, &source, &error), &error);
    free(image);
    (void)unsetenv("BANYAN_STANDIN_FAIL");
}

/* The machine code that a build with NVRTC has inside is what the table says, and a damaged one is
 * refused. */
static void test_images(void **state)
{
    BY_UNUSED(state);
    static const int architectures[] = {80, 89, 90, 100, 120, -90};
    size_t count;
    size_t sources = 0;
    size_t compressed = 0;
    const by__cuda_image *images = by__cuda_images(&count);
    for (size_t i = 0; i < count; i++) {
        by_error error = {0};
        char *data;
        sources += images[i].architecture == 0;
        if (!images[i].compressed) {
            continue;
        }
        int architecture = architectures[compressed++ % BY_ARRAY_LENGTH(architectures)];
        assert_int_equal(images[i].architecture, architecture);
        check_ok(by__cuda_image_decompress(&data, &images[i], &error), &error);
        if (architecture < 0) {
            assert_non_null(strstr(data, ".target sm_90"));
        } else {
            assert_memory_equal(data, "\177ELF", 4);
            /* In the lowest byte of e_flags, from 10.0 on in the next one. */
            assert_int_equal((unsigned char)data[architecture < 100 ? 48 : 49], architecture);
        }
        free(data);
        by__cuda_image damaged = images[i];
        damaged.bytes /= 2;
        check_error(by__cuda_image_decompress(&data, &damaged, &error), BY_EDEVICE, &error,
                    "in this program are damaged");
    }
    assert_true(compressed == 0 || compressed == sources * BY_ARRAY_LENGTH(architectures));
}

/* What the compiler's stand-in makes is not for the user's cache. */
static int make_cache(void **state)
{
    *state = temporary_make();
    return *state == NULL || setenv("XDG_CACHE_HOME", *state, 1) != 0;
}

static int remove_cache(void **state)
{
    temporary_remove(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_machines), cmocka_unit_test(test_no_driver),
        cmocka_unit_test(test_auto),     cmocka_unit_test(test_compiler),
        cmocka_unit_test(test_images),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
#else
int main(void)
{
    printf("no stand-ins: they need clang++ on x86-64, and no sanitizer\n");
    return 0;
}
#endif
