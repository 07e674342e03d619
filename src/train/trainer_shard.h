/* ZeRO: state that ranks of `shard` divide. trainer_shard.c has the slices, shard_gradients.c and
 * shard_parameters.c stages 2 and 3, divided_slices.c slices as checkpoints store them. */
#ifndef BY_TRAIN_TRAINER_SHARD_H
#define BY_TRAIN_TRAINER_SHARD_H

#include "store/store.h"
#include "train/reducer.h"
#include "train/train.h"

/* A range of a group of parameters. */
typedef struct by__slice {
    int group;
    int64_t first;
    int64_t count;
    int owner;     /* rank along `shard` */
    char name[32]; /* prefix of the update's values */
} by__slice;

/* A part of a gradient in a bucket. */
typedef struct by__bucket_part {
    by__handle entry; /* whose gradient it is */
    int64_t from;     /* index of its first element in the gradient */
    int64_t at;       /* index in the bucket */
    int64_t count;
} by__bucket_part;

/* The gradients of all buckets. */
typedef struct by__bucket_parts {
    by__bucket_part *parts; /* those of bucket k are first[k] .. first[k + 1] - 1 */
    size_t *first;
    size_t count;
} by__bucket_parts;

/* A bucket, and the node of a graph that completes it. */
typedef struct by__bucket_order {
    size_t bucket;
    size_t node;
    int64_t offset; /* the bucket's */
} by__bucket_order;

/* Gradients that are handed over after each micro-batch (shard_gradients.c). */
typedef struct by__turns {
    by_graph *graph; /* graph of the program, until that is made */
    by__bucket_parts parts;
    size_t ahead;  /* limit on bytes that are gathered in advance */
    int64_t most;  /* elements of the largest bucket */
    float *packed; /* buffer for these */
    float *losses; /* of all micro-batches, rank by rank */
    int64_t round; /* the current round */
    bool gives;    /* this rank has a micro-batch in it */
} by__turns;

/* State divided by the ranks of `shard`. Everything is NULL and 0 if there is one rank. */
typedef struct by__shard {
    by_comm *comm;   /* owned by the mesh */
    by_comm *copies; /* the ranks of `data` that own the same slices; NULL: this one alone */
    size_t *slices;  /* [bucket][rank]: target of by__bucket.slices */
    size_t *counts;  /* [rank]: elements of a tensor that is gathered */
    by__slice *all;  /* of all ranks, in the order of buckets before sorting */
    size_t count;
    by__slice *own; /* of this rank */
    size_t own_count;
    by__turns turns;
} by__shard;

/* ---- trainer_shard.c ---- */

/* Returns true if ranks divide the state of the optimizer. */
bool by__is_sharded(const by_trainer *t);
/* Divides the buckets into slices, before flat buffers are declared. */
by_status by__shard_plan(by_trainer *t, by_error *error);
by_status by__shard_open(by_trainer *t, by_error *error);
void by__shard_close(by_trainer *t);
/* Divides buckets of the entries of `store` into slices. *out, which they point to, is freed with
 * free(). */
by_status by__shard_cut(size_t **out, const by_trainer *t, const by__store *store,
                        by__bucket *buckets, size_t count, by_error *error);
/* The slice of a bucket owned by a rank of `shard`, possibly empty. It has no name. */
by__slice by__bucket_slice(const by__bucket *bucket, int rank);
/* The same for the k-th bucket, with its name. */
by__slice by__shard_slice(const by_trainer *t, size_t bucket, int rank);
/* Set of the groups of f32 weights of which a rank holds its slices only. */
unsigned by__shard_masters(const by_trainer *t);
/* The runs of a flat buffer with the groups in `whole` and this rank's slices of those in
 * `divided`. *out is freed with free(). */
by_status by__shard_list_held(const by_trainer *t, unsigned whole, unsigned divided,
                              by__store_run **out, size_t *count, by_error *error);
/* Declares a flat buffer; of the groups in `divided` this rank holds its slices only. */
by_status by__shard_add_flat(by_trainer *t, by__flat_spec spec, unsigned divided, int *out,
                             by_error *error);
/* Returns true if this rank updates a whole tensor. */
bool by__shard_owns(const by_trainer *t, by__handle handle);
/* Memory of a slice in a flat buffer. */
by_memory by__shard_memory(const by_trainer *t, int flat, const by__slice *slice);
/* Collective: gathers a tensor that is divided element by element, in the format in which it is
 * held. */
by_status by__shard_collect(const by_trainer *t, int flat, by__handle handle, void *out,
                            by_error *error);
/* Collective, after the update or new weights were submitted: gives all ranks the values that
 * programs compute with, except those that programs gather themselves. */
by_status by__shard_gather(by_trainer *t, by_error *error);
/* Returns true if a tensor of a flat buffer is divided, so that reading it is collective; */
bool by__shard_divides(const by_trainer *t, int flat, by__handle handle);
/* then this reads it. */
by_status by__shard_read(const by_trainer *t, int flat, by__handle handle, void *out,
                         by_error *error);

/* ---- shard_gradients.c: only if by__is_in_turn ---- */

/* Returns true if gradients are divided, and ranks take micro-batches in turn. */
bool by__is_in_turn(const by_trainer *t);
/* Index in the step of this rank's i-th micro-batch. */
int64_t by__trainer_leaf(const by_trainer *t, int64_t i);
/* Builds the graph of gradients, which lists the parameters, */
by_status by__turns_build(by_trainer *t, const by_trainer_options *options, by_error *error);
/* and its program, once buckets are known. */
by_status by__turns_plan(by_trainer *t, by_error *error);
/* The two parts of by__turns_plan, which a pipeline calls itself: lists the parts of buckets, and
 * adds nodes to an ordered graph that hand over the buckets whose gradients it has. */
by_status by__turns_list(by_trainer *t, by_error *error);
by_status by__turns_hand_over(by_trainer *t, by_graph *graph, by_error *error);
/* Number of micro-batches of a step on each rank. */
int64_t by__turns_rounds(const by_trainer *t);
/* Begins a round, before the program that hands over. Returns the index of the rank's micro-batch;
 * *kept_as: index of its loss. */
int64_t by__turns_begin(by_trainer *t, int64_t round, int64_t *kept_as);
/* Bytes of host memory. */
size_t by__turns_bytes(const by_trainer *t);
/* Called after the reducer was opened. */
by_status by__turns_open(by_trainer *t, by_error *error);
void by__turns_close(by_trainer *t);
/* Collective: forward and backward of all rounds; the sum is in set 0. */
by_status by__turns_step(by_trainer *t, const by_batch *batch, by_error *error);
/* Collective: gathers the losses of all micro-batches. */
by_status by__turns_losses(by_trainer *t, by_error *error);

/* ---- divided_slices.c: slices of tensors that ranks of `shard` divide or that are on disk */

/* Number of slices that this rank holds; the i-th; and its values, in the trainer's memory or
 * *owned. */
size_t by__divided_slices(const by_trainer *t, int flat, by__handle handle);
void by__divided_slice(by__trainer_held *out, const by_trainer *t, int flat, by__handle handle,
                       size_t i);
by_status by__divided_read(const by_trainer *t, int flat, by__handle handle, size_t i,
                           const void **data, void **owned, by_error *error);

/* ---- shard_parameters.c ---- */

/* Returns true if parameters are divided, and programs gather them. */
bool by__is_gathered(const by_trainer *t);
/* Set of the groups that are gathered: bit g is group g. */
unsigned by__gathered_groups(const by_trainer *t);
/* Sets the pass options of a forward graph accordingly. Parameters are numbered as in the graph of
 * gradients, in whose order the store has them. */
void by__gathered_options(const by_trainer *t, const by_graph *graph, by_pass_options *options);
/* Implements GATHER_PARAMETER; `user` is the trainer. */
by_status by__gathered_run(void *user, const by__device_call *call, by_error *error);

#endif
