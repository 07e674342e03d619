/* Writes one packed directory: shards, document offsets, tokenizer and manifest. */
#ifndef BY_DATA_PACK_SHARD_WRITER_H
#define BY_DATA_PACK_SHARD_WRITER_H

#include "banyan/chat.h"
#include "banyan/tokenizer.h"
#include "data/corpus/token_manifest.h"
#include "formats/npy.h"

/* Initialize to zero, then call by__data_shard_writer_open; close it in any case. */
typedef struct by__data_shard_writer {
    char *directory;
    uint64_t shard_tokens;
    by__data_token_manifest manifest; /* updated as tokens are added */
    size_t shard_capacity;
    size_t source_capacity;
    by__format_npy_writer *shard; /* the open shard */
    uint64_t shard_room;
    by__format_npy_writer *offsets;
    by__format_npy_writer *blocks; /* checksums of blocks */
    uint8_t *block;                /* the last tokens of the shard, encoded as in the file */
    size_t block_tokens;
    by__format_npy_writer *mask; /* of conversations; NULL: there is none */
} by__data_shard_writer;

/* Creates the directory and writes the tokenizer. eos: true if documents end with the end-of-text
 * token. */
by_status by__data_shard_writer_open(by__data_shard_writer *writer, const char *directory,
                                     const by_tokenizer *tokenizer, bool eos, uint64_t shard_tokens,
                                     by_error *error);
/* Appends tokens. */
by_status by__data_shard_writer_add(by__data_shard_writer *writer, const uint32_t *ids,
                                    size_t count, by_error *error);
/* Begins the mask of conversations, and writes the template that renders them. Called once, before
 * tokens are added. */
by_status by__data_shard_writer_open_mask(by__data_shard_writer *writer, const by_chat *chat,
                                          by_error *error);
/* Appends the mask of the tokens that were added. */
by_status by__data_shard_writer_add_mask(by__data_shard_writer *writer, const uint8_t *learned,
                                         size_t count, by_error *error);
/* Ends a document after the last added token. */
by_status by__data_shard_writer_end_document(by__data_shard_writer *writer, by_error *error);
/* Adds a source to the manifest. */
by_status by__data_shard_writer_add_source(by__data_shard_writer *writer, const char *path,
                                           uint64_t bytes, const char hash[33], by_error *error);
/* Finishes the files and writes the manifest. Nothing may be added afterwards. */
by_status by__data_shard_writer_finish(by__data_shard_writer *writer, by_error *error);
void by__data_shard_writer_close(by__data_shard_writer *writer);

#endif
