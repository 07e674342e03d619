/* Exponential smoothing of one channel of a series: simple, Holt's with a trend, or Holt's and
 * Winters' with an additive season, whose parameters are fitted to its first rows. */
#ifndef BY_DATA_SERIES_SERIES_SMOOTHING_H
#define BY_DATA_SERIES_SERIES_SMOOTHING_H

#include "base/base.h"

/* Numbers y[0], y[stride], ... */
typedef struct by__series_channel {
    const float *y;
    size_t stride;
    uint64_t rows;
} by__series_channel;

typedef enum by__series_smoothing_kind {
    BY__SERIES_SIMPLE = 0,
    BY__SERIES_HOLT,
    BY__SERIES_HOLT_WINTERS
} by__series_smoothing_kind;

/* How fast level, trend and season follow the numbers, each in [0, 1]. */
typedef struct by__series_smoothing_rates {
    double level, trend, season;
} by__series_smoothing_rates;

typedef struct by__series_smoothing {
    by__series_smoothing_kind kind;
    by__series_smoothing_rates rates;
    uint64_t season; /* rows of a period; 0: there is none */
    uint64_t rows;
    double error;    /* sum of the squared errors, one row ahead, of the rows that were fitted */
    double *levels;  /* [rows] after each row */
    double *trends;  /* [rows] */
    double *seasons; /* [season + rows]: that of row i is seasons[season + i]; before, the initial
                        ones */
} by__series_smoothing;

/* Computes the states of given rates. The initial level is the mean of the first period, the
 * initial trend the mean difference of the second one from it by row, and the initial seasons are
 * the differences from the level; without a season they are the first number and its difference
 * from the next. Needs two rows, and two periods for a season. fitted: rows whose errors count. */
by_status by__series_smoothing_run(by__series_smoothing *out, const by__series_channel *channel,
                                   by__series_smoothing_kind kind, uint64_t season,
                                   const by__series_smoothing_rates *rates, uint64_t fitted,
                                   by_error *error);
/* Fits the rates of each kind to the first `fitted` rows, and keeps that of the least Akaike
 * information criterion. */
by_status by__series_smoothing_fit(by__series_smoothing *out, const by__series_channel *channel,
                                   uint64_t season, uint64_t fitted, by_error *error);
/* The forecast of row `origin` + `ahead` from the rows before `origin`, which is 1 or more. */
double by__series_smoothing_at(const by__series_smoothing *s, uint64_t origin, uint64_t ahead);
void by__series_smoothing_free(by__series_smoothing *s);

#endif
