/* Decodes ids to bytes.
 *
 * A token of a byte-level vocabulary is its bytes. Others are decoded as the file's decoder says:
 * literals are replaced (the mark U+2581 by a space), <0x..> becomes its byte; the first token of
 * a text and the text's beginning may lose a space that encoding added. WordPiece's tokens have
 * spaces between them except before those that continue a word. Bytes that are not UTF-8 are kept,
 * so that decoding returns what was encoded. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "text/tokenizer/vocabulary.h"

/* The byte of "<0x..>"; -1 for any other name. */
static int fallback_byte(const char *name, size_t length)
{
    if (length != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>' ||
        by__hex_digit(name[3]) < 0 || by__hex_digit(name[4]) < 0) {
        return -1;
    }
    return by__hex_digit(name[3]) * 16 + by__hex_digit(name[4]);
}

static void put_replaced(by_string *out, const char *s, size_t n, const by__tokenizer_rewrite *w)
{
    for (size_t at = 0; at < n;) {
        if (n - at >= w->from_length && memcmp(s + at, w->from, w->from_length) == 0) {
            by_string_add(out, w->to, w->to_length);
            at += w->from_length;
        } else {
            by_string_add(out, s + at, 1);
            at++;
        }
    }
}

static void put_spaces(by_string *out, const char *s, size_t n, const by__tokenizer_rewrite *w)
{
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && s[end] == ' ') {
            end++;
        }
        bool run = end - at >= 2;
        by_string_add(out, run ? w->to : s + at, run ? w->to_length : 1);
        at = run ? end : at + 1;
    }
}

/* Drops what BERT's decoder does of a token's text; returns its length. Every replacement is
 * shorter. */
static size_t clean_up(char *s, size_t n)
{
    static const struct {
        const char *from;
        const char *to;
    } rules[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                 {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                 {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rules); i++) {
        size_t from = strlen(rules[i].from);
        size_t to = strlen(rules[i].to);
        size_t used = 0;
        for (size_t at = 0; at < n;) {
            if (n - at >= from && memcmp(s + at, rules[i].from, from) == 0) {
                memcpy(s + used, rules[i].to, to);
                used += to;
                at += from;
            } else {
                s[used++] = s[at++];
            }
        }
        n = used;
    }
    return n;
}

/* Appends the text of a token that follows others: with a space before it, unless it continues a
 * word. */
static void put_word(const by__tokenizer_pipeline *p, const char *name, size_t n, by_string *out)
{
    size_t skip = p->continuing_length;
    size_t begin = out->length;
    if (p->continuing != NULL && n >= skip && memcmp(name, p->continuing, skip) == 0) {
        by_string_add(out, name + skip, n - skip);
    } else {
        by__string_append(out, " ");
        by_string_add(out, name, n);
    }
    if (p->cleanup && !out->failed) {
        out->length = begin + clean_up(out->data + begin, out->length - begin);
    }
}

/* Appends the text of the token with this name. */
static void put_piece(const by_tokenizer *t, const char *name, size_t n, by_string *out)
{
    const by__tokenizer_pipeline *p = &t->pipeline;
    if (p->spaced) {
        put_word(p, name, n, out);
        return;
    }
    int byte = p->decode_bytes ? fallback_byte(name, n) : -1;
    if (byte >= 0) {
        uint8_t one = (uint8_t)byte;
        by_string_add(out, &one, 1);
        return;
    }
    by_string now = {0};
    by_string_add(&now, name, n);
    for (size_t i = 0; i < p->replacement_count; i++) {
        by_string next = {0};
        if (p->replacements[i].kind == BY__REWRITE_SPACES) {
            put_spaces(&next, now.data, now.length, &p->replacements[i]);
        } else {
            put_replaced(&next, now.data, now.length, &p->replacements[i]);
        }
        next.failed = next.failed || now.failed;
        by_string_free(&now);
        now = next;
    }
    by_string_add(out, now.data, now.length);
    out->failed = out->failed || now.failed;
    by_string_free(&now);
}

/* Returns true if a token is matched as something other than its content: its text is then what it
 * matches (including a prefix added by the normalizer). */
static bool is_rewritten(const by__tokenizer_added_token *a)
{
    return a->match_length != a->length || memcmp(a->match, a->content, a->length) != 0;
}

by_status by__tokenizer_pieces_make(by_tokenizer *t, by_error *error)
{
    by_string pieces = {0};
    bool whole = t->byte_level || t->characters; /* tokens are their own text */
    bool rewritten = false;
    for (size_t i = 0; i < t->added_count; i++) {
        rewritten = rewritten || is_rewritten(&t->added[i]);
    }
    if (whole && !rewritten) {
        return BY_OK;
    }
    const by__tokenizer_added_token **added; /* by id */
    BY_TRY(by__alloc((void **)&t->piece_offsets, (size_t)t->vocab + 1, sizeof *t->piece_offsets,
                     "decoded tokens", error));
    BY_TRY(by__alloc((void **)&added, t->vocab, sizeof *added, "added tokens", error));
    for (size_t i = 0; i < t->added_count; i++) {
        added[t->added[i].id] = &t->added[i];
    }
    for (uint32_t id = 0; id < t->vocab; id++) {
        bool as_found = added[id] != NULL && is_rewritten(added[id]);
        const char *name = as_found ? added[id]->match : t->bytes + t->offsets[id];
        size_t n = as_found ? added[id]->match_length : t->offsets[id + 1] - t->offsets[id];
        if (whole) {
            by_string_add(&pieces, name, n);
        } else {
            put_piece(t, name, n, &pieces);
        }
        t->piece_offsets[id + 1] = pieces.length;
    }
    free(added);
    return by__string_release(&pieces, &t->pieces, error);
}

/* In the first token, a space made by Metaspace is dropped. The pieces have the marks replaced
 * already, so the token's name is used, which still has them. */
static void drop_marks(const by_tokenizer *t, uint32_t id, char *scratch, const char **data,
                       size_t *length)
{
    const by__tokenizer_rewrite *w = &t->pipeline.replacements[0];
    const char *name = t->bytes + t->offsets[id];
    size_t n = t->offsets[id + 1] - t->offsets[id];
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        if (n - at >= w->from_length && memcmp(name + at, w->from, w->from_length) == 0) {
            at += w->from_length;
        } else {
            scratch[used++] = name[at++];
        }
    }
    *data = scratch;
    *length = used;
}

void by__tokenizer_piece_of(const by_tokenizer *t, uint32_t id, bool first, char *scratch,
                            const char **data, size_t *length)
{
    const char *bytes = t->pieces != NULL ? t->pieces : t->bytes;
    const size_t *offsets = t->pieces != NULL ? t->piece_offsets : t->offsets;
    *data = bytes + offsets[id];
    *length = offsets[id + 1] - offsets[id];
    if (first && t->pipeline.spaced) {
        size_t n = t->offsets[id + 1] - t->offsets[id];
        memcpy(scratch, t->bytes + t->offsets[id], n);
        *data = scratch;
        *length = t->pipeline.cleanup ? clean_up(scratch, n) : n;
        return;
    }
    if (first && t->pipeline.drop_first &&
        (!t->pipeline.decode_bytes ||
         fallback_byte(t->bytes + t->offsets[id], t->offsets[id + 1] - t->offsets[id]) < 0)) {
        drop_marks(t, id, scratch, data, length);
    }
}

by_status by_tokenizer_token_bytes(const by_tokenizer *t, uint32_t id, const char **data,
                                   size_t *length, by_error *error)
{
    if (id >= t->vocab) {
        return by_error_set(error, BY_EARG,
                            "token %" PRIu32 " is not in the vocabulary of %" PRIu32, id, t->vocab);
    }
    by__tokenizer_piece_of(t, id, false, NULL, data, length);
    return BY_OK;
}

by_status by_tokenizer_decode(const by_tokenizer *t, const uint32_t *ids, size_t count, char **out,
                              size_t *length, by_error *error)
{
    by_string text = {0};
    char *scratch = NULL;
    size_t capacity = 0;
    for (size_t i = 0; i < count; i++) {
        const char *data = NULL;
        size_t n = 0;
        by_status status = by_tokenizer_token_bytes(t, ids[i], &data, &n, error);
        if (status == BY_OK && i == 0) {
            size_t name = t->offsets[ids[0] + 1] - t->offsets[ids[0]];
            status = by__reserve((void **)&scratch, &capacity, name + 1, 1, error);
            if (status == BY_OK) {
                by__tokenizer_piece_of(t, ids[0], true, scratch, &data, &n);
            }
        }
        if (status != BY_OK) {
            by_string_free(&text);
            free(scratch);
            return status;
        }
        by_string_add(&text, data, n);
    }
    free(scratch);
    const by__tokenizer_pipeline *p = &t->pipeline;
    size_t skip = 0;
    for (size_t i = 0;
         i < p->strip_count && text.length > skip && text.length - skip >= p->strip_length &&
         memcmp(text.data + skip, p->strip, p->strip_length) == 0;
         i++) {
        skip += p->strip_length;
    }
    if (skip > 0) {
        memmove(text.data, text.data + skip, text.length - skip + 1);
        text.length -= skip;
    }
    size_t total = text.length;
    BY_TRY(by__string_release(&text, out, error));
    *length = total;
    return BY_OK;
}
