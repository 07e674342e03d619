/* The table of the emulator's kernels: each of kernels.inc in its plain and its checked build. */
#include <string.h>

#include "cuda/emulator.h"
#include "device/cuda/kernels.h"
#include "device/cuda/layer_kernels.h"

#define BY__CUDA_KERNEL(name)                                                                      \
    void emulated_plain_##name(by__cuda_##name##_args a);                                          \
    void emulated_checked_##name(by__cuda_##name##_args a);                                        \
    static void plain_##name(const void *args)                                                     \
    {                                                                                              \
        emulated_plain_##name(*(const by__cuda_##name##_args *)args);                              \
    }                                                                                              \
    static void checked_##name(const void *args)                                                   \
    {                                                                                              \
        emulated_checked_##name(*(const by__cuda_##name##_args *)args);                            \
    }
#include "device/cuda/kernels.inc"
#undef BY__CUDA_KERNEL

static const emulator_kernel kernels[] = {
#define BY__CUDA_KERNEL(name)                                                                      \
    {"by_cuda_" #name, sizeof(by__cuda_##name##_args), plain_##name, checked_##name},
#include "device/cuda/kernels.inc"
#undef BY__CUDA_KERNEL
};

const emulator_kernel *emulator_find(const char *symbol)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].symbol, symbol) == 0) {
            return &kernels[i];
        }
    }
    return NULL;
}

size_t emulator_args_bytes(const char *symbol)
{
    const emulator_kernel *kernel = emulator_find(symbol);
    return kernel == NULL ? 0 : kernel->args;
}
