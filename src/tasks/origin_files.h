/* What the checkpoints of a run keep of the directory whose tokenizer it took over: the chat
 * template and the tokens that end a text, without which a fine-tuned model could not be chatted
 * with. */
#ifndef BY_TASKS_ORIGIN_FILES_H
#define BY_TASKS_ORIGIN_FILES_H

#include "banyan/task.h"
#include "base/base.h"

typedef struct by__task_origin_files {
    char *config;           /* config.json, for by_model_config_keep_ids; NULL: there is none */
    char *tokenizer_config; /* with "model_max_length" of the run; NULL: there is none */
    struct {
        const char *name;
        char *text;
        size_t length;
    } others[3]; /* copied unchanged */
    size_t count;
} by__task_origin_files;

/* Reads the files of a directory that exist. `context` is that of the run. BY_EFORMAT names the
 * file that is no JSON object. Freed with by__task_origin_files_free even if this fails. */
by_status by__task_origin_files_read(by__task_origin_files *out, const char *directory,
                                     int64_t context, by_error *error);
/* Drops a file that the run has otherwise. */
void by__task_origin_files_drop(by__task_origin_files *files, const char *name);
/* Adds the files to those of a checkpoint, which borrows them. */
void by__task_origin_files_keep(const by__task_origin_files *files, by_task_kept *kept);
void by__task_origin_files_free(by__task_origin_files *files);

#endif
