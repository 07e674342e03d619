/* The CPU's table of kernels, and the choice of the instruction-set level. */
#include "device/cpu/cpu.h"

#include <stdlib.h>
#include <string.h>

/* Declares the kernels of table.inc, then lists them. */
#define BY__REFERENCE(name) extern const by__device_kernel by__cpu_##name##_reference;
#define BY__LEVELS(name)                                                                           \
    extern const by__device_kernel by__kernel_##name##_baseline;                                   \
    extern const by__device_kernel by__kernel_##name##_avx2;                                       \
    extern const by__device_kernel by__kernel_##name##_avx512;
#include "device/cpu/table.inc"
#undef BY__REFERENCE
#undef BY__LEVELS

typedef struct table_row {
    by__cpu_isa lowest;
    by__cpu_isa highest;
    const by__device_kernel *kernel;
} table_row;

#define BY__REFERENCE(name) {BY__ISA_REFERENCE, BY__ISA_REFERENCE, &by__cpu_##name##_reference},
/* cmake/kernels.cmake says which levels there are. */
#if defined(BY_HAS_AVX2)
#define AVX2_ROW(name) {BY__ISA_AVX2, BY__ISA_AVX2, &by__kernel_##name##_avx2},
#else
#define AVX2_ROW(name)
#endif
#if defined(BY_HAS_AVX512)
#define AVX512_ROW(name) {BY__ISA_AVX512, BY__ISA_AVX512, &by__kernel_##name##_avx512},
#else
#define AVX512_ROW(name)
#endif
#define BY__LEVELS(name)                                                                           \
    {BY__ISA_BASELINE, BY__ISA_BASELINE, &by__kernel_##name##_baseline},                           \
        AVX2_ROW(name) AVX512_ROW(name)
static const table_row table[] = {
#include "device/cpu/table.inc"
};

static const char *const isa_names[BY__ISA_COUNT] = {"reference", "baseline", "avx2", "avx512"};

const char *by__cpu_isa_name(by__cpu_isa isa)
{
    return (unsigned)isa < BY__ISA_COUNT ? isa_names[isa] : "?";
}

/* The features must cover the flags in cmake/kernels.cmake. Every processor that has these has the
 * rest of x86-64-v3 and v4 too. The builtin also checks that the system saves the wide registers.
 */
by__cpu_isa by__cpu_best_isa(void)
{
    by__cpu_isa best = BY__ISA_BASELINE;
#if defined(BY_HAS_AVX2)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
        best = BY__ISA_AVX2;
    }
#endif
#if defined(BY_HAS_AVX512)
    if (best == BY__ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni")) {
        best = BY__ISA_AVX512;
    }
#endif
    return best;
}

const char *const *by__cpu_host_levels(size_t *count)
{
    *count = (size_t)(by__cpu_best_isa() - BY__ISA_BASELINE) + 1;
    return isa_names + BY__ISA_BASELINE;
}

by_status by__cpu_isa_read(by__cpu_isa *out, by_error *error)
{
    by__cpu_isa best = by__cpu_best_isa();
    const char *cap = getenv("BANYAN_ISA");
    if (cap == NULL || cap[0] == '\0' || strcmp(cap, "native") == 0) {
        *out = best;
        return BY_OK;
    }
    for (int i = 0; i < BY__ISA_COUNT; i++) {
        if (strcmp(cap, isa_names[i]) == 0) {
            *out = (by__cpu_isa)i < best ? (by__cpu_isa)i : best;
            return BY_OK;
        }
    }
    return by_error_set(error, BY_EARG,
                        "BANYAN_ISA is '%s'; one of reference, baseline, avx2, avx512, native",
                        cap);
}

const by__device_kernel *by__cpu_kernel_at(const by__device_call *call, by__cpu_isa isa)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(table); i++) {
        const by__device_kernel *kernel = table[i].kernel;
        if (kernel->op == call->op && isa >= table[i].lowest && isa <= table[i].highest &&
            (kernel->supports == NULL || kernel->supports(call))) {
            return kernel;
        }
    }
    return NULL;
}

by_status by__cpu_kernel(const by__device_kernel **out, const by__device_call *call,
                         by__cpu_isa isa, by_error *error)
{
    for (int level = (int)isa; level >= BY__ISA_REFERENCE; level--) {
        const by__device_kernel *kernel = by__cpu_kernel_at(call, (by__cpu_isa)level);
        if (kernel != NULL) {
            *out = kernel;
            return BY_OK;
        }
    }
    char dtypes[64] = "";
    size_t used = 0;
    for (int i = 0; i < call->input_count && used + 8 < sizeof dtypes; i++) {
        used +=
            (size_t)snprintf(dtypes + used, sizeof dtypes - used, "%s%s", i == 0 ? "" : ", ",
                             by__present(&call->in[i]) ? by_dtype_name(call->in[i].dtype) : "-");
    }
    return by_error_set(error, BY_EDEVICE, "the CPU has no kernel for %s on (%s)",
                        by_op_name(call->op), dtypes);
}
