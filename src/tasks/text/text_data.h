/* Packed text as the data of tasks (text_data.c): functions of by_task that they share, with the
 * contracts of banyan/task.h, and what else a task asks of the data. */
#ifndef BY_TASKS_TEXT_DATA_H
#define BY_TASKS_TEXT_DATA_H

#include "banyan/task.h"
#include "config/kind.h"
#include "tasks/text/documents.h"

/* Keys of the section `data` (text_keys.c), in the order in which a task lists them; plain and
 * document are of texts that are not conversations. */
extern const by__config_key_list by__task_text_source_keys;
extern const by__config_key_list by__task_text_plain_keys;
extern const by__config_key_list by__task_text_training_keys;
extern const by__config_key_list by__task_text_document_keys;
extern const by__config_key_list by__task_text_held_out_keys;

/* Opens text as data of `task`, as by_task.open. */
by_status by__task_text_open(by_task_data **out, const by_task *task,
                             const by_task_request *request, by_error *error);
void by__task_text_close(by_task_data *data);
int64_t by__task_text_per_sample(const by_config *config);
unsigned by__task_text_knows(const by_config *config);
void by__task_text_assume(by_config *config);
by_status by__task_text_complete(by_task_data *data, by_config *config, by_error *error);
/* Samples of tokens and the next ones as targets. */
by_status by__task_text_source(by_source **out, by_task_data *data, const by_config *config,
                               bool training, by_error *error);
by_status by__task_text_keep(by_task_data *data, const by_config *config, by_task_kept *out,
                             by_error *error);
by_status by__task_text_check(const by_task_data *data, const by_checkpoint *checkpoint,
                              by_error *error);
by_status by__task_text_encode(by_task_data *data, const char *text, int32_t **ids, size_t *count,
                               int64_t *vocab, by_error *error);
by_status by__task_text_decode(by_task_data *data, const int32_t *ids, size_t count, char **text,
                               size_t *length, by_error *error);

/* ---- pair_data.c: preferences ---- */

int64_t by__task_pairs_per_sample(const by_config *config);
/* Implements by__config_kind.resolve: checks what concerns the data. */
by_status by__task_pairs_resolve(by_config *config, void *own, by_error *error);
extern const by_task_reference by__task_pair_reference;
/* Adds to the sums of pairs, of those whose chosen answer has the higher reward, and of
 * differences: the rewards of a pair are values[0] and values[1], those of the next one are `width`
 * further. */
void by__task_pairs_measure(double *count, double *right, double *margin, const by_batch *batch,
                            const float *values, size_t width);

/* ---- text_data.c ---- */

/* Tokens and bytes of the held-out text; *bytes is 0 if that is unknown of a part. */
void by__task_text_valid_size(const by_task_data *data, uint64_t *tokens, uint64_t *bytes);
/* Documents to predict; NULL unless the data was opened for that. Owned by the data. */
by__task_documents *by__task_text_documents(const by_task_data *data);
/* Size of the tokenizer's vocabulary. */
uint32_t by__task_text_vocab(const by_task_data *data);
/* Path of the tokenizer; NULL if there is none. Owned by the data. */
const char *by__task_text_tokenizer(const by_task_data *data);

#endif
