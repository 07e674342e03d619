#include "text/tokenizer/word_counts.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/split.h"

void by__word_counts_free(by__word_counts *counts)
{
    free(counts->words);
    free(counts->bytes);
    free(counts->slots);
    *counts = (by__word_counts){0};
}

/* Doubles the slots when they are half full. */
static by_status grow(by__word_counts *c, by_error *error)
{
    if (c->slot_count > 2 * c->count) {
        return BY_OK;
    }
    uint32_t *slots;
    size_t size = c->slot_count == 0 ? 4096 : c->slot_count * 2;
    if (c->count >= UINT32_MAX / 2) {
        return by_error_set(error, BY_EMEMORY, "more than 2^31 different words");
    }
    BY_TRY(by__alloc((void **)&slots, size, sizeof *slots, "word table", error));
    for (size_t w = 0; w < c->count; w++) {
        size_t i = (size_t)c->words[w].hash & (size - 1);
        while (slots[i] != 0) {
            i = (i + 1) & (size - 1);
        }
        slots[i] = (uint32_t)(w + 1);
    }
    free(c->slots);
    c->slots = slots;
    c->slot_count = size;
    return BY_OK;
}

static by_status add_word(by__word_counts *c, const char *data, size_t length, uint64_t hash,
                          uint64_t count, by_error *error)
{
    BY_TRY(grow(c, error));
    size_t i = (size_t)hash & (c->slot_count - 1);
    for (; c->slots[i] != 0; i = (i + 1) & (c->slot_count - 1)) {
        by__word *word = &c->words[c->slots[i] - 1];
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
    memcpy(c->bytes + c->used, data, length);
    c->words[c->count++] = (by__word){c->used, length, hash, count};
    c->used = end;
    c->slots[i] = (uint32_t)c->count;
    return BY_OK;
}

by_status by__word_counts_add(by__word_counts *counts, const char *text, size_t length,
                              by_error *error)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t at = 0; at < length;) {
        size_t n = by__split_next(s + at, length - at);
        BY_TRY(add_word(counts, text + at, n, by__hash64(text + at, n), 1, error));
        at += n;
    }
    return BY_OK;
}

by_status by__word_counts_merge(by__word_counts *counts, const by__word_counts *other,
                                by_error *error)
{
    for (size_t w = 0; w < other->count; w++) {
        const by__word *word = &other->words[w];
        BY_TRY(add_word(counts, other->bytes + word->start, word->length, word->hash, word->count,
                        error));
    }
    return BY_OK;
}
