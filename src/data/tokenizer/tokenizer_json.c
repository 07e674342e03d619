/* Hugging Face's tokenizer.json, read strictly.
 *
 * Two forms are taken: byte-level BPE with GPT-2's pattern, and the character form that
 * tokenizer_write.c makes (BPE without merges, no pre-tokenizer). Whatever else a file asks for
 * (normalizers, other patterns, templates, dropout, ...) is refused by name, because ignoring it
 * would give other ids. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/json_parts.h"

static by_status unsupported(const char *name, const char *what, const json_t *value,
                             by_error *error)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    return by_error_set(error, BY_EFORMAT,
                        "%s: %s%s%.60s is not supported; supported are byte-level BPE with GPT-2's "
                        "pre-tokenisation and characters",
                        name, what, type != NULL ? " " : "", type != NULL ? type : "");
}

static bool is_null(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value == NULL || json_is_null(value);
}

static bool is_type(const json_t *value, const char *type)
{
    const char *held = json_string_value(json_object_get(value, "type"));
    return held != NULL && strcmp(held, type) == 0;
}

/* A boolean with a default for an absent key; BY_EFORMAT when it is something else. */
static by_status get_bool(const json_t *object, const char *key, bool missing, bool *out,
                          const char *name, by_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (value != NULL && !json_is_boolean(value)) {
        return by_error_set(error, BY_EFORMAT, "%s: %s is not true or false", name, key);
    }
    *out = value == NULL ? missing : json_is_true(value);
    return BY_OK;
}

/* The parts around the model. Says whether it is a character tokenizer. */
static by_status check_pipeline(const json_t *root, const char *name, bool *characters,
                                by_error *error)
{
    static const char *const absent[] = {"truncation", "padding", "normalizer"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(absent); i++) {
        if (!is_null(root, absent[i])) {
            return unsupported(name, absent[i], json_object_get(root, absent[i]), error);
        }
    }
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *post = json_object_get(root, "post_processor");
    const json_t *decoder = json_object_get(root, "decoder");
    *characters = is_null(root, "pre_tokenizer");
    if (!*characters) {
        bool prefix = false;
        bool pattern = true;
        if (!is_type(pre, "ByteLevel")) {
            return unsupported(name, "pre_tokenizer", pre, error);
        }
        BY_TRY(get_bool(pre, "add_prefix_space", true, &prefix, name, error));
        BY_TRY(get_bool(pre, "use_regex", true, &pattern, name, error));
        if (prefix) {
            return unsupported(name, "pre_tokenizer add_prefix_space", NULL, error);
        }
        if (!pattern) {
            return unsupported(name, "pre_tokenizer use_regex: false", NULL, error);
        }
    }
    /* As a post-processor ByteLevel moves offsets only. */
    if (!is_null(root, "post_processor") && !is_type(post, "ByteLevel")) {
        return unsupported(name, "post_processor", post, error);
    }
    if (!is_type(decoder, *characters ? "Fuse" : "ByteLevel")) {
        return unsupported(name, "decoder", decoder, error);
    }
    return BY_OK;
}

static by_status check_model(const json_t *model, const char *name, by_tokenizer *t,
                             by_error *error)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    if (!json_is_object(model)) {
        return by_error_set(error, BY_EFORMAT, "%s: model is missing", name);
    }
    /* Files of early versions leave the type out. */
    if (json_object_get(model, "type") != NULL && !is_type(model, "BPE")) {
        return unsupported(name, "model", model, error);
    }
    const json_t *dropout = json_object_get(model, "dropout");
    if (!is_null(model, "dropout") &&
        !(json_is_number(dropout) && json_number_value(dropout) == 0)) {
        return unsupported(name, "model dropout", NULL, error);
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(affixes); i++) {
        const char *affix = json_string_value(json_object_get(model, affixes[i]));
        if (!is_null(model, affixes[i]) && (affix == NULL || affix[0] != '\0')) {
            return unsupported(name, affixes[i], NULL, error);
        }
    }
    /* A byte-level vocabulary has all bytes, so that these never come into play there. */
    if (t->characters && !is_null(model, "unk_token")) {
        return unsupported(name, "unk_token of a character vocabulary", NULL, error);
    }
    bool fallback = false;
    BY_TRY(get_bool(model, "byte_fallback", false, &fallback, name, error));
    if (t->characters && fallback) {
        return unsupported(name, "byte_fallback", NULL, error);
    }
    return get_bool(model, "ignore_merges", false, &t->ignore_merges, name, error);
}

/* A merge is "left right" or ["left", "right"]. */
static by_status read_merge(by_tokenizer *t, const json_t *vocab, const json_t *item, size_t number,
                            const char *name, by_error *error)
{
    if (json_is_array(item) && json_array_size(item) == 2 &&
        json_is_string(json_array_get(item, 0)) && json_is_string(json_array_get(item, 1))) {
        return by__merge_from_names(t, vocab, json_string_value(json_array_get(item, 0)),
                                    json_string_value(json_array_get(item, 1)), number, name,
                                    error);
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
    by_status status = by__merge_from_names(t, vocab, left, space + 1, number, name, error);
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
    if (t->characters && json_array_size(merges) > 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: merges without a pre-tokenizer are not supported", name);
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
    by__added_token token = {.content = (char *)(uintptr_t)json_string_value(content),
                             .length = json_string_length(content)};
    BY_TRY(get_bool(item, "single_word", false, &token.single_word, name, error));
    BY_TRY(get_bool(item, "lstrip", false, &token.lstrip, name, error));
    BY_TRY(get_bool(item, "rstrip", false, &token.rstrip, name, error));
    BY_TRY(get_bool(item, "special", false, &token.special, name, error));
    BY_TRY(get_bool(item, "normalized", !token.special, &token.normalized, name, error));
    /* Hugging Face takes the model's id of the same text, else the next free one. */
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
    bool characters = false;
    by_tokenizer *t;
    const char *version = json_string_value(json_object_get(root, "version"));
    if (version == NULL || strcmp(version, "1.0") != 0) {
        return by_error_set(error, BY_EFORMAT, "%s: version is not \"1.0\"", name);
    }
    BY_TRY(check_pipeline(root, name, &characters, error));
    BY_TRY(by__tokenizer_new(&t, characters, error));
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(root, "added_tokens");
    by_status status = check_model(model, name, t, error);
    if (status == BY_OK) {
        status = by__vocab_from_json(t, vocab, name, error);
    }
    if (status == BY_OK) {
        status = read_merges(t, model, name, error);
    }
    if (status == BY_OK && !is_null(root, "added_tokens") && !json_is_array(added)) {
        status = by_error_set(error, BY_EFORMAT, "%s: added_tokens is not a list", name);
    }
    for (size_t i = 0; status == BY_OK && i < json_array_size(added); i++) {
        status = read_added(t, vocab, json_array_get(added, i), name, error);
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
    json_error_t problem;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s:%d: %s", name, problem.line, problem.text);
    }
    by_status status = read_root(out, root, name, error);
    json_decref(root);
    return status;
}
