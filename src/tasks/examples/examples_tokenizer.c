/* The tokenizer of texts of a column: opened, counted in the config, and kept with checkpoints. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/storage.h"
#include "tasks/examples/examples_open.h"
#include "tasks/text/task_tokenizer.h"

/* The file or directory of the tokenizer: that of the weights or the checkpoint that are there,
 * else what the config names, else that of the weights to start from. Freed with free(). */
static by_status find_tokenizer(char **out, const by_task_request *r, by_error *error)
{
    const char *named = r->config->data.tokenizer;
    const char *from = r->config->model.from;
    bool path = strcmp(named, "bpe") != 0 && strcmp(named, "char") != 0;
    *out = NULL;
    if (r->learned == NULL && r->resumed == NULL && !path && from[0] != '\0') {
        BY_TRY(by__checkpoint_run(out, from, error));
    }
    if (*out == NULL) {
        const char *found = r->learned != NULL   ? r->learned
                            : r->resumed != NULL ? r->resumed
                            : path               ? named
                                                 : from;
        if (found[0] == '\0') {
            return by_error_set(error, BY_ECONFIG,
                                "data.text_column needs a tokenizer: set data.tokenizer to a "
                                "tokenizer.json or a directory that has one, or model.from");
        }
        *out = by__strdup(found);
    }
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a path") : BY_OK;
}

/* What the model to train, which may start from other weights, makes of texts. */
static by_status find_model(by__task_examples_texts *out, const by_task_request *r, by_error *error)
{
    by_config *config;
    out->context = r->config->model.context;
    out->last = !by_model_is_encoder(&r->config->model);
    if (r->purpose != BY_TASK_TRAIN || r->resumed != NULL || r->config->model.from[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by_config_copy(&config, r->config, error));
    by_status status = by_config_inherit_model(config, error);
    out->context = config->model.context;
    out->last = !by_model_is_encoder(&config->model);
    by_config_close(&config);
    return status;
}

/* How many tokens the tokenizer adds in front of a text. */
static by_status count_before(size_t *out, const by_tokenizer *tokenizer, by_error *error)
{
    by_token_buffer ids = {0};
    by_status status = by_tokenizer_encode(tokenizer, "", 0, &ids,
                                           BY_ENCODE_ORDINARY | BY_ENCODE_ADD_BEFORE, error);
    *out = ids.count;
    by_token_buffer_free(&ids);
    return status;
}

by_status by__task_examples_open_texts(by__task_examples *d, const by_task_request *r,
                                       by_error *error)
{
    char *path;
    if (by__task_examples_text(d) == NULL) {
        return BY_OK;
    }
    BY_TRY(find_model(&d->texts, r, error));
    BY_TRY(find_tokenizer(&path, r, error));
    by_status status = by_tokenizer_open(&d->texts.tokenizer, path, error);
    if (status == BY_OK) {
        status = by__task_origin_files_read(&d->texts.origin, path, d->texts.context, error);
    }
    free(path);
    if (status == BY_OK) {
        status =
            by_tokenizer_to_json(d->texts.tokenizer, &d->texts.json, &d->texts.json_length, error);
    }
    if (status == BY_OK) {
        status = count_before(&d->texts.before, d->texts.tokenizer, error);
    }
    if (status == BY_OK) {
        status = by__task_tokenizer_config(&d->texts.settings, NULL, d->texts.context, error);
    }
    d->texts.time = d->keys->max_tokens;
    return status;
}

void by__task_examples_close_texts(by__task_examples *d)
{
    by_tokenizer_close(&d->texts.tokenizer);
    free(d->texts.json);
    free(d->texts.settings);
    by__task_origin_files_free(&d->texts.origin);
    free(d->texts.numbers);
}

/* ---- for the config and checkpoints ---- */

by_status by__task_examples_complete_texts(const by__task_examples *d, by_config *config,
                                           by_error *error)
{
    by_model_config *m = &config->model;
    const by__task_row *row = by__task_examples_row(config);
    by__task_examples_keys *k = by__config_kind_own(config->task.own, &row->kind);
    int64_t needed = (int64_t)by_tokenizer_vocab(d->texts.tokenizer);
    if (m->vocab < 0) {
        m->vocab = (needed + m->pad_vocab_to - 1) / m->pad_vocab_to * m->pad_vocab_to;
    }
    if (m->vocab < needed) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.vocab %lld is less than the tokenizer's %lld tokens",
                            by__config_where(config, "model.vocab", "data.tokenizer"),
                            (long long)m->vocab, (long long)needed);
    }
    if (d->texts.last && by__task_pairs_texts(config)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.pair_column is for encoders, which tell both texts apart; "
                            "model.kind %s reads one: join them in a column, or set model.kind to "
                            "bert",
                            by__config_where(config, "data.pair_column", "model.kind"), m->kind);
    }
    if (d->texts.time > m->context) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.max_tokens %lld is more than model.context %lld",
                            by__config_where(config, "data.max_tokens", "model.context"),
                            (long long)d->texts.time, (long long)m->context);
    }
    k->max_tokens = d->texts.time;
    return BY_OK;
}

void by__task_examples_keep_texts(const by__task_examples *d, by_task_kept *out)
{
    if (d->texts.tokenizer != NULL) {
        out->files[out->file_count++] = (by_checkpoint_file){
            .name = "tokenizer.json", .data = d->texts.json, .size = d->texts.json_length};
        const char *own = d->texts.origin.tokenizer_config;
        const char *settings = own != NULL ? own : d->texts.settings;
        out->files[out->file_count++] = (by_checkpoint_file){
            .name = "tokenizer_config.json", .data = settings, .size = strlen(settings)};
        by__task_origin_files_keep(&d->texts.origin, out);
    }
}
