#include "data/pack/duplicates.h"

#include <stdlib.h>
#include <string.h>

#define MINIMA     (BY__MINHASH_BANDS * BY__MINHASH_ROWS)
#define GRAM_WORDS 5
/* Odd constants of SplitMix64 and of MurmurHash3's finalizers. */
#define WORD_PRIME 0x9E3779B97F4A7C15u
#define MIX_64     0xBF58476D1CE4E5B9u
#define MIX_32_A   0x85EBCA6Bu
#define MIX_32_B   0xC2B2AE35u

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * MIX_64;
    return z ^ (z >> 31);
}

/* ---- signatures ---- */

/* Updates the minima, each over a pseudo-random order of 32-bit values: the value, combined with
 * the key of the order, goes through a bijection that mixes all bits. */
static void update_minima(uint32_t minima[MINIMA], uint32_t value)
{
    for (uint32_t i = 0; i < MINIMA; i++) {
        uint32_t z = value + (i + 1) * (uint32_t)WORD_PRIME;
        z = (z ^ (z >> 16)) * MIX_32_A;
        z = (z ^ (z >> 13)) * MIX_32_B;
        z ^= z >> 16;
        minima[i] = z < minima[i] ? z : minima[i];
    }
}

static bool is_word(unsigned char c)
{
    return c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Hashes the word at *at and advances past it; returns false if there is none. */
static bool next_word(const char *text, size_t length, size_t *at, uint64_t *word)
{
    uint64_t hash = WORD_PRIME;
    size_t i = *at;
    while (i < length && !is_word((unsigned char)text[i])) {
        i++;
    }
    size_t begin = i;
    for (; i < length && is_word((unsigned char)text[i]); i++) {
        unsigned char c = (unsigned char)text[i];
        c = c >= 'A' && c <= 'Z' ? (unsigned char)(c + ('a' - 'A')) : c;
        hash = (hash ^ c) * MIX_64;
        hash ^= hash >> 29;
    }
    *at = i;
    *word = hash;
    return i > begin;
}

void by__data_signature_make(by__data_pack_signature *out, const char *text, size_t length,
                             by_pack_dedup dedup)
{
    uint32_t minima[MINIMA];
    uint64_t words[GRAM_WORDS];
    uint64_t word;
    size_t count = 0;
    size_t at = 0;
    *out = (by__data_pack_signature){.exact = by__hash64(text, length)};
    if (dedup != BY_PACK_DEDUP_NEAR) {
        return;
    }
    memset(minima, 0xff, sizeof minima);
    while (next_word(text, length, &at, &word)) {
        words[count % GRAM_WORDS] = word;
        count++;
        if (count >= GRAM_WORDS) {
            uint64_t gram = 0;
            for (size_t i = 0; i < GRAM_WORDS; i++) {
                gram = mix((gram + words[(count + i) % GRAM_WORDS]) * WORD_PRIME);
            }
            update_minima(minima, (uint32_t)gram);
        }
    }
    out->has_bands = count >= GRAM_WORDS;
    for (uint64_t i = 0; i < BY__MINHASH_BANDS; i++) {
        out->bands[i] =
            mix(by__hash64(minima + i * BY__MINHASH_ROWS, BY__MINHASH_ROWS * sizeof *minima) +
                i * WORD_PRIME);
    }
}

/* ---- the set ---- */

/* Finds a key, or the place to put it. The set must have a free place. */
static uint64_t *find(const struct by__data_key_set *set, uint64_t key)
{
    size_t at = (size_t)(key & (set->capacity - 1));
    while (set->keys[at] != 0 && set->keys[at] != key) {
        at = (at + 1) & (set->capacity - 1);
    }
    return &set->keys[at];
}

/* Reserves room for `more` keys at a load of at most two thirds. */
static by_status reserve(struct by__data_key_set *set, size_t more, by_error *error)
{
    struct by__data_key_set larger = {.capacity = set->capacity == 0 ? 1024 : set->capacity,
                                      .count = set->count};
    while ((set->count + more) * 3 > larger.capacity * 2) {
        if (!by__size_mul(larger.capacity, 2, &larger.capacity)) {
            return by_error_set(error, BY_EMEMORY, "size overflow: a set of documents");
        }
    }
    if (larger.capacity == set->capacity) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&larger.keys, larger.capacity, sizeof *larger.keys,
                     "the documents that were seen", error));
    for (size_t i = 0; i < set->capacity; i++) {
        if (set->keys[i] != 0) {
            *find(&larger, set->keys[i]) = set->keys[i];
        }
    }
    free(set->keys);
    *set = larger;
    return BY_OK;
}

static bool has(const struct by__data_key_set *set, uint64_t key)
{
    return set->capacity > 0 && *find(set, key) != 0;
}

static void put(struct by__data_key_set *set, uint64_t key)
{
    uint64_t *at = find(set, key);
    set->count += *at == 0;
    *at = key;
}

/* 0 marks a free place. */
static uint64_t key_of(uint64_t hash)
{
    return hash == 0 ? 1 : hash;
}

by_status by__data_duplicates_add(by__data_duplicates *set,
                                  const by__data_pack_signature *signature, by_pack_dedup *out,
                                  by_error *error)
{
    BY_TRY(reserve(&set->exact, 1, error));
    *out = BY_PACK_DEDUP_NONE;
    if (has(&set->exact, key_of(signature->exact))) {
        *out = BY_PACK_DEDUP_EXACT;
        return BY_OK;
    }
    if (signature->has_bands) {
        BY_TRY(reserve(&set->bands, BY__MINHASH_BANDS, error));
        for (size_t i = 0; i < BY__MINHASH_BANDS; i++) {
            if (has(&set->bands, key_of(signature->bands[i]))) {
                *out = BY_PACK_DEDUP_NEAR;
                return BY_OK;
            }
        }
        for (size_t i = 0; i < BY__MINHASH_BANDS; i++) {
            put(&set->bands, key_of(signature->bands[i]));
        }
    }
    put(&set->exact, key_of(signature->exact));
    return BY_OK;
}

void by__data_duplicates_free(by__data_duplicates *set)
{
    free(set->exact.keys);
    free(set->bands.keys);
    *set = (by__data_duplicates){0};
}
