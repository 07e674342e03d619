/* NVML's stand-in: a GPU that is 37 % busy; the power limit is not told. */
#include <string.h>

#include "device/cuda/cuda_meter_api.h"
#include "standin.h"

#define PROTOTYPE(member, symbol, parameters) STANDIN_API int symbol parameters;
BY__CUDA_NVML(PROTOTYPE)
#undef PROTOTYPE

#define NOT_FOUND     6
#define NOT_SUPPORTED 3

static char the_gpu;

int nvmlInit_v2(void)
{
    int failure;
    return standin_fails("nvmlInit_v2", &failure) ? failure : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, by__cuda_nvml_device *device)
{
    *device = &the_gpu;
    return strcmp(pci, "0000:41:00.0") == 0 ? 0 : NOT_FOUND;
}

int nvmlDeviceGetUtilizationRates(by__cuda_nvml_device device, by__cuda_nvml_rates *rates)
{
    *rates = (by__cuda_nvml_rates){37, 12};
    return device == &the_gpu ? 0 : NOT_FOUND;
}

int nvmlDeviceGetMemoryInfo(by__cuda_nvml_device device, by__cuda_nvml_memory *memory)
{
    int failure;
    if (standin_fails("nvmlDeviceGetMemoryInfo", &failure)) {
        return failure;
    }
    *memory = (by__cuda_nvml_memory){8ull << 30, 5ull << 30, 3ull << 30};
    return device == &the_gpu ? 0 : NOT_FOUND;
}

int nvmlDeviceGetTemperature(by__cuda_nvml_device device, int sensor, unsigned *celsius)
{
    *celsius = 45;
    return device == &the_gpu && sensor == 0 ? 0 : NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(by__cuda_nvml_device device, unsigned *milliwatts)
{
    *milliwatts = 120500;
    return device == &the_gpu ? 0 : NOT_FOUND;
}

int nvmlDeviceGetEnforcedPowerLimit(by__cuda_nvml_device device, unsigned *milliwatts)
{
    (void)device;
    (void)milliwatts;
    return NOT_SUPPORTED;
}
