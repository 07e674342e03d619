/* Writes one packed directory: shards, document offsets, tokenizer and manifest. */
#ifndef BY_DATA_PACK_SHARD_WRITER_H
#define BY_DATA_PACK_SHARD_WRITER_H

#include "banyan/tokenizer.h"
#include "data/formats/npy.h"
#include "data/formats/token_manifest.h"

/* Zero it, then by__shard_writer_open; close it in any case. */
typedef struct by__shard_writer {
    char *directory;
    uint64_t shard_tokens;
    by__token_manifest manifest; /* grows as tokens come */
    size_t shard_capacity;
    size_t source_capacity;
    by__npy_writer *shard; /* the open one */
    uint64_t shard_room;
    by__npy_writer *offsets;
    by__npy_writer *blocks; /* checksums */
    uint8_t *block;         /* the newest tokens of the shard, as they are in the file */
    size_t block_tokens;
} by__shard_writer;

/* Makes the directory, with the tokenizer in it. eos: whether documents are marked. */
by_status by__shard_writer_open(by__shard_writer *writer, const char *directory,
                                const by_tokenizer *tokenizer, bool eos, uint64_t shard_tokens,
                                by_error *error);
/* Appends tokens. */
by_status by__shard_writer_add(by__shard_writer *writer, const uint32_t *ids, size_t count,
                               by_error *error);
/* Ends a document with the token that was added last. */
by_status by__shard_writer_end_document(by__shard_writer *writer, by_error *error);
/* Adds to the sources of the manifest. */
by_status by__shard_writer_add_source(by__shard_writer *writer, const char *path, uint64_t bytes,
                                      const char hash[33], by_error *error);
/* Finishes the files and writes the manifest. Nothing may be added behind. */
by_status by__shard_writer_finish(by__shard_writer *writer, by_error *error);
void by__shard_writer_close(by__shard_writer *writer);

#endif
