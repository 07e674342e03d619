/* Data and the batches that training and evaluation take from it.
 *
 * A batch is a list of named arrays whose first axis is the example. A source says which arrays a
 * sample has and writes samples into them: windows of packed tokens, or whatever a program makes. A
 * loader puts a source's samples in order and fills batches in one background thread, so that the
 * next one is ready before it is asked for.
 *
 * Order. Sample i of epoch e is the source's sample permute(seed, e, i), a pure function, so one
 * integer, the index of the next sample over all epochs, is the whole state of a loader: open or
 * seek one there and the stream continues exactly, with any batch size and any number of ranks.
 * Randomness (augmentation) is a pure function of (seed, index of the sample) as well.
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

/* A packed directory: token shards and a manifest, as `banyan pack` writes them. Opening it
 * checks that files, sizes, vocabulary and documents are what the manifest says. */
typedef struct by_dataset by_dataset;

typedef struct by_dataset_options {
    /* Read all shards once, compare their checksums with the manifest and their tokens with the
     * vocabulary. */
    bool verify;
    /* Damaged tokens are no error: they are found as with `verify` (unless by_data_verify has found
     * them already), and by_dataset_damage says which they are. Of a shard whose checksum is wrong
     * these are the blocks of 4,096 tokens whose own checksum (blocks.npy) is; all of it where
     * there is no such file, or where the shard is missing or cut short. */
    bool skip;
    /* while verifying; may be NULL. Returns false to stop (BY_ESTOPPED) */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
} by_dataset_options;

/* A part of some data that is damaged. */
typedef struct by_damage {
    const char *path; /* of the file */
    uint64_t place;   /* in it: byte of a token, line of a table or of text, record of images */
    uint64_t begin;   /* first token, row or image */
    uint64_t count;   /* how many of them cannot be used */
    const char *reason;
} by_damage;

/* Opens a packed directory. `options` may be NULL. BY_EIO: a file cannot be read; BY_EFORMAT: a
 * file is not what the manifest promises (names the file, what was found and what was expected). */
BY_API by_status by_dataset_open(by_dataset **out, const char *directory,
                                 const by_dataset_options *options, by_error *error);
/* Loaders over it must be closed before. */
BY_API void by_dataset_close(by_dataset **dataset);

typedef struct by_data_verify_options {
    bool always; /* read everything, also what was read before */
    bool skip;   /* damaged tokens are no error, see by_dataset_options: what is found is kept in
                    DIR/.verified, too */
    bool (*progress)(void *user, uint64_t done_bytes, uint64_t total_bytes); /* as above */
    void *user;
} by_data_verify_options;

/* Compares shards, document offsets and tokenizer of a packed directory with the checksums of its
 * manifest. What was right once is not read again while device, inode, size and times of every file
 * are the same (kept in DIR/.verified). `options` may be NULL. BY_EFORMAT names the file that is
 * wrong; BY_EIO; BY_ESTOPPED. */
BY_API by_status by_data_verify(const char *directory, const by_data_verify_options *options,
                                by_error *error);

/* What is damaged, in the order of tokens; nothing in a data set that was opened without `skip`.
 * Lives as long as the data set. */
BY_API const by_damage *by_dataset_damage(const by_dataset *dataset, size_t *count);
/* Tokens over all shards, damaged ones included. */
BY_API uint64_t by_dataset_tokens(const by_dataset *dataset);
/* Size of the vocabulary: every token is below it. */
BY_API uint32_t by_dataset_vocab(const by_dataset *dataset);
/* Hash of the tokenizer that made the tokens, as hex digits; lives as long as the data set. */
BY_API const char *by_dataset_tokenizer_hash(const by_dataset *dataset);
/* Writes 32 hex digits that stand for the content, tokens and documents, as the manifest says. */
BY_API void by_dataset_hash(const by_dataset *dataset, char out[33]);
/* Bytes of text that the tokens stand for (bits per byte); 0 when the manifest does not say. */
BY_API uint64_t by_dataset_text_bytes(const by_dataset *dataset);
/* Number of documents. */
BY_API uint64_t by_dataset_documents(const by_dataset *dataset);
/* The document that holds the token at `position`, and its range [*begin, *end) of tokens (either
 * may be NULL). BY_EARG: position is not below by_dataset_tokens. */
BY_API by_status by_dataset_document_at(const by_dataset *dataset, uint64_t position,
                                        uint64_t *document, uint64_t *begin, uint64_t *end,
                                        by_error *error);
/* Copies tokens [position, position + count) to `out`. BY_EARG: the range is not in the data;
 * BY_EFORMAT: a token is not below the vocabulary (names the shard and the byte offset), or the
 * shard was cut short since it was opened; BY_EIO. Any number of threads may read. */
BY_API by_status by_dataset_read(const by_dataset *dataset, uint64_t position, size_t count,
                                 int32_t *out, by_error *error);

typedef struct by_dataset_statistics_options {
    size_t context; /* tokens of a window: also looks at windows and their order; 0: does not */
    uint64_t seed;  /* of the order */
    /* while reading; may be NULL. Returns false to stop (BY_ESTOPPED) */
    bool (*progress)(void *user, uint64_t done_tokens, uint64_t total_tokens);
    void *user;
} by_dataset_statistics_options;

#define BY_LENGTH_QUANTILES 7
typedef struct by_dataset_statistics {
    uint64_t tokens;
    uint64_t documents;
    uint64_t empty_documents;
    /* Lengths of documents in tokens, end-of-text included, of which 0, 10, 25, 50, 75, 90 and 100
     * per cent are at most as long. */
    uint64_t lengths[BY_LENGTH_QUANTILES];
    uint64_t *counts; /* [vocab] how often each token stands there; the caller's, free() */
    uint32_t vocab;
    uint32_t used;  /* tokens that stand there at all */
    double entropy; /* nats a token: the loss of a model that knows how frequent each token is */

    uint64_t windows;            /* of an epoch */
    double documents_per_window; /* documents that a window touches, on average */
    /* Of best-fit packing: samples, the share of their context + 1 tokens that is filled, and
     * documents that are longer than that and so in several. */
    uint64_t bins;
    double bins_filled;
    uint64_t bins_cut;
    /* Of the order of the windows in the first epoch, or in its first 2^20 of more: the correlation
     * of the places of neighbours, and chi-squared over its degrees of freedom of how stretches of
     * time (16) meet stretches of data (16). Of a random order the first is 0 with a standard
     * deviation of 1 / sqrt(windows), the second 1 with one of 0.094. NaN for fewer than 4096. */
    double order_correlation;
    double order_chi_squared;
} by_dataset_statistics;

/* Reads all tokens and document offsets once. 8 bytes of memory for each document and token of the
 * vocabulary. BY_EARG: no window of that context fits; BY_EFORMAT, BY_EIO as by_dataset_read. */
BY_API by_status by_dataset_measure(by_dataset_statistics *out, const by_dataset *dataset,
                                    const by_dataset_statistics_options *options, by_error *error);

/* ---- batches ---- */

typedef struct by_array {
    const char *name;
    by_dtype dtype;
    by_shape shape;   /* the first axis is the example */
    const void *data; /* densely packed */
} by_array;

/* Views, e.g. into a loader: valid until its next by_loader_next, by_loader_seek or
 * by_loader_close. Examples that only fill up the last batch of a pass come last. */
typedef struct by_batch {
    const by_array *arrays;
    size_t array_count;
    size_t batch;            /* examples in this view (the rank's); 0: the data has ended */
    uint64_t first_sample;   /* index over all epochs of the view's first sample */
    uint64_t valid_targets;  /* targets of the view that count: tokens, or examples */
    uint64_t global_targets; /* the same over the global batch, all ranks together */
    /* Samples of the global batch that are damaged: in a batch to train on others stand in for
     * them, in a pass they have no targets. And the index of the first of them. */
    uint64_t damaged;
    uint64_t first_damaged;
} by_batch;

/* The array of this name; NULL when there is none. */
BY_API const by_array *by_batch_array(const by_batch *batch, const char *name);
/* A batch of token windows in a program's own memory: "tokens" and "targets", i32 [batch, context],
 * a target being the token behind, or negative for none. Fills in `arrays`, which the batch views.
 */
BY_API by_batch by_batch_of_tokens(by_array arrays[2], const int32_t *tokens,
                                   const int32_t *targets, size_t batch, size_t context);

/* ---- sources ---- */

/* A sample that a loader asks for. */
typedef struct by_source_sample {
    uint64_t place; /* which one of the source's; in a pass, source->samples and more: fill up with
                       an example that does not count */
    uint64_t epoch; /* 0 in a pass */
    uint64_t index; /* of the sample over all epochs */
    uint64_t seed;
} by_source_sample;

/* 128 random bits that are a pure function of (seed, index of the sample, purpose): whatever the
 * rank, thread or batch size, the sample is augmented in the same way. */
BY_API void by_source_random(const by_source_sample *sample, uint64_t purpose, uint32_t out[4]);

/* Where a loader's samples come from. A program's own source fills in these fields. */
typedef struct by_source by_source;
struct by_source {
    const char *name;        /* for messages */
    const by_array *arrays;  /* of a sample: shape without the example axis; data is not read */
    size_t array_count;      /* at least 1 */
    bool shuffle;            /* true: epochs without end in pseudo-random order; false: one pass */
    uint64_t samples;        /* of an epoch or of the pass, at least 1 */
    uint64_t sample_targets; /* targets that count in a sample, at most where `count` says */
    uint64_t targets;        /* of all samples: below samples * sample_targets when the last sample
                                has fewer */
    /* Writes a sample: rows[i] is its part of array i. Called by one thread at a time. */
    by_status (*fill)(const by_source *source, const by_source_sample *sample, void *const *rows,
                      by_error *error);
    void (*close)(by_source *source); /* NULL: there is nothing to free */
    /* Sets *targets to those that count in a sample. NULL: as many as sample_targets and targets
     * say. Called by the thread that calls `fill`. */
    by_status (*count)(const by_source *source, const by_source_sample *sample, uint64_t *targets,
                       by_error *error);
    /* Whether a sample is damaged, and another one is given instead, or one without targets. NULL:
     * none is. Called by the thread that calls `fill`. */
    bool (*replaces)(const by_source *source, const by_source_sample *sample);
};

BY_API void by_source_close(by_source **source);

/* What a teacher says of each token of a packed directory (by_store_logits of banyan/infer.h). */
typedef struct by_logit_store by_logit_store;

/* Reads all of it once, to check the hashes. BY_EIO; BY_EFORMAT: it is damaged, or is none. */
BY_API by_status by_logit_store_open(by_logit_store **out, const char *directory, by_error *error);
BY_API void by_logit_store_close(by_logit_store **store);
/* The most probable tokens of each position that are stored. */
BY_API int64_t by_logit_store_top(const by_logit_store *store);
/* Writes 32 hex digits that stand for the content. */
BY_API void by_logit_store_hash(const by_logit_store *store, char out[33]);
/* Whether it is of that data, cut into windows of so many tokens, for a loss of that temperature;
 * BY_ECONFIG says what is otherwise. */
BY_API by_status by_logit_store_check(const by_logit_store *store, const by_dataset *dataset,
                                      size_t context, double temperature, by_error *error);

/* How documents become samples. */
typedef enum by_token_packing {
    BY_TOKENS_STREAM = 0, /* windows of all documents one behind the other */
    BY_TOKENS_BEST_FIT    /* whole documents, put together by best-fit decreasing (Ding et al.
                              2024); what is longer than a sample is cut */
} by_token_packing;

typedef struct by_token_options {
    size_t context; /* tokens of a sample */
    bool shuffle;   /* epochs in random order, to train on; false: one pass, always a stream */
    /* Documents are kept apart: samples have the array "starts", and the first token of a document
     * is no target of the last one of the document before it. */
    bool documents;
    by_token_packing packing;
    /* With `shuffle` and a stream: samples have the arrays of by_logit_arrays, too, and windows
     * begin at multiples of `context`. Outlives the source. NULL: they have not. */
    const by_logit_store *logits;
} by_token_options;

/* The arrays of a sample of `context` tokens: "tokens" and "targets", i32 [context], and with
 * `documents` "starts", i32 [context], the place in the sample where the document of each token
 * begins. Returns their number. */
BY_API size_t by_token_arrays(by_array arrays[3], size_t context, bool documents);
/* What a teacher says of a sample's tokens: "teacher.ids", i32 [context, top], the most probable
 * ones, and "teacher.logarithms", f32 [context, top + 1], of their probabilities and that of all
 * others. */
BY_API void by_logit_arrays(by_array arrays[2], size_t context, int64_t top);
/* Samples of tokens: arrays "tokens" and "targets" as in by_batch_of_tokens. With `shuffle`, the
 * windows of epoch e start at phase(seed, e) + k * context, so that the cuts differ between epochs.
 * Without, each token but the first is a target once (with `documents`: but the first of each), and
 * the last samples are filled up with token 0 and target -1. So are the samples of best-fit
 * packing, which are the same in each epoch, and in which the first token of a document is never a
 * target; its index takes 16 bytes of memory for each document and 4 for each sample. Where tokens
 * are damaged (by_dataset_damage), no sample has any of them: with `shuffle` another one of the
 * epoch, which the seed and the index draw, stands in for it; without, it has no targets. The data
 * set must outlive the source. BY_EARG: the context is out of range, or the data is too short:
 * fewer than context + 1 tokens to train on, fewer than 2 to evaluate. BY_EFORMAT: all of it is
 * damaged. */
BY_API by_status by_token_source_open(by_source **out, const by_dataset *dataset,
                                      const by_token_options *options, by_error *error);

/* Bytes of memory that the index of such a source takes for all documents and samples, and, while
 * it is opened, *opening at most. Both 0 unless it is to train on by best-fit packing. Reads all
 * document offsets. BY_EARG: the context is out of range; BY_EIO. */
BY_API by_status by_token_source_bytes(uint64_t *bytes, uint64_t *opening,
                                       const by_dataset *dataset, const by_token_options *options,
                                       by_error *error);

/* From sample `first` on, parts have these weights (one each, at least 0, not all 0). */
typedef struct by_mix_stage {
    uint64_t first; /* index over all epochs; 0 for the first stage, then ascending */
    const double *weights;
} by_mix_stage;

typedef struct by_mix_options {
    const by_mix_stage *stages; /* copied */
    size_t stage_count;
    /* false: of any n samples in a row, a part with the share p (its weight by the sum of
     * all) gives n p to within ceil(log2(parts)). true: n p in expectation, and to that precision
     * over 4,096. */
    bool shuffle;
} by_mix_options;

/* A mix of `count` sources with epochs (shuffle) and the same arrays: each keeps its own epochs, in
 * an order of its own, so that a small part comes again when a large one has not been seen once.
 * From this call on, whether it succeeds or fails, the parts belong to the mix. `samples` is the
 * sum of theirs. BY_EARG: the parts do not fit together, or a stage is out of range. */
BY_API by_status by_mix_source_open(by_source **out, by_source *const *parts, size_t count,
                                    const by_mix_options *options, by_error *error);

/* Passes over several data sets, one behind the other: each takes a multiple of `unit` samples, the
 * last ones filled up, so that no micro-batch of `unit` samples has two of them, and at most `most`
 * (a multiple of unit; 0: all). ends[i] is set to the sample behind part i. From this call on,
 * whether it succeeds or fails, the parts belong to the source. BY_EARG: the parts have other
 * arrays, or one has epochs. */
BY_API by_status by_joined_source_open(by_source **out, by_source *const *parts, size_t count,
                                       uint64_t unit, uint64_t most, uint64_t *ends,
                                       by_error *error);

/* ---- loaders ---- */

typedef struct by_loader by_loader;

typedef struct by_loader_options {
    size_t batch;    /* samples of a global batch, at least 1 */
    uint64_t seed;   /* of the order and of augmentation */
    uint64_t start;  /* index of the first sample, over all epochs; at most 2^62 */
    size_t prefetch; /* batches made ahead; 0: 4 */
    size_t first;    /* a rank's part of each global batch: samples [first, first + count) */
    size_t count;    /* 0: all from `first` on */
    /* A part that is not contiguous: its sample i is first + i / block * stride + i % block of the
     * global batch. block 0: contiguous. */
    size_t block;
    size_t stride;
} by_loader_options;

typedef struct by_loader_statistics {
    uint64_t batches;    /* taken since the loader was opened */
    uint64_t waits;      /* of them, those that were not ready when asked for */
    double wait_seconds; /* time that by_loader_next blocked */
    double fill_seconds; /* time that the background thread spent filling batches */
} by_loader_statistics;

/* Bytes that a loader with these options allocates for a source of such arrays: its batches, the
 * one that the caller looks at included. Files are read from the page cache and are not part of it.
 * BY_EARG as for by_loader_open; BY_EMEMORY: the size overflows. */
BY_API by_status by_loader_bytes(uint64_t *out, const by_array *arrays, size_t array_count,
                                 const by_loader_options *options, by_error *error);
/* Opens a loader and starts its thread. Everything is allocated here. From this call on, whether it
 * succeeds or fails, the source belongs to the loader, which closes it. BY_EARG: an option is out
 * of range. */
BY_API by_status by_loader_open(by_loader **out, by_source *source,
                                const by_loader_options *options, by_error *error);
BY_API void by_loader_close(by_loader **loader);
/* The next batch; blocks only while it is not ready. In a pass, `batch` is 0 (and there are no
 * arrays) once all data was delivered. An error in the data is returned here, again at each
 * call. One thread may use a loader at a time. */
BY_API by_status by_loader_next(by_loader *loader, by_batch *out, by_error *error);
/* Index of the first sample (of the global batch) that by_loader_next has not delivered yet: the
 * state to save. */
BY_API uint64_t by_loader_position(const by_loader *loader);
/* Continues from this sample, forward or back. BY_EARG: beyond 2^62. */
BY_API by_status by_loader_seek(by_loader *loader, uint64_t sample, by_error *error);
/* Continues where it is with another batch, or another part of it (`batch`, `first`, `count`,
 * `block` and `stride` of the options), whose part has no more samples than the one that it was
 * opened with. BY_EARG: it has, or the part is not within the batch. */
BY_API by_status by_loader_resize(by_loader *loader, const by_loader_options *options,
                                  by_error *error);
/* Samples of an epoch (shuffle), or of the one pass. */
BY_API uint64_t by_loader_epoch_samples(const by_loader *loader);
BY_API void by_loader_stats(by_loader *loader, by_loader_statistics *out);

#ifdef __cplusplus
}
#endif
#endif
