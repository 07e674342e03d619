/* Exchanges between replicas that are compressed or not made at every step: the trainer's state for
 * the section `sync` of the config. trainer_sync.c makes the exchanges, trainer_late.c those that
 * overlap with steps; trainer_settle.c makes the state of the ranks equal. */
#ifndef BY_TRAIN_TRAINER_SYNC_H
#define BY_TRAIN_TRAINER_SYNC_H

#include <pthread.h>

#include "comm/coded_sum.h"
#include "comm/power_sum.h"
#include "nn/nn.h"
#include "store/store.h"
#include "train/train.h"

/* An exchange that overlaps with the replica's steps (trainer_late.c). */
typedef struct by__late {
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
    by_comm *peers; /* the thread's own communicator of the replicas */
    int sent;       /* flat buffers: the weights at its beginning, */
    int difference; /* and their difference to the anchor, which is summed */
} by__late;

#define BY__SPLITS (BY__TRAINED_GROUPS / BY__GROUP_TENSOR)

/* Coded sums of neighbouring groups; NULL if these have no elements. */
typedef struct by__sync_codes {
    size_t first; /* first element, in a gradient set */
    by__coded_sum *sum;
} by__sync_codes;

/* Exchanges that the section `sync` asks for (trainer_sync.c). */
typedef struct by__sync {
    bool is_on;
    bool is_local; /* replicas take independent steps */
    bool is_late;  /* also while they exchange */
    bool is_coded;
    bool is_power;    /* by PowerSGD, not by `codec` */
    bool is_anchored; /* `anchor` holds the weights of the last exchange */
    bool is_settled;  /* no step was taken since the state of the ranks was made equal */
    const by__codec *codec;
    /* One for the groups that are not split, then one for each set of axes that split tensors: a
     * block of a code must not mix values of two of them, because ranks along one axis must agree
     * on values that another axis splits. */
    by__sync_codes codes[BY__SPLITS];
    by__power_sum *power;
    by__power_tensor *gaps; /* padding between the tensors of a gradient set */
    size_t gap_count;
    by_comm *peers;
    by_comm *alone;    /* peers of a job of one rank; else NULL */
    by_config *outer;  /* a config whose section optimizer is the outer optimizer's */
    by_memory numbers; /* hyper-parameters of the outer optimizer */
    int anchor;        /* flat buffers of the store; -1: none */
    int momentum;
    int residual;
    by__late late;
} by__sync;

/* ---- trainer_sync.c: does nothing unless config.sync asks for it ---- */

/* Plans what the config asks for; the sum tree then covers this rank's own micro-batches. */
by_status by__sync_plan(by_trainer *t, by_error *error);
/* Declares its flat buffers, after those of the optimizer. */
by_status by__sync_lay_out(by_trainer *t, by_error *error);
by_status by__sync_add_programs(by_trainer *t, by_error *error);
/* Bytes of host memory for its exchanges. */
size_t by__sync_bytes(const by_trainer *t);
/* Called after by__ranks_open. */
by_status by__sync_open(by_trainer *t, by_error *error);
void by__sync_close(by_trainer *t);
/* Collective: sums the gradients in `set`, unless replicas take independent steps. */
by_status by__sync_gradients(by_trainer *t, int set, by_error *error);
by_status by__sync_before_step(by_trainer *t, by_error *error);
/* Collective: exchanges weights if an exchange is due. */
by_status by__sync_after_update(by_trainer *t, by_error *error);
/* Called after weights were set. */
void by__sync_forget(by_trainer *t);
/* Returns true if the exchange that is due now is uncompressed. */
bool by__sync_is_exact(const by_trainer *t);
/* What replicas exchange: the trained groups, or this rank's slices of them; the number of these
 * units, the memory of one in a flat buffer, and the elements of all groups. */
size_t by__exchange_units(const by_trainer *t);
by_memory by__exchange_unit_memory(const by_trainer *t, int flat, size_t i);
size_t by__exchange_elements(const by_trainer *t);
/* Copies them from one flat buffer to another. */
by_status by__exchange_copy(by_trainer *t, int to, int from, by_error *error);
/* Collective: data = its sum over the replicas. */
by_status by__sync_add_up(by_trainer *t, float *data, bool exact, by_error *error);
/* Takes the outer optimizer's step on the anchor, with the summed differences. */
by_status by__sync_outer_step(by_trainer *t, by_error *error);
/* Sets the weights to the anchor. */
by_status by__sync_take_anchor(by_trainer *t, by_error *error);
/* Collective: exchanges weights. */
by_status by__sync_exchange(by_trainer *t, by_error *error);
/* Sets the padding between the tensors of a gradient set to zero, because a code of signs cannot
 * represent zero. */
void by__sync_clear_gaps(const by__sync *s, float *values);
static inline float *by__sync_values(by_memory memory)
{
    return (float *)memory.address;
}

/* ---- trainer_settle.c: by_trainer_settle ---- */

/* Called after states were loaded: they are the same on all ranks. */
void by__sync_loaded(by_trainer *t);

/* ---- trainer_late.c: exchanges with sync.staleness ---- */

by_status by__late_lay_out(by_trainer *t, by_error *error);
by_status by__late_add_program(by_trainer *t, by_error *error);
/* Collective. */
by_status by__late_open(by_trainer *t, by_error *error);
void by__late_close(by_trainer *t);
/* Applies an exchange when it has reached its staleness, and begins one that is due. */
by_status by__late_after_update(by_trainer *t, bool due, by_error *error);
/* Waits for the current exchange and discards it. */
void by__late_drop(by_trainer *t);

#endif
