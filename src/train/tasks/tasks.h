/* The tasks that the config key task.kind can name. Each is a row in a file of this folder, and a
 * line in tasks.c. */
#ifndef BY_TRAIN_TASKS_TASKS_H
#define BY_TRAIN_TASKS_TASKS_H

#include "banyan/task.h"
#include "config/kind.h"

typedef struct by__task_row {
    by__kind kind; /* name and keys */
    by_task task;
} by__task_row;

extern const by__task_row by__task_language;

/* The kinds of the section `task`, for by__kind_table. */
const by__kind *by__task_kind(size_t index);

#endif
