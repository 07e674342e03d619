/* The parts of charts that need no canvas, and what all drawings share. */
#ifndef BY_PLOT_PLOT_H
#define BY_PLOT_PLOT_H

#include "base/base.h"

/* The colour of text and axes. */
#define BY__PLOT_INK ((const double[3]){0.12, 0.16, 0.20})

/* Computes the ticks of an axis from low to high (low < high, finite): multiples of 1, 2 or 5 times
 * a power of ten, about `wanted` of them and at most 64, which are at least `least` apart. Returns
 * the distance between two. (plot_axis.c) */
double by__plot_ticks(double *ticks, size_t *count, double low, double high, int wanted,
                      double least);
/* Computes the ticks of a logarithmic axis: powers of ten, and if these are few also 2 and 5 times
 * them. */
void by__plot_log_ticks(double *ticks, size_t *count, double low, double high);
/* Formats a tick with no more digits than the distance between ticks needs; where the largest of an
 * axis, `most`, is large, all of them as "20k", "1.5M". */
void by__plot_tick_text(char out[32], double value, double step, double most);

/* Smooths y[count] into out[count]: the height at each point of the straight line fitted to the
 * points on both sides, whose weights fall by the factor `weight` from one to the next (0.9: over
 * about 10 points, fewer where the line is short). Unlike an average over the past it does not lag
 * behind a curve that falls. Returns false if nothing was smoothed: there are too few points, or no
 * memory. (plot_smooth.c) */
bool by__plot_smooth(double *out, const double *y, size_t count, double weight);

#endif
