/* Steps under way: the record of step/trainer_steps.c. */
#ifndef BY_TRAINER_STATE_STEPS_H
#define BY_TRAINER_STATE_STEPS_H

#include "banyan/trainer.h"
#include "device/device.h"

/* A submitted step: what the host needs to read its results. */
typedef struct by__trainer_pending {
    by_step_result result;  /* complete except for loss and norm */
    double weight;          /* of the targets of the global batch */
    int64_t batch;          /* number of examples in it */
    bool has_micro;         /* the norm of a micro-batch's gradient is among its results */
    by__device_event *read; /* set when its results are in pinned memory */
} by__trainer_pending;

typedef struct by__trainer_steps {
    by__trainer_pending pending[BY_STEPS_AHEAD]; /* ring of those submitted and not collected */
    unsigned submitted;                          /* so far */
    unsigned collected;
    int64_t updates;
    double own_weight;      /* of the targets in this replica's part of the current batch */
    double gradient_weight; /* of the batch whose gradients by_trainer_gradients left */
} by__trainer_steps;

/* ---- step_losses.c ---- */

/* Weight of the targets of a batch, of all ranks or of this one's part: their number, unless they
 * have weights. */
double by__trainer_weight(const by_batch *batch, bool all);
/* Mean loss of a step, from the losses of its micro-batches. */
double by__trainer_mean_loss(const by_trainer *t, const float *losses, double weight);

#endif
