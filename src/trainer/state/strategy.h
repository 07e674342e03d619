/* What a trainer does in one of several ways: tables of functions, one per way, each in the file of
 * its way. They are chosen once, when the trainer opens (step/trainer.c), and called from then on;
 * nothing else asks which way it is.
 *
 *   by__trainer_strategy   how a rank computes gradients: step/whole_model.c, step/rounds.c (ZeRO 2
 *                          and 3), pipeline/pipe_step.c
 *   by__trainer_summation  how gradients of micro-batches and ranks are summed: after the last
 *                          micro-batch (exchange/trainer_ranks.c), or in rounds, which hand them
 *                          over to their owners (exchange/shard_gradients.c); the same if replicas
 *                          exchange only now and then, or compressed (exchange/trainer_sync.c)
 *   by__trainer_updater    where the state of the optimizer is: step/update_in_memory.c,
 *                          offload/trainer_offload.c */
#ifndef BY_TRAINER_STATE_STRATEGY_H
#define BY_TRAINER_STATE_STRATEGY_H

#include "base/sum_tree.h"
#include "store/store.h"
#include "trainer/state/train.h"

/* Micro-batches first, first + stride, ... of a step. */
typedef struct by__trainer_leaves {
    int64_t first;
    int64_t count;
    int64_t stride;
} by__trainer_leaves;

typedef struct by__trainer_strategy {
    /* Builds the graphs that list the parameters: sets parameters, forward and whole of
     * t->model. */
    by_status (*open)(by_trainer *t, const by_trainer_options *options, by_error *error);
    /* Adds the programs that need buckets, then those that add gradient sets. */
    by_status (*plan)(by_trainer *t, const by_trainer_options *options, by_error *error);
    by_status (*plan_sums)(by_trainer *t, by_error *error);
    /* Sets t->plan.size. */
    by_status (*measure)(by_trainer *t, const by_trainer_options *options, by_error *error);
    /* Bytes of activations besides the arena. */
    uint64_t (*bytes)(const by_trainer *t);
    /* Bytes of the largest value that it sends to another rank or gets from one; NULL: none. */
    size_t (*exchanged)(const by_trainer *t);
    /* Collective: allocates memory of its own and binds parameters. */
    by_status (*allocate)(by_trainer *t, by_error *error);
    /* Forward and backward of the micro-batches of this replica. *tree: the sets that hold sums. */
    by_status (*step)(by_trainer *t, const by_batch *batch, by__sum_tree *tree, by_error *error);
    /* Loss and evaluated values of a micro-batch; batch NULL: on the previous inputs. */
    by_status (*evaluate)(by_trainer *t, const by_batch *batch, by_error *error);
    /* Collective, after weights have changed: sends those that other ranks read. */
    by_status (*share)(by_trainer *t, by_error *error);
    /* Place of a program among those of a micro-batch, over all ranks; -1: it is none of them. */
    int64_t (*part)(const by_trainer *t, const by__exec_program_row *row);
    /* Called after the programs were closed. */
    void (*close)(by_trainer *t);
} by__trainer_strategy;

typedef struct by__trainer_summation {
    bool in_rounds; /* the last program of a micro-batch hands its gradients over */
    unsigned axes;  /* of the mesh, besides `shard`, along which gradients are summed in a step */
    /* Those of `all` that one of `members` replicas computes. */
    by__trainer_leaves (*leaves)(by__trainer_leaves all, int members, int member);
    /* Number of gradient sets. */
    int (*sets)(const by_trainer *t);
    /* How often the programs run in a step. */
    int64_t (*rounds)(const by_trainer *t);
    /* Before they run for the *i-th time, which is set to the index of the micro-batch; *kept_as:
     * the index of its loss. Returns false if this rank does not contribute the result. */
    bool (*begin)(by_trainer *t, int64_t *i, int64_t *kept_as);
    /* Called after the reducer was opened. */
    by_status (*open)(by_trainer *t, by_error *error);
    /* Collective: sums gradients and gathers losses. *set: the gradient set with the sum. */
    by_status (*sum)(by_trainer *t, const by__sum_tree *tree, int *set, by_error *error);
} by__trainer_summation;

typedef struct by__trainer_updater {
    bool in_memory;
    /* Called before flat buffers are declared. */
    by_status (*plan)(by_trainer *t, by_error *error);
    /* Declares one, of which this rank holds its slices of the groups in `divided`; those in
     * `apart` may be elsewhere than in memory. */
    by_status (*add_flat)(by_trainer *t, by__store_flat_spec spec, unsigned divided, unsigned apart,
                          int *out, by_error *error);
    /* Adds the programs of an update; of the moving average; of the compute copies. */
    by_status (*add_update)(by_trainer *t, by_error *error);
    by_status (*add_average)(by_trainer *t, by_error *error);
    by_status (*add_copies)(by_trainer *t, by_error *error);
    uint64_t (*bytes)(const by_trainer *t);
    /* Allocates memory of its own and binds programs, after the feeds were opened. */
    by_status (*open)(by_trainer *t, by_error *error);
    /* Submits the update; the step of the moving average; the compute copies. */
    by_status (*update)(by_trainer *t, by_error *error);
    by_status (*average)(by_trainer *t, by_error *error);
    by_status (*copy)(by_trainer *t, by_error *error);
    /* Swaps the averages of the weights in, or (`back`) the weights back. */
    by_status (*swap)(by_trainer *t, bool back, by_error *error);
    /* Seconds that the last update waited for a disk. */
    double (*waited)(const by_trainer *t);
    /* Called before the store is closed. */
    void (*close)(by_trainer *t);
} by__trainer_updater;

/* ---- strategy.c ---- */

/* For what a way does not need. */
by_status by__trainer_do_nothing(by_trainer *t, by_error *error);
uint64_t by__trainer_no_bytes(const by_trainer *t);
double by__trainer_no_seconds(const by_trainer *t);
void by__trainer_close_nothing(by_trainer *t);

#endif
