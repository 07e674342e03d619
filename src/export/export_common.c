/* What the formats of an export share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/chat.h"
#include "base/json.h"
#include "base/paths.h"
#include "export/export.h"
#include "text/tokenizer/gguf_tokenizer.h"
#include "text/tokenizer/vocabulary.h"

/* Reads an id from config.json: a number, or the first one of a list. */
static int64_t read_id(const by_weights *weights, const char *key)
{
    const char *text = by_weights_config(weights);
    json_t *root = text == NULL ? NULL : by__json_read(text, 0, NULL);
    const json_t *value = json_object_get(root, key);
    value = json_is_array(value) ? json_array_get(value, 0) : value;
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    json_decref(root);
    return id;
}

int64_t by__export_eos(const by__export *e)
{
    int64_t id = read_id(e->source->weights, "eos_token_id");
    return id >= 0 || e->tokenizer == NULL ? id : by_tokenizer_eos(e->tokenizer);
}

by_status by__export_eot(int64_t *out, const by__export *e, by_error *error)
{
    const by_chat_source source = {.directory = e->source->directory};
    by_chat *chat = NULL;
    by_error ignored = {0};
    int64_t said[2] = {-1, -1};
    *out = -1;
    if (e->tokenizer == NULL) {
        return BY_OK;
    }
    if (e->template != NULL) {
        by_status status = by_chat_open(&chat, &source, &ignored);
        if (status == BY_EMEMORY || status == BY_EIO) {
            return by_error_set(error, status, "%s", ignored.message);
        }
        if (status == BY_OK) {
            *out = by_chat_end(chat, e->tokenizer);
            by_chat_close(&chat);
        }
    }
    if (*out < 0 && !by__path_is_dir(source.directory)) {
        BY_TRY(by__tokenizer_gguf_ends_open(said, source.directory, error));
        *out = said[1];
    }
    return BY_OK;
}

int64_t by__export_bos(const by__export *e)
{
    const by_tokenizer *t = e->tokenizer;
    return t != NULL && t->pipeline.before_count > 0 ? (int64_t)t->pipeline.before[0] : -1;
}

const char *by__export_find(const by_weights *weights, const char *prefix, const char *name)
{
    char full[256];
    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    const by__checkpoint_tensor_entry *entry = by__weights_find(weights, full);
    entry = entry != NULL ? entry : by__weights_find(weights, name);
    return entry == NULL ? NULL : entry->name;
}

bool by__export_rates_texts(const by__export *e)
{
    const by_model_config *model = &e->source->config->model;
    /* The config of a run may leave the outputs to its task. */
    return strcmp(by_model_reads(model), "tokens") == 0 && !by_model_is_encoder(model) &&
           (model->outputs > 0 || by__weights_find(e->source->weights, "score.weight") != NULL);
}

by_dtype by__export_dtype(const by_weights *weights)
{
    uint64_t bytes[3] = {0};
    static const by_dtype kinds[] = {BY_F32, BY_BF16, BY_F16};
    for (size_t i = 0; i < by_weights_count(weights); i++) {
        const by__checkpoint_tensor_entry *entry = by__weights_entry(weights, i);
        for (size_t k = 0; k < BY_ARRAY_LENGTH(kinds); k++) {
            bytes[k] += entry->dtype == (int)kinds[k] ? entry->end - entry->begin : 0;
        }
    }
    size_t most = 0;
    for (size_t k = 1; k < BY_ARRAY_LENGTH(kinds); k++) {
        most = bytes[k] > bytes[most] ? k : most;
    }
    return kinds[most];
}

by_status by__export_place(char **directory, char **name, const char *path, by_error *error)
{
    const char *slash = strrchr(path, '/');
    const char *file = slash == NULL ? path : slash + 1;
    if (file[0] == '\0' || by__path_is_dir(path)) {
        return by_error_set(error, BY_EARG, "%s is a directory; name a file", path);
    }
    *name = by__strdup(file);
    *directory = slash == NULL ? by__strdup(".") : by__strndup(path, (size_t)(slash - path) + 1);
    if (*name == NULL || *directory == NULL) {
        free(*name);
        free(*directory);
        *name = *directory = NULL;
        return by_error_set(error, BY_EMEMORY, "out of memory: path");
    }
    return BY_OK;
}

/* Every format refuses to replace what is there, before the work. `end` completes the name. */
by_status by__export_refuse_existing(const by__export *e, const char *end, by_error *error)
{
    by_string text = {0};
    char *path;
    by_string_format(&text, "%s%s", e->options->output, end);
    BY_TRY(by__string_release(&text, &path, error));
    by_status status = by__path_exists(path)
                           ? by_error_set(error, BY_EARG, "%s already exists; name a new %s", path,
                                          by__path_is_dir(path) ? "directory" : "file")
                           : BY_OK;
    free(path);
    return status;
}
