/* Unigram (Kudo 2018), as SentencePiece makes it: of all ways to write a piece as tokens, the one
 * of the largest sum of log probabilities, found by Viterbi's algorithm. A character without a
 * token costs more than any token; a run of them is one unknown token, or the tokens <0x..> of its
 * bytes. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/characters.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pipeline_json.h"
#include "text/tokenizer/trie.h"
#include "text/unicode/unicode.h"

#define UNKNOWN_PENALTY 10.0 /* below the least of all scores */

typedef struct unigram {
    double *scores; /* [model_vocab] */
    double unknown;
    by__tokenizer_trie trie;
} unigram;

/* The best way to write a text up to a place. */
struct by__tokenizer_best {
    double score;
    uint32_t start; /* of its last token; BY__NO_TOKEN: there is no way yet */
    uint32_t id;
};

static void free_state(void *state)
{
    unigram *u = state;
    free(u->scores);
    by__tokenizer_trie_free(&u->trie);
    free(u);
}

static by_status read_token(by_tokenizer *t, const json_t *item, size_t number, const char *name,
                            by_error *error)
{
    const json_t *token = json_array_get(item, 0);
    const json_t *score = json_array_get(item, 1);
    if (json_array_size(item) != 2 || !json_is_string(token) || !by__json_is_number(score) ||
        !isfinite(by__json_double(score)) ||
        strlen(json_string_value(token)) != json_string_length(token)) {
        return by_error_set(error, BY_EFORMAT, "%s: token %zu is not a text with its score", name,
                            number);
    }
    ((unigram *)t->model_state)->scores[number] = by__json_double(score);
    return by__tokenizer_add_token(t, json_string_value(token), json_string_length(token), true,
                                   error);
}

static by_status read(by_tokenizer *t, const json_t *model, const char *name, by_error *error)
{
    unigram *u;
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *unk = json_object_get(model, "unk_id");
    size_t count = json_array_size(vocab);
    BY_TRY(by__alloc((void **)&u, 1, sizeof *u, "Unigram", error));
    t->model_state = u;
    BY_TRY(by__tokenizer_json_bool(model, "byte_fallback", false, &t->byte_fallback, name, error));
    if (!json_is_array(vocab) || count == 0 || count > BY__MAX_TOKENS) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the vocabulary is not a list of 1 to %zu tokens", name,
                            BY__MAX_TOKENS);
    }
    if (!by__tokenizer_json_absent(model, "unk_id")) {
        json_int_t id = json_is_integer(unk) ? json_integer_value(unk) : -1;
        if (id < 0 || (uint64_t)id >= count) {
            return by_error_set(error, BY_EFORMAT, "%s: unk_id is not a token from 0 to %zu", name,
                                count - 1);
        }
        t->unk = (uint32_t)id;
    }
    BY_TRY(by__alloc((void **)&u->scores, count, sizeof *u->scores, "Unigram", error));
    for (size_t i = 0; i < count; i++) {
        BY_TRY(read_token(t, json_array_get(vocab, i), i, name, error));
    }
    return by__tokenizer_index(t, name, error);
}

static by_status finish(by_tokenizer *t, const char *name, by_error *error)
{
    BY_UNUSED(name);
    unigram *u = t->model_state;
    by__tokenizer_trie_key *keys;
    BY_TRY(by__alloc((void **)&keys, t->model_vocab, sizeof *keys, "Unigram", error));
    u->unknown = u->scores[0];
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        keys[id] = (by__tokenizer_trie_key){(const uint8_t *)t->bytes + t->offsets[id],
                                            t->offsets[id + 1] - t->offsets[id], id};
        u->unknown = u->scores[id] < u->unknown ? u->scores[id] : u->unknown;
    }
    u->unknown -= UNKNOWN_PENALTY;
    by_status status = by__tokenizer_trie_make(&u->trie, keys, t->model_vocab, error);
    free(keys);
    return status;
}

static inline void improve(by__tokenizer_best *best, double score, size_t start, uint32_t id)
{
    if (best->start == BY__NO_TOKEN || score > best->score) {
        *best = (by__tokenizer_best){score, (uint32_t)start, id};
    }
}

/* Finds the best way to each place; best[] has n + 1 elements. */
static by_status find_best(const by_tokenizer *t, const uint8_t *s, size_t n,
                           by__tokenizer_best *best, by_error *error)
{
    const unigram *u = t->model_state;
    for (size_t i = 0; i <= n; i++) {
        best[i] = (by__tokenizer_best){0, BY__NO_TOKEN, BY__NO_TOKEN};
    }
    for (size_t at = 0; at < n;) {
        uint32_t code = s[at];
        size_t length = code < 0x80 ? 1 : by__utf8_next(s + at, n - at, &code);
        double so_far = best[at].score;
        bool known = false;
        uint32_t node = 0;
        for (size_t i = at; i < n && by__trie_step(&u->trie, &node, s[i]); i++) {
            uint32_t id = u->trie.nodes[node].value;
            if (id != BY__TRIE_NONE) {
                improve(&best[i + 1], u->scores[id] + so_far, at, id);
                known = known || i + 1 == at + length;
            }
        }
        if (!known) {
            if (t->unk == BY__NO_TOKEN) {
                return by__tokenizer_unknown_character(t, s + at, length, code, at, error);
            }
            improve(&best[at + length], u->unknown + so_far, at, t->unk);
        }
        at += length;
    }
    return BY_OK;
}

/* Writes the ids of a run of unknown characters so that they end at `end`; returns their begin. */
static uint32_t *put_unknown(const by_tokenizer *t, const uint8_t *s, size_t n, uint32_t *end)
{
    uint32_t whole = by__tokenizer_find(t, s, n);
    bool bytes = whole == BY__NO_TOKEN && t->byte_fallback;
    for (size_t i = 0; bytes && i < n; i++) {
        bytes = t->fallback_ids[s[i]] != BY__NO_TOKEN;
    }
    if (!bytes) {
        *--end = whole != BY__NO_TOKEN ? whole : t->unk;
        return end;
    }
    for (size_t i = n; i-- > 0;) {
        *--end = t->fallback_ids[s[i]];
    }
    return end;
}

static by_status encode(by_encoder *e, const uint8_t *s, size_t n, uint32_t *ids, size_t *count,
                        by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    if (n >= BY__NO_TOKEN) {
        return by_error_set(error, BY_EARG,
                            "a run of %zu bytes without a border is longer than 2^32 - 2", n);
    }
    BY_TRY(by__reserve((void **)&e->best, &e->best_capacity, n + 1, sizeof *e->best, error));
    BY_TRY(find_best(t, s, n, e->best, error));
    uint32_t *to = ids + n; /* from the last id to the first */
    for (size_t end = n; end > 0;) {
        size_t start = e->best[end].start;
        uint32_t id = e->best[end].id;
        if (id == t->unk) {
            while (start > 0 && e->best[start].id == t->unk) {
                start = e->best[start].start;
            }
            to = put_unknown(t, s + start, end - start, to);
        } else {
            *--to = id;
        }
        end = start;
    }
    *count = (size_t)(ids + n - to);
    memmove(ids, to, *count * sizeof *ids);
    return BY_OK;
}

static void add_to_hash(const by_tokenizer *t, by__hasher *hasher)
{
    by__hasher_add(hasher, "Unigram", 7);
    const unigram *u = t->model_state;
    by__hasher_add(hasher, u->scores, t->model_vocab * sizeof(double));
}

static void write(const by_tokenizer *t, by_string *text)
{
    const unigram *u = t->model_state;
    by__string_append(text, "{\n    \"type\": \"Unigram\",\n    \"unk_id\": ");
    if (t->unk == BY__NO_TOKEN) {
        by__string_append(text, "null");
    } else {
        by_string_format(text, "%" PRIu32, t->unk);
    }
    by__string_append(text, ",\n    \"vocab\": [");
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        char score[32];
        by__format_f64(score, u->scores[id]);
        by__string_append(text, id == 0 ? "\n      [" : ",\n      [");
        by__tokenizer_write_name(text, t, id);
        by_string_format(text, ", %s]", score);
    }
    by_string_format(text, "\n    ],\n    \"byte_fallback\": %s\n  }",
                     t->byte_fallback ? "true" : "false");
}

const by__tokenizer_model by__tokenizer_unigram_model = {.type = "Unigram",
                                                         .end = "[SEP]",
                                                         .read = read,
                                                         .finish = finish,
                                                         .encode = encode,
                                                         .hash = add_to_hash,
                                                         .write = write,
                                                         .free_state = free_state};
