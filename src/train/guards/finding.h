/* What guards of several ranks have found, each for itself. */
#ifndef BY_TRAIN_FINDING_H
#define BY_TRAIN_FINDING_H

#include "train/trainer.h"

/* As ranks exchange it. The order of micro-batches, programs and nodes is that of one process. */
typedef struct by__finding {
    int64_t leaf; /* micro-batch of the step; INT64_MAX: nothing was found */
    int64_t part; /* of a pipeline's step: stages forward, then backward */
    int64_t node;
    int64_t row; /* sample of the micro-batch; -1: not known */
    char what[240];
} by__finding;

/* Where a program that runs on a micro-batch stands in a step; -1: it does not (sums of sets). */
int64_t by__finding_part(const by_trainer *t, const by__program_row *row);
/* Collective: the first of all ranks, and whose it is. */
by_status by__finding_share(const by_trainer *t, by__finding *mine, int32_t *rank, by_error *error);

#endif
