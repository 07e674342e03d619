/* Which example each place of an epoch has, where some are drawn more often than others.
 *
 * The places of an epoch are divided among the classes, if they are balanced: each has as many as
 * any other, but for one where whole numbers do not fit, and the epoch decides which classes have
 * that one more. The places of a class, or of all examples without classes, divide the sum of their
 * weights into strata of equal size, and each draws a point of it, as in stratified sampling: an
 * example comes up in proportion to its weight, with less variance than if all were drawn
 * independently. A draw is a function of seed, epoch and place, so that it does not depend on
 * ranks, threads, or where a run was resumed. */
#ifndef BY_DATA_LOADER_DRAWS_H
#define BY_DATA_LOADER_DRAWS_H

#include "banyan/data.h"
#include "base/base.h"

/* Examples that have one class and a weight together, in by__loader_draws.order. */
typedef struct by__loader_draw_group {
    uint64_t first;
    uint64_t end;
} by__loader_draw_group;

typedef struct by__loader_draws {
    uint64_t count;
    double *ends;    /* [count] sums of the weights of a class up to each of `order` */
    uint64_t *order; /* [count] indexes of examples, those of a class one after another */
    by__loader_draw_group *groups; /* [group_count] one of each class; without classes, of all */
    uint64_t group_count;
} by__loader_draws;

/* Opens draws of `count` examples. weights: of each, finite and at least 0; NULL: all alike.
 * classes: of each, at least 0; all of them are then drawn equally often, whatever their examples
 * weigh. NULL: there are none. BY_EARG: a weight is out of range, or all are 0. Call
 * by__loader_draws_free also on failure. */
by_status by__loader_draws_open(by__loader_draws *out, const double *weights,
                                const int32_t *classes, uint64_t count, by_error *error);
void by__loader_draws_free(by__loader_draws *draws);
/* The index of the example that place `sample->place` < count has in the sample's epoch. */
uint64_t by__loader_draws_at(const by__loader_draws *draws, const by_source_sample *sample);

/* Reads a number for each of `examples` examples: an npy file of one axis of f32 or f64, or a text
 * file with one a line. *out is freed with free(). BY_EFORMAT names a line or element that is
 * negative or not finite. */
by_status by__loader_draws_read(double **out, const char *path, uint64_t examples, by_error *error);

#endif
