/* Checkpoints and weight files.
 *
 * Weights are safetensors files with the tensor names of the model family's Hugging Face
 * checkpoints: one `model.safetensors`, or shards with `model.safetensors.index.json`. by_weights
 * opens both forms, including plain Hugging Face directories, read-only and memory-mapped.
 *
 * A checkpoint is a directory `step-00001000` with the weights, `optimizer.safetensors`,
 * `state.json` (typed values), files added by the caller (`config.json`, `tokenizer.json`), and
 * `manifest.json`, which lists the size and XXH3-128 of every file and is written last. A directory
 * without a valid manifest is not a checkpoint. A checkpoint is written under a temporary name,
 * synced and renamed, so a crash at any time leaves earlier checkpoints valid and no broken one.
 *
 * A checkpoint root is the directory that contains the `step-*` directories of a run.
 */
#ifndef BANYAN_CHECKPOINT_H
#define BANYAN_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "banyan/dtype.h"
#include "banyan/shape.h"
#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A view of a tensor in memory owned by someone else: row-major, dense, little-endian. */
typedef struct by_tensor_view {
    const char *name;
    by_dtype dtype;
    int rank; /* 0 (a scalar) to BY_TENSOR_MAX_RANK */
    int64_t shape[BY_TENSOR_MAX_RANK];
    const void *data; /* may be unaligned if it is from a mapped file: copy with memcpy */
} by_tensor_view;

/* Computes the number of elements and of bytes of a view; either output may be NULL. Returns
 * BY_EARG if its dtype, rank or shape is invalid, BY_EMEMORY if the size overflows. */
BY_API by_status by_tensor_size(const by_tensor_view *tensor, size_t *elements, size_t *bytes,
                                by_error *error);
/* Converts an f32, bf16 or f16 tensor of exactly `count` elements to f32. Returns BY_EARG if the
 * count differs, BY_EFORMAT for another dtype. */
BY_API by_status by_tensor_read_f32(const by_tensor_view *tensor, float *out, size_t count,
                                    by_error *error);

/* Returns the slice that covers the whole tensor. */
BY_API by_tensor_slice by_tensor_whole(const by_tensor_view *tensor);

/* ---- weights ---- */

/* Tensors by name, from one or several files. Any number of threads may read from one at the same
 * time. */
typedef struct by_weights by_weights;

/* Opens a .safetensors file, or a directory with model.safetensors or model.safetensors.index.json
 * and its shards, and maps the files. Validates everything the format specifies. Returns BY_EIO if
 * there is no such file, BY_EFORMAT with the file, the entry or offset, and what was expected. */
BY_API by_status by_weights_open(by_weights **out, const char *path, by_error *error);
/* Prefix of the names of averaged weights in a checkpoint's optimizer file. */
#define BY_AVERAGE_PREFIX "ema."
/* Opens a checkpoint's directory like by_weights_open, but with the moving average of the weights
 * (optimizer.ema) in place of the trained weights. Returns BY_EFORMAT if it has none. */
BY_API by_status by_weights_open_averages(by_weights **out, const char *directory, by_error *error);
BY_API void by_weights_close(by_weights **weights);
/* Returns the number of tensors. */
BY_API size_t by_weights_count(const by_weights *weights);
/* Returns the name of the i-th tensor, in byte order of names. */
BY_API const char *by_weights_name(const by_weights *weights, size_t i);
/* Returns whether some tensors are quantized, stored as codes with scales by `banyan compress` or
 * in compressed-tensors format. They read as f32; inference computes with the codes themselves. */
BY_API bool by_weights_in_codes(const by_weights *weights);
/* Returns whether there is a tensor of that name. */
BY_API bool by_weights_has(const by_weights *weights, const char *name);
/* Gets a view of a tensor, valid until the weights are closed; its data is the mapped file. A
 * tensor split over the files of several ranks is assembled in memory by the first call. Returns
 * BY_EFORMAT if there is no such tensor (the message suggests the nearest name) or its dtype or
 * rank is not supported, BY_ESTATE if its values are computed on reading (adapted or quantized
 * weights). */
BY_API by_status by_weights_tensor(const by_weights *weights, const char *name, by_tensor_view *out,
                                   by_error *error);
/* Copies a slice of `count` elements to `out`, in the tensor's dtype, from whichever files contain
 * it. Reads only the pages that hold the slice. Returns BY_EFORMAT as by_weights_tensor; BY_EARG if
 * the slice exceeds the tensor or does not have `count` elements. */
BY_API by_status by_weights_read(const by_weights *weights, const char *name,
                                 const by_tensor_slice *slice, void *out, size_t count,
                                 by_error *error);
/* Like by_weights_read, but converts an f32, bf16 or f16 tensor to f32. Returns BY_EFORMAT for
 * another dtype. */
BY_API by_status by_weights_read_f32(const by_weights *weights, const char *name,
                                     const by_tensor_slice *slice, float *out, size_t count,
                                     by_error *error);
/* Returns the text of the directory's config.json; NULL if there is none. */
BY_API const char *by_weights_config(const by_weights *weights);
/* Returns the path that the weights were opened with. */
BY_API const char *by_weights_path(const by_weights *weights);

/* Writes model.safetensors into an existing directory, or shards with an index if the tensors take
 * more than `shard_bytes` together (0: 5e9). Tensor data goes directly from the views to the files.
 * Each file is written under a temporary name, synced and renamed, so `tensors` may be views into
 * the files being replaced. Shards get names not yet used in the directory
 * ("model-v2-00001-of-00003.safetensors") and the index is written after them: readers, also after
 * a crash, find either the old or the new weights. Files of the old weights are removed at the end.
 * Returns BY_EARG if there are no tensors, or for an invalid name, shape or dtype. */
BY_API by_status by_weights_write(const char *directory, const by_tensor_view *tensors,
                                  size_t count, uint64_t shard_bytes, by_error *error);

/* Writes tensors to one file atomically. Returns BY_EARG if `path` does not end in .safetensors or
 * a tensor is invalid. */
BY_API by_status by_tensors_write(const char *path, const by_tensor_view *tensors, size_t count,
                                  by_error *error);

/* ---- writing checkpoints ---- */

typedef enum by_value_kind { BY_VALUE_U64, BY_VALUE_F64, BY_VALUE_STRING } by_value_kind;

/* One typed value of state.json. Numbers are restored bit for bit (NaN as a NaN). */
typedef struct by_checkpoint_value {
    const char *key;
    by_value_kind kind;
    union {
        uint64_t u64;
        double f64;
        const char *string;
    } as;
} by_checkpoint_value;

/* A file to store next to the weights: `size` bytes at `data`; if `data` is NULL, a copy of the
 * file at `path`; if `path` is NULL too, a safetensors file with the model tensors that are not
 * frozen, their names prefixed with `trained_under`, for use by other programs. */
typedef struct by_checkpoint_file {
    const char *name; /* plain file name: "config.json" */
    const void *data;
    size_t size;
    const char *path;
    const char *trained_under;
} by_checkpoint_file;

/* A slice that a writer will add. */
typedef struct by_checkpoint_part {
    size_t tensor; /* index: model tensors from 0, optimizer tensors from model_count */
    by_tensor_slice slice;
} by_checkpoint_part;

/* What a checkpoint will contain. All writers of a checkpoint pass the same layout, except for
 * `parts`. */
typedef struct by_checkpoint_layout {
    const by_tensor_view *model; /* whole tensors, at least one; `data` is not read */
    size_t model_count;
    const by_tensor_view *optimizer; /* whole tensors "m.NAME", "v.NAME", ...; may be NULL */
    size_t optimizer_count;
    uint64_t shard_bytes; /* split a file of more bytes into shards; 0: 5e9 */
    int writers;          /* number of processes or threads that write, including the one that
                             begins; 0: 1 */
    /* [model_count] Whether each model tensor is unchanged since earlier checkpoints because it is
     * not trained. Frozen tensors get files of their own, `model-frozen-...`, which are hard-linked
     * to those of an earlier checkpoint if all bytes are equal; shard_bytes does not apply to them.
     * NULL: none is. */
    const bool *frozen;
    const by_checkpoint_part *parts; /* with several writers: the slices that this one will
                                        write, none empty */
    size_t part_count;
} by_checkpoint_layout;

/* A checkpoint being written. The threads of a process may add to one concurrently. */
typedef struct by_checkpoint_writer by_checkpoint_writer;

/* Begins checkpoint ROOT/step-XXXXXXXX under a temporary name, creating ROOT if necessary, and
 * removes leftovers of interrupted saves. One process begins and commits. Other writers join after
 * a barrier provided by the caller, add their parts, finish, and meet at a second barrier before
 * the commit:
 *
 *     writer 0:  begin | barrier | add ... | barrier | commit
 *     others:          | barrier | join, add ..., finish | barrier |
 *
 * A single writer produces `model.safetensors`, or shards with an index. With several, each writes
 * and hashes files of its own, `model-00001-of-00004.safetensors`, because network file systems
 * handle concurrent writers to one file poorly. If no tensor is split across writers, an index in
 * Hugging Face form makes the files loadable by other programs; otherwise `model.slices.json` lists
 * the slices in each file. The same applies to the optimizer.
 *
 * The layout is copied. The checkpoint does not exist until commit has renamed it. Returns BY_EARG
 * for an invalid layout, BY_ESTATE if another process is saving in the same root.
 */
BY_API by_status by_checkpoint_begin(by_checkpoint_writer **out, const char *root, uint64_t step,
                                     const by_checkpoint_layout *layout, by_error *error);
/* Returns a number that identifies this attempt. Other writers pass it to by_checkpoint_join, so
 * that they cannot mix with leftovers of an earlier attempt at the same step. */
BY_API uint64_t by_checkpoint_token(const by_checkpoint_writer *writer);
/* Joins a checkpoint begun by another process as writer `rank`, 1 to layout->writers - 1. Returns
 * BY_EARG for an invalid rank or layout, BY_ESTATE if nobody has begun it. */
BY_API by_status by_checkpoint_join(by_checkpoint_writer **out, const char *root, uint64_t step,
                                    const by_checkpoint_layout *layout, int rank, uint64_t token,
                                    by_error *error);
/* Returns the index in layout->parts of the part that comes i-th in the writer's files. For a
 * single writer each tensor is a part: model tensors from 0, optimizer tensors from model_count.
 * Parts added in this order bypass the page cache, and nothing has to be read back for the
 * checksums. */
BY_API size_t by_checkpoint_order(const by_checkpoint_writer *writer, size_t i);
/* Writes a part from `data` (dense), which may be reused when this returns. Over all writers each
 * element must be written exactly once, and each tensor either by flat ranges (or boxes that are
 * contiguous) or by boxes. After an error the checkpoint can no longer be committed. */
BY_API by_status by_checkpoint_add_part(by_checkpoint_writer *writer, size_t part, const void *data,
                                        by_error *error);
/* Writes a slice of a tensor from `data` (dense). For a single writer only; slices may come in any
 * order. Errors as by_checkpoint_add_part. */
BY_API by_status by_checkpoint_add(by_checkpoint_writer *writer, size_t tensor,
                                   const by_tensor_slice *slice, const void *data, by_error *error);
/* Takes the file `name` from checkpoint `from` of the same root instead of writing it: the manifest
 * refers to it there, and a symbolic link takes its place. A weight file must have the same layout,
 * and counts as written. by_checkpoint_prune keeps referenced checkpoints. Only for the process
 * that began, before it adds anything. Returns BY_EARG if the file cannot be taken over, BY_EFORMAT
 * if that checkpoint is damaged or has no such file. */
BY_API by_status by_checkpoint_reference(by_checkpoint_writer *writer, const char *name,
                                         uint64_t from, by_error *error);
/* Syncs the files of a writer that joined and closes it, also on failure. */
BY_API by_status by_checkpoint_finish(by_checkpoint_writer **writer, by_error *error);
/* Writes values and files, checks that every tensor is complete, and atomically publishes the
 * checkpoint, replacing one of the same step. Closes the writer, also on failure, which leaves
 * nothing behind. Returns BY_EARG for an invalid value or file, BY_ESTATE if part of a tensor is
 * missing or was written twice, or a writer did not finish.
 *
 * Exceeding a file-size limit raises SIGXFSZ; ignore that signal to get an error instead.
 */
BY_API by_status by_checkpoint_commit(by_checkpoint_writer **writer,
                                      const by_checkpoint_value *values, size_t value_count,
                                      const by_checkpoint_file *files, size_t file_count,
                                      by_error *error);
/* Closes a writer without committing and removes what it began. NULL is accepted. */
BY_API void by_checkpoint_abandon(by_checkpoint_writer **writer);
/* Records a step and its validation loss (nats) in ROOT/best.json, atomically. */
BY_API by_status by_checkpoint_mark_best(const char *root, uint64_t step, double loss,
                                         by_error *error);
/* Removes all valid checkpoints except the newest `keep` (at least 1), the best one, those in use
 * by a server, and those with files that these refer to. Directories that are not valid checkpoints
 * are neither counted nor touched. Each is renamed before it is deleted, so none is ever half
 * there. */
BY_API by_status by_checkpoint_prune(const char *root, size_t keep, by_error *error);

/* Which checkpoints to keep, besides the best one named by best.json and those in use by a server
 * (docs/checkpoints.md). */
typedef struct by_retention {
    size_t keep;         /* the newest, at least 1 */
    size_t keep_best;    /* the ones with the lowest validation loss; 0: none */
    uint64_t keep_every; /* those whose step is a multiple of this; 0: none */
    uint64_t also;       /* the one of this step; 0: none */
    /* Ignore later checkpoints: they are neither counted nor removed. For a run that resumed from
     * an earlier one because later ones were damaged. UINT64_MAX: no limit. */
    uint64_t last;
    /* Count and remove only checkpoints whose checksums are all right; otherwise files are checked
     * for existence and size. */
    bool verify;
    bool is_dry_run; /* dry run: remove nothing */
} by_retention;

/* Like by_checkpoint_prune, with these rules. *steps receives the removed steps, ascending; free it
 * with free(). `steps` and `count` may both be NULL. Returns BY_EARG if `keep` is 0. */
BY_API by_status by_checkpoint_retain(const char *root, const by_retention *retention,
                                      uint64_t **steps, size_t *count, by_error *error);

/* ---- reading checkpoints ---- */

/* Finds the newest checkpoint of a root whose checksums are all right. *skipped (may be NULL)
 * receives a line with the reason for each newer one that was passed over, or "". Free both with
 * free(). Returns BY_ESTATE if there is none; the message says why the newest was rejected. */
BY_API by_status by_checkpoint_latest(const char *root, char **path, char **skipped,
                                      by_error *error);
/* Finds the checkpoint that best.json names, verifies its checksums, and returns its path, to be
 * freed with free(), and its loss (may be NULL). Returns BY_ESTATE if none is marked, BY_EFORMAT if
 * it is damaged. */
BY_API by_status by_checkpoint_best(const char *root, char **path, double *loss, by_error *error);

typedef struct by_checkpoint_info {
    char *path;
    uint64_t step;
    char *reason;       /* why it is not valid; NULL: it is valid, and the fields below are set */
    size_t files;       /* number of files */
    uint64_t bytes;     /* total size of all files ... */
    uint64_t own_bytes; /* ... and of those not shared with another checkpoint */
    double loss;        /* validation loss when it was saved; NaN: not evaluated */
    bool is_best;       /* best.json names it */
} by_checkpoint_info;

typedef struct by_checkpoint_list {
    by_checkpoint_info *items; /* ascending by step */
    size_t count;
} by_checkpoint_list;

/* Lists the checkpoints of a root, or the single one at `path`, valid or not. With `verify`,
 * checksums are compared as well. Release the list with by_checkpoint_list_free. Returns BY_ESTATE
 * if there is none. */
BY_API by_status by_checkpoint_list_make(by_checkpoint_list *out, const char *path, bool verify,
                                         by_error *error);
BY_API void by_checkpoint_list_free(by_checkpoint_list *list);

/* An open checkpoint. */
typedef struct by_checkpoint by_checkpoint;

/* Opens a checkpoint directory, or the latest valid one of a root. The manifest and file sizes are
 * always checked, with `verify` or for a root also all checksums. Returns BY_EFORMAT with the file
 * that is wrong, BY_ESTATE if a root has no valid checkpoint. */
BY_API by_status by_checkpoint_open(by_checkpoint **out, const char *path, bool verify,
                                    by_error *error);
BY_API void by_checkpoint_close(by_checkpoint **checkpoint);
/* Returns the directory that was opened. */
BY_API const char *by_checkpoint_path(const by_checkpoint *checkpoint);
/* Returns the training step at which it was saved. */
BY_API uint64_t by_checkpoint_step(const by_checkpoint *checkpoint);
/* Returns the model's tensors. */
BY_API const by_weights *by_checkpoint_model(const by_checkpoint *checkpoint);
/* Returns the optimizer's tensors; NULL if the checkpoint has none. */
BY_API const by_weights *by_checkpoint_optimizer(const by_checkpoint *checkpoint);
/* Returns the number of values in state.json; by_checkpoint_value_at returns the i-th in the order
 * they were written. */
BY_API size_t by_checkpoint_value_count(const by_checkpoint *checkpoint);
BY_API const by_checkpoint_value *by_checkpoint_value_at(const by_checkpoint *checkpoint, size_t i);
/* These three look up a value by key. They return BY_EFORMAT if it is missing or of another kind.
 * The string belongs to the checkpoint. */
BY_API by_status by_checkpoint_value_u64(const by_checkpoint *checkpoint, const char *key,
                                         uint64_t *out, by_error *error);
BY_API by_status by_checkpoint_value_f64(const by_checkpoint *checkpoint, const char *key,
                                         double *out, by_error *error);
BY_API by_status by_checkpoint_value_string(const by_checkpoint *checkpoint, const char *key,
                                            const char **out, by_error *error);

/* Writes the model of a checkpoint, of the latest valid one of a root, or of a Hugging Face
 * directory as a Hugging Face directory: one model.safetensors, or shards of up to `shard_bytes`
 * (0: 5e9) with an index, regardless of how ranks had sliced the tensors, plus the accompanying
 * files (config.json, tokenizer.json). `average` selects the moving average of the weights
 * (by_weights_open_averages). `adapter` is the directory of an adapter (banyan/adapter.h) to add to
 * the weights, each in its own dtype; NULL: the checkpoint's own adapter, if it has one.
 * `directory` appears complete or not at all. Returns BY_EARG if it exists already, or if averages
 * are requested of a checkpoint with adapters; BY_EFORMAT names a tensor with values that are not
 * finite. */
BY_API by_status by_checkpoint_merge(const char *path, const char *directory, uint64_t shard_bytes,
                                     bool average, const char *adapter, by_error *error);

/* ---- differences ---- */

/* How two tensors of the same name differ. */
typedef enum by_difference_kind {
    BY_DIFFERENCE_NONE = 0,   /* equal */
    BY_DIFFERENCE_VALUES,     /* equal shapes, different values */
    BY_DIFFERENCE_SHAPE,      /* different shapes */
    BY_DIFFERENCE_ONLY_FIRST, /* not in the second */
    BY_DIFFERENCE_ONLY_SECOND /* not in the first */
} by_difference_kind;

/* Comparison of one tensor. Values are compared as f32; values with the same bits are equal, as are
 * two NaNs. */
typedef struct by_tensor_difference {
    char *name;
    bool optimizer; /* an optimizer state; false: a model tensor */
    by_difference_kind kind;
    uint64_t elements;  /* number of elements */
    uint64_t different; /* number of elements that differ */
    double max_abs;     /* maximum of |a - b|; infinite if one of them is not finite */
    double max_rel;     /* maximum of |a - b| / max(|a|, |b|) */
} by_tensor_difference;

typedef struct by_difference {
    by_tensor_difference *tensors; /* model tensors, then optimizer tensors, each by name */
    size_t count;
    bool differs; /* at least one tensor differs */
} by_difference;

/* Compares two checkpoints (for roots, their latest valid ones; checksums are verified) or weights
 * as by_weights_open accepts them, in f32, bf16 or f16. Optimizer states are compared only if both
 * are checkpoints. Release the result with by_difference_free. */
BY_API by_status by_checkpoint_diff(by_difference *out, const char *first, const char *second,
                                    by_error *error);
BY_API void by_difference_free(by_difference *difference);

/* ---- digests ---- */

#define BY_SHA256_HEX 65 /* 64 hexadecimal digits and a NUL */

typedef struct by_tensor_digest {
    char *name;
    const char *dtype; /* as in safetensors: "F32", "BF16" */
    int rank;
    int64_t shape[BY_TENSOR_MAX_RANK];
    char sha256[BY_SHA256_HEX];
} by_tensor_digest;

/* Hashes of tensor contents, independent of the files and slices that hold them and of the number
 * of ranks that wrote them. The hash of a tensor is the SHA-256 of
 *
 *     NAME, a zero byte, DTYPE, a zero byte, SHAPE, a zero byte, DATA
 *
 * where SHAPE is the extents in decimal, separated by commas ("768,3072"; "" for a scalar), and
 * DATA is row-major and little-endian. The hash of several tensors is the SHA-256 of their 32-byte
 * hashes, concatenated in byte order of names; for `all`, first the model's, then the optimizer's.
 */
typedef struct by_digest {
    char *path; /* of the checkpoint or weights that were read */
    char all[BY_SHA256_HEX];
    char model[BY_SHA256_HEX];
    char optimizer[BY_SHA256_HEX]; /* "" if there is no optimizer */
    by_tensor_digest *tensors;     /* model tensors, then optimizer tensors, each by name */
    size_t model_count;
    size_t count;
} by_digest;

/* Computes the digest of a checkpoint, of the latest valid one of a root (checksums are verified),
 * or of weights as by_weights_open accepts them, on `threads` threads (0: one per core). Release it
 * with by_digest_free. */
BY_API by_status by_checkpoint_digest(by_digest *out, const char *path, int threads,
                                      by_error *error);
BY_API void by_digest_free(by_digest *digest);

#ifdef __cplusplus
}
#endif
#endif
