/* Statistics of each trained tensor: norms of its gradient, its weights and its update, and
 * histograms.
 *
 * Every element is measured on one rank: by its owner if ranks of `shard` divide the state, else by
 * the first rank that holds it. A rank may thus have pieces of tensors; a tensor's sums of squares
 * are those of all its pieces, over all ranks. The gradient is that of the step's loss, before
 * clipping; the update is the difference of the weights. */
#ifndef BY_TRAINER_PROBES_LAYER_NORMS_H
#define BY_TRAINER_PROBES_LAYER_NORMS_H

#include "trainer/state/trainer.h"

enum { BY__NORM_GRADIENT, BY__NORM_WEIGHT, BY__NORM_UPDATE, BY__NORMS };

/* Sums of squares of this rank's pieces in the last collected step, by entry and BY__NORM_...; NULL
 * if it was not measured. */
const double *by__trainer_layers_sums(const by_trainer *t);
/* Returns true if this rank has pieces of an entry. */
bool by__trainer_layers_has(const by_trainer *t, by__store_handle entry);

/* Number of buckets of a histogram: sign, exponent and two more bits of an f32. */
#define BY__BUCKETS 2048
/* Counts the values of this rank's pieces of an entry, of the weights or of the gradient left by
 * the last step, and adds to the histogram's statistics: sum, sum of squares, minimum and maximum
 * ([4]). Values that are not finite are skipped. */
by_status by__trainer_layers_histogram(const by_trainer *t, by__store_handle entry, bool gradient,
                                       double counts[BY__BUCKETS], double facts[4],
                                       by_error *error);
/* The largest value of a bucket; buckets ascend with values. */
double by__trainer_bucket_limit(uint32_t bucket);

#endif
