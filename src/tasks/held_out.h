/* What the held-out examples of a set are, and whether they resemble the others. */
#ifndef BY_TASKS_HELD_OUT_H
#define BY_TASKS_HELD_OUT_H

#include "tasks/examples/examples.h"

/* Says for people how the held-out examples were chosen. NULL: there are none. */
const char *by__task_train_held_out_how(const by__task_examples *d);
/* Refuses examples to train on that are all of one class. */
by_status by__task_train_classes_check(const by__task_examples *d, by_error *error);
/* Compares the targets of the last examples, which are held out by default, with those of the
 * others: a file that is sorted by something else than time makes them differ, and its loss then
 * says little. *out is what to do about it, "" if they are alike: means at most half a standard
 * deviation apart, or shares of classes whose differences sum to at most 0.6 of 2, beyond what
 * chance explains. */
by_status by__task_train_held_out_doubts(const by__task_examples *d, char **out, by_error *error);

#endif
