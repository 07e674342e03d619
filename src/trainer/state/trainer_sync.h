/* Exchanges between replicas that are compressed or not made at every step: the trainer's record
 * for the section `sync` of the config. In exchange/, trainer_sync.c makes the exchanges,
 * trainer_late.c those that overlap with steps; trainer_settle.c makes the state of the ranks
 * equal. */
#ifndef BY_TRAINER_STATE_TRAINER_SYNC_H
#define BY_TRAINER_STATE_TRAINER_SYNC_H

#include <pthread.h>

#include "comm/coded_sum.h"
#include "comm/power_sum.h"
#include "nn/nn.h"
#include "store/store.h"
#include "trainer/state/strategy.h"
#include "trainer/state/train.h"

/* An exchange that overlaps with the replica's steps (trainer_late.c). */
typedef struct by__trainer_late {
    pthread_t thread;
    bool is_under_way;
    bool is_exact; /* not compressed */
    bool wishes;   /* this rank wants to stop, */
    int32_t count; /* and how many of all did when an exchange began */
    bool stops;    /* one of them did */
    int64_t begun; /* number of updates at its beginning */
    double seconds;
    by_status status; /* of the thread */
    by_error error;
    by__exec_program_row *merge;
    by_comm *peers; /* the thread's own communicator of the replicas */
    int sent;       /* flat buffers: the weights at its beginning, */
    int difference; /* and their difference to the anchor, which is summed */
} by__trainer_late;

#define BY__SPLITS (BY__TRAINED_GROUPS / BY__GROUP_TENSOR)

/* Coded sums of neighbouring groups; NULL if these have no elements. */
typedef struct by__trainer_sync_codes {
    size_t first; /* first element, in a gradient set */
    by__comm_coded_sum *sum;
} by__trainer_sync_codes;

/* Exchanges that the section `sync` asks for (trainer_sync.c). */
typedef struct by__trainer_sync {
    bool is_on;
    bool is_local; /* replicas take independent steps */
    bool is_late;  /* also while they exchange */
    bool is_coded;
    bool is_power;    /* by PowerSGD, not by `codec` */
    bool is_anchored; /* `anchor` holds the weights of the last exchange */
    bool is_settled;  /* no step was taken since the state of the ranks was made equal */
    const by__trainer_summation *plain; /* how gradients would be summed without it, */
    by__trainer_summation summation;    /* and how they are */
    const by__comm_codec *codec;
    /* One for the groups that are not split, then one for each set of axes that split tensors: a
     * block of a code must not mix values of two of them, because ranks along one axis must agree
     * on values that another axis splits. */
    by__trainer_sync_codes codes[BY__SPLITS];
    by__comm_power_sum *power;
    by__comm_power_tensor *gaps; /* padding between the tensors of a gradient set */
    size_t gap_count;
    by_comm *peers;
    by_comm *alone; /* peers of a job of one rank; else NULL */
    by__exec_program_row *difference;
    by__exec_program_row *outer_update;
    by_config *outer;  /* a config whose section optimizer is the outer optimizer's */
    by_memory numbers; /* hyper-parameters of the outer optimizer */
    int anchor;        /* flat buffers of the store; -1: none */
    int momentum;
    int residual;
    by__trainer_late late;
} by__trainer_sync;

static inline float *by__sync_values(by_memory memory)
{
    return (float *)memory.address;
}

#endif
