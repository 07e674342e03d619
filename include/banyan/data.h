/* Training data: packed token data, batches, sources of samples, and loaders.
 *
 * A batch is a list of named arrays whose first axis is the example. A source defines the arrays of
 * a sample and writes samples on request: windows of packed tokens, or whatever a program provides.
 * A loader puts the samples of a source in order and fills batches in one background thread, so
 * that the next batch is ready before it is asked for.
 *
 * Order. Sample i of epoch e is the source's sample permute(seed, e, i), a pseudo-random
 * permutation computed without a table (a Feistel network with cycle walking). The complete state
 * of a loader is therefore one integer, the index of the next sample over all epochs: a loader
 * opened or moved there continues exactly, with any batch size and any number of ranks. Random
 * augmentation is likewise a pure function of (seed, sample index).
 */
#ifndef BANYAN_DATA_H
#define BANYAN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- token data ---- */

/* A packed directory: token shards and a manifest, as written by `banyan pack`. Any number of
 * threads may read one at the same time. */
typedef struct by_dataset by_dataset;

typedef struct by_dataset_options {
    /* Read all shards, compare their checksums with the manifest and their tokens with the
     * vocabulary. */
    bool verify;
    /* Tolerate damaged tokens. They are found as with `verify`, unless by_data_verify has recorded
     * them already, and by_dataset_damage lists them. In a shard with a wrong checksum these are
     * the blocks of 4,096 tokens whose own checksum (blocks.npy) is wrong, or all of it if there is
     * no such file or the shard is missing or truncated. */
    bool skip;
    /* Called while verifying; may be NULL. Returning false stops with BY_ESTOPPED. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} by_dataset_options;

/* A damaged part of some data. */
typedef struct by_damage {
    const char *path; /* of the file */
    uint64_t place;   /* in the file: byte offset of a token, line of a table or text, or image
                         record */
    uint64_t begin;   /* index of the first affected token, row or image */
    uint64_t count;   /* number of unusable tokens, rows or images */
    const char *reason;
} by_damage;

/* Opens a packed directory and checks its files, sizes, vocabulary and document offsets against the
 * manifest. `options` may be NULL. Returns BY_EIO if a file cannot be read, BY_EFORMAT with the
 * file, what was found and what was expected, BY_ESTOPPED. */
BY_API by_status by_dataset_open(by_dataset **out, const char *directory,
                                 const by_dataset_options *options, by_error *error);
/* Closes a data set. Close all sources and loaders over it first. */
BY_API void by_dataset_close(by_dataset **dataset);

typedef struct by_data_verify_options {
    /* Read everything, even files that have been verified before and have not changed. */
    bool always;
    /* Tolerate damaged tokens, as in by_dataset_options, and record them in DIR/.verified. */
    bool skip;
    /* As in by_dataset_options. */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} by_data_verify_options;

/* Compares the shards, document offsets and tokenizer of a packed directory with the checksums in
 * its manifest. DIR/.verified records success together with device, inode, size and times of every
 * file; while these are unchanged the files are not read again. `options` may be NULL. Returns
 * BY_EFORMAT with the file that is wrong, BY_EIO, BY_ESTOPPED. */
BY_API by_status by_data_verify(const char *directory, const by_data_verify_options *options,
                                by_error *error);

/* Returns the damaged parts in ascending order and sets *count to their number: 0 unless the data
 * set was opened with `skip`. */
BY_API const by_damage *by_dataset_damage(const by_dataset *dataset, size_t *count);
/* Returns the number of tokens in all shards, including damaged ones. */
BY_API uint64_t by_dataset_tokens(const by_dataset *dataset);
/* Returns the vocabulary size; every token is below it. */
BY_API uint32_t by_dataset_vocab(const by_dataset *dataset);
/* Returns the hash of the tokenizer that produced the tokens, in hex digits. */
BY_API const char *by_dataset_tokenizer_hash(const by_dataset *dataset);
/* Writes a 128-bit hash of tokens and document offsets as 32 hex digits, computed from the
 * checksums in the manifest. */
BY_API void by_dataset_hash(const by_dataset *dataset, char out[33]);
/* Returns the bytes of text that the tokens encode, for metrics per byte; 0 if the manifest lacks
 * it. */
BY_API uint64_t by_dataset_text_bytes(const by_dataset *dataset);
/* What was packed of conversations (banyan/conversation.h). */
typedef struct by_dataset_chat {
    uint64_t records;  /* conversations in the inputs, of all parts */
    uint64_t samples;  /* documents: conversations, or parts of them */
    uint64_t targets;  /* learned tokens */
    uint64_t corrupt;  /* records left out as no conversations, or without an answer */
    uint64_t too_long; /* samples left out since they are longer than the context, */
    uint64_t cut;      /* samples of which the beginning was kept, */
    uint64_t lost;     /* and learned tokens left out with these */
    bool pairs;        /* documents 2 i and 2 i + 1 are the chosen and the rejected conversation of
                          preference i */
} by_dataset_chat;
/* Returns whether the documents are conversations, and then sets *out. */
BY_API bool by_dataset_is_chat(const by_dataset *dataset, by_dataset_chat *out);
/* Returns the number of documents. */
BY_API uint64_t by_dataset_documents(const by_dataset *dataset);
/* Finds the document that contains the token at `position`, and its range [*begin, *end) of tokens.
 * Each output may be NULL. Returns BY_EARG if `position` is not below by_dataset_tokens. */
BY_API by_status by_dataset_document_at(const by_dataset *dataset, uint64_t position,
                                        uint64_t *document, uint64_t *begin, uint64_t *end,
                                        by_error *error);
/* Copies tokens [position, position + count) to `out`. Returns BY_EARG if the range exceeds the
 * data; BY_EFORMAT if a token is not below the vocabulary size (with shard and byte offset) or a
 * shard has been truncated since it was opened; BY_EIO. */
BY_API by_status by_dataset_read(const by_dataset *dataset, uint64_t position, size_t count,
                                 int32_t *out, by_error *error);

typedef struct by_dataset_statistics_options {
    size_t context; /* tokens of a window, to measure windows and their order as well; 0: do not */
    uint64_t seed;  /* of the order */
    /* Called while reading; may be NULL. Returning false stops with BY_ESTOPPED. */
    bool (*progress)(void *user, uint64_t done_tokens, uint64_t total_tokens);
    void *user;
} by_dataset_statistics_options;

#define BY_LENGTH_QUANTILES 7
/* Statistics of a packed directory. Fields from `windows` on are 0 if the options' context is. */
typedef struct by_dataset_statistics {
    uint64_t tokens;
    uint64_t documents;
    uint64_t empty_documents; /* documents without tokens */
    /* Minimum, 10th, 25th, 50th, 75th and 90th percentile, and maximum of document lengths, in
     * tokens including end-of-text. */
    uint64_t lengths[BY_LENGTH_QUANTILES];
    uint64_t *counts; /* [vocab] occurrences of each token; free it with free() */
    uint32_t vocab;
    uint32_t used;  /* number of distinct tokens that occur */
    double entropy; /* of the token frequencies, in nats per token:
                       the loss of the best unigram model */

    uint64_t windows;            /* windows in an epoch */
    double documents_per_window; /* mean number of documents that a window overlaps */
    /* Best-fit packing (by_token_packing): number of samples. */
    uint64_t bins;
    /* Best-fit packing: fraction of the samples' context + 1 tokens that is filled. */
    double bins_filled;
    /* Best-fit packing: documents longer than a sample, which are split. */
    uint64_t bins_cut;
    /* Randomness of the window order in the first epoch, or in its first 2^20 windows: correlation
     * of the positions of consecutive windows. In a random order it is 0 with standard deviation
     * 1 / sqrt(windows). NaN for fewer than 4,096 windows. */
    double order_correlation;
    /* Chi-squared per degree of freedom of the 16 x 16 table of stretches of time against stretches
     * of data. In a random order it is 1 with standard deviation 0.094. NaN as above. */
    double order_chi_squared;
} by_dataset_statistics;

/* Reads all tokens and document offsets and computes statistics, using 8 bytes of memory for each
 * document and each token of the vocabulary. Returns BY_EARG if the data is too short for a window
 * of the given context; BY_EFORMAT and BY_EIO as by_dataset_read; BY_ESTOPPED. */
BY_API by_status by_dataset_measure(by_dataset_statistics *out, const by_dataset *dataset,
                                    const by_dataset_statistics_options *options, by_error *error);

/* ---- batches ---- */

/* A named dense array. */
typedef struct by_array {
    const char *name;
    by_dtype dtype;
    by_shape shape;   /* the first axis is the example */
    const void *data; /* row-major; owned by whoever provides the array */
} by_array;

/* A view of a batch. One from a loader is valid until the loader's next by_loader_next,
 * by_loader_seek, by_loader_resize or by_loader_close. Examples that only pad the last batch of a
 * pass come last. */
typedef struct by_batch {
    const by_array *arrays;
    size_t array_count;
    size_t batch;            /* number of examples in the view (this rank's part); 0: end of data */
    uint64_t first_sample;   /* index, over all epochs, of the view's first sample */
    uint64_t valid_targets;  /* targets in the view that count: tokens or examples */
    uint64_t global_targets; /* the same over the global batch of all ranks */
    /* Sums of the weights of these targets, by which the loss is divided instead. false: all weigh
     * 1. */
    bool weighted;
    double valid_weight;
    double global_weight; /* samples are added in order, so that all ranks have the same bits */
    /* Damaged samples in the global batch: replaced by other samples in training, without targets
     * in a pass. */
    uint64_t damaged;
    uint64_t first_damaged; /* index of the first of them, over all epochs */
} by_batch;

/* Returns the array with this name, or NULL. */
BY_API const by_array *by_batch_array(const by_batch *batch, const char *name);
/* Makes a batch of token windows in the caller's memory: "tokens" and "targets", i32
 * [batch, context]. A target is the token to predict after the token at its position, or negative
 * for none. The batch refers to `arrays`, which this function fills in. */
BY_API by_batch by_batch_of_tokens(by_array arrays[2], const int32_t *tokens,
                                   const int32_t *targets, size_t batch, size_t context);

/* ---- sources ---- */

/* A sample requested by a loader. */
typedef struct by_source_sample {
    uint64_t place; /* index of the sample in the source;
                       in a pass, source->samples or more asks for padding */
    uint64_t epoch; /* 0 in a pass */
    uint64_t index; /* index of the sample over all epochs */
    uint64_t seed;  /* of the loader */
    void *scratch;  /* of the calling thread: source->scratch bytes, aligned to a cache line */
} by_source_sample;

/* Computes 128 random bits (Philox4x32-10, Salmon et al. 2011) as a pure function of the seed, the
 * sample's index and `purpose`, so that augmentation does not depend on rank, thread or batch
 * size. */
BY_API void by_source_random(const by_source_sample *sample, uint64_t purpose, uint32_t out[4]);

typedef struct by_source by_source;
/* A producer of samples. To write one, fill in these fields; `fill` may be given a larger struct
 * that begins with this one. Several threads call `fill`, `count`, `replaces` and `weigh` at the
 * same time, so they change nothing of the source; what a thread keeps is in sample->scratch. */
struct by_source {
    const char *name;       /* used in messages */
    const by_array *arrays; /* arrays of one sample: shapes without the example axis;
                               `data` is not read */
    size_t array_count;     /* at least 1 */
    bool shuffle;           /* true: endless epochs in pseudo-random order; false: one pass */
    uint64_t samples;       /* samples of an epoch or of the pass, at least 1 */
    /* Targets that count in a sample; an upper bound if `count` is set. */
    uint64_t sample_targets;
    /* Targets of all samples: less than samples * sample_targets if the last sample has fewer. */
    uint64_t targets;
    /* Writes a sample: rows[i] receives its part of array i. */
    by_status (*fill)(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error);
    /* Frees the source; NULL: there is nothing to free. */
    void (*close)(by_source *source);
    /* Sets *targets to the number of targets that count in a sample. NULL: computed from
     * sample_targets and targets. */
    by_status (*count)(const by_source *source, const by_source_sample *sample, uint64_t *targets,
                       by_error *error);
    /* Returns whether a sample is damaged, so that `fill` writes another one instead, or one
     * without targets. NULL: none is. */
    bool (*replaces)(const by_source *source, const by_source_sample *sample);
    /* Bytes of memory that each thread has for itself: zeros at first, then what the calls of this
     * thread left there. What is written into a sample must not depend on it. */
    size_t scratch;
    /* Sets *weight to the sum of the weights of a sample's targets, at least 0. NULL: each weighs
     * 1. */
    by_status (*weigh)(const by_source *source, const by_source_sample *sample, double *weight,
                       by_error *error);
    /* With `shuffle`: samples are in blocks of so many, and for a while drawn at random from so
     * many blocks, which are drawn themselves. 0: always from all. */
    uint64_t order_block;
    uint64_t order_window;
};

/* How well the order of an epoch mixes examples that lie in files. Places are those of examples in
 * the order of their files, and of samples in the epoch, both as shares, from 0 to 1. */
typedef struct by_order_quality {
    double displacement;         /* mean distance of both places of a sample; random: about 1/3 */
    double rank_correlation;     /* of both places (Spearman's); random: about 0; NaN: one sample */
    double neighbor_correlation; /* of the places of examples drawn one after the other; 0 */
    double same_file;            /* share of the pairs of a batch that are of one file; NaN: none */
    double files_per_batch;      /* mean number of files that a batch has samples of */
    /* Mean total variation distance, 0 to 1, between the shares of classes in a batch and in the
     * epoch; NaN: there are no classes. */
    double batch_class_distance;
    double window_class_distance; /* of a window in place of a batch; NaN: or no windows */
} by_order_quality;

/* Closes a source by calling its `close`, and sets *source to NULL. NULL is accepted. */
BY_API void by_source_close(by_source **source);

/* Stored teacher logits: for each position of a packed directory the most probable next tokens, for
 * distillation (Hinton et al. 2015). by_store_logits of banyan/infer.h writes them. Any number of
 * threads may read one at the same time. */
typedef struct by_logit_store by_logit_store;

/* Opens a directory of stored logits and checks the hash of every file. Returns BY_EIO, or
 * BY_EFORMAT if it is damaged or no such directory. */
BY_API by_status by_logit_store_open(by_logit_store **out, const char *directory, by_error *error);
BY_API void by_logit_store_close(by_logit_store **store);
/* Returns the number of tokens stored for each position. */
BY_API int64_t by_logit_store_top(const by_logit_store *store);
/* Writes a 128-bit hash of the content as 32 hex digits. */
BY_API void by_logit_store_hash(const by_logit_store *store, char out[33]);
/* Checks that the logits belong to this data set, cut into windows of `context` tokens, and were
 * computed at this softmax temperature. Returns BY_ECONFIG with the difference if not. */
BY_API by_status by_logit_store_check(const by_logit_store *store, const by_dataset *dataset,
                                      size_t context, double temperature, by_error *error);

/* Weights of the tokens of a packed directory as targets of a loss: 0 leaves a token out. Any
 * number of threads may read them at the same time. */
typedef struct by_token_weights by_token_weights;

/* Opens an npy file of one axis, little-endian f32, or u8 of 0 and 1, with a number for each token
 * of the data set, in their order. Returns BY_EIO, or BY_EFORMAT if it is another array or a number
 * is negative or not finite. */
BY_API by_status by_token_weights_open(by_token_weights **out, const char *path,
                                       const by_dataset *dataset, by_error *error);
/* Opens the mask of what is learned of packed conversations. Returns BY_ESTATE if the data are not
 * conversations, BY_EFORMAT if the mask is damaged. */
BY_API by_status by_token_mask_open(by_token_weights **out, const by_dataset *dataset,
                                    by_error *error);
/* Close all sources over them first. */
BY_API void by_token_weights_close(by_token_weights **weights);
/* Writes a 128-bit hash of the weights as 32 hex digits. */
BY_API void by_token_weights_hash(const by_token_weights *weights, char out[33]);

/* How documents are arranged in samples. */
typedef enum by_token_packing {
    BY_TOKENS_STREAM = 0, /* windows of the concatenated documents */
    BY_TOKENS_BEST_FIT,   /* whole documents, packed by best-fit decreasing (Ding et al. 2024,
                             section 3); documents longer than a sample are split */
    BY_TOKENS_PADDED      /* one document a sample, padded; longer ones are split */
} by_token_packing;

typedef struct by_token_options {
    size_t context; /* tokens per sample, 1 to 2^30 */
    bool shuffle;   /* training: epochs in random order; false: one pass */
    bool whole;     /* a pass is packed, too; else it is always over the stream */
    /* Keep documents apart: samples get the array "starts", and the first token of a document is
     * not a target of the last token of the document before it. */
    bool documents;
    by_token_packing packing; /* with `shuffle` or `whole`; default BY_TOKENS_STREAM */
    /* With `shuffle` and BY_TOKENS_STREAM: samples also get the arrays of by_logit_arrays, and
     * windows begin at multiples of `context`. Must outlive the source. NULL: none. */
    const by_logit_store *logits;
    /* Samples also get the array "weight", f32 [context], of their targets: as `weights` has them,
     * which must outlive the source, or 1 if that is NULL; 0 where there is no target. Batches are
     * then weighted (by_batch). */
    bool weighted;
    const by_token_weights *weights;
    /* A sample is a preference, two conversations (by_pair_arrays); `weights` is their mask, and
     * shuffle and context are the only other options that are read. */
    bool pairs;
    bool last; /* pairs: the array "last" instead of those of targets */
    /* Pairs: samples also get the arrays "reference.chosen" and "reference.rejected", f32 []: as
     * `reference` [pairs, 2] has them, which must outlive the source, or 0 if that is NULL. */
    bool referenced;
    const float *reference;
} by_token_options;

/* Describes the arrays of a sample of `context` tokens: "tokens" and "targets", i32 [context], and
 * with `documents` "starts", i32 [context], the position in the sample at which each token's
 * document begins. Returns the number of arrays. */
BY_API size_t by_token_arrays(by_array arrays[3], size_t context, bool documents);
#define BY_PAIR_ARRAYS 7
/* Describes the arrays of a sample of two conversations, the chosen and the rejected one, each
 * padded to `context` tokens: "tokens", i32 [2, context]; "weight", f32 [], 1, or 0 for a sample
 * that only pads a batch; then "targets", i32 [2, context], -1 where none is learned, and
 * "share.chosen" and "share.rejected", f32 [], 1 / their number; or, with `last`, "last", f32
 * [2, context], 1 for the last token of each and 0 for the others. Returns the number of arrays. */
BY_API size_t by_pair_arrays(by_array arrays[BY_PAIR_ARRAYS], size_t context, bool last);
/* Describes the arrays with a teacher's predictions for a sample: "teacher.ids", i32
 * [context, top], the most probable tokens, and "teacher.logarithms", f32 [context, top + 1], their
 * log-probabilities followed by that of all other tokens together. */
BY_API void by_logit_arrays(by_array arrays[2], size_t context, int64_t top);
/* Opens a source of token samples: "tokens" and "targets" as in by_batch_of_tokens, plus the arrays
 * selected by the options. The data set must outlive the source.
 *
 * With `shuffle`, the windows of epoch e start at phase(seed, e) + k * context, so that cuts differ
 * between epochs. Without it, every token but the first (with `documents`, but the first of each
 * document) is a target exactly once, and the last samples are padded with token 0 and target -1.
 * Best-fit samples are the same in each epoch and padded likewise; the first token of a document is
 * never a target in them. Their index takes 16 bytes of memory per document and 4 per sample.
 *
 * Pairs are the samples of an epoch, or of a pass, in the order of the data. Returns BY_ECONFIG if
 * the documents are no pairs, BY_EFORMAT if tokens are damaged or a conversation has more than
 * context + 1 tokens, or no target.
 *
 * Damaged tokens (by_dataset_damage) are never used: with `shuffle`, another sample of the epoch,
 * chosen by seed and index, replaces an affected one; in a pass it has no targets.
 *
 * Returns BY_EARG if the context is out of range or the data is too short (fewer than context + 1
 * tokens for training, fewer than 2 for a pass), BY_EFORMAT if all of it is damaged.
 */
BY_API by_status by_token_source_open(by_source **out, const by_dataset *dataset,
                                      const by_token_options *options, by_error *error);

/* Which tokens of a sample are hidden, for masked language modelling. */
typedef struct by_mask_options {
    double share;           /* of the tokens, above 0 and at most 1: 0.15 in BERT */
    double span;            /* mean number of neighbours hidden together, from 1 on; 0 is 1: each
                               token by itself */
    int32_t mask;           /* the token that hides others */
    int32_t random;         /* tokens below this take the place of some */
    const int32_t *special; /* [special_count] tokens that are not hidden, copied */
    size_t special_count;
} by_mask_options;

/* Returns the number of tokens that are predicted of a sample of so many: the rounded share, at
 * least 1. */
BY_API size_t by_mask_targets(double share, size_t tokens);
/* Opens a source over `inner`, of samples of tokens and the next ones, some of whose tokens are
 * hidden: of the tokens that have a target there, a share is chosen. Of the chosen tokens 80 %
 * become the mask, 10 % a random token, and 10 % stay (Devlin et al. 2018, section 3.1). How many
 * are chosen is by_mask_targets of how many there are; which they are is a function of seed, epoch
 * and sample. With `span` above 1 they lie in as many spans as have that mean length, all choices
 * of which are equally likely (nearly as in Raffel et al. 2019, section 3.1.4), and a span becomes
 * the mask, random tokens or stays as one (Joshi et al. 2019, section 3.1). A sample of C tokens
 * has room for K = by_mask_targets(share, C) of them:
 *   "tokens"   i32 [C]
 *   "targets"  i32 [K]     the chosen tokens, in their order; -1 for places of tokens that were not
 *                          chosen, in a sample with fewer
 *   "chosen"   i32 [C, 1]  0 for the K tokens that the targets are of, -1 for the others
 * Takes ownership of `inner`, also on failure. Returns BY_EARG for an inner source with other
 * arrays or options out of range. */
BY_API by_status by_masked_source_open(by_source **out, by_source *inner,
                                       const by_mask_options *options, by_error *error);

/* Computes the memory in bytes of the index of a source with these options, and in *opening the
 * peak while it is built; both are 0 except for training with best-fit packing. Reads all document
 * offsets. Returns BY_EARG if the context is out of range, BY_EIO. */
BY_API by_status by_token_source_bytes(uint64_t *bytes, uint64_t *opening,
                                       const by_dataset *dataset, const by_token_options *options,
                                       by_error *error);

/* Weights of a mix from sample `first` on. */
typedef struct by_mix_stage {
    uint64_t first;        /* index over all epochs:
                              0 for the first stage, then strictly ascending */
    const double *weights; /* one per part, each >= 0, with a sum > 0 */
} by_mix_stage;

typedef struct by_mix_options {
    const by_mix_stage *stages; /* [stage_count], 1 to 4,096; copied */
    size_t stage_count;
    /* false: among any n consecutive samples, a part with share p (its weight divided by the sum)
     * contributes n p to within ceil(log2(parts)). true: n p in expectation, and to that precision
     * over aligned blocks of 4,096 samples, within which the order is pseudo-random. */
    bool shuffle;
} by_mix_options;

/* Opens a source that mixes `count` sources (1 to 4,096) with epochs (`shuffle`) and equal arrays.
 * Each part has epochs and an order of its own, so a small part may be repeated before a large one
 * has been seen once. `samples` of the mix is the sum over the parts. Takes ownership of the parts,
 * also on failure. Returns BY_EARG if the parts do not fit together or a stage is out of range. */
BY_API by_status by_mix_source_open(by_source **out, by_source *const *parts, size_t count,
                                    const by_mix_options *options, by_error *error);

/* Opens a source that makes one pass over several sources in turn. Each contributes a multiple of
 * `unit` samples, padded at the end, so that no micro-batch of `unit` samples contains two of them,
 * and at most `most` (a multiple of unit; 0: all). Sets ends[i] to the index after the last sample
 * of part i. Takes ownership of the parts, also on failure. Returns BY_EARG if the arrays of the
 * parts differ, one has epochs, or `most` is not a multiple of `unit`. */
BY_API by_status by_joined_source_open(by_source **out, by_source *const *parts, size_t count,
                                       uint64_t unit, uint64_t most, uint64_t *ends,
                                       by_error *error);

/* ---- loaders ---- */

typedef struct by_loader by_loader;

typedef struct by_loader_options {
    size_t batch;    /* samples in a global batch, 1 to 2^30 */
    uint64_t seed;   /* of order and augmentation */
    uint64_t start;  /* index of the first sample, over all epochs; at most 2^62 */
    size_t prefetch; /* batches prepared ahead; 0: 4 */
    size_t first;    /* this rank's part of each global batch: samples [first, first + count) */
    size_t count;    /* 0: all from `first` on */
    /* For a part that is not contiguous: its sample i is sample first + i / block * stride + i %
     * block of the global batch. 0: contiguous. */
    size_t block;
    size_t stride; /* with `block`, distance between the starts of blocks */
    /* Threads that fill batches, at most 4096; 0: 1. Batches, and the error of a damaged sample,
     * are the same for any number. */
    size_t threads;
} by_loader_options;

/* Counters since the loader was opened. */
typedef struct by_loader_statistics {
    uint64_t batches;    /* batches delivered */
    uint64_t waits;      /* batches that were not ready when requested */
    double wait_seconds; /* time by_loader_next was blocked */
    double fill_seconds; /* time that the threads spent filling batches, added up */
} by_loader_statistics;

/* Computes the bytes of memory that a loader with these options allocates for samples of these
 * arrays. Does not include the page cache and the source's scratch. Returns BY_EARG as
 * by_loader_open, BY_EMEMORY if the size overflows. */
BY_API by_status by_loader_bytes(uint64_t *out, const by_array *arrays, size_t array_count,
                                 const by_loader_options *options, by_error *error);
/* Opens a loader, allocates all of its memory and starts its threads. Takes ownership of the
 * source, also on failure. Returns BY_EARG if an option or a field of the source is out of range,
 * BY_EMEMORY if there is no memory or a thread cannot be started. */
BY_API by_status by_loader_open(by_loader **out, by_source *source,
                                const by_loader_options *options, by_error *error);
/* Stops the threads and closes the loader and its source. */
BY_API void by_loader_close(by_loader **loader);
/* Returns the next batch in *out; blocks only while it is not ready. At the end of a pass
 * out->batch is 0 and there are no arrays. An error in reading the data is returned here, behind
 * the batches before it and again at each call; it names the sample. */
BY_API by_status by_loader_next(by_loader *loader, by_batch *out, by_error *error);
/* Returns the index of the first sample of the global batch that by_loader_next has not delivered
 * yet: the state to save in a checkpoint. */
BY_API uint64_t by_loader_position(const by_loader *loader);
/* Continues at the given sample, forward or backward. Returns BY_EARG if it is beyond 2^62. */
BY_API by_status by_loader_seek(by_loader *loader, uint64_t sample, by_error *error);
/* Continues at the current position with another batch size or part (`batch`, `first`, `count`,
 * `block` and `stride` of the options). Returns BY_EARG if the part exceeds the batch or has more
 * samples than the one the loader was opened with. */
BY_API by_status by_loader_resize(by_loader *loader, const by_loader_options *options,
                                  by_error *error);
/* Returns the number of samples in an epoch, or in the single pass. */
BY_API uint64_t by_loader_epoch_samples(const by_loader *loader);
/* Copies the loader's counters. */
BY_API void by_loader_stats(by_loader *loader, by_loader_statistics *out);

#ifdef __cplusplus
}
#endif
#endif
