/* A character vocabulary: every code point of the texts, in order. */
#include <inttypes.h>
#include <stdlib.h>

#include "text/tokenizer/characters.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pipeline_json.h"
#include "text/unicode/unicode.h"

by_status by__tokenizer_characters_add(by__tokenizer_characters *set, const char *text,
                                       size_t length, const char *name, by_error *error)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t at = 0; at < length;) {
        uint32_t code;
        size_t n = by__utf8_next(s + at, length - at, &code);
        if (code == BY__INVALID || code == 0) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: byte 0x%02x at offset %zu is not text, so it cannot be in a "
                                "character vocabulary; use a byte-level BPE",
                                name, s[at], at);
        }
        set->seen[code >> 6] |= (uint64_t)1 << (code & 63);
        at += n;
    }
    return BY_OK;
}

void by__tokenizer_characters_merge(by__tokenizer_characters *set,
                                    const by__tokenizer_characters *other)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(set->seen); i++) {
        set->seen[i] |= other->seen[i];
    }
}

by_status by__tokenizer_characters_finish(by_tokenizer **out, const by__tokenizer_characters *set,
                                          by_error *error)
{
    by_tokenizer *t;
    BY_TRY(by__tokenizer_new(&t, true, error));
    by_status status = BY_OK;
    for (uint32_t code = 0; code < 0x110000 && status == BY_OK; code++) {
        if ((set->seen[code >> 6] >> (code & 63) & 1) != 0) {
            uint8_t utf8[4];
            size_t n = by__utf8_put(utf8, code);
            status = by__tokenizer_add_token(t, (const char *)utf8, n, true, error);
        }
    }
    if (status == BY_OK) {
        status = by__tokenizer_finish(t, "characters of the text", error);
    }
    if (status != BY_OK) {
        by_tokenizer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

by_status by_tokenizer_char(by_tokenizer **out, const by_text *texts, size_t count, by_error *error)
{
    by__tokenizer_characters *set;
    BY_TRY(by__alloc((void **)&set, 1, sizeof *set, "characters", error));
    by_status status = BY_OK;
    for (size_t i = 0; i < count && status == BY_OK; i++) {
        char name[40];
        (void)snprintf(name, sizeof name, "text %zu", i);
        status = by__tokenizer_characters_add(set, texts[i].data, texts[i].length, name, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_characters_finish(out, set, error);
    }
    free(set);
    return status;
}

by_status by__tokenizer_unknown_character(const by_tokenizer *t, const uint8_t *s, size_t n,
                                          uint32_t code, size_t offset, by_error *error)
{
    if (code == BY__INVALID) {
        return by_error_set(error, BY_EFORMAT,
                            "byte 0x%02x at offset %zu is not valid UTF-8, which a character "
                            "tokenizer needs; use a byte-level BPE",
                            s[0], offset);
    }
    return by_error_set(error, BY_EFORMAT,
                        "character U+%04" PRIX32 " '%.*s' at offset %zu is not in the character "
                        "vocabulary of %" PRIu32,
                        code, code < 0x20 ? 0 : (int)n, (const char *)s, offset, t->model_vocab);
}

by_status by__tokenizer_encode_characters(const by_tokenizer *t, const uint8_t *text, size_t begin,
                                          size_t end, by_token_buffer *out, by_error *error)
{
    BY_TRY(by__tokenizer_reserve_ids(out, end - begin, error));
    for (size_t at = begin; at < end;) {
        uint32_t code;
        size_t n = by__utf8_next(text + at, end - at, &code);
        uint32_t id = n == 1 ? t->byte_ids[text[at]] : by__tokenizer_find(t, text + at, n);
        if (id == BY__NO_TOKEN) {
            return by__tokenizer_unknown_character(t, text + at, n, code, at, error);
        }
        out->ids[out->count++] = id;
        at += n;
    }
    return BY_OK;
}

/* A BPE without merges, and without anything before it. */
static bool takes(const json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    return by__tokenizer_json_absent(root, "pre_tokenizer") &&
           by__tokenizer_json_absent(root, "normalizer") &&
           json_array_size(json_object_get(model, "merges")) == 0 &&
           !json_is_true(json_object_get(model, "byte_fallback")) &&
           by__tokenizer_json_absent(model, "unk_token");
}

const by__tokenizer_model by__tokenizer_character_model = {.type = "BPE",
                                                           .takes = takes,
                                                           .read = by__tokenizer_bpe_read,
                                                           .finish = by__tokenizer_bpe_finish,
                                                           .write = by__tokenizer_bpe_write};
