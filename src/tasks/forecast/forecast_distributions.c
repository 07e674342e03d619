#include "tasks/forecast/forecast_distributions.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static double normal_function(double z)
{
    return 0.5 * erfc(-z * M_SQRT1_2);
}

static double normal_density(double z)
{
    return exp(-0.5 * z * z) / sqrt(2.0 * M_PI);
}

/* Newton's method from the rational approximation 26.2.23 of Abramowitz and Stegun (1964), whose
 * error is below 4.5e-4. */
double by__forecast_normal_quantile(double level)
{
    double tail = level < 0.5 ? level : 1.0 - level;
    double t = sqrt(-2.0 * log(tail));
    double z = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                       (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
    for (int i = 0; i < 4; i++) { /* of the upper tail, which does not cancel */
        z += (normal_function(-z) - tail) / normal_density(z);
    }
    return level < 0.5 ? -z : z;
}

double by__forecast_normal_crps(double z)
{
    return z * (2.0 * normal_function(z) - 1.0) + 2.0 * normal_density(z) - 1.0 / sqrt(M_PI);
}

static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

double by__forecast_counts_log(const by__forecast_counts *c, double y)
{
    double r = 1.0 / c->dispersion;
    double product = c->mean * c->dispersion;
    double grown = log1p(product);
    return log_gamma(y + r) - log_gamma(r) - log_gamma(y + 1.0) - r * grown +
           y * (log(product) - grown);
}

/* Cells of counts have this share of their distance from the first one. */
#define CELLS 2048.0
/* What is left out above. */
#define TAIL 1e-12

/* Goes through the counts in cells: one by one at first, where the share of each follows from the
 * one before, then in cells whose middle stands for all. */
typedef struct crps_scan {
    const by__forecast_counts *c;
    double first; /* what is below has no share that matters */
    double k;     /* the cell begins here */
    double width;
    double share; /* P of each of its counts */
    double below; /* P of all counts before the cell */
} crps_scan;

static void begin_scan(crps_scan *s, const by__forecast_counts *c)
{
    double deviation = sqrt(c->mean + c->dispersion * c->mean * c->mean);
    double first = floor(c->mean - 12.0 * deviation);
    *s = (crps_scan){.c = c, .first = first > 0.0 ? first : 0.0, .width = 1.0};
    s->k = s->first;
    s->share = exp(by__forecast_counts_log(c, s->k));
}

static void next_cell(crps_scan *s)
{
    double r = 1.0 / s->c->dispersion;
    double product = s->c->mean * s->c->dispersion;
    s->below += s->share * s->width;
    s->k += s->width;
    double width = floor((s->k - s->first) / CELLS);
    if (width <= 1.0) {
        s->share *= (s->k - 1.0 + r) / s->k * (product / (1.0 + product));
    } else {
        s->width = width;
        s->share = exp(by__forecast_counts_log(s->c, s->k + 0.5 * (width - 1.0)));
    }
}

double by__forecast_counts_scan(const by__forecast_counts *c, const double *levels, size_t count,
                                double *quantiles, double y)
{
    crps_scan s;
    size_t found = 0;
    double most = c->mean + 100.0 * sqrt(c->mean + c->dispersion * c->mean * c->mean) + 100.0;
    begin_scan(&s, c);
    double score = y < s.first ? s.first - y : 0.0;
    for (;; next_cell(&s)) {
        double mass = s.share * s.width;
        for (; found < count && s.below + mass >= levels[found]; found++) {
            double within = mass > 0.0 ? ceil((levels[found] - s.below) / s.share) : s.width;
            quantiles[found] = s.k + fmin(fmax(within, 1.0), s.width) - 1.0;
        }
        double to = s.below + (s.width > 1.0 ? 0.5 * (mass + s.share) : mass);
        double before = fmin(fmax(y - s.k, 0.0), s.width); /* counts of the cell below y */
        score += before * to * to + (s.width - before) * (1.0 - to) * (1.0 - to);
        if (s.below + mass > 1.0 - TAIL || s.k > most) {
            break;
        }
    }
    for (; found < count; found++) {
        quantiles[found] = s.k + s.width - 1.0;
    }
    score += y > s.k + s.width ? y - s.k - s.width : 0.0;
    return isnan(y) ? 0.0 : score;
}
