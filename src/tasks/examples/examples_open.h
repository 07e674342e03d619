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

/* ---- examples_text.c, examples_tokenizer.c ---- */

/* The column of texts; NULL: there is none. */
const char *by__task_examples_text(const by__task_examples *d);
/* The column of second texts, which are read behind those; NULL: there is none. */
const char *by__task_examples_pair(const by__task_examples *d);
/* The names of all of an example's, that one first; returns how many there are. */
int by__task_examples_text_columns(const char *out[3], const by__task_examples *d);
/* Opens the tokenizer, if there is a column of texts. */
by_status by__task_examples_open_texts(by__task_examples *d, const by_task_request *r,
                                       by_error *error);
void by__task_examples_close_texts(by__task_examples *d);
/* Finds how many tokens texts have, unless the config says it. */
by_status by__task_examples_measure_texts(by__task_examples *d, const by_table *table,
                                          by_error *error);
/* by__table_encoding_apply; *cut counts the texts. Texts become "tokens" i32 [N, T], padded with 0,
 * and "lengths" i32 [N]. */
by_status by__task_examples_apply_encoding(by_array_set **out, const by__task_examples *d,
                                           const by_table *table, bool targets, const char *weight,
                                           by__task_examples_cut *cut, by_error *error);
/* Says how many texts were cut, if any were. */
by_status by__task_examples_tell_cut(const by__task_examples *d, const by_task_request *r,
                                     by_error *error);
/* Sets the vocabulary and the tokens of a text. */
by_status by__task_examples_complete_texts(const by__task_examples *d, by_config *config,
                                           by_error *error);
/* Adds the tokenizer's files to those of a checkpoint. */
void by__task_examples_keep_texts(const by__task_examples *d, by_task_kept *out);

/* ---- examples_windows.c ---- */

/* Finds out whether examples are windows. Returns BY_ECONFIG if keys contradict that. */
by_status by__task_examples_open_windows(by__task_examples *d, const by_config *config,
                                         by_error *error);
/* How many windows a table has; BY_EFORMAT: none. */
by_status by__task_examples_count_windows(const by__task_examples *d, const by_table *table,
                                          uint64_t *count, by_error *error);
/* The rows of the table that windows to train on read, whose list is to be freed. */
by_status by__task_examples_rows_of_windows(by_part *out, uint64_t **rows,
                                            const by__task_examples *d, const by_table *table,
                                            by_error *error);
/* by__table_encoding_apply; then windows, "series" f32 [N, context, F], with the targets of their
 * last rows. cut->cut counts series that have none. */
by_status by__task_examples_apply_windows(by_array_set **out, const by__task_examples *d,
                                          const by_table *table, bool targets,
                                          by__task_examples_cut *cut, by_error *error);
/* Keeps which windows of a table there are, in the order of by__task_examples_apply_windows. */
by_status by__task_examples_keep_windows(by__task_examples *d, const by_table *table,
                                         by_error *error);
void by__task_examples_close_windows(by__task_examples_windows *windows);

#endif
