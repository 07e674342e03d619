#include "device/cpu/panel.h"

#include <stdlib.h>
#include <string.h>

bool by__panel_native(void)
{
    const char *cap = getenv("BANYAN_ISA");
    return cap == NULL || cap[0] == '\0' || strcmp(cap, "native") == 0;
}

const by__panel *by__panel_for(by__isa isa, bool native, by_dtype dtype)
{
    bool bf16 = dtype == BY_BF16;
#if defined(__x86_64__)
    if (isa == BY__ISA_AVX512) {
#if defined(__linux__)
        const by__panel *amx = bf16 && native ? by__panel_amx() : NULL;
        if (amx != NULL) {
            return amx;
        }
#endif
        return bf16 ? &by__panel_bf16_avx512 : &by__panel_f32_avx512;
    }
    if (isa == BY__ISA_AVX2) {
        return bf16 ? &by__panel_bf16_avx2 : &by__panel_f32_avx2;
    }
#endif
    (void)isa;
    (void)native;
    return bf16 ? &by__panel_bf16_baseline : &by__panel_f32_baseline;
}
