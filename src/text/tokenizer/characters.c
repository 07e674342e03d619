/* A character vocabulary: every code point of the texts, in order. */
#include <inttypes.h>
#include <stdlib.h>

#include "text/tokenizer/characters.h"
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
