/* ZeRO: the record of state that ranks of `shard` divide. In exchange/, trainer_shard.c makes the
 * slices, shard_gradients.c and shard_parameters.c are stages 2 and 3, divided_slices.c has slices
 * as checkpoints store them. */
#ifndef BY_TRAINER_STATE_TRAINER_SHARD_H
#define BY_TRAINER_STATE_TRAINER_SHARD_H

#include "store/store.h"
#include "trainer/state/reducer.h"
#include "trainer/state/train.h"

/* A part of a group of parameters that one rank updates. */
typedef struct by__trainer_slice {
    by__store_part part;
    int owner;     /* rank along `shard` */
    char name[32]; /* prefix of the update's values */
} by__trainer_slice;

/* A part of a gradient in a bucket. */
typedef struct by__trainer_bucket_part {
    by__store_handle entry; /* whose gradient it is */
    by__store_part part;
} by__trainer_bucket_part;

/* The gradients of all buckets. */
typedef struct by__trainer_bucket_parts {
    by__trainer_bucket_part *parts; /* those of bucket k are first[k] .. first[k + 1] - 1 */
    size_t *first;
    size_t count;
} by__trainer_bucket_parts;

/* A bucket, and the node of a graph that completes it. */
typedef struct by__trainer_bucket_order {
    size_t bucket;
    size_t node;
    int64_t offset; /* the bucket's */
} by__trainer_bucket_order;

/* Gradients that are handed over after each micro-batch (shard_gradients.c). */
typedef struct by__trainer_zero2 {
    by_graph *graph; /* graph of the program, until that is made */
    by__trainer_bucket_parts parts;
    size_t ahead;     /* limit on bytes that are gathered in advance */
    int64_t most;     /* elements of the largest bucket */
    float *packed;    /* buffer for these */
    float *losses;    /* of all micro-batches, rank by rank */
    int64_t round;    /* the current round */
    bool contributes; /* this rank has a micro-batch in it */
} by__trainer_zero2;

/* State divided by the ranks of `shard`. All but `own` is NULL and 0 if there is one rank. */
typedef struct by__trainer_shard {
    /* Groups (bit g is group g) whose states and sums of gradients, gradients, and parameters are
     * divided: stages 1, 2 and 3. */
    unsigned states;
    unsigned gradients;
    unsigned parameters;
    by_comm *comm;          /* owned by the mesh */
    by_comm *copies;        /* the ranks that own the same slices; NULL: this one alone */
    size_t *slices;         /* [bucket][rank]: target of by__trainer_bucket.slices */
    size_t *counts;         /* [rank]: elements of a tensor that is gathered */
    by__trainer_slice *all; /* of all ranks, in the order of buckets before sorting */
    size_t count;
    by__trainer_slice *own; /* what this rank updates: its slices, or groups that are not divided */
    size_t own_count;
    by__trainer_zero2 zero2;
} by__trainer_shard;

#endif
