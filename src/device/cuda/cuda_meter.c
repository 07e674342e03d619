/* The meter of a GPU: NVML, which knows it by its place on the bus. */
#include <stdlib.h>
#include <string.h>

#include "banyan/device.h"
#include "banyan/device_meter.h"
#include "base/base.h"
#include "device/cuda/cuda_meter_api.h"

struct by_device_meter {
#define MEMBER(member, symbol, parameters) int(*member) parameters;
    BY__CUDA_NVML(MEMBER)
#undef MEMBER
    by__cuda_nvml_device device;
};

static const by__cuda_symbol symbols[] = {
#define SYMBOL(member, symbol, parameters) {#symbol, offsetof(by_device_meter, member)},
    BY__CUDA_NVML(SYMBOL)
#undef SYMBOL
};

/* Where the device is on the bus; fails for a device that is no GPU. */
static by_status find_place(char pci[32], const char *name, by_error *error)
{
    by__cuda_driver driver;
    char resolved[BY_DEVICE_NAME];
    int device;
    BY_TRY(by_device_resolve(resolved, name, error));
    if (strncmp(resolved, "cuda", 4) != 0) {
        return by_error_set(error, BY_EDEVICE, "device %s has no meter", resolved);
    }
    int ordinal = resolved[4] == ':' ? (int)strtol(resolved + 5, NULL, 10) : 0;
    BY_TRY(by__cuda_driver_open(&driver, error));
    BY_TRY(by__cuda_driver_failed(&driver, driver.get(&device, ordinal), "device", error));
    return by__cuda_driver_failed(&driver, driver.place(pci, 32, device), "place", error);
}

by_status by_device_meter_open(by_device_meter **out, const char *device, by_error *error)
{
    static const char *const names[] = {"libnvidia-ml.so.1", NULL};
    char pci[32];
    by_device_meter *m;
    BY_TRY(find_place(pci, device, error));
    void *library = by__cuda_search(names, true);
    if (library == NULL) {
        return by_error_set(error, BY_EDEVICE,
                            "cuda: libnvidia-ml.so.1, which comes with the driver, was not found");
    }
    BY_TRY(by__alloc((void **)&m, 1, sizeof *m, "meter", error));
    const char *missing = by__cuda_resolve(m, library, symbols, BY_ARRAY_LENGTH(symbols));
    int result = missing == NULL ? m->init() : 0;
    bool begun = missing == NULL && result == 0;
    result = begun ? m->find(pci, &m->device) : result;
    if (begun && result == 0) {
        *out = m;
        return BY_OK;
    }
    if (begun) {
        (void)m->shut_down();
    }
    free(m);
    return missing != NULL
               ? by_error_set(error, BY_EDEVICE, "cuda: libnvidia-ml lacks %s", missing)
               : by_error_set(error, BY_EDEVICE, "cuda: NVML does not find the GPU at %s: %d", pci,
                              result);
}

by_status by_device_meter_read(by_device_usage *out, by_device_meter *meter, by_error *error)
{
    by__cuda_nvml_rates rates;
    by__cuda_nvml_memory memory;
    unsigned number;
    int result = meter->memory(meter->device, &memory);
    if (result != 0) {
        return by_error_set(error, BY_EDEVICE, "cuda: NVML does not answer: %d", result);
    }
    *out = (by_device_usage){.busy = -1.0,
                             .memory_used = memory.used,
                             .memory_total = memory.total,
                             .celsius = -1.0,
                             .watts = -1.0,
                             .most_watts = -1.0};
    if (meter->rates(meter->device, &rates) == 0) {
        out->busy = rates.gpu / 100.0;
    }
    if (meter->temperature(meter->device, BY__CUDA_NVML_TEMPERATURE_GPU, &number) == 0) {
        out->celsius = number;
    }
    if (meter->power(meter->device, &number) == 0) {
        out->watts = number / 1e3;
    }
    if (meter->power_limit(meter->device, &number) == 0) {
        out->most_watts = number / 1e3;
    }
    return BY_OK;
}

void by_device_meter_close(by_device_meter **meter)
{
    if (*meter != NULL) {
        (void)(*meter)->shut_down();
        free(*meter);
        *meter = NULL;
    }
}
