/* tiktoken's ranks: one line per token, base64 of its bytes, a space, its rank, which is also its
 * id.
 *
 * Merges are implied: two neighbours merge when their bytes together are a token, lowest rank
 * first. They are converted to a list of pairs, sorted by result and then by parts, so that the
 * tokenizer is an ordinary one and can be saved as tokenizer.json. The file has no special tokens:
 * <|endoftext|> gets the one id that is left out, else the next. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/build.h"
#include "text/tokenizer/vocabulary.h"

/* Vocabularies that need a pattern other than GPT-2's: cl100k_base, Llama 3, o200k_base. */
static const size_t foreign_counts[] = {100256, 128000, 199998};

/* All splits of a token are tried below, so its length is bounded. */
#define MAX_TOKEN_BYTES 4096u

typedef struct line_token {
    char *data;
    size_t length;
} line_token;

typedef struct ranks {
    line_token *tokens; /* by rank; data NULL: a rank that no line has */
    size_t count;       /* highest rank + 1 */
    size_t capacity;
    size_t lines;
} ranks;

static bool parse_rank(const char *s, size_t n, size_t *out)
{
    size_t value = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9' || value > BY__MAX_TOKENS) {
            return false;
        }
        value = value * 10 + (size_t)(s[i] - '0');
    }
    *out = value;
    return n > 0;
}

static by_status add_line(ranks *r, const char *line, size_t n, size_t number, size_t limit,
                          const char *name, by_error *error)
{
    const char *space = memchr(line, ' ', n);
    size_t digits = space != NULL ? (size_t)(space - line) : 0;
    size_t rank;
    size_t length;
    if (space == NULL || !parse_rank(space + 1, n - digits - 1, &rank)) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: not a token in base64, a space and a rank",
                            name, number);
    }
    /* At most one rank is left out, so ranks stay below the number of lines plus one. */
    if (rank > limit) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: rank %zu, but the file has %zu lines", name,
                            number, rank, limit);
    }
    size_t old = r->capacity;
    BY_TRY(by__reserve((void **)&r->tokens, &r->capacity, rank + 1, sizeof *r->tokens, error));
    memset(r->tokens + old, 0, (r->capacity - old) * sizeof *r->tokens);
    if (r->tokens[rank].data != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: rank %zu is there twice", name, number,
                            rank);
    }
    char *data = malloc(n + 4);
    if (data == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: token");
    }
    r->tokens[rank].data = data;
    r->count = rank + 1 > r->count ? rank + 1 : r->count;
    r->lines++;
    if (digits == 0 || !by__read_base64(line, digits, (uint8_t *)data, &length)) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: the token is not base64", name, number);
    }
    if (length > MAX_TOKEN_BYTES) {
        return by_error_set(error, BY_EFORMAT, "%s:%zu: a token of %zu bytes is longer than %u",
                            name, number, length, MAX_TOKEN_BYTES);
    }
    r->tokens[rank].length = length;
    return BY_OK;
}

static by_status read_lines(ranks *r, const char *text, size_t length, const char *name,
                            by_error *error)
{
    size_t limit = 1;
    for (size_t i = 0; i < length; i++) {
        limit += text[i] == '\n' ? 1 : 0;
    }
    size_t number = 1;
    for (size_t at = 0; at < length; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t n = end != NULL ? (size_t)(end - (text + at)) : length - at;
        if (n > 0) {
            BY_TRY(add_line(r, text + at, n, number, limit, name, error));
        }
        at += n + 1;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(foreign_counts); i++) {
        if (r->lines == foreign_counts[i]) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: a vocabulary of %zu goes with another pre-tokenisation than "
                                "GPT-2's, which is not supported",
                                name, r->lines);
        }
    }
    if (r->count == 0 || r->count > r->lines + 1) {
        return by_error_set(error, BY_EFORMAT, "%s: %zu ranks up to %zu: more than one is left out",
                            name, r->lines, r->count == 0 ? 0 : r->count - 1);
    }
    return BY_OK;
}

static int compare_pairs(const void *a, const void *b)
{
    const by__tokenizer_merge *x = a;
    const by__tokenizer_merge *y = b;
    if (x->id != y->id) {
        return x->id < y->id ? -1 : 1;
    }
    if (x->left != y->left) {
        return x->left < y->left ? -1 : 1;
    }
    return x->right < y->right ? -1 : x->right > y->right;
}

/* Adds all ways to make each token from two others. The token table is not built yet, so a
 * tokenizer without merges is finished first and used for look-ups. */
static by_status add_pairs(by_tokenizer *t, const by_tokenizer *lookup, by_error *error)
{
    uint32_t end = t->added[0].id; /* is not made of others */
    for (uint32_t id = 0; id < t->model_vocab; id++) {
        const uint8_t *data = (const uint8_t *)t->bytes + t->offsets[id];
        size_t length = t->offsets[id + 1] - t->offsets[id];
        for (size_t cut = 1; cut < length && id != end; cut++) {
            uint32_t left = by__tokenizer_find(lookup, data, cut);
            uint32_t right = by__tokenizer_find(lookup, data + cut, length - cut);
            if (left != BY__NO_TOKEN && right != BY__NO_TOKEN) {
                BY_TRY(by__tokenizer_add_merge(t, left, right, id, error));
            }
        }
    }
    if (t->merge_count > 0) {
        qsort(t->merges, t->merge_count, sizeof *t->merges, compare_pairs);
    }
    return BY_OK;
}

static by_status build(by_tokenizer *t, const ranks *r, by_error *error)
{
    uint32_t end = BY__NO_TOKEN;
    for (size_t i = 0; i < r->count; i++) {
        if (r->tokens[i].data != NULL) {
            BY_TRY(
                by__tokenizer_add_token(t, r->tokens[i].data, r->tokens[i].length, false, error));
        } else {
            end = (uint32_t)i;
            BY_TRY(
                by__tokenizer_add_token(t, BY__END_OF_TEXT, strlen(BY__END_OF_TEXT), false, error));
        }
    }
    t->ignore_merges = true; /* tiktoken looks up a whole piece first */
    return by__tokenizer_add_end_of_text(t, end, error);
}

by_status by__tokenizer_parse_tiktoken(by_tokenizer **out, const char *name, const char *text,
                                       size_t length, by_error *error)
{
    ranks r = {0};
    by_tokenizer *t = NULL;
    by_tokenizer *lookup = NULL;
    if (!by_build_has(BY_BUILD_NETTLE)) {
        return by__build_lacks(BY_BUILD_NETTLE, name, error);
    }
    by_status status = read_lines(&r, text, length, name, error);
    if (status == BY_OK) {
        status = by__tokenizer_new(&lookup, false, error);
    }
    if (status == BY_OK) {
        status = build(lookup, &r, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_finish(lookup, name, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_new(&t, false, error);
    }
    if (status == BY_OK) {
        status = build(t, &r, error);
    }
    if (status == BY_OK) {
        status = add_pairs(t, lookup, error);
    }
    if (status == BY_OK) {
        status = by__tokenizer_finish(t, name, error);
    }
    for (unsigned b = 0; b < 256 && status == BY_OK; b++) {
        if (t->byte_ids[b] == BY__NO_TOKEN) {
            status = by_error_set(error, BY_EFORMAT,
                                  "%s: the vocabulary has no token for byte 0x%02x, so text with "
                                  "that byte would be lost",
                                  name, b);
        }
    }
    by_tokenizer_close(&lookup);
    for (size_t i = 0; i < r.count; i++) {
        free(r.tokens[i].data);
    }
    free(r.tokens);
    if (status != BY_OK) {
        by_tokenizer_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}
