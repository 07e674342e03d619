/* Whether all values of an array are finite. */
#include <string.h>

#include "trainer/state/guard.h"

/* Infinities and NaNs have an exponent of all ones. One branch-free pass, which compilers
 * vectorize. */
static bool all_finite_halves(const uint16_t *values, size_t count, uint16_t exponent)
{
    uint16_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        bad |= (uint16_t)((values[i] & exponent) == exponent);
    }
    return bad == 0;
}

static bool all_finite_floats(const float *values, size_t count)
{
    uint32_t most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits &= UINT32_C(0x7fffffff);
        most = bits > most ? bits : most;
    }
    return most < UINT32_C(0x7f800000);
}

bool by__trainer_all_finite(by_dtype dtype, const void *values, size_t count)
{
    return dtype == BY_F32    ? all_finite_floats(values, count)
           : dtype == BY_BF16 ? all_finite_halves(values, count, 0x7f80)
           : dtype == BY_F16  ? all_finite_halves(values, count, 0x7c00)
                              : true;
}
