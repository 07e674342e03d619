/* Stored logits: a teacher's predictions for each token of a packed directory, for distillation
 * without the teacher (Hinton et al. 2015; all tokens outside the top ones count as one event).
 *
 * A directory of manifest.json and shards, npy files that numpy.load(mmap_mode="r") reads. Row i
 * holds the prediction of token i + 1 of the data, given the tokens before it in its window;
 * windows of `context` tokens begin at multiples of `context`.
 *
 *   ids-NNNNN.npy         '<i4' [rows, top]      the most probable tokens, descending
 *   logarithms-NNNNN.npy  '<f4' [rows, top + 1]  of their probabilities softmax(logits /
 *                                                temperature), and of that of all others
 *
 *   {"format": "banyan-logits", "version": 1, "rows": N, "context": N, "vocab": N, "top": N,
 *    "temperature": T, "data": HEX32, "teacher": HEX32,
 *    "shards": [{"rows": N, "ids": HEX32, "logarithms": HEX32}, ...]}
 *
 * data: by_dataset_hash of the teacher's input; teacher: XXH3-128 of what identifies its weights;
 * ids and logarithms of shards: XXH3-128 of the files. NNNNN of shard i is i. The manifest is
 * written last.
 */
#ifndef BY_DATA_CORPUS_LOGIT_STORE_H
#define BY_DATA_CORPUS_LOGIT_STORE_H

#include "banyan/data.h"
#include "base/base.h"

typedef struct by__data_logit_shard {
    uint64_t rows;
    char ids[33];
    char logarithms[33];
} by__data_logit_shard;

typedef struct by__data_logit_manifest {
    uint64_t rows;
    uint64_t context;
    uint64_t vocab;
    uint64_t top; /* 1 to vocab */
    double temperature;
    char data[33];
    char teacher[33];
    by__data_logit_shard *shards;
    size_t shard_count;
} by__data_logit_manifest;

/* BY_EFORMAT names `name`, the key and the problem. Freed with by__data_logit_manifest_free. */
by_status by__data_logit_manifest_parse(by__data_logit_manifest *out, const char *name,
                                        const char *text, size_t length, by_error *error);
by_status by__data_logit_manifest_read(by__data_logit_manifest *out, const char *directory,
                                       by_error *error);
void by__data_logit_manifest_free(by__data_logit_manifest *manifest);

/* ---- reading ---- */

/* Copies rows [first, first + count): ids [count, top], logarithms [count, top + 1]. BY_EFORMAT: an
 * id is not below the vocabulary. Thread-safe. */
by_status by__data_logit_store_rows(const by_logit_store *store, uint64_t first, size_t count,
                                    int32_t *ids, float *logarithms, by_error *error);

/* ---- writing ---- */

typedef struct by_logit_writer by_logit_writer;

/* Begins a directory, which must not exist and appears when it is finished. All members of `what`
 * except rows and shards are set. */
by_status by__data_logit_writer_open(by_logit_writer **out, const char *directory,
                                     const by__data_logit_manifest *what, by_error *error);
by_status by__data_logit_writer_add(by_logit_writer *writer, const int32_t *ids,
                                    const float *logarithms, size_t rows, by_error *error);
by_status by__data_logit_writer_finish(by_logit_writer *writer, by_error *error);
/* Closes the writer; removes an unfinished directory. */
void by__data_logit_writer_close(by_logit_writer **writer);

#endif
