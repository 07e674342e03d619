/* Text to ids: pieces are looked up in a cache, and merged when they are not there.
 *
 * A merge takes the pair of lowest rank, the leftmost of those, until no pair is in the list (BPE:
 * Sennrich et al. 2016). Short pieces scan all pairs for each merge; long ones keep them in a heap
 * under (rank, position), so that n bytes in one piece cost O(n log n).
 *
 * The cache is direct-mapped and keyed by the whole piece of up to 15 bytes, so that a hit needs
 * two comparisons and no pointer is followed. It changes the speed only. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/split.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocabulary.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "piece_key masks little-endian words");

#define CACHE_BITS  15u
#define CACHE_IDS   3u  /* ids of a cached piece */
#define CACHE_BYTES 15u /* bytes of a cached piece */
#define SHORT_PIECE 48u /* symbols that are merged by scanning */

typedef struct cached {
    uint64_t low; /* the piece's bytes, zeros behind them, its length in the last byte */
    uint64_t high;
    uint32_t ids[CACHE_IDS];
    uint32_t count;
} cached;

/* A symbol of a long piece: a list in place. */
typedef struct symbol {
    uint32_t id; /* BY__NO_TOKEN: merged into the one in front */
    uint32_t previous;
    uint32_t next;
    uint32_t rank; /* of the pair with the next one */
} symbol;

struct by_encoder {
    const by_tokenizer *tokenizer;
    cached *cache;
    symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap; /* rank << 32 | position, smallest first */
    size_t heap_count;
    size_t heap_capacity;
    by__parts parts;
    by__parts scratch;
};

by_status by_encoder_open(by_encoder **out, const by_tokenizer *tokenizer, by_error *error)
{
    by_encoder *e;
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "encoder", error));
    e->tokenizer = tokenizer;
    if (!tokenizer->characters) {
        /* An empty slot is never hit: the length in `high` of a piece is at least 1. */
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
    free(e->parts.items);
    free(e->scratch.items);
    free(e);
    *encoder = NULL;
}

/* ---- merging ---- */

static by_status reserve_ids(by_token_buffer *out, size_t more, by_error *error)
{
    size_t need;
    if (!by__size_add(out->count, more, &need)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: tokens");
    }
    return by__reserve((void **)&out->ids, &out->capacity, need, sizeof *out->ids, error);
}

/* Merges a piece of 1 .. SHORT_PIECE bytes into ids; returns their number. */
static size_t merge_short(const by_tokenizer *t, const uint8_t *s, size_t n, uint32_t *ids)
{
    uint32_t ranks[SHORT_PIECE];
    for (size_t i = 0; i < n; i++) {
        ids[i] = t->byte_ids[s[i]];
    }
    for (size_t i = 0; i + 1 < n; i++) {
        ranks[i] = by__pair_rank(t, ids[i], ids[i + 1]);
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            best = ranks[i] < ranks[best] ? i : best;
        }
        if (ranks[best] == BY__NO_TOKEN) {
            break;
        }
        ids[best] = t->merges[ranks[best]].id;
        n--;
        for (size_t i = best + 1; i < n; i++) {
            ids[i] = ids[i + 1];
            ranks[i - 1] = ranks[i];
        }
        if (best > 0) {
            ranks[best - 1] = by__pair_rank(t, ids[best - 1], ids[best]);
        }
        if (best + 1 < n) {
            ranks[best] = by__pair_rank(t, ids[best], ids[best + 1]);
        }
    }
    return n;
}

static void sift_down(uint64_t *heap, size_t count, size_t at)
{
    uint64_t value = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) {
            child++;
        }
        if (heap[child] >= value) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = value;
}

static void push(by_encoder *e, uint64_t value)
{
    size_t at = e->heap_count++;
    for (; at > 0 && e->heap[(at - 1) / 2] > value; at = (at - 1) / 2) {
        e->heap[at] = e->heap[(at - 1) / 2];
    }
    e->heap[at] = value;
}

/* Sets the rank of the pair at `at` and its next symbol and returns it. */
static uint32_t rank_at(const by_tokenizer *t, symbol *symbols, uint32_t at)
{
    uint32_t next = symbols[at].next;
    symbols[at].rank =
        next == BY__NO_TOKEN ? BY__NO_TOKEN : by__pair_rank(t, symbols[at].id, symbols[next].id);
    return symbols[at].rank;
}

static void merge_heap(by_encoder *e)
{
    const by_tokenizer *t = e->tokenizer;
    symbol *symbols = e->symbols;
    while (e->heap_count > 0) {
        uint64_t top = e->heap[0];
        e->heap[0] = e->heap[--e->heap_count];
        if (e->heap_count > 0) {
            sift_down(e->heap, e->heap_count, 0);
        }
        uint32_t at = (uint32_t)top;
        uint32_t rank = (uint32_t)(top >> 32);
        if (symbols[at].id == BY__NO_TOKEN || symbols[at].rank != rank) {
            continue; /* the pair has changed since it was pushed */
        }
        uint32_t gone = symbols[at].next;
        symbols[at].id = t->merges[rank].id;
        symbols[at].next = symbols[gone].next;
        symbols[gone].id = BY__NO_TOKEN;
        if (symbols[at].next != BY__NO_TOKEN) {
            symbols[symbols[at].next].previous = at;
        }
        uint32_t around[2] = {symbols[at].previous, at};
        for (unsigned k = 0; k < 2; k++) {
            if (around[k] != BY__NO_TOKEN) {
                uint32_t pair = rank_at(t, symbols, around[k]);
                if (pair != BY__NO_TOKEN) {
                    push(e, (uint64_t)pair << 32 | around[k]);
                }
            }
        }
    }
}

/* Merges a long piece. */
static by_status merge_long(by_encoder *e, const uint8_t *s, size_t n, by_token_buffer *out,
                            by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    if (n >= BY__NO_TOKEN) {
        return by_error_set(error, BY_EARG,
                            "a run of %zu bytes without a border is longer than 2^32 - 2", n);
    }
    BY_TRY(by__reserve((void **)&e->symbols, &e->symbol_capacity, n, sizeof *e->symbols, error));
    /* A merge takes one entry out and puts at most two in, and there are less than n merges. */
    BY_TRY(by__reserve((void **)&e->heap, &e->heap_capacity, 2 * n, sizeof *e->heap, error));
    for (size_t i = 0; i < n; i++) {
        e->symbols[i] = (symbol){t->byte_ids[s[i]], i == 0 ? BY__NO_TOKEN : (uint32_t)(i - 1),
                                 i + 1 == n ? BY__NO_TOKEN : (uint32_t)(i + 1), BY__NO_TOKEN};
    }
    e->heap_count = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        uint32_t rank = rank_at(t, e->symbols, (uint32_t)i);
        if (rank != BY__NO_TOKEN) {
            e->heap[e->heap_count++] = (uint64_t)rank << 32 | i;
        }
    }
    for (size_t i = e->heap_count / 2; i-- > 0;) {
        sift_down(e->heap, e->heap_count, i);
    }
    merge_heap(e);
    BY_TRY(reserve_ids(out, n, error));
    for (uint32_t i = 0; i != BY__NO_TOKEN; i = e->symbols[i].next) {
        out->ids[out->count++] = e->symbols[i].id;
    }
    return BY_OK;
}

/* ---- pieces ---- */

/* The key of a piece of 1 .. CACHE_BYTES bytes; `room` bytes may be read at s. */
static inline void piece_key(const uint8_t *s, size_t n, size_t room, uint64_t *low, uint64_t *high)
{
    uint64_t words[2] = {0, 0};
    if (room >= 16) {
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

static by_status encode_piece(by_encoder *e, const uint8_t *s, size_t n, size_t room,
                              by_token_buffer *out, by_error *error)
{
    const by_tokenizer *t = e->tokenizer;
    cached *slot = NULL;
    uint64_t low = 0;
    uint64_t high = 0;
    if (n <= CACHE_BYTES) {
        piece_key(s, n, room, &low, &high);
        uint64_t hash = (low ^ (high << 29 | high >> 35)) * 0x9e3779b97f4a7c15u;
        slot = &e->cache[(hash ^ hash >> 32) * 0xd6e8feb86659fd93u >> (64 - CACHE_BITS)];
        if (slot->low == low && slot->high == high) {
            /* The caller has reserved n ids, and a piece has no more ids than bytes. */
            for (uint32_t i = 0; i < slot->count; i++) {
                out->ids[out->count++] = slot->ids[i];
            }
            return BY_OK;
        }
    }
    uint32_t whole = t->ignore_merges ? by__tokenizer_find(t, s, n) : BY__NO_TOKEN;
    if (n > SHORT_PIECE && whole == BY__NO_TOKEN) {
        return merge_long(e, s, n, out, error);
    }
    uint32_t ids[SHORT_PIECE];
    size_t count = 1;
    ids[0] = whole;
    if (whole == BY__NO_TOKEN) {
        count = merge_short(t, s, n, ids);
    }
    memcpy(out->ids + out->count, ids, count * sizeof *ids);
    out->count += count;
    if (slot != NULL && count <= CACHE_IDS) {
        slot->low = low;
        slot->high = high;
        memcpy(slot->ids, ids, count * sizeof *ids);
        slot->count = (uint32_t)count;
    }
    return BY_OK;
}

static by_status encode_bytes(by_encoder *e, const uint8_t *s, size_t n, by_token_buffer *out,
                              by_error *error)
{
    for (size_t at = 0; at < n;) {
        size_t length = by__split_next(s + at, n - at);
        if (out->capacity - out->count < length) {
            BY_TRY(reserve_ids(out, length, error));
        }
        BY_TRY(encode_piece(e, s + at, length, n - at, out, error));
        at += length;
    }
    return BY_OK;
}

static by_status unknown_character(const by_tokenizer *t, const uint8_t *s, size_t n, uint32_t code,
                                   size_t offset, by_error *error)
{
    if (code == BY__INVALID) {
        return by_error_set(error, BY_EFORMAT,
                            "byte 0x%02x at offset %zu is not valid UTF-8, which a character "
                            "tokenizer needs; use a byte-level BPE",
                            s[0], offset);
    }
    return by_error_set(error, BY_EFORMAT,
                        "character U+%04" PRIX32 " '%.*s' at offset %zu is not in the character "
                        "vocabulary of %" PRIu32,
                        code, code < 0x20 ? 0 : (int)n, (const char *)s, offset, t->model_vocab);
}

static by_status encode_characters(const by_tokenizer *t, const uint8_t *text, size_t begin,
                                   size_t end, by_token_buffer *out, by_error *error)
{
    BY_TRY(reserve_ids(out, end - begin, error));
    for (size_t at = begin; at < end;) {
        uint32_t code;
        size_t n = by__utf8_next(text + at, end - at, &code);
        uint32_t id = n == 1 ? t->byte_ids[text[at]] : by__tokenizer_find(t, text + at, n);
        if (id == BY__NO_TOKEN) {
            return unknown_character(t, text + at, n, code, at, error);
        }
        out->ids[out->count++] = id;
        at += n;
    }
    return BY_OK;
}

static by_status encode_part(by_encoder *e, const uint8_t *text, size_t begin, size_t end,
                             by_token_buffer *out, by_error *error)
{
    return e->tokenizer->characters ? encode_characters(e->tokenizer, text, begin, end, out, error)
                                    : encode_bytes(e, text + begin, end - begin, out, error);
}

by_status by_encoder_encode(by_encoder *e, const char *text, size_t length, by_token_buffer *out,
                            unsigned flags, by_error *error)
{
    const uint8_t *s = (const uint8_t *)text;
    size_t kept = out->count;
    by_status status = BY_OK;
    if ((flags & ~(unsigned)BY_ENCODE_SPECIAL) != 0) {
        return by_error_set(error, BY_EARG, "encode flags 0x%x are not known", flags);
    }
    if (!by__added_any(e->tokenizer, flags)) {
        status = encode_part(e, s, 0, length, out, error);
    } else {
        status = by__added_split(e->tokenizer, s, length, flags, &e->parts, &e->scratch, error);
        for (size_t i = 0; i < e->parts.count && status == BY_OK; i++) {
            const by__part *part = &e->parts.items[i];
            if (part->id == BY__NO_TOKEN) {
                status = encode_part(e, s, part->start, part->end, out, error);
            } else if ((status = reserve_ids(out, 1, error)) == BY_OK) {
                out->ids[out->count++] = part->id;
            }
        }
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
