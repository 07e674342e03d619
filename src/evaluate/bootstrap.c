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

/* The value below which a share of the sorted samples is, between the two nearest. Equal ones are
 * not subtracted, since they may be infinite. */
static double percentile(const double *sorted, size_t count, double share)
{
    double at = share * (double)(count - 1);
    size_t below = (size_t)at;
    size_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] == sorted[above]
               ? sorted[below]
               : sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
}

void by__evaluate_interval(double *samples, size_t count, double *low, double *high)
{
    *low = *high = NAN;
    if (count > 0) {
        qsort(samples, count, sizeof *samples, compare);
        *low = percentile(samples, count, 0.025);
        *high = percentile(samples, count, 0.975);
    }
}
