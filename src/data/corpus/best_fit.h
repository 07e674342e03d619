/* Best-fit packing of documents into bins (Ding et al. 2024, "Fewer Truncations Improve Language
 * Modeling", section 3).
 *
 * A document longer than a bin is cut into pieces of a bin's length, each of which begins with the
 * last token of the previous one, so that no prediction is lost; the remainder, and every other
 * document, is one piece. Pieces are placed from the longest to the shortest, each into the fullest
 * bin that has room for it (best-fit decreasing). Ties are broken by taking the newest of equally
 * full bins, and pieces of equal length in the order of documents: the result is a function of the
 * lengths alone. O(n log n) for n pieces: a search takes as many steps as a bin's length has digits
 * in base 64. */
#ifndef BY_DATA_CORPUS_BEST_FIT_H
#define BY_DATA_CORPUS_BEST_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

typedef struct by__data_piece {
    uint64_t begin; /* first token, in the data set */
    uint32_t length;
} by__data_piece;

typedef struct by__data_bins {
    by__data_piece *pieces; /* bin by bin, in order of placement */
    uint32_t *first;        /* [count + 1] the first piece of each bin */
    uint32_t count;
    uint32_t capacity; /* tokens per bin */
    uint32_t piece_count;
    uint64_t cut;    /* number of documents in more than one piece */
    uint64_t tokens; /* tokens of all pieces: shared ones count twice */
} by__data_bins;

/* Fills bins of `capacity` tokens (at least 2) with the documents [offsets[i], offsets[i + 1]);
 * `apart`: each bin has one piece, in the order of documents. Memory: by__data_bins_bytes. BY_EARG:
 * there are 2^32 pieces or more; BY_EMEMORY. */
by_status by__data_bins_open(by__data_bins *out, const uint64_t *offsets, uint64_t documents,
                             uint32_t capacity, bool apart, by_error *error);
void by__data_bins_close(by__data_bins *bins);
/* Number of pieces of the documents with offsets[0 .. count]. */
uint64_t by__data_bins_pieces(const uint64_t *offsets, size_t count, uint32_t capacity);
/* Bytes used by bins of so many pieces, with as many bins as pieces; *opening: while they are being
 * filled, including the caller's offsets of the documents. */
uint64_t by__data_bins_bytes(uint64_t pieces, uint64_t documents, uint32_t capacity,
                             uint64_t *opening);
/* Number of tokens in a bin. */
uint32_t by__data_bins_used(const by__data_bins *bins, uint32_t bin);

#endif
