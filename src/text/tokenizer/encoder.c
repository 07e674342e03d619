/* Encodes text to ids: the text is split at added tokens, rewritten, and split into pieces; pieces
 * are looked up in a cache, and given to the model (model.h) if they are not there.
 *
 * The cache is direct-mapped and keyed by the whole piece of up to 15 bytes, so that a hit needs
 * two comparisons and no indirection. It affects only the speed. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/characters.h"
#include "text/tokenizer/model.h"
#include "text/unicode/unicode.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "piece_key masks little-endian words");

#define CACHE_BITS  15u
#define CACHE_BYTES 15u /* bytes of a cached piece */

by_status by_encoder_open(by_encoder **out, const by_tokenizer *tokenizer, by_error *error)
{
    by_encoder *e;
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "encoder", error));
    e->tokenizer = tokenizer;
    if (!tokenizer->characters) {
        /* An empty slot never matches: the length of a piece, in `high`, is at least 1. */
        by_status status = by__alloc((void **)&e->cache, (size_t)1 << CACHE_BITS, sizeof *e->cache,
                                     "encoder cache", error);
        if (status != BY_OK) {
            by_encoder_close(&e);
            return status;
        }
    }
    *out = e;
    return BY_OK;
}

void by_encoder_close(by_encoder **encoder)
{
    by_encoder *e = *encoder;
    if (e == NULL) {
        return;
    }
    free(e->cache);
    free(e->symbols);
    free(e->heap);
    free(e->best);
    free(e->parts.items);
    free(e->rest.items);
    free(e->inner.items);
    by__tokenizer_rewriting_free(&e->normal);
    by__tokenizer_rewriting_free(&e->prefixed);
    free(e);
    *encoder = NULL;
}

by_status by__tokenizer_reserve_ids(by_token_buffer *out, size_t more, by_error *error)
{
    size_t need;
    if (!by__size_add(out->count, more, &need)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: tokens");
    }
    return by__reserve((void **)&out->ids, &out->capacity, need, sizeof *out->ids, error);
}

/* ---- pieces ---- */

/* The key of a piece of 1 .. CACHE_BYTES bytes; `readable` bytes at s may be read. */
static inline void piece_key(const uint8_t *s, size_t n, size_t readable, uint64_t *low,
                             uint64_t *high)
{
    uint64_t words[2] = {0, 0};
    if (readable >= 16) {
        memcpy(words, s, 16);
        if (n < 8) {
            words[0] &= ((uint64_t)1 << (8 * n)) - 1;
            words[1] = 0;
        } else {
            words[1] &= ((uint64_t)1 << (8 * (n - 8))) - 1;
        }
    } else {
        memcpy(words, s, n);
    }
    *low = words[0];
    *high = words[1] | (uint64_t)n << 56;
}

/* Encodes one piece; `readable` bytes at s may be read, and the caller has reserved n ids: a piece
 * has no more ids than bytes. */
static by_status encode_piece(by_encoder *e, const uint8_t *s, size_t n, size_t readable,
                              by_token_buffer *out, by_error *error)
{
    by__tokenizer_cached *slot = NULL;
    uint64_t low = 0;
    uint64_t high = 0;
    if (n <= CACHE_BYTES) {
        piece_key(s, n, readable, &low, &high);
        uint64_t hash = (low ^ (high << 29 | high >> 35)) * 0x9e3779b97f4a7c15u;
        slot = &e->cache[(hash ^ hash >> 32) * 0xd6e8feb86659fd93u >> (64 - CACHE_BITS)];
        if (slot->low == low && slot->high == high) {
            for (uint32_t i = 0; i < slot->count; i++) {
                out->ids[out->count++] = slot->ids[i];
            }
            return BY_OK;
        }
    }
    uint32_t *ids = out->ids + out->count;
    size_t count = 0;
    BY_TRY(e->tokenizer->model->encode(e, s, n, ids, &count, error));
    out->count += count;
    if (slot != NULL && count <= BY__CACHE_IDS) {
        slot->low = low;
        slot->high = high;
        memcpy(slot->ids, ids, count * sizeof *ids);
        slot->count = (uint32_t)count;
    }
    return BY_OK;
}

/* Splits a text by the splitters from `step` on, each within the pieces of the previous one, and
 * encodes the results. `readable` bytes at s may be read. */
static by_status encode_pieces(by_encoder *e, size_t step, const uint8_t *s, size_t n,
                               size_t readable, by_token_buffer *out, by_error *error)
{
    const by__tokenizer_pipeline *p = &e->tokenizer->pipeline;
    bool last = step + 1 >= p->splitter_count;
    const by__tokenizer_splitter *splitter = step < p->splitter_count ? &p->splitters[step] : NULL;
    bool drops_spaces = splitter != NULL && by__tokenizer_splitter_drops_spaces(splitter);
    for (size_t at = 0; at < n;) {
        size_t length =
            splitter != NULL ? by__tokenizer_splitter_next(splitter, s + at, n - at) : n;
        if (drops_spaces && by__tokenizer_is_space(s + at, n - at)) {
            at += length;
            continue;
        }
        if (!last) {
            BY_TRY(encode_pieces(e, step + 1, s + at, length, readable - at, out, error));
        } else {
            if (out->capacity - out->count < length) {
                BY_TRY(by__tokenizer_reserve_ids(out, length, error));
            }
            BY_TRY(encode_piece(e, s + at, length, readable - at, out, error));
        }
        at += length;
    }
    return BY_OK;
}

/* Encodes text without added tokens, after normalization. `first`: the whole text begins here. */
static by_status encode_plain(by_encoder *e, const uint8_t *s, size_t n, bool first,
                              by_token_buffer *out, by_error *error)
{
    const by__tokenizer_pipeline *p = &e->tokenizer->pipeline;
    if (p->normalizers < p->rewrite_count) {
        BY_TRY(by__tokenizer_rewrite_text(p, p->normalizers, p->rewrite_count, &e->prefixed, s, n,
                                          &first, &s, &n, error));
    }
    return encode_pieces(e, 0, s, n, n, out, error);
}

static by_status add_id(by_token_buffer *out, uint32_t id, by_error *error)
{
    BY_TRY(by__tokenizer_reserve_ids(out, 1, error));
    out->ids[out->count++] = id;
    return BY_OK;
}

/* Encodes text[begin, end), in which the first pass has found no added token. */
static by_status encode_part(by_encoder *e, const uint8_t *text, size_t begin, size_t end,
                             unsigned flags, by_token_buffer *out, by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    const uint8_t *s = text + begin;
    size_t n = end - begin;
    bool first = begin == 0;
    if (t->characters && !by__tokenizer_added_any(t, 1, flags)) {
        return by__tokenizer_encode_characters(t, text, begin, end, out, error);
    }
    BY_TRY(by__tokenizer_rewrite_text(&t->pipeline, 0, t->pipeline.normalizers, &e->normal, s, n,
                                      &first, &s, &n, error));
    if (!by__tokenizer_added_any(t, 1, flags)) {
        return encode_plain(e, s, n, first, out, error);
    }
    e->inner.count = 0;
    BY_TRY(by__tokenizer_added_pass(t, 1, flags, s, 0, n, &e->inner, error));
    for (size_t i = 0; i < e->inner.count; i++) {
        const by__tokenizer_part *part = &e->inner.items[i];
        if (part->id != BY__NO_TOKEN) {
            BY_TRY(add_id(out, part->id, error));
        } else if (t->characters) {
            BY_TRY(by__tokenizer_encode_characters(t, text, begin + part->start, begin + part->end,
                                                   out, error));
        } else {
            BY_TRY(encode_plain(e, s + part->start, part->end - part->start,
                                first && part->start == 0, out, error));
        }
    }
    return BY_OK;
}

/* Encodes s[from, length), whose parts are kept. */
static by_status encode_text(by_encoder *e, const uint8_t *s, size_t from, size_t length,
                             by__tokenizer_parts *parts, by_token_buffer *out, unsigned flags,
                             by_error *error)
{
    size_t before = out->count;
    parts->count = 0;
    if (!by__tokenizer_added_any(e->tokenizer, 0, flags)) {
        return encode_part(e, s, from, length, flags, out, error);
    }
    BY_TRY(by__tokenizer_added_pass(e->tokenizer, 0, flags, s, from, length, parts, error));
    for (size_t i = 0; i < parts->count; i++) {
        by__tokenizer_part *part = &parts->items[i];
        BY_TRY(part->id != BY__NO_TOKEN
                   ? add_id(out, part->id, error)
                   : encode_part(e, s, part->start, part->end, flags, out, error));
        part->ids = out->count - before;
    }
    return BY_OK;
}

/* Whether an added token is found alike where the text ends somewhere behind it. */
static bool ignores_behind(const by_tokenizer *t, uint32_t id)
{
    for (size_t i = 0; i < t->added_count; i++) {
        if (t->added[i].id == id) {
            return !t->added[i].rstrip && !t->added[i].single_word;
        }
    }
    return false;
}

by_status by__tokenizer_encode_rest(by_encoder *e, const char *text, size_t to, size_t *kept,
                                    by_token_buffer *out, unsigned flags, by_error *error)
{
    size_t from = 0;
    *kept = 0;
    for (size_t i = e->parts.count; i > 0 && from == 0; i--) {
        const by__tokenizer_part *part = &e->parts.items[i - 1];
        if (part->id != BY__NO_TOKEN && part->end < to && ignores_behind(e->tokenizer, part->id)) {
            from = part->end;
            *kept = part->ids;
        }
    }
    return encode_text(e, (const uint8_t *)text, from, to, &e->rest, out, flags, error);
}

by_status by_encoder_encode(by_encoder *e, const char *text, size_t length, by_token_buffer *out,
                            unsigned flags, by_error *error)
{
    const by__tokenizer_pipeline *p = &e->tokenizer->pipeline;
    size_t kept = out->count;
    const unsigned known = BY_ENCODE_SPECIAL | BY_ENCODE_ADD_SPECIAL | BY_ENCODE_ADD_BEFORE;
    if ((flags & ~known) != 0) {
        return by_error_set(error, BY_EARG, "encode flags 0x%x are not known", flags);
    }
    bool ends = (flags & BY_ENCODE_ADD_SPECIAL) != 0;
    bool begins = ends || (flags & BY_ENCODE_ADD_BEFORE) != 0;
    by_status status = BY_OK;
    for (size_t i = 0; begins && i < p->before_count && status == BY_OK; i++) {
        status = add_id(out, p->before[i], error);
    }
    if (status == BY_OK) {
        status = encode_text(e, (const uint8_t *)text, 0, length, &e->parts, out, flags, error);
    }
    for (size_t i = 0; ends && i < p->after_count && status == BY_OK; i++) {
        status = add_id(out, p->after[i], error);
    }
    if (status != BY_OK) {
        out->count = kept;
    }
    return status;
}

by_status by_tokenizer_encode(const by_tokenizer *tokenizer, const char *text, size_t length,
                              by_token_buffer *out, unsigned flags, by_error *error)
{
    by_encoder *encoder;
    BY_TRY(by_encoder_open(&encoder, tokenizer, error));
    by_status status = by_encoder_encode(encoder, text, length, out, flags, error);
    by_encoder_close(&encoder);
    return status;
}
