/* The result of a search by the guards of one rank, and its exchange between ranks. */
#ifndef BY_TRAINER_PROBES_FINDING_H
#define BY_TRAINER_PROBES_FINDING_H

#include "trainer/state/trainer.h"

/* A finding as ranks exchange it. Micro-batches, programs and nodes are ordered as in a single
 * process. */
typedef struct by__trainer_finding {
    int64_t leaf; /* micro-batch of the step; INT64_MAX: nothing found */
    int64_t part; /* of a pipeline's step: stages forward, then backward */
    int64_t node;
    int64_t row; /* sample of the micro-batch; -1: unknown */
    char what[240];
} by__trainer_finding;

/* Collective: replaces *mine by the first finding of all ranks, and sets its rank. */
by_status by__trainer_finding_share(const by_trainer *t, by__trainer_finding *mine, int32_t *rank,
                                    by_error *error);

#endif
