/* Sums a step's gradients over ranks.
 *
 * A gradient set is divided into buckets, contiguous ranges of one group of parameters in the order
 * in which the backward pass completes them. Each bucket is summed as a whole: the sums of
 * neighbouring micro-batches that a rank holds (its forest, base/sum_tree.h) are holders of the sum
 * tree's merges, which by__comm_reduce_holders runs slice by slice. The expression is thus the one
 * that a single process computes, and the bits do not depend on the number of ranks.
 *
 * If ranks divide the optimizer's state, a rank needs the sum of its own slice only: the slices of
 * a reduce-scatter are those of the owners. Several peers that work for one owner sum a part of its
 * slice each and gather it among themselves.
 *
 * If no rank has room for whole gradient sets, ranks take micro-batches in turn: a round has one
 * leaf of each rank, and an owner adds its slice of them to the sums that earlier rounds have left
 * in its slice. These are a forest of the same tree, so the expression is unchanged.
 */
#ifndef BY_TRAINER_STATE_REDUCER_H
#define BY_TRAINER_STATE_REDUCER_H

#include "banyan/comm.h"
#include "base/base.h"
#include "device/staging.h"
#include "store/store.h"

/* A part of a gradient set. */
typedef struct by__trainer_bucket {
    by__store_part part;
    int64_t offset; /* its offset in the set, in elements */
    /* Number of elements that each rank of `shard` owns, consecutively; NULL: every rank owns
     * all. */
    const size_t *slices;
    /* with overlap: summed together with the previous bucket, which contains its gradients */
    bool is_joined;
} by__trainer_bucket;

/* The distribution of micro-batches, and the sums that each peer has when its last one is done. */
typedef struct by__trainer_reducer_spec {
    by_comm *peers; /* ranks that compute different micro-batches; owned by the caller */
    int64_t leaves; /* micro-batches per step */
    /* Each rank's last micro-batch is a separate sum, which the rank does not add to others. */
    bool last_apart;
    /* If more than 1: this many ranks compute each micro-batch together, and the gradient is the
     * sum of their parts: the sum tree over the parts of each part's tree over micro-batches,
     * whichever replica computes these. Peer p is replica p / parts and has part p % parts. */
    int parts;
    /* If more than 1: each of this many owners gets only its slice of a bucket
     * (by__trainer_bucket.slices). Replica q is owner q % owners, and `copies` contains the peers
     * of this rank's owner in the order of peers; NULL: just one. */
    int owners;
    by_comm *copies;
    by__device_staging *staging; /* for host copies of sums; owned by the caller */
    bool round_robin; /* peer p of n has leaves p, n + p, 2 n + p ...: by__trainer_reducer_add */
    const by__trainer_bucket *buckets; /* owned by the caller */
    size_t bucket_count;
} by__trainer_reducer_spec;

typedef struct by__trainer_reducer by__trainer_reducer;

by_status by__trainer_reducer_open(by__trainer_reducer **out, const by__trainer_reducer_spec *spec,
                                   by_error *error);
void by__trainer_reducer_close(by__trainer_reducer **reducer);
/* Sums a bucket: sets[i] is the whole set with the i-th sum that this rank holds. The last one
 * receives the result, or an owner's slice of it. Collective; begins the staging. */
by_status by__trainer_reducer_run(by__trainer_reducer *reducer, size_t bucket,
                                  const by_memory *sets, by_error *error);

/* ---- micro-batches in turn ---- */

/* Most sums that an owner holds after a round: one leaf of each of `ranks` peers. */
int by__trainer_reducer_sets(int64_t leaves, int ranks);
/* Adds the leaves of a round to the sums of earlier rounds: `leaf` has this rank's bucket, which
 * may be staged (NULL: it has no leaf in the last round), sums[i] its owner's slice of the bucket
 * in the i-th remaining sum, ascending. After the last round sums[0] has the result. Collective,
 * with rounds 0, 1, ... of each bucket in order; the caller begins the staging. */
by_status by__trainer_reducer_add(by__trainer_reducer *reducer, int64_t round, size_t bucket,
                                  float *leaf, const by_memory *sums, by_error *error);

#endif
