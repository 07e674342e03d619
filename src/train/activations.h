/* Statistics of activations: the outputs of blocks and of the model (by_pass_observe), of all
 * micro-batches of a step. The nodes that measure are part of the programs of the model; what they
 * make of each micro-batch is kept on the device until the step is over. */
#ifndef BY_TRAIN_ACTIVATIONS_H
#define BY_TRAIN_ACTIVATIONS_H

#include "train/trainer.h"

/* Sums over elements, but for the largest magnitude. */
enum {
    BY__ACTIVATION_COUNT, /* elements */
    BY__ACTIVATION_SUM,
    BY__ACTIVATION_SQUARES,
    BY__ACTIVATION_ZEROS,
    BY__ACTIVATION_NONFINITE,
    BY__ACTIVATION_LARGEST,
    BY__ACTIVATION_NUMBERS
};

/* Activations that this rank measures, and the name of the i-th: "block.3", "hidden", "output". */
size_t by__activations_count(const by_trainer *t);
const char *by__activations_name(const by_trainer *t, size_t i);
/* Of this rank's micro-batches of the step that was collected last, [count]
 * [BY__ACTIVATION_NUMBERS]; NULL when it was not measured. */
const double *by__activations_numbers(const by_trainer *t);

#endif
