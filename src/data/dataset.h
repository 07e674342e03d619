/* data: from files to batches of named arrays.
 *
 * What it is for: by_dataset reads a packed directory and finds tokens and documents by position. A
 * by_source writes samples: windows of tokens (token_source.c), examples of a by_array_set with
 * augmentation (array_source.c), or what a program makes. order.h is the pseudo-random order of
 * samples; by_loader (loader.c) takes a source's samples in that order and fills batches ahead of
 * their use. csv_table.c and encoding.c make arrays from tables. formats/ reads and writes the
 * files; tokenizer/ and packing make token data.
 *
 * Who owns what: a data set owns its files and is read-only after opening, so that any number of
 * sources and threads share it; a source borrows it; a loader owns its source, its thread and its
 * ring of batches.
 *
 * Determinism: the content of a batch is a pure function of (data, seed, options of the source,
 * sample index). No thread, time or rank enters it.
 *
 * Never put here: models, losses, devices; an allocation or a lock per sample; an order that needs
 * a table as long as the data.
 */
#ifndef BY_DATA_DATASET_H
#define BY_DATA_DATASET_H

#include "banyan/data.h"
#include "data/best_fit.h"

/* Whether any of the tokens [begin, end) is damaged, and how many of all are. */
bool by__dataset_is_damaged(const by_dataset *dataset, uint64_t begin, uint64_t end);
uint64_t by__dataset_damaged(const by_dataset *dataset);
/* The directory, for messages. */
const char *by__dataset_name(const by_dataset *dataset);
/* Copies the places where documents [first, first + count) begin, and, where that is the last one,
 * the number of tokens behind it: first + count is at most documents + 1. */
by_status by__dataset_offsets(const by_dataset *dataset, uint64_t first, size_t count,
                              uint64_t *out, by_error *error);
/* Documents that begin at tokens (position, position + count] of the data, one after the other. */
typedef struct by__borders {
    const by_dataset *dataset;
    uint64_t document; /* the next one to look at */
    uint64_t last;     /* the last border that was found, or the position */
    uint64_t end;      /* the last token to look at */
    uint64_t offsets[64];
    size_t offset_count;
    size_t next; /* of the offsets */
} by__borders;
/* The position is a token of the data, or the one behind the last. *begin: of the document that the
 * position is in. */
by_status by__borders_open(by__borders *out, const by_dataset *dataset, uint64_t position,
                           uint64_t count, uint64_t *begin, by_error *error);
/* Where the next document begins; false: no further one does. */
by_status by__borders_next(by__borders *borders, bool *found, uint64_t *begin, by_error *error);
/* The documents in bins of context + 1 tokens. Closed with by__bins_close. */
by_status by__bins_of(by__bins *out, const by_dataset *dataset, size_t context, by_error *error);
/* Tells the operating system how the shards will be read: at random or from front to back. */
void by__dataset_advise(const by_dataset *dataset, bool at_random);

#endif
