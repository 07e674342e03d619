/* What is learned from the training part of a set and kept with the weights: encoding.json of a
 * table; preprocessor_config.json of images, as transformers reads it. */
#ifndef BY_TRAIN_TASKS_EXAMPLES_LEARNED_H
#define BY_TRAIN_TASKS_EXAMPLES_LEARNED_H

#include "train/tasks/examples.h"

/* Mean and deviation of images, from the training part; the JSON text of these or the encoding. */
by_status by__examples_learn(by__examples *d, by_error *error);
/* The same from the file in a directory of weights. images: which file there should be; where there
 * is no such file, the other one is taken. */
by_status by__examples_read_learned(by__examples *d, const char *directory, bool images,
                                    by_error *error);
const char *by__examples_learned_name(const by__examples *d);
/* Names of the classes: the encoding's, or those of the config. */
by_status by__examples_name_labels(by__examples *d, by_error *error);

#endif
