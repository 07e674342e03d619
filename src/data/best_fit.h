/* Documents in bins: best-fit packing (Ding et al. 2024, "Fewer Truncations Improve Language
 * Modeling", section 3).
 *
 * A document longer than a bin is cut into pieces of a bin's length, each of which begins with the
 * last token of the one before it, so that no prediction is lost; what is left, and every other
 * document, is a piece of its own. Pieces are placed from the longest to the shortest, each into
 * the fullest bin that has room for it (best-fit decreasing). Bins that are equally full are taken
 * from the newest on, pieces of a length in the order of documents: the result is a function of
 * the lengths alone. O(n log n) for n pieces: a search takes as many steps as a bin's length has
 * digits in base 64. */
#ifndef BY_DATA_BEST_FIT_H
#define BY_DATA_BEST_FIT_H

#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"

typedef struct by__piece {
    uint64_t begin; /* token of the data set */
    uint32_t length;
} by__piece;

typedef struct by__bins {
    by__piece *pieces; /* bin by bin, in the order in which they were placed */
    uint32_t *first;   /* [count + 1] the first piece of each bin */
    uint32_t count;
    uint32_t capacity; /* tokens of a bin */
    uint32_t piece_count;
    uint64_t cut;    /* documents that are in more than one piece */
    uint64_t tokens; /* of all pieces: those that pieces share count twice */
} by__bins;

/* Fills bins of `capacity` tokens (2 at least) with the documents that begin at offsets[i] and end
 * at offsets[i + 1]. Memory: by__bins_bytes.
 * BY_EARG: there are 2^32 pieces or more; BY_EMEMORY. */
by_status by__bins_open(by__bins *out, const uint64_t *offsets, uint64_t documents,
                        uint32_t capacity, by_error *error);
void by__bins_close(by__bins *bins);
/* How many pieces the documents whose offsets are offsets[0 .. count] are cut into. */
uint64_t by__bins_pieces(const uint64_t *offsets, size_t count, uint32_t capacity);
/* Bytes that bins of so many pieces take, as many bins as pieces; *opening: while they are filled,
 * with the offsets of the documents that the caller has. */
uint64_t by__bins_bytes(uint64_t pieces, uint64_t documents, uint32_t capacity, uint64_t *opening);
/* Tokens in a bin. */
uint32_t by__bins_used(const by__bins *bins, uint32_t bin);

#endif
