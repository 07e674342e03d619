/* Packed text as the data of tasks: what a checkpoint keeps of it, and is compared with. */
#include <stdlib.h>
#include <string.h>

#include "tasks/references.h"
#include "tasks/text/conversation_data.h"
#include "tasks/text/task_tokenizer.h"
#include "tasks/text/text_data.h"
#include "tasks/text/text_parts.h"

/* Hash of the training data: for a mix, of its parts and weights; includes packing other than the
 * stream. */
static by_status hash_content(char out[33], const by__task_text_data *d, by_error *error)
{
    by_string text = {0};
    char *all;
    char hash[33];
    if (d->mix.stage_count == 0 && d->packing == BY_TOKENS_STREAM && d->logits == NULL &&
        d->weights[0] == NULL) {
        by_dataset_hash(d->train[0], out);
        return BY_OK;
    }
    if (d->logits != NULL) {
        by_logit_store_hash(d->logits, hash);
        by_string_format(&text, "logits %s\n", hash);
    }
    for (size_t i = 0; i < d->paths.train_count && d->weights[i] != NULL; i++) {
        by_token_weights_hash(d->weights[i], hash);
        by_string_format(&text, "weights %s\n", hash);
    }
    by__string_append(&text, d->packing == BY_TOKENS_BEST_FIT ? "best fit\n"
                             : d->packing == BY_TOKENS_PADDED ? "padded\n"
                                                              : "");
    by__string_append(&text, d->mix.shuffle ? "random\n" : "exact\n");
    for (size_t i = 0; i < d->paths.train_count; i++) {
        by_dataset_hash(d->train[i], hash);
        by_string_format(&text, "%s\n", hash);
    }
    for (size_t s = 0; s < d->mix.stage_count; s++) {
        by_string_format(&text, "%llu", (unsigned long long)d->mix.stages[s].first);
        for (size_t i = 0; i < d->paths.train_count; i++) {
            by_string_format(&text, " %a", d->mix.stages[s].weights[i]);
        }
        by__string_append(&text, "\n");
    }
    BY_TRY(by__string_release(&text, &all, error));
    by__hash128_hex(out, all, strlen(all));
    free(all);
    return BY_OK;
}

by_status by__task_text_keep(by_task_data *base, const by_config *config, by_task_kept *out,
                             by_error *error)
{
    by__task_text_data *d = (by__task_text_data *)base;
    if (d->tokenizer_config == NULL) {
        BY_TRY(by__task_reference_of_text(&d->reference, d->train,
                                          d->mix.stage_count == 0 ? NULL : d->mix.stages[0].weights,
                                          d->paths.train_count, error));
        BY_TRY(hash_content(d->content, d, error));
        by__task_origin_files_free(&d->origin);
        if (d->paths.origin != NULL) {
            BY_TRY(by__task_origin_files_read(&d->origin, d->paths.origin, config->model.context,
                                              error));
        }
        BY_TRY(by__task_tokenizer_config(&d->tokenizer_config, d->eos_token, config->model.context,
                                         error));
    }
    const char *settings =
        d->origin.tokenizer_config != NULL ? d->origin.tokenizer_config : d->tokenizer_config;
    *out = (by_task_kept){
        .values = {{.key = "tokenizer_hash",
                    .kind = BY_VALUE_STRING,
                    .as.string = by_dataset_tokenizer_hash(d->train[0])},
                   {.key = "train_tokens", .kind = BY_VALUE_U64, .as.u64 = d->base.train_examples},
                   {.key = "train_hash", .kind = BY_VALUE_STRING, .as.string = d->content},
                   {.key = "train_mix", .kind = BY_VALUE_STRING, .as.string = d->mix.text}},
        .value_count = d->mix.text == NULL ? 3 : 4,
        .files = {{.name = "tokenizer.json", .path = d->paths.tokenizer},
                  {.name = "tokenizer_config.json", .data = settings, .size = strlen(settings)},
                  {.name = BY_DRIFT_FILE, .data = d->reference, .size = strlen(d->reference)}},
        .file_count = 3,
        .eos = d->eos};
    if (d->template_file != NULL) {
        by__task_origin_files_drop(&d->origin, BY__TEMPLATE_FILE);
        out->files[out->file_count++] =
            (by_checkpoint_file){.name = BY__TEMPLATE_FILE, .path = d->template_file};
    }
    by__task_origin_files_keep(&d->origin, out);
    return BY_OK;
}

/* Refuses to resume with data other than the checkpoint was trained on. */
by_status by__task_text_check(const by_task_data *base, const by_checkpoint *checkpoint,
                              by_error *error)
{
    const by__task_text_data *d = (const by__task_text_data *)base;
    const char *tokenizer;
    const char *content;
    char now[33];
    uint64_t tokens;
    if (d->named_template != NULL) {
        BY_TRY(by__task_chat_unchanged(d->named_template, d->template_file,
                                       by_checkpoint_path(checkpoint), error));
    }
    BY_TRY(by_checkpoint_value_string(checkpoint, "tokenizer_hash", &tokenizer, error));
    BY_TRY(by_checkpoint_value_u64(checkpoint, "train_tokens", &tokens, error));
    const char *own_tokenizer = by_dataset_tokenizer_hash(d->train[0]);
    if (strcmp(tokenizer, own_tokenizer) != 0 || tokens != d->base.train_examples) {
        return by_error_set(
            error, BY_ECONFIG,
            "%s was trained on other data (%llu tokens, tokenizer %.8s) than there is "
            "now (%llu tokens, tokenizer %.8s); start a new run with model.from=%s",
            by_checkpoint_path(checkpoint), (unsigned long long)tokens, tokenizer,
            (unsigned long long)d->base.train_examples, own_tokenizer,
            by_checkpoint_path(checkpoint));
    }
    /* Checkpoints of earlier versions lack the hash. */
    BY_TRY(hash_content(now, d, error));
    if (by_checkpoint_value_string(checkpoint, "train_hash", &content, NULL) == BY_OK &&
        strcmp(content, now) != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s was trained on other text of the same length (content %.8s) than "
                            "there is now (%.8s): the text or data.mix was edited; restore it, or "
                            "start a new run with model.from=%s",
                            by_checkpoint_path(checkpoint), content, now,
                            by_checkpoint_path(checkpoint));
    }
    return BY_OK;
}
