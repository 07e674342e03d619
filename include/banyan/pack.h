/* Packing: tokenizes text into shards, once, in parallel.
 *
 * A packed directory contains the tokens of all documents as npy shards, the offsets of the
 * documents, the tokenizer, and a manifest with sizes and checksums
 * (src/data/corpus/token_manifest.h describes the format). by_dataset_open reads it.
 *
 * Inputs are files and directories. A .jsonl or .ndjson file has one JSON object per line, whose
 * string member `field` is a document. A .parquet file has one document per row, in the column
 * `field`. Any other file is one document. Directories are searched recursively, in byte order of
 * names, for files ending in .txt, .text, .md, .jsonl, .ndjson and .parquet.
 *
 * A byte-order mark at the start of a file is dropped, and a symbolic link to a directory that
 * contains it is not followed; both are reported through `note`.
 *
 * The result depends on the texts, their order and the options, but not on the number of threads.
 */
#ifndef BANYAN_PACK_H
#define BANYAN_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/chat.h"
#include "banyan/conversation.h"
#include "banyan/remote.h"
#include "banyan/status.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How far packing has come. */
typedef struct by_pack_progress {
    /* "downloading" (inputs that are URLs), "reading" (hashing the inputs), "tokenizer" (training
     * one), "packing", or "waiting" for another process that packs the same. */
    const char *phase;
    uint64_t done_bytes; /* of the inputs, in this phase */
    uint64_t total_bytes;
    uint64_t tokens; /* written so far */
} by_pack_progress;

/* Which duplicates of earlier documents are dropped. */
typedef enum by_pack_dedup {
    BY_PACK_DEDUP_NONE = 0, /* none */
    BY_PACK_DEDUP_EXACT,    /* documents with identical bytes */
    BY_PACK_DEDUP_NEAR      /* also documents sharing most word 5-grams (MinHash, Broder 1997;
                               src/data/pack/duplicates.h) */
} by_pack_dedup;

/* Conversations instead of texts (banyan/conversation.h). Inputs are JSON lines, Parquet files
 * whose columns of texts are the fields of a record, and .json files with a list of records; other
 * files of directories are passed over. Samples are the documents, without an end-of-text token
 * that the template does not write, beside a mask of what is learned. */
typedef struct by_pack_chat {
    const by_chat *chat;
    by_conversation_options options;
} by_pack_chat;

typedef struct by_pack_options {
    const char *const *inputs; /* paths, or URLs (banyan/remote.h) */
    size_t input_count;
    const char *output;            /* directory to create; must not exist */
    const by_tokenizer *tokenizer; /* NULL: made as the next two fields say */
    /* "char": the characters of the inputs; "bpe": trained on the part that is not held out;
     * otherwise a path for by_tokenizer_open. */
    const char *tokenizer_kind;
    size_t tokenizer_vocab; /* vocabulary size of a BPE trained here */
    const char *field;      /* of JSON lines and Parquet files; NULL: "text" */
    /* NULL: the inputs are texts. Conversations need a tokenizer that exists, one rank and no
     * `dedup`; valid_fraction holds out records in even distances, and at least one of two;
     * skip_corrupt skips records that are no conversations or have no answer. */
    const by_pack_chat *chat;
    uint64_t shard_tokens; /* tokens per shard; 0: 2^27 */
    size_t threads;        /* 0: one per core */
    /* Fraction held out for validation, in [0, 1). If > 0, OUTPUT/train gets the first
     * floor(n * (1 - fraction)) of the n characters of the inputs and OUTPUT/valid the rest. The
     * cut may be inside a text file; in JSON lines it moves back to the start of the line, unless
     * that leaves less than half of the first part. 0: everything is packed into OUTPUT itself. */
    double valid_fraction;
    by_pack_dedup dedup; /* over both parts; text files are then not cut */
    /* Skip JSON lines without a document (malformed, or the field is missing or not a string) and
     * report each by a note "FILE:LINE: ..."; otherwise they are errors. */
    bool skip_corrupt;
    /* How many lines may be skipped: below 1, a fraction of all lines that are not blank; from 1
     * on, their number. More are an error. */
    double corrupt_budget;
    by_remote_options remote; /* of inputs that are URLs; `progress` below is told of them */
    bool no_eos;              /* do not append the end-of-text token to each document */
    /* With ranks > 1, this process is one of them, which have the options and a file system in
     * common: they encode parts of the texts into OUTPUT.partial, and the one that is last joins
     * them. What ranks that were killed have encoded is kept, and used when all are started
     * again, also in another number. */
    size_t rank;
    size_t ranks;
    /* May be NULL. Called by one thread at a time; returning false stops with BY_ESTOPPED. */
    bool (*progress)(void *user, const by_pack_progress *progress);
    /* May be NULL. Receives remarks for the user, each one line without a line break. */
    void (*note)(void *user, const char *text);
    void *user;
} by_pack_options;

/* Totals of train/ and valid/ together. */
typedef struct by_pack_result {
    uint64_t tokens;
    uint64_t documents;
    uint64_t text_bytes;       /* bytes of the packed documents */
    uint64_t valid_tokens;     /* tokens in valid/ */
    uint64_t exact_duplicates; /* documents dropped */
    uint64_t near_duplicates;  /* documents dropped */
    uint64_t duplicate_bytes;  /* bytes of all dropped documents */
    uint64_t corrupt_lines;    /* lines skipped */
    uint64_t targets;          /* of conversations: learned tokens, */
    uint64_t too_long;         /* samples left out since they are longer than the context, */
    uint64_t cut;              /* and those of which the beginning was kept */
    uint32_t vocab;
    bool complete;         /* false: other ranks still encode; the numbers above are 0 */
    double learn_seconds;  /* training or opening the tokenizer; 0 if the caller passed one */
    double encode_seconds; /* reading, encoding and writing, without the final sync to disk */
} by_pack_result;

/* Packs into options->output, which appears complete by a rename or not at all; `result` may be
 * NULL. An interrupted run leaves only OUTPUT.partial, which the next one replaces, or, of several
 * ranks, goes on with. Returns BY_EARG
 * if an option is out of range, the output exists, another process is packing into it, or
 * OUTPUT.partial was not made by banyan; BY_EFORMAT if an input is malformed (file:line), changes
 * meanwhile, or holds no text; BY_EIO; BY_ESTOPPED. */
BY_API by_status by_pack(const by_pack_options *options, by_pack_result *result, by_error *error);

/* Packs into a subdirectory of `cache` named by a hash of the inputs' content and all options that
 * affect the tokens, unless it exists already, and returns its path, to be freed with free().
 * options->output is ignored. If several processes ask for the same at once, one packs while the
 * others wait (phase "waiting"). Errors as by_pack. */
BY_API by_status by_pack_cached(char **directory, const by_pack_options *options, const char *cache,
                                by_error *error);

#ifdef __cplusplus
}
#endif
#endif
