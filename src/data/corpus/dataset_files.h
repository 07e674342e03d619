/* Internal records of packed directories, shared by dataset.c, which opens and reads them, and
 * dataset_verify.c, which verifies their checksums. */
#ifndef BY_DATA_CORPUS_DATASET_FILES_H
#define BY_DATA_CORPUS_DATASET_FILES_H

#include "data/corpus/dataset.h"
#include "data/corpus/token_manifest.h"
#include "data/loader/damage.h"

/* An npy file. */
typedef struct by__data_token_file {
    char *path;
    int fd;         /* -1: the file is opened for each read */
    bool is_open;   /* path and fd are owned */
    uint64_t start; /* byte offset of its elements, which are little-endian */
    uint64_t first; /* index of its first token in the whole stream */
    uint64_t count;
    char *problem; /* why it cannot be read, if damaged shards are skipped; else NULL */
} by__data_token_file;

struct by_dataset {
    char *directory;
    by__data_token_manifest manifest;
    by__data_token_file *shards;
    by__data_token_file documents; /* documents + 1 offsets of 8 bytes */
    by__loader_damage damage;
};

/* Reads bytes of a shard's elements. */
by_status by__data_token_file_read(const by__data_token_file *shard, uint64_t offset, void *out,
                                   size_t bytes, by_error *error);
/* The largest of `count` tokens of `width` bytes each. */
uint32_t by__data_tokens_greatest(const void *tokens, size_t count, unsigned width);

/* ---- dataset_verify.c ---- */

/* Verifies the checksums of all files, and that all tokens are in the vocabulary. */
by_status by__data_verify(const by_dataset *dataset, const by_dataset_options *options,
                          by_error *error);
/* The same, but damaged tokens are recorded in dataset->damage; damaged offsets are an error. */
by_status by__data_find_damage(by_dataset *dataset, const by_dataset_options *options,
                               by_error *error);

/* ---- checksums.c ---- */

/* Restores dataset->damage as it was found before if the files are unchanged since; *known says
 * whether it did. */
by_status by__data_stamp_read(by_dataset *dataset, bool *known, by_error *error);
/* Makes the next opening verify everything again. */
void by__data_stamp_drop(const by_dataset *dataset);

#endif
