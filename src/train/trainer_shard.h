/* ZeRO: what ranks of `shard` divide. trainer_shard.c has the slices, shard_gradients.c and
 * shard_parameters.c stages 2 and 3, divided_slices.c slices as checkpoints have them. */
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
    int owner;     /* rank of `shard` */
    char name[32]; /* of the update's values */
} by__slice;

/* A part of a gradient in a bucket. */
typedef struct by__bucket_part {
    by__handle entry; /* whose gradient it is */
    int64_t from;     /* element of it */
    int64_t at;       /* element of the bucket */
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

/* Gradients that are handed over micro-batch by micro-batch (shard_gradients.c). */
typedef struct by__turns {
    by_graph *graph; /* of the program, until that is made */
    by__bucket_parts parts;
    size_t ahead;  /* bytes that may be gathered before they are used */
    int64_t most;  /* elements of the largest bucket */
    float *packed; /* room for these */
    float *losses; /* of all micro-batches, rank by rank */
    int64_t round; /* that is computed now */
    bool gives;    /* this rank has a micro-batch in it */
} by__turns;

/* What the ranks of `shard` divide. Everything is NULL and 0 where there is one. */
typedef struct by__shard {
    by_comm *comm;   /* of the mesh */
    by_comm *copies; /* the ranks of `data` that own the same; NULL: this one alone */
    size_t *slices;  /* [bucket][rank]: what by__bucket.slices point to */
    size_t *counts;  /* [rank]: of a tensor that is gathered */
    by__slice *all;  /* of all ranks, in the order of buckets before these are sorted */
    size_t count;
    by__slice *own; /* this rank's */
    size_t own_count;
    by__turns turns;
} by__shard;

/* ---- trainer_shard.c ---- */

/* Whether ranks divide the state of the optimizer. */
bool by__is_sharded(const by_trainer *t);
/* Cuts the buckets into slices, before flat buffers are declared. */
by_status by__shard_plan(by_trainer *t, by_error *error);
by_status by__shard_open(by_trainer *t, by_error *error);
void by__shard_close(by_trainer *t);
/* Cuts buckets of the entries of `store` into slices. *out, which they point to, is freed with
 * free(). */
by_status by__shard_cut(size_t **out, const by_trainer *t, const by__store *store,
                        by__bucket *buckets, size_t count, by_error *error);
/* What a rank of `shard` owns of a bucket; of no elements: nothing. It has no name. */
by__slice by__bucket_slice(const by__bucket *bucket, int rank);
/* The same of the k-th bucket, with its name. */
by__slice by__shard_slice(const by_trainer *t, size_t bucket, int rank);
/* The groups of f32 weights of which a rank holds its slices alone. */
unsigned by__shard_masters(const by_trainer *t);
/* The runs of a flat buffer with the groups in `whole` and this rank's slices of those in
 * `divided`. *out is freed with free(). */
by_status by__shard_list_held(const by_trainer *t, unsigned whole, unsigned divided,
                              by__store_run **out, size_t *count, by_error *error);
/* Declares a flat buffer; of the groups in `divided` this rank holds its slices. */
by_status by__shard_add_flat(by_trainer *t, by__flat_spec spec, unsigned divided, int *out,
                             by_error *error);
/* Whether this rank updates a whole tensor. */
bool by__shard_owns(const by_trainer *t, by__handle handle);
/* Memory of a slice in a flat buffer. */
by_memory by__shard_memory(const by_trainer *t, int flat, const by__slice *slice);
/* Collective: a tensor that is divided element by element, in the format that it is held in. */
by_status by__shard_collect(const by_trainer *t, int flat, by__handle handle, void *out,
                            by_error *error);
/* Collective, when the update or new weights were submitted: all ranks get what programs compute
 * with, but for what these gather. */
by_status by__shard_gather(by_trainer *t, by_error *error);
/* Whether a tensor of a flat buffer is divided, so that ranks read it together ... */
bool by__shard_divides(const by_trainer *t, int flat, by__handle handle);
/* ... which is this. */
by_status by__shard_read(const by_trainer *t, int flat, by__handle handle, void *out,
                         by_error *error);

/* ---- shard_gradients.c: where by__is_in_turn ---- */

/* Whether gradients are divided, and micro-batches go round. */
bool by__is_in_turn(const by_trainer *t);
/* Which micro-batch of the step this rank's i-th one is. */
int64_t by__trainer_leaf(const by_trainer *t, int64_t i);
/* Builds the graph of gradients, which lists the parameters ... */
by_status by__turns_build(by_trainer *t, const by_trainer_options *options, by_error *error);
/* ... and its program, once buckets are known. */
by_status by__turns_plan(by_trainer *t, by_error *error);
/* The two parts of that, which a pipeline does by itself: lists what is in buckets, and lets a
 * graph whose nodes are in their order hand over the buckets whose gradients it has. */
by_status by__turns_list(by_trainer *t, by_error *error);
by_status by__turns_hand_over(by_trainer *t, by_graph *graph, by_error *error);
/* Micro-batches of a step, of each rank. */
int64_t by__turns_rounds(const by_trainer *t);
/* Begins a round, before the program that hands over. Returns which of its micro-batches the rank
 * computes; *kept_as: the place of its loss. */
int64_t by__turns_begin(by_trainer *t, int64_t round, int64_t *kept_as);
/* Bytes of host memory that it needs. */
size_t by__turns_bytes(const by_trainer *t);
/* Behind the reducer. */
by_status by__turns_open(by_trainer *t, by_error *error);
void by__turns_close(by_trainer *t);
/* Collective: forward and backward of all rounds, whose sum is in set 0. */
by_status by__turns_step(by_trainer *t, const by_batch *batch, by_error *error);
/* Collective: the losses of all micro-batches. */
by_status by__turns_losses(by_trainer *t, by_error *error);

/* ---- divided_slices.c: slices of tensors that ranks of `shard` divide or that are on disk */

/* How many this rank holds; the i-th; and its values, which are the trainer's memory or *owned. */
size_t by__divided_slices(const by_trainer *t, int flat, by__handle handle);
void by__divided_slice(by__trainer_held *out, const by_trainer *t, int flat, by__handle handle,
                       size_t i);
by_status by__divided_read(const by_trainer *t, int flat, by__handle handle, size_t i,
                           const void **data, void **owned, by_error *error);

/* ---- shard_parameters.c ---- */

/* Whether parameters are divided, and programs gather them. */
bool by__is_gathered(const by_trainer *t);
/* Which groups these are: bit g, group g. */
unsigned by__gathered_groups(const by_trainer *t);
/* What the passes over a forward graph are told about that. Parameters have the numbers of the
 * graph of gradients, in whose order the store has them. */
void by__gathered_options(const by_trainer *t, const by_graph *graph, by_pass_options *options);
/* Does what GATHER_PARAMETER asks for; `user` is the trainer. */
by_status by__gathered_run(void *user, const by__call *call, by_error *error);

#endif
