/* cuda_meter_api: the part of NVML, NVIDIA's management library, that is called, declared without
 * its header. (Source: NVML's API reference, version 12.) */
#ifndef BY_DEVICE_CUDA_CUDA_METER_API_H
#define BY_DEVICE_CUDA_CUDA_METER_API_H

#include "device/cuda/cuda_driver.h"

typedef void *by__cuda_nvml_device;

typedef struct by__cuda_nvml_rates {
    unsigned gpu; /* per cent of the last sample's time */
    unsigned memory;
} by__cuda_nvml_rates;

typedef struct by__cuda_nvml_memory {
    unsigned long long total, free, used;
} by__cuda_nvml_memory;

enum { BY__CUDA_NVML_TEMPERATURE_GPU = 0 };

/* X(member, symbol, parameters): all return a status, 0 for success. */
#define BY__CUDA_NVML(X)                                                                           \
    X(init, nvmlInit_v2, (void))                                                                   \
    X(shut_down, nvmlShutdown, (void))                                                             \
    X(find, nvmlDeviceGetHandleByPciBusId_v2, (const char *pci, by__cuda_nvml_device *device))     \
    X(rates, nvmlDeviceGetUtilizationRates,                                                        \
      (by__cuda_nvml_device device, by__cuda_nvml_rates * rates))                                  \
    X(memory, nvmlDeviceGetMemoryInfo,                                                             \
      (by__cuda_nvml_device device, by__cuda_nvml_memory * memory))                                \
    X(temperature, nvmlDeviceGetTemperature,                                                       \
      (by__cuda_nvml_device device, int sensor, unsigned *celsius))                                \
    X(power, nvmlDeviceGetPowerUsage, (by__cuda_nvml_device device, unsigned *milliwatts))         \
    X(power_limit, nvmlDeviceGetEnforcedPowerLimit,                                                \
      (by__cuda_nvml_device device, unsigned *milliwatts))

#endif
