/* The values that programs of the model measure of activations, and what is kept of them for each
 * micro-batch of a step. */
#ifndef BY_TRAINER_STATE_ACTIVATION_VALUES_H
#define BY_TRAINER_STATE_ACTIVATION_VALUES_H

#include "trainer/state/trainer.h"

/* A value that a program measures. "gradients" and "last gradients" measure the same values. */
typedef struct by__trainer_measured {
    const char *name; /* name of the output, owned by the program's graph */
    int64_t elements;
    size_t at; /* offset of its numbers in bytes */
    size_t bytes;
} by__trainer_measured;

/* The values measured by a program, which are contiguous. */
typedef struct by__trainer_range {
    size_t at;
    size_t bytes;
} by__trainer_range;

struct by__trainer_activations {
    by__trainer_measured *items;
    size_t count;
    size_t capacity;
    by__trainer_range *ranges; /* one per program */
    size_t bytes;              /* bytes of the numbers of a micro-batch */
    by_memory numbers; /* those that programs write, followed by those of each micro-batch */
    by_pinned host;    /* of all micro-batches, for each step in flight */
    bool is_due[BY_STEPS_AHEAD];
    bool is_known; /* sums are those of the last collected step */
    double *sums;
};

#endif
