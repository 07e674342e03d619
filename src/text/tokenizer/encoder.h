/* State of an encoder: scratch memory and a cache of encoded pieces. */
#ifndef BY_TEXT_TOKENIZER_ENCODER_H
#define BY_TEXT_TOKENIZER_ENCODER_H

#include "text/tokenizer/vocabulary.h"

#define BY__CACHE_IDS   3u  /* most ids of a cached piece */
#define BY__SHORT_PIECE 48u /* most symbols of a piece that is merged by scanning */

typedef struct by__tokenizer_cached {
    uint64_t low; /* the piece's bytes, padded with zeros, its length in the last byte */
    uint64_t high;
    uint32_t ids[BY__CACHE_IDS];
    uint32_t count;
} by__tokenizer_cached;

/* A symbol of a long piece, in a doubly linked list within an array. */
typedef struct by__tokenizer_symbol {
    uint32_t id; /* BY__NO_TOKEN: merged into the previous one */
    uint32_t previous;
    uint32_t next;
    uint32_t rank; /* rank of the pair with the next one */
} by__tokenizer_symbol;

typedef struct by__tokenizer_best by__tokenizer_best; /* unigram_model.c */

struct by_encoder {
    const by_tokenizer *tokenizer;
    by__tokenizer_cached *cache;
    by__tokenizer_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap; /* rank << 32 | position, smallest first */
    size_t heap_count;
    size_t heap_capacity;
    by__tokenizer_best *best; /* of Unigram, by place */
    size_t best_capacity;
    by__tokenizer_parts parts; /* of the last text that was encoded */
    by__tokenizer_parts rest;  /* of what by__tokenizer_encode_rest encoded */
    by__tokenizer_parts inner; /* parts of one part, after normalization */
    by__tokenizer_rewriting normal;
    by__tokenizer_rewriting prefixed;
};

/* Encodes the text that was encoded last again, cut off at byte `to`, with the same flags of which
 * none adds ids: keeps as many of its ids as the cut does not change, *kept, and appends those
 * behind them. */
by_status by__tokenizer_encode_rest(by_encoder *encoder, const char *text, size_t to, size_t *kept,
                                    by_token_buffer *out, unsigned flags, by_error *error);
/* Makes room for more ids. */
by_status by__tokenizer_reserve_ids(by_token_buffer *out, size_t more, by_error *error);
/* Merges the symbols of a piece in place; returns how many are left. Short: 1 .. BY__SHORT_PIECE
 * symbols. */
size_t by__tokenizer_merge_short(const by_tokenizer *tokenizer, uint32_t *ids, size_t count);
by_status by__tokenizer_merge_long(by_encoder *encoder, uint32_t *ids, size_t *count,
                                   by_error *error);

#endif
