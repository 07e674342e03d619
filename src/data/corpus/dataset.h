/* data: reads files and makes batches of named arrays.
 *
 * What it is for: by_dataset reads a packed directory and finds tokens and documents by position. A
 * by_source writes samples: windows of tokens (token_source.c), examples of a by_array_set with
 * augmentation (array_source.c), or samples made by a program. order.h is the pseudo-random order
 * of samples; by_loader (loader.c) reads a source's samples in that order and fills batches ahead
 * of their use. csv_table.c and encoding.c make arrays from tables. formats/ reads and writes the
 * files; tokenizer/ and pack/ make token data.
 *
 * Who owns what: a data set owns its files and is read-only after opening, so that any number of
 * sources and threads share it; a source borrows it; a loader owns its source, its thread and its
 * ring of batches.
 *
 * Determinism: the content of a batch is a pure function of (data, seed, options of the source,
 * sample index). It does not depend on threads, time or rank.
 *
 * Never put here: models, losses, devices; an allocation or a lock per sample; an order that needs
 * a table as long as the data.
 */
#ifndef BY_DATA_CORPUS_DATASET_H
#define BY_DATA_CORPUS_DATASET_H

#include "banyan/data.h"
#include "data/corpus/best_fit.h"

/* Returns true if any of the tokens [begin, end) is damaged; the second function returns the number
 * of damaged tokens. */
bool by__data_is_damaged(const by_dataset *dataset, uint64_t begin, uint64_t end);
uint64_t by__data_damaged(const by_dataset *dataset);
/* The directory, for messages. */
const char *by__data_directory_name(const by_dataset *dataset);
/* Copies the first tokens of documents [first, first + count); for first + count = documents + 1
 * the last value is the total number of tokens. */
by_status by__data_offsets(const by_dataset *dataset, uint64_t first, size_t count, uint64_t *out,
                           by_error *error);
/* Iterates over documents that begin at tokens (position, position + count] of the data. */
typedef struct by__data_borders {
    const by_dataset *dataset;
    uint64_t document; /* the next document to check */
    uint64_t last;     /* the last border found, or the position */
    uint64_t end;      /* the last token to check */
    uint64_t offsets[64];
    size_t offset_count;
    size_t next; /* index of the next buffered offset */
} by__data_borders;
/* Starts at a position, which is a token of the data or one past the last. *begin: first token of
 * the document that contains the position. */
by_status by__data_borders_open(by__data_borders *out, const by_dataset *dataset, uint64_t position,
                                uint64_t count, uint64_t *begin, by_error *error);
/* Finds the next border; *found is false if there is none. */
by_status by__data_borders_next(by__data_borders *borders, bool *found, uint64_t *begin,
                                by_error *error);
/* Packs the documents into bins of context + 1 tokens; `apart`: one piece in each. Closed with
 * by__data_bins_close. */
by_status by__data_bins_of(by__data_bins *out, const by_dataset *dataset, size_t context,
                           bool apart, by_error *error);
/* Tells the operating system whether the shards will be read at random or sequentially. */
void by__data_advise(const by_dataset *dataset, bool at_random);

#endif
