/* Loops over bytes that are compiled a second time, for AVX2. They compute integers, so vectors of
 * any width give the same bits. */
#ifndef BY_FORMATS_IMAGE_WIDE_H
#define BY_FORMATS_IMAGE_WIDE_H

#include <stdbool.h>

#if defined __x86_64__
#define BY__WIDE __attribute__((target("avx2")))
#else
#define BY__WIDE
#endif

/* For what both functions contain. */
#define BY__EITHER static inline __attribute__((always_inline))

/* Whether the machine runs those of BY__WIDE. */
static inline bool by__format_has_wide(void)
{
#if defined __x86_64__
    return __builtin_cpu_supports("avx2") != 0;
#else
    return true;
#endif
}

#endif
