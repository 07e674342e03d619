/* Exchanges of replicas that are compressed or not made at every step: what the trainer keeps for
 * the section `sync` of the config. trainer_sync.c makes them, trainer_late.c those that run while
 * steps are taken; trainer_settle.c makes equal what the ranks hold. */
#ifndef BY_TRAIN_TRAINER_SYNC_H
#define BY_TRAIN_TRAINER_SYNC_H

#include <pthread.h>

#include "comm/coded_sum.h"
#include "comm/power_sum.h"
#include "nn/nn.h"
#include "store/store.h"
#include "train/train.h"

/* An exchange that runs while the replica takes steps (trainer_late.c). */
typedef struct by__late {
    pthread_t thread;
    bool is_under_way;
    bool is_exact; /* not compressed */
    bool wishes;   /* this rank is to stop ... */
    int32_t count; /* ... and so many of all were, when an exchange began */
    bool stops;    /* one was */
    int64_t begun; /* after this many updates */
    double seconds;
    by_status status; /* of the thread */
    by_error error;
    by_comm *peers; /* the thread's own communicator of the replicas */
    int sent;       /* flat buffers: the weights when it began ... */
    int difference; /* ... and how far from the anchor these are, which is added up */
} by__late;

#define BY__SPLITS (BY__TRAINED_GROUPS / BY__GROUP_TENSOR)

/* Sums of neighbouring groups, as codes; NULL where these have no elements. */
typedef struct by__sync_codes {
    size_t first; /* element of a gradient set */
    by__coded_sum *sum;
} by__sync_codes;

/* Exchanges that the section `sync` asks for (trainer_sync.c). */
typedef struct by__sync {
    bool is_on;
    bool is_local; /* replicas take steps of their own */
    bool is_late;  /* ... also while they exchange */
    bool is_coded;
    bool is_power;    /* by PowerSGD, not by `codec` */
    bool is_anchored; /* `anchor` holds the weights of the last exchange */
    bool is_settled;  /* no step was taken since what the ranks hold was made equal */
    const by__codec *codec;
    /* Of the groups that nothing splits, then of those of each set of axes that split tensors: a
     * block of a code must not have values of two of them, because what one axis splits, ranks of
     * another hold alike. */
    by__sync_codes codes[BY__SPLITS];
    by__power_sum *power;
    by__power_tensor *gaps; /* what is between the tensors of a gradient set */
    size_t gap_count;
    by_comm *peers;
    by_comm *alone;    /* peers of a job of one rank; else NULL */
    by_config *outer;  /* its section optimizer is the outer optimizer's */
    by_memory numbers; /* hyper-parameters of the outer optimizer */
    int anchor;        /* flat buffers of the store; -1: none */
    int momentum;
    int residual;
    by__late late;
} by__sync;

/* ---- trainer_sync.c: nothing of it does anything where config.sync asks for nothing ---- */

/* What the config asks for; the sum tree is this rank's own then. */
by_status by__sync_plan(by_trainer *t, by_error *error);
/* Declares its flat buffers, behind those of the optimizer. */
by_status by__sync_lay_out(by_trainer *t, by_error *error);
by_status by__sync_add_programs(by_trainer *t, by_error *error);
/* Bytes of host memory that its exchanges need. */
size_t by__sync_bytes(const by_trainer *t);
/* Behind by__ranks_open. */
by_status by__sync_open(by_trainer *t, by_error *error);
void by__sync_close(by_trainer *t);
/* Collective: adds up the gradients in `set`, unless replicas take steps of their own. */
by_status by__sync_gradients(by_trainer *t, int set, by_error *error);
by_status by__sync_before_step(by_trainer *t, by_error *error);
/* Collective: exchanges weights when that is due. */
by_status by__sync_after_update(by_trainer *t, by_error *error);
/* The weights were set anew. */
void by__sync_forget(by_trainer *t);
/* Whether the exchange that is due now is not compressed. */
bool by__sync_is_exact(const by_trainer *t);
/* Collective: data = its sum over the replicas. */
by_status by__sync_add_up(by_trainer *t, float *data, bool exact, by_error *error);
/* The outer optimizer's step on the anchor, by the differences that were added up. */
by_status by__sync_outer_step(by_trainer *t, by_error *error);
/* Weights = anchor. */
by_status by__sync_take_anchor(by_trainer *t, by_error *error);
/* Collective: exchanges weights. */
by_status by__sync_exchange(by_trainer *t, by_error *error);
/* Zeros between the tensors of a gradient set: a code of signs alone has no zero. */
void by__sync_clear_gaps(const by__sync *s, float *values);
static inline float *by__sync_values(by_memory memory)
{
    return (float *)memory.address;
}

/* ---- trainer_settle.c: by_trainer_settle ---- */

/* States were loaded: they are the same on all ranks. */
void by__sync_loaded(by_trainer *t);

/* ---- trainer_late.c: exchanges with sync.staleness ---- */

by_status by__late_lay_out(by_trainer *t, by_error *error);
by_status by__late_add_program(by_trainer *t, by_error *error);
/* Collective. */
by_status by__late_open(by_trainer *t, by_error *error);
void by__late_close(by_trainer *t);
/* Applies an exchange when it is as late as it may be, and begins one that is due. */
by_status by__late_after_update(by_trainer *t, bool due, by_error *error);
/* Waits for it and forgets it. */
void by__late_drop(by_trainer *t);

#endif
