/* tasks: what a model learns. A task opens the data of a config, completes the config with
 * the sizes that the data have, adds the loss to the model's graph, defines metrics, and lists the
 * files that a checkpoint keeps with the weights.
 *
 * Types: by__task_row, a task's row in the table of tasks.c; by_task (banyan/task.h), its
 * functions; by_task_data, open data, which the task defines. Data sets in memory (images, tables)
 * share examples.h; packed text is in text/.
 *
 * Who owns what: by_task_data owns data sets, sources' inputs and learned state, and outlives the
 * loaders; the config that it was opened with must outlive it.
 *
 * Adding a task: its file, and its line in tasks.c.
 *
 * Never put here: the optimizer, the loop over steps, models. */
#ifndef BY_TASKS_TASKS_H
#define BY_TASKS_TASKS_H

#include "banyan/task.h"
#include "config/kind.h"

typedef struct by__task_row {
    by__config_kind kind; /* name and keys */
    by_task task;
    bool classes; /* of examples.h: the target is a class, not a number */
    bool texts;   /* of examples.h: it may read a column of texts */
    bool tags;    /* of these: the target has a class for each word */
    bool pairs;   /* of these: several columns of texts, and no target */
    bool maps;    /* of images: it is a class of each pixel */
    bool told;    /* of images: the model is told the class and need not find it, so one will do */
} by__task_row;

/* The fields of by_task that a file of a task fills with what it defines under their names: its
 * metrics and sums_of, and the functions loss_label, loss and measure. */
#define BY__TASK_LEARNS                                                                            \
    .metrics = metrics, .metric_count = BY_ARRAY_LENGTH(metrics), .sums = sums_of,                 \
    .sum_count = BY_ARRAY_LENGTH(sums_of), .loss_label = loss_label, .loss = loss,                 \
    .measure = measure

/* The row that a task is in. */
static inline const by__task_row *by__task_row_of(const by_task *task)
{
    return (const void *)((const char *)task - offsetof(by__task_row, task));
}

extern const by__task_row by__task_language;

/* Most fields that name an example behind its index. */
#define BY__TASK_NAME_FIELDS 4
/* Writes those that it has: "file" and "sample", or the series of a window and the "row" that ends
 * it. Returns how many. (example_fields.c) */
size_t by__task_name_fields(by_field out[BY__TASK_NAME_FIELDS], const by_example_name *of);

/* The kinds of the section `task`, for by__config_kind_table. */
const by__config_kind *by__task_kind(size_t index);

/* BY_ECONFIG if a file or directory that a config names for training does not exist. resumed: what
 * only the first start of a run reads may be gone. */
by_status by__task_named_files_exist(const by_config *config, bool resumed, by_error *error);

/* Threads of a loader: data.threads, or what is chosen for -1 (loader_threads.c). */
size_t by__task_loader_threads(const by_config *config);

/* ---- keeps_documents.c ---- */

/* Returns true if data.documents is mask: samples have starts, and attention stays within
 * documents. */
bool by__task_keeps_documents(const by_config *config);
/* Returns true if the task learns conversations, of which it keeps the tokens apart. */
bool by__task_is_chat(const by_config *config);
/* Returns true if these are pairs, of a chosen and a rejected one, each in a row of its own. */
bool by__task_has_pairs(const by_config *config);
/* Returns true if a model rates each of them by one number. */
bool by__task_rates_texts(const by_config *config);

/* ---- text/preference_keys.c ---- */

/* Returns true if batches have what the weights at the start make of their samples. */
bool by__task_reads_reference(const by_config *config);
/* Returns true if these weights are part of the graph of gradients instead. */
bool by__task_has_live_reference(const by_config *config);

/* ---- examples/examples_text.c ---- */

/* Returns true if samples are texts that are padded to one length: batches have their lengths. */
bool by__task_pads_texts(const by_config *config);
/* Returns true if a sample is two texts, one behind the other: batches have the segment of each
 * token. */
bool by__task_pairs_texts(const by_config *config);
/* Texts of an example. */
int64_t by__task_texts(const by_config *config);
/* Tokens of a sample of a model of tokens: model.context or, of such texts, data.max_tokens. */
int64_t by__task_time(const by_config *config);

/* ---- lora_section.c ---- */

/* Returns true if a parameter of this name belongs to an adapter. */
bool by__task_is_adapter(const char *name);
/* Sets the section from the adapters to start from (lora.from); a different setting is an error. */
by_status by__task_adapters_inherit(by_config *config, by_error *error);

#endif
