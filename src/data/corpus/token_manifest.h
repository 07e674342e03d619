/* The manifest of a packed directory, and the format of such directories.
 *
 *   DIR/tokens-00000.npy ...  the tokens of all documents, in order, cut into shards of equal size
 *                             (the last is shorter); 1-D npy, '<u2' when the vocabulary is at most
 *                             65536, else '<u4'; a document may cross a shard
 *   DIR/documents.npy         1-D '<u8', documents + 1 numbers: document i holds the tokens
 *                             [offset[i], offset[i + 1]) of the whole stream, its end-of-text token
 *                             included; offset[0] = 0, offset[documents] = tokens, never decreasing
 *   DIR/blocks.npy            1-D '<u8': XXH3-64 of each 4,096 tokens of each shard (the last block
 *                             of a shard may be shorter), which says where a shard is damaged. The
 *                             manifest does not name it: it is of use only where a shard's own
 *                             checksum is wrong, and a directory may be without it
 *   DIR/tokenizer.json        the tokenizer that made the tokens (Hugging Face format)
 *   DIR/manifest.json         this file, written last; a directory without it is not a data set
 *
 * manifest.json is an object with exactly these keys:
 *
 *   "format": "banyan-tokens", "version": 1,
 *   "dtype": "u16" | "u32",   of the shards
 *   "vocab": N,               every token is below it
 *   "eos": ID | -1,           the token that ends each document, -1: documents are not marked
 *   "tokens": N, "documents": N,
 *   "text_bytes": N,          bytes of text that the tokens encode (bits per byte)
 *   "tokenizer": {"file": "tokenizer.json", "hash": HEX32},      by_tokenizer_hash
 *   "offsets": {"file": "documents.npy", "xxh3_128": HEX32},
 *   "shards": [{"file": NAME, "tokens": N, "xxh3_128": HEX32}, ...],
 *   "sources": [{"path": TEXT, "bytes": N, "xxh3_128": HEX32}, ...]
 *
 * and, if the documents are conversations (banyan/conversation.h), the key
 *
 *   "chat": {"mask": "mask.npy", "xxh3_128": HEX32, "template": "chat_template.jinja",
 *            "records": N, "targets": N, "corrupt": N, "too_long": N, "cut": N, "lost": N}
 *            and "pairs": true, if documents 2 i and 2 i + 1 are the two sides of preference i
 *
 *   DIR/mask.npy              1-D '|u1': 1 for each token of the stream that is learned, or 0
 *   DIR/chat_template.jinja   the template that rendered them
 *
 * whose numbers are those of by_dataset_chat (banyan/data.h).
 *
 * xxh3_128 of an npy file is that of its elements, without the npy header; that of a source is of
 * the whole file. Each N fits in 53 bits. NAME is a plain file name (no '/', not "." or "..").
 */
#ifndef BY_DATA_CORPUS_TOKEN_MANIFEST_H
#define BY_DATA_CORPUS_TOKEN_MANIFEST_H

#include "base/base.h"

#define BY__BLOCKS_FILE    "blocks.npy"
#define BY__CHECKED_TOKENS ((size_t)4096)

typedef struct by__data_token_shard {
    char *file;
    uint64_t tokens;
    char hash[33];
} by__data_token_shard;

typedef struct by__data_token_source {
    char *path;
    uint64_t bytes;
    char hash[33];
} by__data_token_source;

/* Of conversations. */
typedef struct by__data_chat_manifest {
    char *mask_file; /* NULL: the documents are no conversations */
    char mask_hash[33];
    char *template_file;
    uint64_t records;
    uint64_t targets;
    uint64_t corrupt;
    uint64_t too_long;
    uint64_t cut;
    uint64_t lost;
    bool pairs; /* documents 2 i and 2 i + 1 are the chosen and the rejected one of a preference */
} by__data_chat_manifest;

/* Bytes of a token of a vocabulary, in shards. */
static inline unsigned by__data_token_width(uint32_t vocab)
{
    return vocab <= 65536 ? 2 : 4;
}

typedef struct by__data_token_manifest {
    unsigned width; /* bytes per token in the shards: 2 or 4 */
    uint32_t vocab;
    int64_t eos; /* -1: none */
    uint64_t tokens;
    uint64_t documents;
    uint64_t text_bytes;
    char *tokenizer_file;
    char tokenizer_hash[33];
    char *offsets_file;
    char offsets_hash[33];
    by__data_token_shard *shards;
    size_t shard_count;
    by__data_token_source *sources;
    size_t source_count;
    by__data_chat_manifest chat;
} by__data_token_manifest;

/* Reads DIRECTORY/manifest.json strictly: every key present and of its type, no unknown key, shard
 * tokens summing to the total. BY_EIO: cannot be read; BY_EFORMAT names file, key and value. The
 * files that it lists are not opened. The caller frees the result. */
by_status by__data_token_manifest_read(by__data_token_manifest *out, const char *directory,
                                       by_error *error);
/* The same from memory; `name` is the file in messages. */
by_status by__data_token_manifest_parse(by__data_token_manifest *out, const char *name,
                                        const char *text, size_t length, by_error *error);
/* Writes DIRECTORY/manifest.json atomically. */
by_status by__data_token_manifest_write(const by__data_token_manifest *manifest,
                                        const char *directory, by_error *error);
void by__data_token_manifest_free(by__data_token_manifest *manifest);

#endif
