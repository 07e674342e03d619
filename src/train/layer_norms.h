/* What is recorded of each tensor that is trained: norms of its gradient, its weights and its
 * update, and histograms.
 *
 * Every element is measured on one rank: by its owner where ranks of `shard` divide the state, by
 * the first of those that hold the same otherwise. A rank has pieces of tensors then, and the sums
 * of squares of all pieces of a tensor, over all ranks, are those of the tensor. The gradient is
 * that of the step's loss, before clipping; the update is the difference of the weights. */
#ifndef BY_TRAIN_LAYER_NORMS_H
#define BY_TRAIN_LAYER_NORMS_H

#include "train/trainer.h"

enum { BY__NORM_GRADIENT, BY__NORM_WEIGHT, BY__NORM_UPDATE, BY__NORMS };

/* The sums of squares of this rank's pieces in the step that was collected last, by entry and
 * BY__NORM_...; NULL when it was not measured. */
const double *by__layers_sums(const by_trainer *t);
/* Whether this rank has pieces of an entry. */
bool by__layers_has(const by_trainer *t, by__handle entry);

/* Buckets of a histogram: sign, exponent and two more bits of an f32. */
#define BY__BUCKETS 2048
/* Counts the values of this rank's pieces of an entry, as weights or as the gradient that the last
 * step has left, and adds up what a histogram has of them: their sum and their squares, least and
 * largest ([4]). Values that are not finite are left out. */
by_status by__layers_histogram(const by_trainer *t, by__handle entry, bool gradient,
                               double counts[BY__BUCKETS], double facts[4], by_error *error);
/* The largest value of a bucket. */
double by__bucket_limit(uint32_t bucket);
/* The bucket of a finite value; they ascend with values. */
uint32_t by__bucket_of(float value);

#endif
