/* Products of 8-bit codes with 16-bit integers at levels that have no instruction for them: four
 * neighbouring codes of a column, which are the bytes of a word, are split into two pairs of 16-bit
 * integers, and so are the four integers of a row that they are multiplied with. */
#ifndef BY_DEVICE_CPU_KERNELS_PRODUCTS_QUAD_WORDS_H
#define BY_DEVICE_CPU_KERNELS_PRODUCTS_QUAD_WORDS_H

#include "device/cpu/kernels/simd_math.h"

#if BY__LANES < 16 /* vectors of 16 lanes have vpdpbusd */

typedef uint16_t by__code_halves __attribute__((vector_size(4 * BY__LANES)));

/* Stores the integers q of neighbouring inputs: for four of them, a word with numbers 0 and 2 in
 * its lower and upper half, and a word with numbers 1 and 3. */
BY__INLINE void by__put_quad_words(int32_t *out, by__vi q)
{
    typedef int32_t words __attribute__((vector_size(2 * BY__LANES)));
#if BY__LANES == 8
    by__vi next = BY__SHUFFLE(q, q, 2, 3, 2, 3, 6, 7, 6, 7);
#define FIRST_TWO(v) BY__SHUFFLE(v, v, 0, 1, 4, 5)
#else
    by__vi next = BY__SHUFFLE(q, q, 2, 3, 2, 3);
#define FIRST_TWO(v) BY__SHUFFLE(v, v, 0, 1)
#endif
    by__vi pairs = (q & 0xffff) | (by__vi)((by__vu)next << 16);
    words w = FIRST_TWO(pairs);
#undef FIRST_TWO
    memcpy(out, &w, sizeof w);
}

/* sum + the codes of each column times four integers: even and odd are the two words, in all
 * lanes. */
BY__INLINE by__vi by__add_quad_words(by__vi sum, by__vi codes, by__vi even, by__vi odd)
{
    by__code_halves halves = (by__code_halves)codes;
    sum += by__multiply_pairs((by__vi)(halves & 0xff), even);
    return sum + by__multiply_pairs((by__vi)(halves >> 8), odd);
}

#endif

#endif
