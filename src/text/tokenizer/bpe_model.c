/* BPE, over bytes or over characters with byte fallback: the symbols of a piece, merged
 * (bpe_merge.c). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/characters.h"
#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pipeline_json.h"
#include "text/unicode/unicode.h"

/* ---- files ---- */

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

by_status by__tokenizer_bpe_read(by_tokenizer *t, const json_t *model, const char *name,
                                 by_error *error)
{
    BY_TRY(by__tokenizer_json_bool(model, "byte_fallback", false, &t->byte_fallback, name, error));
    BY_TRY(by__tokenizer_json_bool(model, "fuse_unk", false, &t->fuse_unk, name, error));
    BY_TRY(by__tokenizer_json_bool(model, "ignore_merges", false, &t->ignore_merges, name, error));
    BY_TRY(check_model(model, name, error));
    BY_TRY(by__tokenizer_vocab_from_json(t, json_object_get(model, "vocab"), name, error));
    BY_TRY(read_merges(t, model, name, error));
    return read_unk(t, model, name, error);
}

void by__tokenizer_bpe_write(const by_tokenizer *t, by_string *text)
{
    by__string_append(text, "{\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                            "    \"unk_token\": ");
    if (t->unk == BY__NO_TOKEN) {
        by__string_append(text, "null");
    } else {
        by__tokenizer_write_name(text, t, t->unk);
    }
    by_string_format(text,
                     ",\n    \"continuing_subword_prefix\": null,\n"
                     "    \"end_of_word_suffix\": null,\n    \"fuse_unk\": %s,\n"
                     "    \"byte_fallback\": %s,\n    \"ignore_merges\": %s,\n    \"vocab\": ",
                     t->fuse_unk ? "true" : "false", t->byte_fallback ? "true" : "false",
                     t->ignore_merges ? "true" : "false");
    by__tokenizer_write_vocabulary(text, t);
    by__string_append(text, ",\n    \"merges\": [");
    for (size_t i = 0; i < t->merge_count; i++) {
        by__string_append(text, i == 0 ? "\n      [" : ",\n      [");
        by__tokenizer_write_name(text, t, t->merges[i].left);
        by__string_append(text, ", ");
        by__tokenizer_write_name(text, t, t->merges[i].right);
        by__string_append(text, "]");
    }
    by__string_append(text, t->merge_count > 0 ? "\n    ]\n  }" : "]\n  }");
}

/* ---- tables ---- */

/* The later of two merges of a pair counts, as in Hugging Face's map. */
static by_status build_pairs(by_tokenizer *t, by_error *error)
{
    size_t size = by__tokenizer_table_size(t->merge_count);
    BY_TRY(by__alloc((void **)&t->pairs, size, sizeof *t->pairs, "merge table", error));
    memset(t->pairs, 0xff, size * sizeof *t->pairs);
    t->pair_mask = size - 1;
    t->pair_shift = 64 - (unsigned)__builtin_ctzll(size);
    for (size_t rank = 0; rank < t->merge_count; rank++) {
        const by__tokenizer_merge *merge = &t->merges[rank];
        uint64_t key = (uint64_t)merge->left << 32 | merge->right;
        size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> t->pair_shift);
        while (t->pairs[i].rank != BY__NO_TOKEN &&
               (t->pairs[i].left != merge->left || t->pairs[i].right != merge->right)) {
            i = (i + 1) & t->pair_mask;
        }
        t->pairs[i] = (by__tokenizer_pair_slot){merge->left, merge->right, (uint32_t)rank};
    }
    return BY_OK;
}

/* If no merge makes a token with the mark U+2581 after another character, a text can be split
 * before each run of marks: no merge crosses the split, and words are found in the cache. */
static void find_words(by_tokenizer *t)
{
    static const by__tokenizer_splitter words = {
        .kind = BY__SPLIT_WORDS, .literal = "\xe2\x96\x81", .literal_length = 3};
    by__tokenizer_pipeline *p = &t->pipeline;
    if (t->byte_level || t->characters || t->ignore_merges ||
        p->splitter_count == BY__MAX_SPLITTERS ||
        by__tokenizer_find(t, words.literal, 3) == BY__NO_TOKEN) {
        return;
    }
    for (size_t i = 0; i < t->merge_count; i++) {
        uint32_t id = t->merges[i].id;
        const uint8_t *s = (const uint8_t *)t->bytes + t->offsets[id];
        size_t n = t->offsets[id + 1] - t->offsets[id];
        if (n > 0 && by__tokenizer_splitter_next(&words, s, n) < n) {
            return;
        }
    }
    p->splitters[p->splitter_count++] = words;
}

by_status by__tokenizer_bpe_finish(by_tokenizer *t, const char *name, by_error *error)
{
    BY_TRY(build_pairs(t, error));
    if (t->byte_level && t->all_bytes) { /* none of these ever has an effect */
        t->unk = BY__NO_TOKEN;
        t->byte_fallback = t->fuse_unk = false;
    } else if (t->byte_level && t->byte_fallback) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: byte_fallback of a byte-level vocabulary that lacks bytes is not "
                            "supported",
                            name);
    }
    find_words(t);
    return BY_OK;
}

/* ---- encoding ---- */

/* Symbols found so far; an unknown one is held back because following ones may be fused with it. */
typedef struct symbols {
    const by_tokenizer *tokenizer;
    uint32_t *ids;
    size_t count;
    bool unknown;
} symbols;

static void end_unknown(symbols *to)
{
    if (to->unknown) {
        to->ids[to->count++] = to->tokenizer->unk;
        to->unknown = false;
    }
}

/* Adds the bytes of a character as tokens; returns false if the vocabulary lacks one. They come
 * before a held-back unknown symbol, as in Hugging Face's implementation. */
static bool add_fallback(symbols *to, const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (to->tokenizer->fallback_ids[s[i]] == BY__NO_TOKEN) {
            return false;
        }
    }
    for (size_t i = 0; i < n; i++) {
        to->ids[to->count++] = to->tokenizer->fallback_ids[s[i]];
    }
    return true;
}

/* Finds the symbols of a piece of n bytes, at most n. */
static by_status find_symbols(const by_tokenizer *t, const uint8_t *s, size_t n, uint32_t *ids,
                              size_t *count, by_error *error)
{
    symbols to = {.tokenizer = t, .ids = ids};
    if (t->byte_level && t->all_bytes) {
        for (size_t i = 0; i < n; i++) {
            ids[i] = t->byte_ids[s[i]];
        }
        *count = n;
        return BY_OK;
    }
    for (size_t at = 0; at < n;) {
        uint32_t code = s[at];
        size_t length = t->byte_level ? 1 : by__utf8_next(s + at, n - at, &code);
        uint32_t id = length == 1 ? t->byte_ids[s[at]] : by__tokenizer_find(t, s + at, length);
        if (id != BY__NO_TOKEN) {
            end_unknown(&to);
            ids[to.count++] = id;
        } else if (!add_fallback(&to, s + at, length)) {
            if (t->unk == BY__NO_TOKEN) {
                return t->byte_level
                           ? by_error_set(error, BY_EFORMAT,
                                          "byte 0x%02x is not in the vocabulary, which lacks an "
                                          "unknown token, so it would be lost",
                                          s[at])
                           : by__tokenizer_unknown_character(t, s + at, length, code, at, error);
            }
            if (!t->fuse_unk) {
                end_unknown(&to);
            }
            to.unknown = true;
        }
        at += length;
    }
    end_unknown(&to);
    *count = to.count;
    return BY_OK;
}

static by_status encode(by_encoder *e, const uint8_t *s, size_t n, uint32_t *ids, size_t *count,
                        by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    uint32_t whole = t->ignore_merges ? by__tokenizer_find(t, s, n) : BY__NO_TOKEN;
    if (whole != BY__NO_TOKEN) {
        ids[0] = whole;
        *count = 1;
        return BY_OK;
    }
    BY_TRY(find_symbols(t, s, n, ids, count, error));
    if (*count > BY__SHORT_PIECE) {
        return by__tokenizer_merge_long(e, ids, count, error);
    }
    *count = by__tokenizer_merge_short(t, ids, *count);
    return BY_OK;
}

const by__tokenizer_model by__tokenizer_bpe_model = {.type = "BPE",
                                                     .read = by__tokenizer_bpe_read,
                                                     .finish = by__tokenizer_bpe_finish,
                                                     .encode = encode,
                                                     .write = by__tokenizer_bpe_write};
