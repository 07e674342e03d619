/* The ranks of a job and this one's part of a step: the records of exchange/trainer_ranks.c. */
#ifndef BY_TRAINER_STATE_RANKS_H
#define BY_TRAINER_STATE_RANKS_H

#include "base/sum_tree.h"
#include "device/staging.h"
#include "exec/exec.h"
#include "store/store.h"
#include "trainer/state/reducer.h"
#include "trainer/state/strategy.h"
#include "trainer/state/train.h"

/* Seconds since the trainer was opened, as in by_step_result. */
typedef struct by__trainer_spent {
    double exchange;
    double exposed;
} by__trainer_spent;

/* State of multi-rank jobs. Everything is NULL and 0 in a job of one rank. */
typedef struct by__trainer_ranks {
    by_comm *all; /* owned by the caller */
    by_mesh *mesh;
    by__exec_mesh_collectives *collectives; /* used by the programs' graphs */
    by_comm *peers;  /* ranks that compute other micro-batches of a step; owned by the mesh */
    by_comm *adders; /* ranks whose gradients are summed; owned by the mesh */
    by__trainer_reducer *reducer;
    by_memory held[BY__SUM_TREE_NODES + 1]; /* gradient sets with the partial sums of this rank */
    by__device_staging staging;             /* host copies of what is exchanged */
    by__trainer_bucket *buckets;
    size_t bucket_count;
    size_t *counts;           /* micro-batches of each peer */
    double late;              /* seconds of exchanges on a separate thread (trainer_late.c), */
    double wait_seconds;      /* and of waiting for them */
    by__trainer_spent before; /* by__trainer_ranks_spent at the beginning of the current step */
} by__trainer_ranks;

/* Micro-batches of a step. */
typedef struct by__trainer_part {
    int64_t most_micro_batches; /* of a step of train.batch, over all ranks, */
    int64_t all_micro_batches;  /* and of the current step (train.batch_warmup) */
    int64_t first_micro_batch;  /* first micro-batch of this rank */
    int64_t micro_batches;      /* number of its micro-batches, consecutive or in turn */
    int64_t first_leaf;         /* index of the first one in its sum tree, which has `leaves` */
    int64_t leaves;
} by__trainer_part;

/* ---- ranks_parts.c ---- */

/* Index in the step of this rank's i-th micro-batch. */
int64_t by__trainer_leaf(const by_trainer *t, int64_t i);
/* Number of replicas whose gradients are summed at every step, which are consecutive: all, or
 * (section sync) the ranks of `shard`. A sum tree covers their micro-batches. */
int by__trainer_ranks_members(const by_trainer *t);
/* The micro-batches that the replicas of a sum compute together, and those of one replica. */
by__trainer_leaves by__trainer_sum_leaves(const by_trainer *t, int replica);
by__trainer_leaves by__trainer_replica_leaves(const by_trainer *t, int replica);
/* Number of ranks of `sequence` that keep their own addends to the gradients of a step's
 * micro-batches; 1: the addends are summed for each micro-batch. */
int by__trainer_ranks_parts(const by_trainer *t);
/* Number of ranks whose gradients are summed, with other micro-batches or another part of them, and
 * the set of mesh axes in which they differ. */
int by__trainer_ranks_adders(const by_trainer *t);
unsigned by__trainer_ranks_adding_axes(const by_trainer *t);

/* Returns true if there is a moving average of the weights (optimizer.ema). */
bool by__trainer_has_average(const by_trainer *t);

#endif
