/* Statistics of activations: of the outputs of blocks and of the model (by_pass_observe), over all
 * micro-batches of a step. The nodes that measure are part of the model's programs; their results
 * for each micro-batch stay on the device until the step is over. */
#ifndef BY_TRAINER_PROBES_ACTIVATIONS_H
#define BY_TRAINER_PROBES_ACTIVATIONS_H

#include "trainer/state/trainer.h"

/* Sums over elements, except the largest magnitude. */
enum {
    BY__ACTIVATION_COUNT, /* number of elements */
    BY__ACTIVATION_SUM,
    BY__ACTIVATION_SQUARES,
    BY__ACTIVATION_ZEROS,
    BY__ACTIVATION_NONFINITE,
    BY__ACTIVATION_LARGEST,
    BY__ACTIVATION_NUMBERS
};

/* Number of activations that this rank measures, and the name of the i-th: "block.3", "hidden",
 * "output". */
size_t by__trainer_activations_count(const by_trainer *t);
const char *by__trainer_activations_name(const by_trainer *t, size_t i);
/* Statistics of this rank's micro-batches of the last collected step, [count]
 * [BY__ACTIVATION_NUMBERS]; NULL if it was not measured. */
const double *by__trainer_activations_numbers(const by_trainer *t);

#endif
