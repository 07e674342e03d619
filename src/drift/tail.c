/* Tail probabilities of test statistics under the hypothesis of no drift. */
#include <math.h>
#include <stdlib.h>

#include "drift/drift.h"

#define TERMS   10000
#define EPSILON 1e-16

/* The regularised upper incomplete gamma function Q(a, x): by its series for x < a + 1 (Abramowitz
 * and Stegun 6.5.29), else by the continued fraction 6.5.31 with Lentz's method. */
static double gamma_tail(double a, double x)
{
    int sign;
    double scale = exp(a * log(x) - x - lgamma_r(a, &sign));
    if (x < a + 1.0) {
        double term = 1.0 / a;
        double sum = term;
        for (int i = 1; i < TERMS && term > sum * EPSILON; i++) {
            term *= x / (a + i);
            sum += term;
        }
        return 1.0 - sum * scale;
    }
    double b = x + 1.0 - a;
    double c = 1e300;
    double d = 1.0 / b;
    double h = d;
    for (int i = 1; i < TERMS; i++) {
        double an = -i * (i - a);
        b += 2.0;
        d = 1.0 / (an * d + b);
        c = b + an / c;
        h *= d * c;
        if (fabs(d * c - 1.0) < EPSILON) {
            break;
        }
    }
    return scale * h;
}

double by__drift_chi_squared_tail(double x, double degrees)
{
    if (!(x > 0.0)) {
        return 1.0;
    }
    return isinf(x) ? 0.0 : gamma_tail(degrees / 2.0, x / 2.0);
}

/* Kolmogorov's limit, by whichever form of its theta function converges in a few terms; the
 * argument is corrected as in M. A. Stephens, JASA 69 (1974). */
double by__drift_kolmogorov_tail(double d, double en)
{
    double root = sqrt(en);
    double t = (root + 0.12 + 0.11 / root) * d;
    double sum = 0.0;
    if (t <= 0.0) {
        return 1.0;
    }
    if (t < 1.18) {
        for (int k = 1; k < 40; k += 2) {
            sum += exp(-(double)(k * k) * M_PI * M_PI / (8.0 * t * t));
        }
        return fmax(0.0, 1.0 - sqrt(2.0 * M_PI) / t * sum);
    }
    for (int k = 1; k < 40; k++) {
        sum += (k % 2 == 1 ? 2.0 : -2.0) * exp(-2.0 * k * k * t * t);
    }
    return sum;
}

/* The order of the merged samples is a path through the lattice from (0, 0) to (m, n); all paths
 * are equally likely. u[j] is the share of paths to (i, j) that have touched |i / m - j / n| >= d:
 * the mean of its values at the two preceding points, weighted by the probability of the last step.
 * All terms are positive, so small shares keep their precision. */
by_status by__drift_kolmogorov_exact(double *out, double d, size_t m, size_t n, by_error *error)
{
    double *u;
    BY_TRY(by__alloc((void **)&u, n + 1, sizeof *u, "a distribution", error));
    /* Distances are multiples of 1 / lcm(m, n), so a margin of half of 1 / (m n) absorbs
     * rounding. */
    double limit = d - 0.5 / ((double)m * (double)n);
    for (size_t j = 0; j <= n; j++) {
        u[j] = (double)j / (double)n >= limit ? 1.0 : 0.0;
    }
    for (size_t i = 1; i <= m; i++) {
        double x = (double)i / (double)m;
        u[0] = x >= limit ? 1.0 : u[0];
        for (size_t j = 1; j <= n; j++) {
            double from_i = (double)i / (double)(i + j);
            u[j] = fabs(x - (double)j / (double)n) >= limit
                       ? 1.0
                       : from_i * u[j] + (1.0 - from_i) * u[j - 1];
        }
    }
    *out = u[n];
    free(u);
    return BY_OK;
}
