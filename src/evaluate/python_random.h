/* Python's random.Random for integer seeds, draw by draw: evaluations that others have published
 * chose their few-shot examples with it, and prompts are the same only if the draws are.
 *
 * The generator is MT19937 (Matsumoto and Nishimura 1998), seeded by its init_by_array with the 32
 * bit digits of the seed; randbelow, shuffle and sample are those of CPython 3.9 and later
 * (Lib/random.py), whose results its documentation keeps for equal seeds. */
#ifndef BY_EVALUATE_PYTHON_RANDOM_H
#define BY_EVALUATE_PYTHON_RANDOM_H

#include "base/base.h"

typedef struct by__evaluate_random {
    uint32_t state[624];
    size_t at; /* the next word of the state; 624: all are used */
} by__evaluate_random;

/* random.Random(seed). */
void by__evaluate_random_seed(by__evaluate_random *random, uint64_t seed);
/* random._randbelow(n), n >= 1: a number from 0 to n - 1. */
uint32_t by__evaluate_random_below(by__evaluate_random *random, uint32_t n);
/* random.shuffle of n items. */
void by__evaluate_random_shuffle(by__evaluate_random *random, uint32_t *items, uint32_t n);
/* random.sample(range(n), k), k <= n. */
by_status by__evaluate_random_sample(by__evaluate_random *random, uint32_t n, uint32_t *out,
                                     uint32_t k, by_error *error);

#endif
