/* Collects the set of characters in texts; one set per thread. */
#ifndef BY_TEXT_TOKENIZER_CHARACTERS_H
#define BY_TEXT_TOKENIZER_CHARACTERS_H

#include "text/tokenizer/vocabulary.h"

/* One bit per code point. Zeroed is empty. */
typedef struct by__characters {
    uint64_t seen[0x110000 / 64];
} by__characters;

/* Adds the characters of a text; `name` is used in messages. */
by_status by__characters_add(by__characters *set, const char *text, size_t length, const char *name,
                             by_error *error);
void by__characters_merge(by__characters *set, const by__characters *other);
/* Makes a tokenizer with these characters. */
by_status by__characters_finish(by_tokenizer **out, const by__characters *set, by_error *error);

#endif
