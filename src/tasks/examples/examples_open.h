/* How the parts of a set of examples are opened: shared by the files examples*.c alone. */
#ifndef BY_TASKS_EXAMPLES_OPEN_H
#define BY_TASKS_EXAMPLES_OPEN_H

#include "tasks/examples/examples.h"

static inline bool by__task_examples_has_images(const by__task_examples_keys *keys)
{
    return keys->images.count > 0;
}

/* ---- examples_keys.c ---- */

/* The row of a config's task, whose first member the kind is; NULL: the config was not opened with
 * the tasks' keys. Not looked up in the table of tasks, which is above. */
const by__task_row *by__task_examples_row(const by_config *config);

/* ---- examples_remarks.c ---- */

/* Adds the skipped examples of a file of which `kept` were read. */
by_status by__task_examples_add_damage(by__task_examples *d, const by_damage *damage, size_t count,
                                       uint64_t kept, by_error *error);
/* Gives a remark to who trains. */
void by__task_examples_remark(const by_task_request *r, const char *text);

/* ---- examples_images.c ---- */

/* Opens the config's images, to train on and held out. */
by_status by__task_examples_config_images(by__task_examples *d, const by_task_request *r,
                                          by_error *error);
/* Opens files and folders to predict. */
by_status by__task_examples_image_paths(by_array_set **out, by__task_examples *d,
                                        const by_task_request *r, by_error *error);
/* Opens "IMAGES" or "IMAGES,LABELS". */
by_status by__task_examples_image_path(by_array_set **out, by__task_examples *d, const char *path,
                                       by_error *error);
/* What a thread of the loader of training data needs to transform images. */
uint64_t by__task_examples_scratch_bytes(const by__task_examples *d);

/* ---- examples_table.c ---- */

/* Lists the columns to predict: those that the weights were trained with, or those that the config
 * names. */
by_status by__task_examples_list_targets(by__task_examples *d, bool classes, by_error *error);
/* Opens the config's table, to train on and held out. */
by_status by__task_examples_config_table(by__task_examples *d, const by_task_request *r,
                                         by_error *error);
/* Opens a table and converts it as was learned. `own`: a file of the config. */
by_status by__task_examples_apply_table(by_array_set **out, by__task_examples *d, const char *path,
                                        bool targets, bool own, by_error *error);

#endif
