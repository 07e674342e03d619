/* Chooses the panels for a level and dtype. */
#include "device/cpu/panel.h"

#include <stdlib.h>
#include <string.h>

bool by__cpu_panel_native(void)
{
    const char *cap = getenv("BANYAN_ISA");
    return cap == NULL || cap[0] == '\0' || strcmp(cap, "native") == 0;
}

#define BY__PANEL_OF(dtype, level)                                                                 \
    ((dtype) == BY_BF16  ? &by__kernel_panel_bf16_##level                                          \
     : (dtype) == BY_F16 ? &by__kernel_panel_f16_##level                                           \
                         : &by__kernel_panel_f32_##level)

bool by__cpu_panel_tiles(by__cpu_isa isa)
{
#if defined(BY_HAS_AVX512) && defined(__linux__)
    return isa == BY__ISA_AVX512 && by__cpu_panel_native() && by__kernel_panel_amx() != NULL;
#else
    (void)isa;
    return false;
#endif
}

const by__cpu_panel *by__cpu_panel_for(by__cpu_isa isa, bool native, by_dtype dtype)
{
#if defined(BY_HAS_AVX512)
    if (isa == BY__ISA_AVX512) {
#if defined(__linux__)
        const by__cpu_panel *amx = dtype == BY_BF16 && native ? by__kernel_panel_amx() : NULL;
        if (amx != NULL) {
            return amx;
        }
#endif
        return BY__PANEL_OF(dtype, avx512);
    }
#endif
#if defined(BY_HAS_AVX2)
    if (isa == BY__ISA_AVX2) {
        return BY__PANEL_OF(dtype, avx2);
    }
#endif
    (void)isa;
    (void)native;
    return BY__PANEL_OF(dtype, baseline);
}
