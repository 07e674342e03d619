/* Hugging Face's tokenizer.json, read strictly.
 *
 * The model reads its own part (model.h); pipeline_json.c reads the others. Unsupported features
 * (other models and patterns, dropout, ...) are refused by name, because ignoring them would give
 * other ids. Exceptions are "truncation" and "padding": they are settings of the last caller, and
 * transformers sets both for each call. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pipeline_json.h"

/* Finds the model, and the kind of its tokens. */
static by_status find_kind(by_tokenizer *t, const json_t *root, const char *name, by_error *error)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) {
        return by_error_set(error, BY_EFORMAT, "%s: model is missing", name);
    }
    t->model = by__tokenizer_model_of(root);
    if (t->model == NULL && json_object_get(model, "type") == NULL) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: model has no \"type\", and nothing else tells it (\"merges\" of "
                            "BPE, a list as \"vocab\" of Unigram, \"max_input_chars_per_word\" of "
                            "WordPiece): add \"type\"",
                            name);
    }
    if (t->model == NULL) {
        return by__tokenizer_json_refuse(name, "model", model, error);
    }
    t->pipeline.splitter_count = 0;
    t->characters = t->model == &by__tokenizer_character_model;
    t->byte_level = t->model == &by__tokenizer_bpe_model &&
                    by__tokenizer_pipeline_is_byte_level(json_object_get(root, "pre_tokenizer"));
    return BY_OK;
}

/* The id of a token of the model by its name in the file; -1: it has none. A vocabulary that is a
 * list (Unigram) has been indexed. */
static json_int_t held_id(const by_tokenizer *t, const json_t *vocab, const char *content)
{
    if (json_is_array(vocab)) {
        uint32_t id = by__tokenizer_find(t, (const uint8_t *)content, strlen(content));
        return id != BY__NO_TOKEN ? (json_int_t)id : -1;
    }
    const json_t *id = json_object_get(vocab, content);
    return id != NULL ? json_integer_value(id) : -1;
}

static by_status read_added(by_tokenizer *t, const json_t *vocab, const json_t *item,
                            const char *name, by_error *error)
{
    const json_t *content = json_object_get(item, "content");
    const json_t *id = json_object_get(item, "id");
    if (!json_is_string(content) || json_string_length(content) == 0 || !json_is_integer(id) ||
        strlen(json_string_value(content)) != json_string_length(content)) {
        return by_error_set(error, BY_EFORMAT, "%s: an added token lacks its content or id", name);
    }
    by__tokenizer_added_token token = {.content = (char *)(uintptr_t)json_string_value(content),
                                       .length = json_string_length(content)};
    BY_TRY(by__tokenizer_json_bool(item, "single_word", false, &token.single_word, name, error));
    BY_TRY(by__tokenizer_json_bool(item, "lstrip", false, &token.lstrip, name, error));
    BY_TRY(by__tokenizer_json_bool(item, "rstrip", false, &token.rstrip, name, error));
    BY_TRY(by__tokenizer_json_bool(item, "special", false, &token.special, name, error));
    BY_TRY(by__tokenizer_json_bool(item, "normalized", !token.special, &token.normalized, name,
                                   error));
    /* As in Hugging Face's implementation: the model's id of the same text, else the next free
     * one. */
    json_int_t held = held_id(t, vocab, token.content);
    json_int_t expected = held >= 0 ? held : (json_int_t)t->vocab;
    if (json_integer_value(id) != expected) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s: added token \"%.60s\" has id %" PRId64 " where %" PRId64 " is its place", name,
            token.content, (int64_t)json_integer_value(id), (int64_t)expected);
    }
    token.id = held >= 0 ? (uint32_t)expected : BY__NO_TOKEN;
    return by__tokenizer_add_added(t, &token, error);
}

static by_status read_root(by_tokenizer **out, const json_t *root, const char *name,
                           by_error *error)
{
    by_tokenizer *t;
    const char *version = json_string_value(json_object_get(root, "version"));
    if (version == NULL || strcmp(version, "1.0") != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: version is not \"1.0\"", name);
    }
    BY_TRY(by__tokenizer_new(&t, false, error));
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    by_status status = find_kind(t, root, name, error);
    if (status == BY_OK) {
        status = t->model->read(t, model, name, error);
    }
    if (status == BY_OK && !by__tokenizer_json_absent(root, "added_tokens") &&
        !json_is_array(added)) {
        status = by_error_set(error, BY_EFORMAT, "%s: added_tokens is not a list", name);
    }
    for (size_t i = 0; status == BY_OK && i < json_array_size(added); i++) {
        status = read_added(t, vocab, json_array_get(added, i), name, error);
    }
    if (status == BY_OK) { /* after the added tokens, whose ids it may refer to */
        status = by__tokenizer_pipeline_read(t, root, name, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_finish(t, name, error);
    }
    if (status != BY_OK) {
        by_tokenizer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

by_status by_tokenizer_from_json(by_tokenizer **out, const char *text, size_t length,
                                 const char *name, by_error *error)
{
    json_t *root;
    BY_TRY(by__json_parse(&root, name, text, length, JSON_REJECT_DUPLICATES, error));
    by_status status = read_root(out, root, name, error);
    json_decref(root);
    return status;
}
