/* State that is learned from the training part of a set and kept with the weights: encoding.json of
 * a table; preprocessor_config.json of images, as transformers reads it. */
#ifndef BY_TASKS_EXAMPLES_LEARNED_H
#define BY_TASKS_EXAMPLES_LEARNED_H

#include "tasks/examples/examples.h"

/* Learns mean and deviation of images from the training part; makes the JSON text of these or of
 * the encoding. */
by_status by__task_examples_learn(by__task_examples *d, by_error *error);
/* Loads the same from the file in the directory of weights request->learned. images: which file to
 * expect; if it is missing, the other one is read. */
by_status by__task_examples_read_learned(by__task_examples *d, const by_task_request *request,
                                         bool images, by_error *error);
/* Reads the encoding in the directory of a checkpoint; NULL if it has none that can be read. */
by_encoding *by__task_examples_read_encoding(const char *directory);
const char *by__task_examples_learned_name(const by__task_examples *d);
/* Sets the class names: the encoding's, or those of the config. */
by_status by__task_examples_name_labels(by__task_examples *d, by_error *error);

#endif
