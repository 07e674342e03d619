#include "text/tokenizer/word_counts.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/split.h"

void by__tokenizer_word_counts_free(by__tokenizer_word_counts *counts)
{
    free(counts->words);
    free(counts->bytes);
    by__base_table_free(&counts->table);
    *counts = (by__tokenizer_word_counts){0};
}

static by_status add_word(by__tokenizer_word_counts *c, const char *data, size_t length,
                          uint64_t hash, uint64_t count, by_error *error)
{
    for (by__base_probe p = by__base_probe_begin(&c->table, hash);
         by__base_probe_next(&c->table, &p);) {
        by__tokenizer_word *word = &c->words[p.number];
        if (word->hash == hash && word->length == length &&
            memcmp(c->bytes + word->start, data, length) == 0) {
            word->count += count;
            return BY_OK;
        }
    }
    size_t end;
    if (!by__size_add(c->used, length, &end)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: words");
    }
    BY_TRY(by__reserve((void **)&c->bytes, &c->bytes_capacity, end, 1, error));
    BY_TRY(by__reserve((void **)&c->words, &c->capacity, c->count + 1, sizeof *c->words, error));
    BY_TRY(by__base_table_add(&c->table, hash, c->count, "words", error));
    memcpy(c->bytes + c->used, data, length);
    c->words[c->count++] = (by__tokenizer_word){c->used, length, hash, count};
    c->used = end;
    return BY_OK;
}

by_status by__tokenizer_word_counts_add(by__tokenizer_word_counts *counts, const char *text,
                                        size_t length, by_error *error)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t at = 0; at < length;) {
        size_t n = by__tokenizer_split_next(s + at, length - at);
        BY_TRY(add_word(counts, text + at, n, by__hash64(text + at, n), 1, error));
        at += n;
    }
    return BY_OK;
}

by_status by__tokenizer_word_counts_merge(by__tokenizer_word_counts *counts,
                                          const by__tokenizer_word_counts *other, by_error *error)
{
    for (size_t w = 0; w < other->count; w++) {
        const by__tokenizer_word *word = &other->words[w];
        BY_TRY(add_word(counts, other->bytes + word->start, word->length, word->hash, word->count,
                        error));
    }
    return BY_OK;
}
