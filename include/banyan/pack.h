/* Packing: text to token shards, once, in parallel.
 *
 * A packed directory holds the tokens of all documents as npy shards, where each document begins,
 * the tokenizer, and a manifest with sizes and checksums (the format is described in
 * src/data/formats/token_manifest.h). by_dataset_open reads it.
 *
 * Inputs are files and directories. A file whose name ends in .jsonl or .ndjson holds one JSON
 * object a line, whose string `field` is a document; one whose name ends in .parquet has them in
 * the column `field`, one a row; any other file is one document. Of a directory (searched down, in
 * the byte order of names) the files that end in .txt, .text, .md, .jsonl, .ndjson and .parquet
 * are taken.
 *
 * A byte-order mark at the beginning of a file is left out, and a symbolic link that leads back to
 * a directory above it is not followed; both are reported through `note`.
 *
 * The result depends on the texts, their order and the options alone: not on the number of threads.
 */
#ifndef BANYAN_PACK_H
#define BANYAN_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/status.h"
#include "banyan/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct by_pack_progress {
    const char *phase;   /* "reading" (hashes), "tokenizer" (learning one), "packing"; "waiting" for
                            another process that packs the same */
    uint64_t done_bytes; /* of the inputs */
    uint64_t total_bytes;
    uint64_t tokens; /* written so far */
} by_pack_progress;

/* Documents that are left out because an earlier one is (almost) the same: none, those with the
 * same bytes, or also those that share most of their word 5-grams (MinHash;
 * src/data/pack/duplicates.h). */
typedef enum by_pack_dedup {
    BY_PACK_DEDUP_NONE = 0,
    BY_PACK_DEDUP_EXACT,
    BY_PACK_DEDUP_NEAR
} by_pack_dedup;

typedef struct by_pack_options {
    const char *const *inputs;
    size_t input_count;
    const char *output;            /* directory to make; it must not exist */
    const by_tokenizer *tokenizer; /* or NULL: made from the two below */
    const char *tokenizer_kind;    /* "char": the characters of the inputs; "bpe": learned from the
                               part    that is not held out; else a path for by_tokenizer_open */
    size_t tokenizer_vocab;        /* size of a BPE that is learned here */
    const char *field;             /* of JSON lines and Parquet files; NULL: "text" */
    uint64_t shard_tokens;         /* tokens of a shard; 0: 2^27 */
    size_t threads;                /* 0: one a core */
    double valid_fraction;         /* in [0, 1). Above 0: OUTPUT/train holds the first
                               floor(n * (1 - fraction)) of the n characters of the inputs,
                               OUTPUT/valid the rest. The cut may fall inside a text file; in JSON
                               lines it moves back to the start of its line. 0: all is packed
                               into OUTPUT itself */
    by_pack_dedup dedup;           /* over both parts; text files are then taken whole */
    /* Lines of JSON that hold no text, as they do not parse, or whose field is missing or not a
     * string: an error, or with skip_corrupt left out, each with a note "FILE:LINE: ...". At most
     * so many: below 1 a share of all lines that are not blank, from 1 on their number; more are an
     * error. */
    bool skip_corrupt;
    double corrupt_budget;
    bool no_eos; /* do not put the tokenizer's end-of-text token behind each document */
    bool (*progress)(void *user, const by_pack_progress *progress); /* may be NULL; called by one
                                   thread at a time; returns false to stop (BY_ESTOPPED) */
    void (*note)(void *user, const char *text); /* may be NULL; something that the user should
                                                   know, as a line without its end */
    void *user;
} by_pack_options;

/* Of train/ and valid/ together, and of valid/. */
typedef struct by_pack_result {
    uint64_t tokens;
    uint64_t documents;
    uint64_t text_bytes;
    uint64_t valid_tokens;
    uint64_t exact_duplicates; /* documents left out */
    uint64_t near_duplicates;
    uint64_t duplicate_bytes; /* of their texts */
    uint64_t corrupt_lines;   /* left out */
    uint32_t vocab;
    double learn_seconds;  /* of learning or opening the tokenizer; 0 when the caller gave it */
    double encode_seconds; /* reading, encoding and writing, without opening the tokenizer and
                              without the last sync to disk */
} by_pack_result;

/* Packs. The directory appears whole, by a rename, or not at all; a run that is killed leaves only
 * OUTPUT.partial, which the next one replaces (two packs to one output at the same time: the second
 * is refused; so is an OUTPUT.partial that banyan did not make). `result` may be NULL. BY_EARG: an
 * option is out of range or output exists; BY_EIO; BY_EFORMAT: an input is broken (file:line) or
 * changed while it was packed; BY_ESTOPPED. */
BY_API by_status by_pack(const by_pack_options *options, by_pack_result *result, by_error *error);

/* Packs into a directory under `cache` whose name is a hash of the inputs' content and of all
 * options that decide the tokens, unless it is already there, and returns its path (freed with
 * free()). options->output is not used. Several processes may ask for the same at the same time:
 * one packs, the others wait (phase "waiting", and may be stopped). */
BY_API by_status by_pack_cached(char **directory, const by_pack_options *options, const char *cache,
                                by_error *error);

#ifdef __cplusplus
}
#endif
#endif
