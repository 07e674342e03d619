/* The bootstrap (Efron, "Bootstrap methods: another look at the jackknife", 1979): items are drawn
 * with replacement, as many as there are, and a statistic is computed anew; the 2.5th and the
 * 97.5th percentile of BY__EVALUATE_SAMPLES such values bound it. */
#ifndef BY_EVALUATE_BOOTSTRAP_H
#define BY_EVALUATE_BOOTSTRAP_H

#include "base/base.h"

#define BY__EVALUATE_SAMPLES 2000

typedef struct by__evaluate_draws {
    uint32_t key[2];
    uint32_t bits[4];
} by__evaluate_draws;

void by__evaluate_draws_begin(by__evaluate_draws *draws, uint64_t seed);
/* Draws item k of a sample of `items` items, a function of seed, task, sample and k. For one sample
 * k goes 0, 1, 2, ... */
static inline uint32_t by__evaluate_draw(by__evaluate_draws *draws, uint32_t task, uint32_t sample,
                                         uint32_t k, uint32_t items)
{
    if (k % 4 == 0) {
        by__philox(draws->bits, draws->key, (uint32_t[4]){k / 4, sample, task, 0});
    }
    return (uint32_t)((uint64_t)draws->bits[k % 4] * items >> 32);
}
/* Sorts the samples and sets the bounds of their interval. `count`: samples that have a value, at
 * most BY__EVALUATE_SAMPLES; NaN if there are none. */
void by__evaluate_interval(double *samples, size_t count, double *low, double *high);

#endif
