/* The tokens that end a text, from the configuration files of a model directory. */
#include <stdlib.h>

#include "banyan/chat.h"
#include "banyan/tokenizer.h"
#include "base/base.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/token_ids.h"
#include "base/utf8.h"
#include "text/tokenizer/gguf_tokenizer.h"

#define MAX_FILE ((size_t)16 << 20)

typedef struct end_tokens {
    int32_t *ids;
    size_t count;
    int64_t vocab; /* ids must be below it */
} end_tokens;

static void add(end_tokens *e, int64_t id)
{
    size_t i = 0;
    if (id < 0 || id >= e->vocab || e->count == BY_END_TOKENS) {
        return;
    }
    while (i < e->count && e->ids[i] != id) {
        i++;
    }
    e->ids[i] = (int32_t)id;
    e->count += i == e->count;
}

/* Reads a file and checks the ids of tokens in it. */
static by_status read_ids(json_t **out, const char *directory, const char *name, by_error *error)
{
    char *path;
    BY_TRY(by__json_file(out, directory, name, MAX_FILE, JSON_REJECT_DUPLICATES, error));
    BY_TRY(by__path_make(&path, directory, name, error));
    by_status status = by__token_ids_check(path, *out, error);
    free(path);
    return status;
}

/* Adds eos_token_id of the settings of generation, or else of the model: a number or a list. */
static void add_ids(end_tokens *e, const json_t *model, const json_t *settings)
{
    /* The key counts where it exists, even if null. */
    const json_t *value = json_object_get(settings, "eos_token_id");
    value = value != NULL ? value : json_object_get(model, "eos_token_id");
    if (json_is_integer(value)) {
        add(e, json_integer_value(value));
    }
    for (size_t k = 0; k < json_array_size(value); k++) {
        add(e, json_integer_value(json_array_get(value, k)));
    }
}

/* Adds the end of text of the tokenizer, and the ids of a directory. Those that the model cannot
 * produce, from its "vocab_size" on, are left out. */
static by_status add_own(end_tokens *e, const by_tokenizer *tokenizer, const char *directory,
                         by_error *error)
{
    json_t *model = NULL;
    json_t *settings = NULL;
    by_status status = read_ids(&model, directory, "config.json", error);
    if (status == BY_OK) {
        status = read_ids(&settings, directory, "generation_config.json", error);
    }
    if (status == BY_OK) {
        json_int_t size = json_integer_value(json_object_get(model, "vocab_size"));
        e->vocab = size > 0 && size < e->vocab ? size : e->vocab;
        add(e, tokenizer == NULL ? -1 : by_tokenizer_eos(tokenizer));
        add_ids(e, model, settings);
    }
    json_decref(settings);
    json_decref(model);
    return status;
}

/* Adds eos_token of the tokenizer's settings: a text, or an object with one. */
static by_status add_name(end_tokens *e, const by_tokenizer *tokenizer, const char *directory,
                          by_error *error)
{
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json"};
    bool told = false;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(files) && !told; i++) {
        json_t *root;
        BY_TRY(by__json_file(&root, directory, files[i], MAX_FILE, JSON_REJECT_DUPLICATES, error));
        const json_t *value = json_object_get(root, "eos_token");
        const json_t *text = json_is_object(value) ? json_object_get(value, "content") : value;
        told = json_is_string(text);
        if (told) {
            add(e, by_tokenizer_token_id(tokenizer, json_string_value(text),
                                         json_string_length(text)));
        }
        json_decref(root);
    }
    return BY_OK;
}

/* Adds what the chat template writes behind an answer; a template that is none, or beyond what is
 * supported, says nothing; one that cannot be read is an error. */
static by_status add_mark(end_tokens *e, const by_tokenizer *tokenizer, const char *directory,
                          by_error *error)
{
    const by_chat_source source = {.directory = directory};
    by_chat *chat = NULL;
    by_error ignored = {0};
    by_status status = by_chat_open(&chat, &source, &ignored);
    if (status == BY_EMEMORY || status == BY_EIO) {
        *error = ignored;
        return status;
    }
    if (status == BY_OK) {
        add(e, by_chat_end(chat, tokenizer));
        by_chat_close(&chat);
    }
    return BY_OK;
}

by_status by_end_tokens(int32_t ids[BY_END_TOKENS], size_t *count, const char *directory,
                        const by_tokenizer *tokenizer, by_error *error)
{
    end_tokens e = {.ids = ids, .vocab = INT32_MAX};
    bool gguf = by__format_gguf_is_file(directory);
    if (tokenizer != NULL) {
        e.vocab = (int64_t)by_tokenizer_vocab(tokenizer);
    }
    if (gguf) {
        int64_t said[2];
        add(&e, tokenizer == NULL ? -1 : by_tokenizer_eos(tokenizer));
        BY_TRY(by__tokenizer_gguf_ends_open(said, directory, error));
        add(&e, said[0]);
        add(&e, said[1]);
    } else {
        BY_TRY(add_own(&e, tokenizer, directory, error));
    }
    if (tokenizer != NULL && !gguf) {
        BY_TRY(add_name(&e, tokenizer, directory, error));
    }
    if (tokenizer != NULL) {
        BY_TRY(add_mark(&e, tokenizer, directory, error));
    }
    *count = e.count;
    return BY_OK;
}
