/* Collects the set of characters in texts; one set per thread. */
#ifndef BY_TEXT_TOKENIZER_CHARACTERS_H
#define BY_TEXT_TOKENIZER_CHARACTERS_H

#include "text/tokenizer/vocabulary.h"

/* One bit per code point. Zeroed is empty. */
typedef struct by__tokenizer_characters {
    uint64_t seen[0x110000 / 64];
} by__tokenizer_characters;

/* Adds the characters of a text; `name` is used in messages. */
by_status by__tokenizer_characters_add(by__tokenizer_characters *set, const char *text,
                                       size_t length, const char *name, by_error *error);
void by__tokenizer_characters_merge(by__tokenizer_characters *set,
                                    const by__tokenizer_characters *other);
/* Makes a tokenizer with these characters. */
by_status by__tokenizer_characters_finish(by_tokenizer **out, const by__tokenizer_characters *set,
                                          by_error *error);
/* Encodes text[begin, end), a character an id. */
by_status by__tokenizer_encode_characters(const by_tokenizer *tokenizer, const uint8_t *text,
                                          size_t begin, size_t end, by_token_buffer *out,
                                          by_error *error);
/* BY_EFORMAT: the character of n bytes at s, at an offset in the text, is not in the vocabulary. */
by_status by__tokenizer_unknown_character(const by_tokenizer *tokenizer, const uint8_t *s, size_t n,
                                          uint32_t code, size_t offset, by_error *error);

#endif
