/* Operations of text tasks on a tokenizer, given the path of its file or directory: it is opened
 * for each call, and not kept. */
#ifndef BY_TASKS_TASK_TOKENIZER_H
#define BY_TASKS_TASK_TOKENIZER_H

#include "base/base.h"

/* Encodes a text, recognizing special tokens, and returns the size of the vocabulary. The caller
 * frees *ids. */
by_status by__task_text_to_ids(const char *path, const char *text, int32_t **ids, size_t *count,
                               int64_t *vocab, by_error *error);
/* Decodes ids, with a NUL that is not counted. The caller frees the text. */
by_status by__task_text_of_ids(const char *path, const int32_t *ids, size_t count, char **text,
                               size_t *length, by_error *error);
/* The end-of-text token, which a checkpoint's config.json and tokenizer_config.json name: its id
 * and its text, which the caller frees; both unchanged (-1 and NULL) if there is none. */
by_status by__task_find_eos(int64_t *id, char **token, const char *path, by_error *error);
/* Makes tokenizer_config.json: without it transformers uses the family's tokenizer class, which
 * adds its own tokens. eos: NULL for none. The caller frees *out. */
by_status by__task_tokenizer_config(char **out, const char *eos, int64_t context, by_error *error);

#endif
