/* What a task of text asks of its tokenizer, by the path of its file or directory: it is opened for
 * each call, and not kept. */
#ifndef BY_TRAIN_TASKS_TASK_TOKENIZER_H
#define BY_TRAIN_TASKS_TASK_TOKENIZER_H

#include "base/base.h"

/* The ids of a text, in which special tokens count as such, and the size of the vocabulary. The
 * caller frees *ids. */
by_status by__text_to_ids(const char *path, const char *text, int32_t **ids, size_t *count,
                          int64_t *vocab, by_error *error);
/* The text of ids, with a NUL that is not counted. The caller frees it. */
by_status by__text_of_ids(const char *path, const int32_t *ids, size_t count, char **text,
                          size_t *length, by_error *error);
/* The end-of-text token, which a checkpoint's config.json and tokenizer_config.json name: its id
 * and its text, which the caller frees; -1 and NULL (both as they were) for none. */
by_status by__find_eos(int64_t *id, char **token, const char *path, by_error *error);
/* tokenizer_config.json: without it transformers takes the family's tokenizer class, which adds
 * tokens of its own. eos: NULL for none. The caller frees *out. */
by_status by__tokenizer_config(char **out, const char *eos, int64_t context, by_error *error);

#endif
