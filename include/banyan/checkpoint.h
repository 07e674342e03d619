/* Checkpoints and weight files.
 *
 * Weights are safetensors under the names that the Hugging Face checkpoint of the model's family
 * uses: one `model.safetensors`, or several with `model.safetensors.index.json`. by_weights opens
 * both forms, and plain Hugging Face directories, read-only and memory-mapped.
 *
 * A checkpoint is a directory `step-00001000` that holds the weights, `optimizer.safetensors`,
 * `state.json` (typed values), whatever files the caller adds (`config.json`, `tokenizer.json`) and
 * `manifest.json`, written last, which lists every file with its size and XXH3-128. A directory
 * without a valid manifest does not exist. It is written under another name, synced and renamed: a
 * crash at any instant leaves the checkpoints before it valid and no broken one in their place.
 *
 * A "checkpoint root" is the directory that holds the `step-*` directories of one run.
 */
#ifndef BANYAN_CHECKPOINT_H
#define BANYAN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BY_TENSOR_MAX_RANK 8

/* A tensor in memory that somebody else owns: row-major, dense, little-endian. */
typedef struct by_tensor_view {
    const char *name;
    by_dtype dtype;
    int rank; /* 0 for a scalar */
    int64_t shape[BY_TENSOR_MAX_RANK];
    const void *data; /* from a foreign file it may have any alignment: copy with memcpy */
} by_tensor_view;

/* Elements and bytes of a view. BY_EARG names the tensor and what is wrong with its rank, shape or
 * dtype; BY_EMEMORY when the size overflows. Either output may be NULL. */
BY_API by_status by_tensor_size(const by_tensor_view *tensor, size_t *elements, size_t *bytes,
                                by_error *error);
/* Copies an f32, bf16 or f16 tensor of exactly `count` elements into `out` as f32. */
BY_API by_status by_tensor_read_f32(const by_tensor_view *tensor, float *out, size_t count,
                                    by_error *error);

/* A part of a tensor: the box of `shape` elements from `offset` on, per axis; or, where `flat`, the
 * elements [offset[0], offset[0] + shape[0]) of its row-major order. In memory a slice is dense and
 * row-major. */
typedef struct by_tensor_slice {
    bool flat;
    int64_t offset[BY_TENSOR_MAX_RANK];
    int64_t shape[BY_TENSOR_MAX_RANK];
} by_tensor_slice;

/* The slice that is the whole tensor. */
BY_API by_tensor_slice by_tensor_whole(const by_tensor_view *tensor);

/* ---- weights ---- */

typedef struct by_weights by_weights;

/* Opens a .safetensors file, or a directory that holds model.safetensors or
 * model.safetensors.index.json with its shards, and maps them. Everything that the format promises
 * is checked; BY_EFORMAT names the file, the entry or offset, and what was expected. */
BY_API by_status by_weights_open(by_weights **out, const char *path, by_error *error);
/* The same of a checkpoint's directory, with the moving average of the weights (optimizer.ema) in
 * the place of those that were trained. BY_EFORMAT: it holds none. */
#define BY_AVERAGE_PREFIX "ema."
BY_API by_status by_weights_open_averages(by_weights **out, const char *directory, by_error *error);
BY_API void by_weights_close(by_weights **weights);
/* Number of tensors, and the name of the i-th in byte order of names; owned by `weights`. */
BY_API size_t by_weights_count(const by_weights *weights);
BY_API const char *by_weights_name(const by_weights *weights, size_t i);
/* Whether some of them are codes with scales, as `banyan compress` and compressed-tensors write
 * them. They are read as f32; what is multiplied by inference is the codes as they are. */
BY_API bool by_weights_in_codes(const by_weights *weights);
BY_API bool by_weights_has(const by_weights *weights, const char *name);
/* The tensor of that name; its data is the mapped file and lives as long as `weights`. A tensor
 * that is cut over the files of several ranks is put together in memory at the first call.
 * BY_EFORMAT when there is none (with the nearest name), or when its dtype or rank is one banyan
 * lacks. */
BY_API by_status by_weights_tensor(const by_weights *weights, const char *name, by_tensor_view *out,
                                   by_error *error);
/* Copies a slice of `count` elements into `out`, in the tensor's dtype, from whatever files it is
 * in. Only the pages that hold it are read. BY_EARG: the slice is not within the tensor or not of
 * `count` elements. */
BY_API by_status by_weights_read(const by_weights *weights, const char *name,
                                 const by_tensor_slice *slice, void *out, size_t count,
                                 by_error *error);
/* The same of an f32, bf16 or f16 tensor, as f32. */
BY_API by_status by_weights_read_f32(const by_weights *weights, const char *name,
                                     const by_tensor_slice *slice, float *out, size_t count,
                                     by_error *error);
/* Text of the directory's config.json, NULL when there is none; owned by `weights`. */
BY_API const char *by_weights_config(const by_weights *weights);
/* The path given to by_weights_open; owned by `weights`. */
BY_API const char *by_weights_path(const by_weights *weights);

/* Writes model.safetensors into an existing directory, or shards with their index when the tensors
 * take more than `shard_bytes` (0: 5e9) together. Each file is written next to its place, synced
 * and renamed, so a source that is mapped from the same files stays whole; files of the form that
 * was there before are removed at the end. Shards get names that the directory does not have
 * ("model-v2-00001-of-00003.safetensors"), and the index is written behind them: a reader, and a
 * crash at any time, finds the weights of before or those of now. Data goes straight from the views
 * to the file. */
BY_API by_status by_weights_write(const char *directory, const by_tensor_view *tensors,
                                  size_t count, uint64_t shard_bytes, by_error *error);

/* Writes one file of tensors, PATH, which ends in .safetensors, atomically. */
BY_API by_status by_tensors_write(const char *path, const by_tensor_view *tensors, size_t count,
                                  by_error *error);

/* ---- writing checkpoints ---- */

typedef enum by_value_kind { BY_VALUE_U64, BY_VALUE_F64, BY_VALUE_STRING } by_value_kind;

/* One typed value of state.json. u64 and f64 come back with the same bits (a NaN as a NaN). */
typedef struct by_checkpoint_value {
    const char *key;
    by_value_kind kind;
    union {
        uint64_t u64;
        double f64;
        const char *string;
    } as;
} by_checkpoint_value;

/* A file to put next to the weights: `size` bytes at `data`, or, where `data` is NULL, a copy of
 * the file at `path`; or, where that is NULL too, safetensors of those tensors of the model that
 * are not frozen, under their names with `trained_under` in front: a file for other programs, which
 * the checkpoint itself does not need. */
typedef struct by_checkpoint_file {
    const char *name; /* "config.json", "tokenizer.json": a plain file name */
    const void *data;
    size_t size;
    const char *path;
    const char *trained_under;
} by_checkpoint_file;

/* A slice that a writer will add. */
typedef struct by_checkpoint_part {
    size_t tensor; /* the model's from 0 on, the optimizer's from model_count on */
    by_tensor_slice slice;
} by_checkpoint_part;

/* What a checkpoint will hold. Every writer of one checkpoint gives the same, but for its parts. */
typedef struct by_checkpoint_layout {
    const by_tensor_view *model; /* whole tensors, at least one; `data` is not read */
    size_t model_count;
    const by_tensor_view *optimizer; /* "m.NAME", "v.NAME", ...; may be none */
    size_t optimizer_count;
    uint64_t shard_bytes; /* tensors over this many bytes go into shards; 0: 5e9 */
    int writers;          /* processes or threads that write, the one that begins included; 0: 1 */
    /* Of each model tensor: whether it is as it was in earlier checkpoints, because nobody trains
     * it. These get files of their own, `model-frozen-...`, which a checkpoint shares with an
     * earlier one (hard links) where all bytes are equal; shard_bytes then does not apply. NULL: no
     * tensor is. */
    const bool *frozen;
    const by_checkpoint_part *parts; /* where there are several: what this one will write, nothing
                                        that is empty */
    size_t part_count;
} by_checkpoint_layout;

/* A checkpoint that is being written. Any number of threads of a process may add to it. */
typedef struct by_checkpoint_writer by_checkpoint_writer;

/* Begins ROOT/step-XXXXXXXX (ROOT is made if missing) under another name and removes what saves
 * that a crash cut short have left. One process begins and commits; where there are several
 * writers, the others join behind a barrier of the caller's, add, finish, and meet at a second
 * barrier, behind which the first one commits:
 *
 *     writer 0:  begin | barrier | add ... | barrier | commit
 *     the rest:        | barrier | join, add ..., finish | barrier |
 *
 * One writer makes `model.safetensors`, or shards of it with an index. Of several, each writes
 * files of its own, `model-00001-of-00004.safetensors`: no file has two writers, which network
 * file systems do not do well, and each hashes what it writes. As long as no tensor is cut they
 * have an index of the same form, which other programs load; else `model.slices.json` says which
 * file holds which slice. The same for the optimizer.
 *
 * Until commit has renamed it the checkpoint does not exist: whatever process ends before, the
 * earlier checkpoints are as they were. BY_ESTATE when another process saves there now. The
 * layout is copied. */
BY_API by_status by_checkpoint_begin(by_checkpoint_writer **out, const char *root, uint64_t step,
                                     const by_checkpoint_layout *layout, by_error *error);
/* A number of this attempt to save, which the others join with: what is left of an earlier attempt
 * at the same step cannot come in between. */
BY_API uint64_t by_checkpoint_token(const by_checkpoint_writer *writer);
/* Opens what another process has begun, as writer `rank`, from 1 to layout->writers - 1. */
BY_API by_status by_checkpoint_join(by_checkpoint_writer **out, const char *root, uint64_t step,
                                    const by_checkpoint_layout *layout, int rank, uint64_t token,
                                    by_error *error);
/* The i-th of the writer's parts in the order of its files, by its number in layout->parts. One
 * writer alone has each tensor as a part: the model's from 0 on, the optimizer's from model_count
 * on. Parts that are added in this order go past the page cache, and nothing is read back for the
 * checksums. */
BY_API size_t by_checkpoint_order(const by_checkpoint_writer *writer, size_t i);
/* Writes part number `part` from `data`, dense, which is free again when this returns. Over all
 * writers each element must be written once, each tensor either by flat ranges (or boxes that are
 * ranges) or by boxes. After an error the checkpoint cannot be committed. */
BY_API by_status by_checkpoint_add_part(by_checkpoint_writer *writer, size_t part, const void *data,
                                        by_error *error);
/* For one writer alone: writes a slice of tensor `tensor`, in any order. */
BY_API by_status by_checkpoint_add(by_checkpoint_writer *writer, size_t tensor,
                                   const by_tensor_slice *slice, const void *data, by_error *error);
/* Takes the file NAME from the checkpoint `from` of the same root instead of writing it: the
 * manifest names it there, and a symbolic link stands for it. A weight file of this writer must be
 * laid out alike, and counts as written. Pruning keeps what is referenced. For the process that
 * begins, before it adds. BY_EFORMAT: that checkpoint is broken or has no such file. */
BY_API by_status by_checkpoint_reference(by_checkpoint_writer *writer, const char *name,
                                         uint64_t from, by_error *error);
/* Ends the part of a writer that joined, on the disk; closes it, also on failure. */
BY_API by_status by_checkpoint_finish(by_checkpoint_writer **writer, by_error *error);
/* Writes values and files, checks that every tensor is whole, and makes the checkpoint appear on
 * the disk; one of the same step is replaced in one atomic exchange. Closes the writer, also on
 * failure, after which nothing of it is left. BY_ESTATE: a part of a tensor is missing or was
 * written twice, or a writer did not finish.
 *
 * A file-size limit raises SIGXFSZ: a program that wants the error instead ignores that signal. */
BY_API by_status by_checkpoint_commit(by_checkpoint_writer **writer,
                                      const by_checkpoint_value *values, size_t value_count,
                                      const by_checkpoint_file *files, size_t file_count,
                                      by_error *error);
/* Closes without committing; what was begun is removed. NULL is accepted. */
BY_API void by_checkpoint_abandon(by_checkpoint_writer **writer);
/* Makes ROOT/best.json point at a step, atomically. */
BY_API by_status by_checkpoint_mark_best(const char *root, uint64_t step, double loss,
                                         by_error *error);
/* Removes all valid checkpoints but the newest `keep` (at least 1), the best, those that a server
 * uses, and those that hold a file that one of these refers to. Directories that are not valid
 * checkpoints are neither counted nor touched. Each one leaves its name first. */
BY_API by_status by_checkpoint_prune(const char *root, size_t keep, by_error *error);

/* Which checkpoints stay, in addition to the best one that best.json names and to those that a
 * server uses (docs/checkpoints.md). */
typedef struct by_retention {
    size_t keep;         /* the newest, at least 1 */
    size_t keep_best;    /* those with the lowest validation losses, of those that were evaluated */
    uint64_t keep_every; /* those of steps that are multiples of this; 0: none */
    uint64_t also;       /* the one of this step; 0: none */
    /* Later ones are neither counted nor touched: a run that went on from an earlier one because
     * they were broken may not count on them. UINT64_MAX: none is. */
    uint64_t last;
    bool verify;   /* only those whose every checksum is right count, and are removed; else those
                      whose files have their sizes */
    bool only_say; /* nothing is removed */
} by_retention;

/* by_checkpoint_prune by such rules. *steps (may be NULL, and count with it): the steps that were
 * removed, ascending; freed with free(). */
BY_API by_status by_checkpoint_retain(const char *root, const by_retention *retention,
                                      uint64_t **steps, size_t *count, by_error *error);

/* ---- reading checkpoints ---- */

/* Path of the newest checkpoint whose every checksum is right. `skipped` (may be NULL) receives one
 * line for each newer one that was passed over, with the reason, or "". Both are freed with free().
 * BY_ESTATE when there is none at all; the message then says why the newest was refused. */
BY_API by_status by_checkpoint_latest(const char *root, char **path, char **skipped,
                                      by_error *error);
/* Path of the checkpoint that best.json names, checksums verified, and its loss (may be NULL).
 * BY_ESTATE when none was marked. */
BY_API by_status by_checkpoint_best(const char *root, char **path, double *loss, by_error *error);

typedef struct by_checkpoint_info {
    char *path;
    uint64_t step;
    char *reason; /* why it is not valid; NULL: it is, and the rest is known */
    size_t files;
    uint64_t bytes;     /* of all files ... */
    uint64_t own_bytes; /* ... and of those that no other checkpoint has too */
    double loss;        /* validation loss that it was saved with; NaN: it was not evaluated */
    bool is_best;       /* best.json names it */
} by_checkpoint_info;

typedef struct by_checkpoint_list {
    by_checkpoint_info *items; /* by step */
    size_t count;
} by_checkpoint_list;

/* The checkpoints of a root, or the one in `path`, whether valid or not; `verify`: checksums are
 * compared too. BY_ESTATE when there is none. Freed with by_checkpoint_list_free. */
BY_API by_status by_checkpoint_list_make(by_checkpoint_list *out, const char *path, bool verify,
                                         by_error *error);
BY_API void by_checkpoint_list_free(by_checkpoint_list *list);

typedef struct by_checkpoint by_checkpoint;

/* Opens a checkpoint directory, or the latest valid one of a root. The manifest and all sizes are
 * always checked; `verify` checks every file's checksum too (a root's latest is always verified).
 * Errors name the file that is wrong. */
BY_API by_status by_checkpoint_open(by_checkpoint **out, const char *path, bool verify,
                                    by_error *error);
BY_API void by_checkpoint_close(by_checkpoint **checkpoint);
/* The directory opened, its step, and its tensors; owned by the checkpoint. The optimizer is NULL
 * when the checkpoint has none. */
BY_API const char *by_checkpoint_path(const by_checkpoint *checkpoint);
BY_API uint64_t by_checkpoint_step(const by_checkpoint *checkpoint);
BY_API const by_weights *by_checkpoint_model(const by_checkpoint *checkpoint);
BY_API const by_weights *by_checkpoint_optimizer(const by_checkpoint *checkpoint);
/* All values of state.json in the order written; owned by the checkpoint. */
BY_API size_t by_checkpoint_value_count(const by_checkpoint *checkpoint);
BY_API const by_checkpoint_value *by_checkpoint_value_at(const by_checkpoint *checkpoint, size_t i);
/* One value by key. BY_EFORMAT when it is missing or of another kind. Strings are owned by the
 * checkpoint. */
BY_API by_status by_checkpoint_value_u64(const by_checkpoint *checkpoint, const char *key,
                                         uint64_t *out, by_error *error);
BY_API by_status by_checkpoint_value_f64(const by_checkpoint *checkpoint, const char *key,
                                         double *out, by_error *error);
BY_API by_status by_checkpoint_value_string(const by_checkpoint *checkpoint, const char *key,
                                            const char **out, by_error *error);

/* Writes the model of a checkpoint, of the latest valid one of a root, or of a directory in Hugging
 * Face form, as one directory in that form: model.safetensors, or shards over `shard_bytes` (0:
 * 5e9) with their index, whatever ranks wrote it in whatever slices, and the files that are next to
 * it (config.json, tokenizer.json). `average`: the moving average of a checkpoint's weights, see
 * by_weights_open_averages. adapter: directory of an adapter (banyan/adapter.h) that is added to
 * the weights, each in its own type; NULL: the one of the checkpoint itself, if it has one. It
 * appears whole or not at all. BY_EARG: there is something at `directory` already, or the average
 * is wanted of a checkpoint with adapters. */
BY_API by_status by_checkpoint_merge(const char *path, const char *directory, uint64_t shard_bytes,
                                     bool average, const char *adapter, by_error *error);

/* ---- differences ---- */

typedef enum by_difference_kind {
    BY_DIFFERENCE_NONE = 0,
    BY_DIFFERENCE_VALUES,
    BY_DIFFERENCE_SHAPE,
    BY_DIFFERENCE_ONLY_FIRST,
    BY_DIFFERENCE_ONLY_SECOND
} by_difference_kind;

/* Values are compared as f32. Equal are those with the same bits, and NaNs. */
typedef struct by_tensor_difference {
    char *name;
    bool optimizer;
    by_difference_kind kind;
    uint64_t elements;
    uint64_t different;
    double max_abs; /* largest |a - b|; infinite where one of them is not finite */
    double max_rel; /* largest |a - b| / max(|a|, |b|) */
} by_tensor_difference;

typedef struct by_difference {
    by_tensor_difference *tensors; /* the model's, then the optimizer's, each by name */
    size_t count;
    bool differs; /* any does */
} by_difference;

/* Compares two checkpoints (or the latest valid ones of roots; checksums are verified) or weights,
 * as by_weights_open takes them, of f32, bf16 or f16. The optimizer's states are compared where
 * both are checkpoints. Freed with by_difference_free. */
BY_API by_status by_checkpoint_diff(by_difference *out, const char *first, const char *second,
                                    by_error *error);
BY_API void by_difference_free(by_difference *difference);

/* ---- digests ---- */

#define BY_SHA256_HEX 65 /* 64 hexadecimal digits and a NUL */

typedef struct by_tensor_digest {
    char *name;
    const char *dtype; /* as safetensors calls it: "F32", "BF16" */
    int rank;
    int64_t shape[BY_TENSOR_MAX_RANK];
    char sha256[BY_SHA256_HEX];
} by_tensor_digest;

/* What tensors hold, as hashes that depend neither on the files and slices that they are in nor on
 * how many ranks wrote them. The hash of a tensor is the SHA-256 of
 *
 *     NAME, a zero byte, DTYPE, a zero byte, SHAPE, a zero byte, DATA
 *
 * with the shape as decimal numbers between commas ("768,3072"; "" for a scalar) and the data in
 * row-major order, little-endian. That of several tensors is the SHA-256 of their 32-byte hashes
 * one behind the other, in byte order of names; `all` takes the model's and then the
 * optimizer's. */
typedef struct by_digest {
    char *path; /* of the checkpoint or the weights that were read */
    char all[BY_SHA256_HEX];
    char model[BY_SHA256_HEX];
    char optimizer[BY_SHA256_HEX]; /* "" where there is no optimizer */
    by_tensor_digest *tensors;     /* the model's, then the optimizer's, each by name */
    size_t model_count;
    size_t count;
} by_digest;

/* Digest of a checkpoint or of the latest valid one of a root, whose checksums are verified, or of
 * what by_weights_open takes. On `threads` threads (0: one a core). Freed with by_digest_free. */
BY_API by_status by_checkpoint_digest(by_digest *out, const char *path, int threads,
                                      by_error *error);
BY_API void by_digest_free(by_digest *digest);

#ifdef __cplusplus
}
#endif
#endif
