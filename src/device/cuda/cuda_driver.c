/* Opens NVIDIA's driver, and says what is wrong with it. */
#include "device/cuda/cuda_driver.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

static const by__cuda_symbol symbols[] = {
#define SYMBOL(member, symbol, parameters) {#symbol, offsetof(by__cuda_driver, member)},
    BY__CUDA_DRIVER(SYMBOL)
#undef SYMBOL
};

by_status by__cuda_driver_failed(const by__cuda_driver *driver, int result, const char *what,
                                 by_error *error)
{
    const char *name = NULL;
    const char *text = NULL;
    if (result == BY__CUDA_SUCCESS) {
        return BY_OK;
    }
    (void)driver->error_name(result, &name);
    (void)driver->error_text(result, &text);
    return by_error_set(error, result == BY__CUDA_OUT_OF_MEMORY ? BY_EMEMORY : BY_EDEVICE,
                        "cuda: %s: %s (%s, %d)", what, text == NULL ? "unknown error" : text,
                        name == NULL ? "?" : name, result);
}

/* Why the driver did not start. */
static by_status refuse_start(const by__cuda_driver *driver, int result, by_error *error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    switch (result) {
    case BY__CUDA_NO_DEVICE:
        return visible == NULL
                   ? by_error_set(error, BY_EDEVICE,
                                  "cuda: the NVIDIA driver finds no GPU; nvidia-smi lists those "
                                  "that the machine has; 'device: cpu' works without one")
                   : by_error_set(error, BY_EDEVICE,
                                  "cuda: the NVIDIA driver finds no GPU: CUDA_VISIBLE_DEVICES is "
                                  "'%.60s'; 'device: cpu' works without one",
                                  visible);
    case BY__CUDA_SYSTEM_DRIVER_MISMATCH:
        return by_error_set(error, BY_EDEVICE,
                            "cuda: the NVIDIA driver's library and its kernel module have "
                            "different versions, as after an update: restart the machine");
    case BY__CUDA_STUB_LIBRARY:
        return by_error_set(error, BY_EDEVICE,
                            "cuda: the libcuda.so.1 that was found is the toolkit's stub, which "
                            "is for linking; install the driver (package nvidia-driver), or take "
                            "the stub's folder out of LD_LIBRARY_PATH");
    default:
        return by__cuda_driver_failed(driver, result, "the NVIDIA driver does not start", error);
    }
}

/* Whether the kernel has a driver, as every start on 'auto' asks: on its own, below Windows, on a
 * board. */
static bool has_device_file(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu",
                                        "/dev/nvgpu"};
    bool found = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files) && !found; i++) {
        found = access(files[i], F_OK) == 0;
    }
    return found;
}

by_status by__cuda_driver_open(by__cuda_driver *out, by_error *error)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    by__cuda_driver driver = {0};
    const char *only = getenv("BANYAN_CUDA_PATH");
    if (only == NULL && !has_device_file()) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda: there is no /dev/nvidiactl: this machine has no NVIDIA driver "
                            "(package nvidia-driver), or its container was started without GPUs "
                            "(--gpus all); 'device: cpu' works without one");
    }
    void *library = by__cuda_search(names, true);
    if (library == NULL) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda: libcuda.so.1 was not found%s%.200s: this machine has no NVIDIA "
                            "driver (package nvidia-driver); 'device: cpu' works without one",
                            only == NULL ? "" : " in BANYAN_CUDA_PATH=", only == NULL ? "" : only);
    }
    const char *missing = by__cuda_resolve(&driver, library, symbols, BY_ARRAY_LENGTH(symbols));
    if (missing != NULL) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda: libcuda.so.1 lacks %s: the NVIDIA driver is older than %d, "
                            "which is needed",
                            missing, BY__CUDA_LEAST_DRIVER);
    }
    int result = driver.init(0);
    if (result != BY__CUDA_SUCCESS) {
        return refuse_start(&driver, result, error);
    }
    BY_TRY(by__cuda_driver_failed(&driver, driver.version(&driver.supports), "version", error));
    if (driver.supports < BY__CUDA_LEAST_VERSION) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda: the NVIDIA driver knows CUDA %d.%d; %d.%d is needed: install "
                            "driver %d or later (package nvidia-driver)",
                            driver.supports / 1000, driver.supports % 1000 / 10,
                            BY__CUDA_LEAST_VERSION / 1000, BY__CUDA_LEAST_VERSION % 1000 / 10,
                            BY__CUDA_LEAST_DRIVER);
    }
    *out = driver;
    return BY_OK;
}

int by__cuda_driver_capability(const by__cuda_driver *driver, int device)
{
    int major = 0;
    int minor = 0;
    (void)driver->property(&major, BY__CUDA_CAPABILITY_MAJOR, device);
    (void)driver->property(&minor, BY__CUDA_CAPABILITY_MINOR, device);
    return 10 * major + minor;
}

by_status by__cuda_driver_check(const by__cuda_driver *driver, int ordinal, by_error *error)
{
    int device;
    char name[64] = "";
    BY_TRY(by__cuda_driver_failed(driver, driver->get(&device, ordinal), "device", error));
    (void)driver->name(name, sizeof name, device);
    int capability = by__cuda_driver_capability(driver, device);
    if (capability < BY__CUDA_LEAST_CAPABILITY) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda:%d: %s has compute capability %d.%d; %d.%d is needed (RTX 30, "
                            "A100 and later)",
                            ordinal, name, capability / 10, capability % 10,
                            BY__CUDA_LEAST_CAPABILITY / 10, BY__CUDA_LEAST_CAPABILITY % 10);
    }
    return BY_OK;
}
