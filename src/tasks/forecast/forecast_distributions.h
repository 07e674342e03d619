/* Distributions that are forecast: quantiles and scores. */
#ifndef BY_TASKS_FORECAST_FORECAST_DISTRIBUTIONS_H
#define BY_TASKS_FORECAST_FORECAST_DISTRIBUTIONS_H

#include <stddef.h>

/* The quantile of the standard normal distribution; 0 < level < 1. */
double by__forecast_normal_quantile(double level);
/* The continuous ranked probability score of the standard normal distribution at z (Gneiting and
 * Raftery 2007). */
double by__forecast_normal_crps(double z);

/* A negative binomial distribution of counts, whose variance is mean + dispersion mean^2; both are
 * above 0. */
typedef struct by__forecast_counts {
    double mean, dispersion;
} by__forecast_counts;

/* log P(y), y = 0, 1, ... */
double by__forecast_counts_log(const by__forecast_counts *c, double y);
/* The quantiles of `count` ascending levels: the least counts whose distribution function is not
 * below them, within one part in 2048 where they are above 2048. Returns the continuous ranked
 * probability score at y; NaN: 0. */
double by__forecast_counts_scan(const by__forecast_counts *c, const double *levels, size_t count,
                                double *quantiles, double y);

#endif
