#include "text/tokenizer/json_parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text/unicode/unicode.h"

/* Replaces byte-level letters by their bytes; returns false if a character is not a letter. jansson
 * has checked that the text is valid UTF-8. */
static bool letters_to_bytes(const char *text, char *out, size_t *length)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t n = strlen(text);
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        uint32_t code;
        at += by__utf8_next(s + at, n - at, &code);
        int byte = code == BY__INVALID ? -1 : by__text_letter_byte(code);
        if (byte < 0) {
            return false;
        }
        out[used++] = (char)byte;
    }
    *length = used;
    return true;
}

static by_status add_token(by_tokenizer *t, const char *key, const char *name, by_error *error)
{
    uint32_t code;
    size_t n = strlen(key);
    if (t->characters) {
        if (n == 0 || by__utf8_next((const uint8_t *)key, n, &code) != n) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: token \"%.60s\" is not one character; without a pre-tokenizer "
                                "only characters are supported",
                                name, key);
        }
        return by__tokenizer_add_token(t, key, n, true, error);
    }
    if (!t->byte_level) {
        return by__tokenizer_add_token(t, key, n, true, error);
    }
    char *bytes = malloc(n + 1);
    if (bytes == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: token of %zu bytes", n);
    }
    size_t length;
    bool letters = letters_to_bytes(key, bytes, &length);
    by_status status = letters ? by__tokenizer_add_token(t, bytes, length, false, error)
                               : by__tokenizer_add_token(t, key, n, true, error);
    free(bytes);
    return status;
}

by_status by__tokenizer_vocab_from_json(by_tokenizer *t, const json_t *vocab, const char *name,
                                        by_error *error)
{
    const char *key;
    json_t *value;
    const char **keys;
    size_t count = json_object_size(vocab);
    if (!json_is_object(vocab)) {
        return by_error_set(error, BY_EFORMAT, "%s: the vocabulary is not an object", name);
    }
    if (count > BY__MAX_TOKENS) {
        return by_error_set(error, BY_EFORMAT, "%s: %zu tokens are more than %zu", name, count,
                            BY__MAX_TOKENS);
    }
    BY_TRY(by__alloc((void **)&keys, count, sizeof *keys, "vocabulary", error));
    by_status status = BY_OK;
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || (uint64_t)id >= count) {
            status =
                by_error_set(error, BY_EFORMAT,
                             "%s: the id of token \"%.60s\" is not from 0 to %zu, the number of "
                             "tokens less one",
                             name, key, count - 1);
            break;
        }
        if (keys[id] != NULL) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: tokens \"%.60s\" and \"%.60s\" have the same id %" PRId64,
                                  name, keys[id], key, (int64_t)id);
            break;
        }
        keys[id] = key;
    }
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        status = add_token(t, keys[i], name, error);
    }
    free(keys);
    return status;
}

static by_status id_of(const json_t *vocab, const char *token, size_t number, const char *name,
                       uint32_t *out, by_error *error)
{
    const json_t *id = json_object_get(vocab, token);
    if (id == NULL) {
        return by_error_set(
            error, BY_EFORMAT,
            "%s: merge %zu needs the token \"%.60s\", which is not in the vocabulary", name, number,
            token);
    }
    *out = (uint32_t)json_integer_value(id); /* checked by by__tokenizer_vocab_from_json */
    return BY_OK;
}

by_status by__tokenizer_merge_from_names(by_tokenizer *t, const json_t *vocab, const char *left,
                                         const char *right, size_t number, const char *name,
                                         by_error *error)
{
    uint32_t ids[3] = {0};
    by_string joined = {0};
    char *whole;
    BY_TRY(id_of(vocab, left, number, name, &ids[0], error));
    BY_TRY(id_of(vocab, right, number, name, &ids[1], error));
    by__string_append(&joined, left);
    by__string_append(&joined, right);
    BY_TRY(by__string_release(&joined, &whole, error));
    by_status status = id_of(vocab, whole, number, name, &ids[2], error);
    free(whole);
    return status == BY_OK ? by__tokenizer_add_merge(t, ids[0], ids[1], ids[2], error) : status;
}
