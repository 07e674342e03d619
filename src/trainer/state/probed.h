/* What watches steps: the record of probes/, whose files have the parts. */
#ifndef BY_TRAINER_STATE_PROBED_H
#define BY_TRAINER_STATE_PROBED_H

#include "trainer/state/guard.h"

typedef struct by__trainer_layer_norms by__trainer_layer_norms;
typedef struct by__trainer_activations by__trainer_activations;
typedef struct by__trainer_sampler by__trainer_sampler;

/* NULL: it is not asked for, or was not needed so far. */
typedef struct by__trainer_probes {
    by__trainer_layer_norms *norms;
    by__trainer_activations *activations;
    by__trainer_sampler *sampler;
    by__trainer_guard guard;
    by__trainer_node_watch *watch;
    by__trainer_replay *replay;
    by__trainer_abft *abft;
} by__trainer_probes;

/* ---- activation_values.c ---- */

/* Keeps what that program measured, if config.track asks for it. Called after the program of `row`
 * was submitted on this rank's i-th micro-batch of a step. */
by_status by__trainer_activations_keep(by_trainer *t, const by__exec_program_row *row, int64_t i,
                                       by_error *error);

#endif
