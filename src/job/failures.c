/* How often to save, where failures come at random. */
#include <math.h>

#include "banyan/failures.h"

enum { cuts = 200 };

double by_interval_young(const by_failures *f)
{
    return sqrt(2.0 * f->save * f->mean);
}

double by_interval_daly(const by_failures *f)
{
    if (!isfinite(f->mean)) {
        return INFINITY;
    }
    double half = f->save / (2.0 * f->mean);
    if (half >= 1.0) {
        return f->mean;
    }
    return by_interval_young(f) * (1.0 + sqrt(half) / 3.0 + half / 9.0) - f->save;
}

double by_goodput(const by_failures *f, double every)
{
    if (!isfinite(f->mean)) {
        return isfinite(every) ? every / (every + f->save) : 1.0;
    }
    double mean = f->mean;
    double restart = f->restart + f->written;
    return isfinite(every) ? every / (mean * exp(restart / mean) * expm1((every + f->save) / mean))
                           : 0.0;
}

double by_interval_best(const by_failures *f)
{
    if (!isfinite(f->mean)) {
        return INFINITY;
    }
    if (f->save <= 0.0) {
        return 0.0;
    }
    /* It has one maximum, below the mean: by the golden section. */
    const double golden = 0.5 * (sqrt(5.0) - 1.0);
    double low = 0.0;
    double high = 2.0 * fmax(f->mean, by_interval_young(f));
    for (int i = 0; i < cuts; i++) {
        double left = high - golden * (high - low);
        double right = low + golden * (high - low);
        if (by_goodput(f, left) < by_goodput(f, right)) {
            low = left;
        } else {
            high = right;
        }
    }
    return 0.5 * (low + high);
}
