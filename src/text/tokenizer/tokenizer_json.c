/* Hugging Face's tokenizer.json, read strictly.
 *
 * Three kinds are supported: byte-level BPE, BPE over characters as made by SentencePiece, and
 * character vocabularies as written by tokenizer_write.c (BPE without merges, no pre-tokenizer).
 * pipeline_json.c reads the parts other than the model. Unsupported features (other models and
 * patterns, dropout, ...) are refused by name, because ignoring them would give other ids.
 * Exceptions are "truncation" and "padding": they are settings of the last caller, and transformers
 * sets both for each call. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/pipeline_json.h"

/* Determines the kind of tokenizer of a file. */
static by_status find_kind(by_tokenizer *t, const json_t *root, const char *name, by_error *error)
{
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model)) {
        return by_error_set(error, BY_EFORMAT, "%s: model is missing", name);
    }
    /* Early versions omit the type. */
    if (json_object_get(model, "type") != NULL && !by__tokenizer_json_is_type(model, "BPE")) {
        return by__tokenizer_json_refuse(name, "model", model, error);
    }
    BY_TRY(by__tokenizer_json_bool(model, "byte_fallback", false, &t->byte_fallback, name, error));
    BY_TRY(by__tokenizer_json_bool(model, "fuse_unk", false, &t->fuse_unk, name, error));
    BY_TRY(by__tokenizer_json_bool(model, "ignore_merges", false, &t->ignore_merges, name, error));
    t->pipeline.splitter_count = 0;
    t->byte_level = by__tokenizer_pipeline_is_byte_level(json_object_get(root, "pre_tokenizer"));
    t->characters = by__tokenizer_json_absent(root, "pre_tokenizer") &&
                    by__tokenizer_json_absent(root, "normalizer") &&
                    json_array_size(json_object_get(model, "merges")) == 0 && !t->byte_fallback &&
                    by__tokenizer_json_absent(model, "unk_token");
    return BY_OK;
}

static by_status check_model(const json_t *model, const char *name, by_error *error)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    if (!by__tokenizer_json_absent(model, "dropout") &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0)) {
        return by__tokenizer_json_refuse(name, "model dropout", NULL, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(affixes); i++) {
        const char *affix = json_string_value(json_object_get(model, affixes[i]));
        if (!by__tokenizer_json_absent(model, affixes[i]) && (affix == NULL || affix[0] != '\0')) {
            return by__tokenizer_json_refuse(name, affixes[i], NULL, error);
        }
    }
    return BY_OK;
}

/* Reads the unknown token, which a byte-level vocabulary with all bytes never needs. */
static by_status read_unk(by_tokenizer *t, const json_t *model, const char *name, by_error *error)
{
    const json_t *unk = json_object_get(model, "unk_token");
    if (by__tokenizer_json_absent(model, "unk_token")) {
        return BY_OK;
    }
    const json_t *id = json_is_string(unk) ? json_object_get(json_object_get(model, "vocab"),
                                                             json_string_value(unk))
                                           : NULL;
    if (id == NULL && !t->byte_level) {
        return by_error_set(error, BY_EFORMAT, "%s: unk_token \"%.60s\" is not in the vocabulary",
                            name, json_is_string(unk) ? json_string_value(unk) : "");
    }
    t->unk = id == NULL ? BY__NO_TOKEN : (uint32_t)json_integer_value(id);
    return BY_OK;
}

/* A merge is "left right" or ["left", "right"]. */
static by_status read_merge(by_tokenizer *t, const json_t *vocab, const json_t *item, size_t number,
                            const char *name, by_error *error)
{
    if (json_is_array(item) && json_array_size(item) == 2 &&
        json_is_string(json_array_get(item, 0)) && json_is_string(json_array_get(item, 1))) {
        return by__tokenizer_merge_from_names(t, vocab, json_string_value(json_array_get(item, 0)),
                                              json_string_value(json_array_get(item, 1)), number,
                                              name, error);
    }
    const char *text = json_string_value(item);
    const char *space = text != NULL ? strchr(text, ' ') : NULL;
    if (space == NULL || strchr(space + 1, ' ') != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: merge %zu is not a pair of tokens", name,
                            number);
    }
    char *left = by__strndup(text, (size_t)(space - text));
    if (left == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: merge");
    }
    by_status status =
        by__tokenizer_merge_from_names(t, vocab, left, space + 1, number, name, error);
    free(left);
    return status;
}

static by_status read_merges(by_tokenizer *t, const json_t *model, const char *name,
                             by_error *error)
{
    const json_t *merges = json_object_get(model, "merges");
    if (!json_is_array(merges)) {
        return by_error_set(error, BY_EFORMAT, "%s: model merges is not a list", name);
    }
    for (size_t i = 0; i < json_array_size(merges); i++) {
        BY_TRY(read_merge(t, json_object_get(model, "vocab"), json_array_get(merges, i), i, name,
                          error));
    }
    return BY_OK;
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
    const json_t *held = json_object_get(vocab, token.content);
    json_int_t expected = held != NULL ? json_integer_value(held) : (json_int_t)t->vocab;
    if (json_integer_value(id) != expected) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s: added token \"%.60s\" has id %" PRId64 " where %" PRId64 " is its place", name,
            token.content, (int64_t)json_integer_value(id), (int64_t)expected);
    }
    token.id = held != NULL ? (uint32_t)expected : BY__NO_TOKEN;
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
        status = check_model(model, name, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_vocab_from_json(t, vocab, name, error);
    }
    if (status == BY_OK) {
        status = read_merges(t, model, name, error);
    }
    if (status == BY_OK) {
        status = read_unk(t, model, name, error);
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
