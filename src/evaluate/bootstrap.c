#include "evaluate/bootstrap.h"

#include <math.h>
#include <stdlib.h>

#define STREAM 0x73756974u /* "suit" in ASCII */

void by__evaluate_draws_begin(by__evaluate_draws *draws, uint64_t seed)
{
    by__philox_key(draws->key, seed, STREAM);
}

/* Values that are not numbers come last. */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x > y) - (x < y);
}

/* The value below which a share of the sorted samples is, between the two nearest. */
static double percentile(const double *sorted, double share)
{
    double at = share * (BY__EVALUATE_SAMPLES - 1);
    size_t below = (size_t)at;
    return sorted[below] + (at - (double)below) * (sorted[below + 1] - sorted[below]);
}

void by__evaluate_interval(double samples[BY__EVALUATE_SAMPLES], double *low, double *high)
{
    qsort(samples, BY__EVALUATE_SAMPLES, sizeof *samples, compare);
    *low = percentile(samples, 0.025);
    *high = percentile(samples, 0.975);
}
