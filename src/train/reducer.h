/* The sum of a step's gradients between ranks.
 *
 * A gradient set is cut into buckets, contiguous ranges of one group of parameters in the order in
 * which the backward pass finishes them. A bucket is added up at once: each rank holds sums of
 * neighbouring micro-batches (its forest, base/sum_tree.h), each is a holder of the sum tree's
 * merges, and by__comm_reduce_holders runs these slice by slice. So the expression is the one that
 * a single process computes, and the number of ranks shows in no bit.
 *
 * Where ranks divide the state of the optimizer, a rank needs the sum of what it owns alone: the
 * slices of a reduce-scatter are those of the owners. Several peers with one owner's work add up a
 * part of its slice each and gather it among themselves.
 *
 * Where no rank has room for whole gradient sets, micro-batches go round: a round has a leaf of
 * each rank, and an owner adds its slice of them to the sums that the rounds before have left in
 * its slice. These are a forest of the same tree, so that the expression stays.
 */
#ifndef BY_TRAIN_REDUCER_H
#define BY_TRAIN_REDUCER_H

#include "banyan/comm.h"
#include "base/base.h"

/* A range of a gradient set. */
typedef struct by__bucket {
    int group;     /* of the store */
    int64_t first; /* element of the group */
    int64_t count;
    int64_t offset; /* of it in the set, in elements */
    /* Elements that each rank of `shard` owns, one behind the other; NULL: all own all. */
    const size_t *slices;
    bool is_joined; /* overlap: added up with the bucket before it, which has its gradients */
} by__bucket;

/* How micro-batches are shared, and what each peer's sums are when its last one is done. */
typedef struct by__reducer_spec {
    by_comm *peers; /* the ranks that compute micro-batches of their own; stays the caller's */
    int64_t leaves; /* micro-batches of a step */
    /* Each rank's last micro-batch is a sum of its own, which the rank does not add to others. */
    bool last_apart;
    /* More than 1: so many ranks compute each micro-batch together, and the gradient is the sum of
     * what they have, its parts: the sum tree over the parts of each part's tree over
     * micro-batches, whoever computes these. Peer p is replica p / parts and has part p % parts. */
    int parts;
    /* More than 1: each of so many owners gets its slice of a bucket (by__bucket.slices) alone.
     * Replica q is owner q % owners, and `copies` has the peers of this rank's owner in the order
     * of peers; NULL: it is one. */
    int owners;
    by_comm *copies;
    bool in_turn;              /* peer p of n has leaves p, n + p, 2 n + p ...: by__reducer_add */
    const by__bucket *buckets; /* stay the caller's */
    size_t bucket_count;
} by__reducer_spec;

typedef struct by__reducer by__reducer;

by_status by__reducer_open(by__reducer **out, const by__reducer_spec *spec, by_error *error);
void by__reducer_close(by__reducer **reducer);
/* Adds up a bucket: sets[i] is the whole set with the i-th sum that this rank holds. The last one
 * receives the result, of which an owner gets its slice. Collective. */
by_status by__reducer_run(by__reducer *reducer, size_t bucket, float *const *sets, by_error *error);

/* ---- in turn ---- */

/* Most sums that an owner holds behind a round: one leaf of each of `ranks` peers. */
int by__reducer_sets(int64_t leaves, int ranks);
/* Adds the leaves of a round to the sums of those before it: `leaf` has this rank's bucket (NULL:
 * the last round has no leaf for it), sums[i] its owner's slice of the bucket in the i-th of the
 * sums that are left, ascending. Behind the last round sums[0] has the result. Collective, with
 * rounds 0, 1, ... of each bucket in turn. */
by_status by__reducer_add(by__reducer *reducer, int64_t round, size_t bucket, float *leaf,
                          float *const *sums, by_error *error);

#endif
