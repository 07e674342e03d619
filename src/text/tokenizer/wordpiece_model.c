/* WordPiece (Schuster and Nakajima 2012), as BERT uses it: the longest token that a word begins
 * with, then the longest that continues it, written with a prefix ("##"), and so on. A word of
 * which a part has no token is the unknown token as a whole. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/json_parts.h"
#include "text/tokenizer/model.h"
#include "text/tokenizer/pipeline_json.h"
#include "text/tokenizer/trie.h"
#include "text/unicode/unicode.h"

typedef struct wordpiece {
    char *prefix; /* of tokens that continue a word */
    size_t prefix_length;
    uint64_t longest; /* most characters of a word that is not unknown */
    by__tokenizer_trie first;
    by__tokenizer_trie continuing; /* the tokens with the prefix, without it */
} wordpiece;

static void free_state(void *state)
{
    wordpiece *w = state;
    free(w->prefix);
    by__tokenizer_trie_free(&w->first);
    by__tokenizer_trie_free(&w->continuing);
    free(w);
}

static by_status read(by_tokenizer *t, const json_t *model, const char *name, by_error *error)
{
    wordpiece *w;
    const json_t *vocab = json_object_get(model, "vocab");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *longest = json_object_get(model, "max_input_chars_per_word");
    const char *unk = json_string_value(json_object_get(model, "unk_token"));
    BY_TRY(by__alloc((void **)&w, 1, sizeof *w, "WordPiece", error));
    t->model_state = w;
    if ((prefix != NULL && !json_is_string(prefix)) || unk == NULL ||
        (longest != NULL && (!json_is_integer(longest) || json_integer_value(longest) < 0))) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: continuing_subword_prefix, unk_token or max_input_chars_per_word "
                            "is missing or of another type",
                            name);
    }
    w->longest = longest != NULL ? (uint64_t)json_integer_value(longest) : 100;
    w->prefix = by__strdup(prefix != NULL ? json_string_value(prefix) : "##");
    if (w->prefix == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: WordPiece");
    }
    w->prefix_length = strlen(w->prefix);
    BY_TRY(by__tokenizer_vocab_from_json(t, vocab, name, error));
    const json_t *id = json_object_get(vocab, unk);
    if (id == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: unk_token \"%.60s\" is not in the vocabulary",
                            name, unk);
    }
    t->unk = (uint32_t)json_integer_value(id);
    return BY_OK;
}

static by_status finish(by_tokenizer *t, const char *name, by_error *error)
{
    BY_UNUSED(name);
    wordpiece *w = t->model_state;
    by__tokenizer_trie_key *keys;
    size_t count = 0;
    BY_TRY(by__alloc((void **)&keys, t->model_vocab, sizeof *keys, "WordPiece", error));
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        size_t n = t->offsets[id + 1] - t->offsets[id];
        keys[id] = (by__tokenizer_trie_key){(const uint8_t *)t->bytes + t->offsets[id], n, id};
    }
    by_status status = by__tokenizer_trie_make(&w->first, keys, t->model_vocab, error);
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        const uint8_t *s = (const uint8_t *)t->bytes + t->offsets[id];
        size_t n = t->offsets[id + 1] - t->offsets[id];
        if (n > w->prefix_length && memcmp(s, w->prefix, w->prefix_length) == 0) {
            keys[count++] =
                (by__tokenizer_trie_key){s + w->prefix_length, n - w->prefix_length, id};
        }
    }
    if (status == BY_OK) {
        status = by__tokenizer_trie_make(&w->continuing, keys, count, error);
    }
    free(keys);
    return status;
}

/* More than `longest` characters. */
static bool is_long(const wordpiece *w, const uint8_t *s, size_t n)
{
    uint64_t count = 0;
    if (n <= w->longest) {
        return false;
    }
    for (size_t at = 0; at < n; count++) {
        uint32_t code;
        at += by__utf8_next(s + at, n - at, &code);
    }
    return count > w->longest;
}

static by_status encode(by_encoder *e, const uint8_t *s, size_t n, uint32_t *ids, size_t *count,
                        by_error *error)
{
    BY_UNUSED(error);
    const wordpiece *w = e->tokenizer->model_state;
    const by__tokenizer_trie *trie = &w->first;
    bool unknown = is_long(w, s, n);
    *count = 0;
    for (size_t at = 0; !unknown && at < n; trie = &w->continuing) {
        uint32_t node = 0;
        uint32_t best = BY__NO_TOKEN;
        size_t end = at;
        for (size_t i = at; i < n && by__trie_step(trie, &node, s[i]); i++) {
            uint32_t value = trie->nodes[node].value;
            best = value != BY__TRIE_NONE ? value : best;
            end = value != BY__TRIE_NONE ? i + 1 : end;
        }
        unknown = best == BY__NO_TOKEN;
        ids[*count] = best;
        *count += unknown ? 0 : 1;
        at = end;
    }
    if (unknown) {
        ids[0] = e->tokenizer->unk;
        *count = 1;
    }
    return BY_OK;
}

static void add_to_hash(const by_tokenizer *t, by__hasher *hasher)
{
    const wordpiece *w = t->model_state;
    by__hasher_add(hasher, "WordPiece", 9);
    by__hasher_add_u64(hasher, w->longest);
    by__hasher_add(hasher, w->prefix, w->prefix_length);
}

static void write(const by_tokenizer *t, by_string *text)
{
    const wordpiece *w = t->model_state;
    by__string_append(text, "{\n    \"type\": \"WordPiece\",\n    \"unk_token\": ");
    by__tokenizer_write_name(text, t, t->unk);
    by__string_append(text, ",\n    \"continuing_subword_prefix\": ");
    by_string_json(text, w->prefix, w->prefix_length);
    by_string_format(
        text, ",\n    \"max_input_chars_per_word\": %" PRIu64 ",\n    \"vocab\": ", w->longest);
    by__tokenizer_write_vocabulary(text, t);
    by__string_append(text, "\n  }");
}

const by__tokenizer_model by__tokenizer_wordpiece_model = {.type = "WordPiece",
                                                           .end = "[SEP]",
                                                           .read = read,
                                                           .finish = finish,
                                                           .encode = encode,
                                                           .hash = add_to_hash,
                                                           .write = write,
                                                           .free_state = free_state};
