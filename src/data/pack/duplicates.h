/* Detects duplicate documents: exact copies by a hash of their text, near copies by MinHash.
 *
 * A near copy is a document whose set of word 5-grams overlaps strongly with that of an earlier
 * one. For two sets of Jaccard similarity s = |A and B| / |A or B| and a random order of all
 * 5-grams, the least elements of A and B are the same with probability s (Broder, On the
 * resemblance and containment of documents, 1997). A signature has 14 bands of 8 such minima, and
 * documents that agree in a whole band count as copies, with probability 1 - (1 - s^8)^14, which is
 * 0.05 at s = 0.5, 0.56 at 0.7, 0.92 at 0.8 and 0.9996 at 0.9 (locality-sensitive hashing: Indyk
 * and Motwani 1998; 14 and 8 are FineWeb's numbers, Penedo et al. 2024). The first of them is kept.
 *
 * Memory: 24 bytes for each document kept, and 224 more for near copies. */
#ifndef BY_DATA_PACK_DUPLICATES_H
#define BY_DATA_PACK_DUPLICATES_H

#include "banyan/pack.h"
#include "base/base.h"

#define BY__MINHASH_BANDS 14
#define BY__MINHASH_ROWS  8

typedef struct by__data_pack_signature {
    uint64_t exact;
    uint64_t bands[BY__MINHASH_BANDS];
    bool has_bands; /* false: near copies are not checked, or the text has fewer than 5 words */
} by__data_pack_signature;

/* Computes the signature of a text. Words are runs of letters, digits and characters beyond ASCII;
 * ASCII letters are compared without case. Thread-safe. */
void by__data_signature_make(by__data_pack_signature *out, const char *text, size_t length,
                             by_pack_dedup dedup);

/* The set of documents kept. {0} is the empty set. */
typedef struct by__data_duplicates {
    struct by__data_key_set {
        uint64_t *keys; /* open addressing; 0: free */
        size_t capacity;
        size_t count;
    } exact, bands;
} by__data_duplicates;

/* Classifies a document; BY_PACK_DEDUP_NONE: it is new, and was added to the set. BY_EMEMORY. */
by_status by__data_duplicates_add(by__data_duplicates *set,
                                  const by__data_pack_signature *signature, by_pack_dedup *out,
                                  by_error *error);
void by__data_duplicates_free(by__data_duplicates *set);

#endif
