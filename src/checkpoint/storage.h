/* checkpoint: weights and training state on disk.
 *
 * What it is for: reading (mapped) and writing (streamed from the caller's memory) safetensors
 * files, shards with an index, and checkpoint directories, which are either complete or do not
 * exist.
 *
 * Types: by__checkpoint_sink is one file being written (hashed on the way, synced, renamed at
 * commit). by__checkpoint_safetensors is one mapped file with its checked entries. by_weights joins
 * the shards of a directory. by__checkpoint_manifest lists a checkpoint's files;
 * by__checkpoint_state holds its typed values.
 *
 * How a checkpoint becomes visible: everything is written and synced in `step-N.tmp`, the manifest
 * last; the directory is synced, renamed to `step-N`, and the root is synced. A directory to be
 * removed is first renamed (`.trash-...`). The next save removes leftovers of both kinds.
 *
 * Several writers: one process begins and commits, holding the root's lock in between; each writes
 * its own files, and the others leave `slices-RANK` and `files-RANK`, which record what they have
 * written and where, with checksums. Commit reads these, checks that each element was written
 * exactly once, and removes them.
 *
 * Background: by__checkpoint_saver runs whole saves on a separate thread, from a staging buffer, so
 * that training waits at most for a copy.
 *
 * Who owns what: readers own their maps and names, so a view is valid until its by_weights closes.
 * Writers borrow the caller's memory and copy no tensor data.
 *
 * Never put here: what a parameter means, how ranks split one, models, devices, the config.
 */
#ifndef BY_CHECKPOINT_STORAGE_H
#define BY_CHECKPOINT_STORAGE_H

#include <jansson.h>

#include "banyan/checkpoint.h"
#include "banyan/comm.h"
#include "banyan/op.h"
#include "base/base.h"
#include "base/tensor_slice.h"
#include "store/store.h"

#define BY_DEFAULT_SHARD_BYTES UINT64_C(5000000000)
/* Limit for JSON that is read whole into memory: index, manifest, state, config. */
#define BY_MAX_JSON_BYTES ((size_t)100000000)

/* ---- one file being written (sink.c) ---- */

typedef struct by__checkpoint_file_record {
    char *name;
    uint64_t size;
    char hash[33];
    char *in; /* "step-00000100": the file belongs to that checkpoint; NULL: it is here */
} by__checkpoint_file_record;

typedef struct by__checkpoint_file_list {
    by__checkpoint_file_record *items;
    size_t count;
    size_t capacity;
} by__checkpoint_file_list;

void by__checkpoint_file_list_free(by__checkpoint_file_list *list);
/* The record of a file; NULL: there is none. */
const by__checkpoint_file_record *
by__checkpoint_file_list_find(const by__checkpoint_file_list *list, const char *name);
/* Adds a record with copies of the strings; `in` may be NULL. */
by_status by__checkpoint_file_list_add(by__checkpoint_file_list *list, const char *name,
                                       uint64_t size, const char hash[33], const char *in,
                                       by_error *error);

typedef struct by__checkpoint_sink by__checkpoint_sink;

/* Creates DIRECTORY/NAME.tmp and reserves `size` bytes (the exact or expected length), so that a
 * full disk is detected before the work and not at its end. */
by_status by__checkpoint_sink_open(by__checkpoint_sink **out, const char *directory,
                                   const char *name, uint64_t size, by_error *error);
by_status by__checkpoint_sink_add(by__checkpoint_sink *sink, const void *data, size_t n,
                                  by_error *error);
/* Flushes what was added, renames the file without a sync and hands over its descriptor, which uses
 * the page cache: for further parts that arrive out of order. Closes the sink, also on failure. */
by_status by__checkpoint_sink_release(by__checkpoint_sink **sink, int *fd, by_error *error);
/* Reserves `size` bytes for an open file; BY_EIO if the disk does not have them. */
by_status by__checkpoint_reserve_space(int fd, const char *path, uint64_t size, by_error *error);
/* Syncs, renames to NAME, adds a record to `written` (may be NULL) and closes, also on failure. */
by_status by__checkpoint_sink_commit(by__checkpoint_sink **sink, by__checkpoint_file_list *written,
                                     by_error *error);
/* Closes and removes the unfinished file. NULL is accepted. */
void by__checkpoint_sink_discard(by__checkpoint_sink **sink);
/* Writes a whole small file, or a copy of an existing one. */
by_status by__checkpoint_sink_put(const char *directory, const char *name, const void *data,
                                  size_t n, by__checkpoint_file_list *written, by_error *error);
by_status by__checkpoint_sink_copy(const char *directory, const char *name, const char *source,
                                   by__checkpoint_file_list *written, by_error *error);

/* Least size of files that are shared with an earlier checkpoint if they are equal. Smaller ones
 * are cheap, and independent copies are more robust. */
#define BY__SHARED_BYTES ((size_t)64 << 10)

/* ---- safetensors (safetensors_read.c, safetensors_write.c) ---- */

/* A tensor in pieces (pieces.c), and one with an adapter's product added (delta.c). */
typedef struct by__checkpoint_pieces by__checkpoint_pieces;
typedef struct by__checkpoint_delta by__checkpoint_delta;

/* A tensor that is computed when it is read, e.g. converted from another format. `read` stores
 * elements [first, first + count) in row-major order into out, in the entry's dtype; it allocates
 * no memory and is thread-safe. */
typedef struct by__checkpoint_computed {
    void (*read)(const struct by__checkpoint_computed *self, uint64_t first, size_t count,
                 void *out);
} by__checkpoint_computed;

typedef struct by__checkpoint_tensor_entry {
    char *name;
    const char *type; /* type name in the file: "F32", "I64", ... */
    int dtype;        /* by_dtype, or -1 if banyan has no such type */
    size_t rank;      /* may exceed BY_TENSOR_MAX_RANK: shape then has the first extents only */
    int64_t shape[BY_TENSOR_MAX_RANK];
    uint64_t begin; /* relative to the end of the header */
    uint64_t end;
    const uint8_t *data;                     /* NULL: cut over files, or computed */
    const char *file;                        /* path of its file */
    by__checkpoint_pieces *pieces;           /* its slices in files; or NULL */
    by__checkpoint_delta *delta;             /* what it is computed from; or NULL */
    const by__checkpoint_computed *computed; /* borrowed; or NULL */
    uint64_t code_bytes; /* in the file, of the quantized values and scales that it is computed
                            from; 0: it is not quantized */
} by__checkpoint_tensor_entry;

typedef struct by__checkpoint_safetensors {
    by__checkpoint_tensor_entry *entries; /* sorted by offset */
    size_t count;
} by__checkpoint_safetensors;

/* Parses and checks a whole file in memory; `file` is its name in messages and must outlive
 * `out`. */
by_status by__checkpoint_safetensors_parse(by__checkpoint_safetensors *out, const char *file,
                                           const uint8_t *data, size_t size, by_error *error);
void by__checkpoint_safetensors_free(by__checkpoint_safetensors *file);
/* The type name of a dtype, e.g. "F32", and the reverse; -1: not one of banyan's. */
const char *by__checkpoint_type_name(by_dtype dtype);
int by__checkpoint_type_of_name(const char *name);

/* Layout of tensors in files (weights_plan.c): a function of names, dtypes and shapes. */
typedef struct by__checkpoint_planned_tensor {
    size_t file;
    uint64_t begin; /* byte offset in its file */
    uint64_t bytes;
} by__checkpoint_planned_tensor;

typedef struct by__checkpoint_planned_file {
    char name[256];
    by_string header; /* including its length field: all bytes before the first tensor */
    uint64_t size;
    size_t first; /* its tensors in file order: order[first], ... order[first + count - 1] */
    size_t count;
} by__checkpoint_planned_file;

typedef struct by__checkpoint_weights_plan {
    by__checkpoint_planned_file *files;
    size_t file_count;
    by__checkpoint_planned_tensor *tensors; /* in the caller's order */
    size_t *order;                          /* indices of tensors, sorted by file and offset */
    size_t count;
    char index_name[256];
    char *index; /* text of the index of shards; NULL: one file */
    size_t index_length;
} by__checkpoint_weights_plan;

/* Plans STEM.safetensors, or shards and an index if larger than `shard_bytes` (0: default).
 * BY_EARG: a name, shape or dtype cannot be stored. */
by_status by__weights_plan_make(by__checkpoint_weights_plan *out, const char *stem,
                                const by_tensor_view *tensors, size_t count, uint64_t shard_bytes,
                                by_error *error);
/* Renames the shards of a plan that has an index to another stem. */
by_status by__weights_plan_rename(by__checkpoint_weights_plan *plan, const char *stem,
                                  const by_tensor_view *tensors, by_error *error);
void by__weights_plan_free(by__checkpoint_weights_plan *plan);
/* Prints an index of shards: files[i] contains tensors[i]. */
by_status by__weights_index_print(char **out, size_t *length, const by_tensor_view *tensors,
                                  const char *const *files, size_t count, by_error *error);

/* Writes DIRECTORY/STEM.safetensors, or shards and an index if larger than `shard_bytes` (0:
 * default). Shards get new names, so that an existing index stays valid until the new one replaces
 * it; they are removed if writing fails. */
by_status by__weights_write(const char *directory, const char *stem, const by_tensor_view *tensors,
                            size_t count, uint64_t shard_bytes, by__checkpoint_file_list *written,
                            by_error *error);

/* Writes tensors as by__weights_plan_make lays them out: views[i] has name, type and shape of
 * entries[i]. `written` may be NULL. */
by_status by__checkpoint_entries_write(const char *directory, const char *stem,
                                       const by_tensor_view *views,
                                       const by__checkpoint_tensor_entry *const *entries,
                                       size_t count, uint64_t shard_bytes,
                                       by__checkpoint_file_list *written, by_error *error);

/* ---- directories in Hugging Face format (merge.c) ---- */

/* Writes all weights as model.safetensors, or as shards if larger than `shard_bytes` (0:
 * default). */
by_status by__checkpoint_weights_copy(const char *directory, const by_weights *weights,
                                      uint64_t shard_bytes, by_error *error);
/* Copies the files of a directory in Hugging Face format other than weights: config and
 * tokenizer. */
by_status by__checkpoint_copy_along(const char *directory, const char *from, by_error *error);
/* Renames a finished directory durably to its final name, without replacing anything: BY_EARG if
 * that name exists. */
by_status by__checkpoint_publish(const char *temporary, const char *directory, by_error *error);

/* ---- parts of tensors (slice.c) ---- */

/* Number of elements of a slice; BY_EARG if it is not within the tensor. */
by_status by__checkpoint_slice_check(const by_tensor_view *tensor, const by_tensor_slice *slice,
                                     size_t *elements, by_error *error);
/* Returns true if a slice has all elements of its tensor. */
bool by__checkpoint_slice_is_whole(const by_tensor_view *tensor, const by_tensor_slice *slice);
/* The name of a slice in a file: the tensor's name and, unless it is the whole tensor, "[0:20]" or
 * "[0:17,2:4]". Freed with free(). */
by_status by__checkpoint_slice_name(char **out, const by_tensor_view *tensor,
                                    const by_tensor_slice *slice, by_error *error);

/* BY_ESTATE unless the slices, none of which is empty, cover each element of the tensor exactly
 * once. */
by_status by__checkpoint_slices_cover(const by_tensor_view *tensor,
                                      const by_tensor_slice *const *slices, size_t count,
                                      by_error *error);

/* ---- tensors cut over files (pieces.c, slice_index.c) ---- */

by_status by__checkpoint_pieces_open(by__checkpoint_pieces **out, const by_tensor_view *tensor,
                                     by_error *error);
void by__checkpoint_pieces_close(by__checkpoint_pieces **pieces);
/* Adds a checked slice; its data is borrowed. */
by_status by__checkpoint_pieces_add(by__checkpoint_pieces *pieces, const by_tensor_slice *slice,
                                    const uint8_t *data, by_error *error);
/* The whole tensor in memory, assembled by the first call; owned by the pieces. */
by_status by__checkpoint_pieces_whole(by__checkpoint_pieces *pieces, const void **data,
                                      by_error *error);

typedef struct by__checkpoint_cut_slice {
    by_tensor_slice slice;
    char *file; /* file that contains it under the name of by__checkpoint_slice_name */
} by__checkpoint_cut_slice;

typedef struct by__checkpoint_cut_tensor {
    by_tensor_view view; /* name owned; no data */
    size_t first;        /* index of its first slice */
    size_t count;
} by__checkpoint_cut_tensor;

/* STEM.slices.json */
typedef struct by__checkpoint_slice_index {
    by__checkpoint_cut_tensor *tensors;
    size_t count;
    size_t capacity;
    by__checkpoint_cut_slice *slices;
    size_t slice_count;
    size_t slice_capacity;
} by__checkpoint_slice_index;

/* Both copy their arguments; a slice belongs to the tensor added last. */
by_status by__checkpoint_slice_index_add_tensor(by__checkpoint_slice_index *index,
                                                const by_tensor_view *view, by_error *error);
by_status by__checkpoint_slice_index_add(by__checkpoint_slice_index *index,
                                         const by_tensor_slice *slice, const char *file,
                                         by_error *error);
by_status by__checkpoint_slice_index_print(const by__checkpoint_slice_index *index, char **out,
                                           size_t *length, by_error *error);
/* Parses an index and checks that the slices of each tensor make it up. */
by_status by__checkpoint_slice_index_parse(by__checkpoint_slice_index *out, const char *path,
                                           const char *text, size_t length, by_error *error);
void by__checkpoint_slice_index_free(by__checkpoint_slice_index *index);

/* Computes a checked slice, in `dtype`, a float format (delta.c). */
void by__checkpoint_delta_read(const by__checkpoint_delta *delta, const by_tensor_slice *slice,
                               by_dtype dtype, void *out);

/* ---- quantized weights: codes and scales (coded_weights.c) ---- */

typedef struct by__checkpoint_coded_tensor {
    by__checkpoint_computed computed;
    by__coded coded;
    bool in_out; /* the tensor is [k, n], else [n, k] */
} by__checkpoint_coded_tensor;

/* Replaces codes and their scales among the entries of a directory by f32 tensors computed from
 * them: of `count` sorted entries, as many as it returns remain in *out, sorted. `config` is the
 * text of config.json. *own and *coded back the new entries; freed with free(), the names of *own
 * before. *out is NULL if nothing is quantized. */
typedef struct by__checkpoint_coded_entries {
    const by__checkpoint_tensor_entry **entries;
    size_t count;
    by__checkpoint_tensor_entry *own;
    by__checkpoint_coded_tensor *coded;
    size_t own_count;
    bool rows_as_integers; /* activations are quantized to 8-bit integers */
} by__checkpoint_coded_entries;
by_status by__checkpoint_coded_entries_make(by__checkpoint_coded_entries *out,
                                            const by__checkpoint_tensor_entry *const *entries,
                                            size_t count, const char *path, const char *config,
                                            by_error *error);
void by__checkpoint_coded_entries_free(by__checkpoint_coded_entries *coded);

/* Makes "quantization_config" of config.json for weights that are written in codes. group 0: an
 * output has one scale; rows: inputs of products are quantized, too. Takes `ignored`, names of
 * layers without codes, and `in_out`, those whose tensors are [k, n] (NULL: none). NULL: out of
 * memory. */
json_t *by__checkpoint_codes_describe(by__code_kind kind, int64_t group, bool rows, json_t *ignored,
                                      json_t *in_out);
/* The codes of a tensor; NULL: it has none, or something is added to it. */
const by__coded *by__checkpoint_entry_coded(const by__checkpoint_tensor_entry *entry);
const by__coded *by__weights_coded(const by_weights *weights, const char *name);
/* Returns true if config.json says that activations are quantized to 8-bit integers (W8A8). */
bool by__weights_rows_as_integers(const by_weights *weights);

/* ---- several files as one (weights.c, weights_entries.c) ---- */

/* Compares pointers to two entries by name, for qsort and bsearch. */
int by__checkpoint_compare_entries(const void *a, const void *b);
/* The i-th tensor in byte order of names, of any type. */
const by__checkpoint_tensor_entry *by__weights_entry(const by_weights *weights, size_t i);
/* The tensor with that name; NULL: there is none. */
const by__checkpoint_tensor_entry *by__weights_find(const by_weights *weights, const char *name);
/* Releases the page cache of a file's values that are unlikely to be read again; values that are
 * not in a file are kept. */
void by__weights_release(const by_weights *weights, const void *data, size_t bytes);
/* Like by_weights_tensor; data is NULL if the tensor is cut over files. */
by_status by__weights_describe(const by_weights *weights, const char *name, by_tensor_view *out,
                               by_error *error);
/* Returns whether there are matrices and all of them are stored in bf16. */
bool by__weights_in_bf16(const by_weights *weights);
/* Calls take(user, ...) with the bytes of a whole tensor in order: in one call or, if it is cut
 * over files or computed, in several. Stops at the first error. */
by_status by__checkpoint_entry_bytes(const by__checkpoint_tensor_entry *entry,
                                     by_status (*take)(void *user, const void *bytes, size_t n,
                                                       by_error *error),
                                     void *user, by_error *error);
/* Copies a checked slice with `elements` elements from an entry whose type banyan has. */
void by__checkpoint_entry_read(const by__checkpoint_tensor_entry *entry,
                               const by_tensor_view *tensor, const by_tensor_slice *slice,
                               void *out);

/* Removes `prefix` from the names of all tensors. BY_EFORMAT names one that does not begin with
 * it. */
by_status by__weights_strip(by_weights *weights, const char *prefix, by_error *error);
/* Makes weights from `count` entries with their own names, which the caller keeps while the weights
 * are open. `config` (freed with them, also on failure; NULL: none) is the text of a config.json;
 * `path` is for messages. BY_EFORMAT: two have the same name. */
by_status by__weights_of(by_weights **out, const char *path, char *config,
                         const by__checkpoint_tensor_entry *entries, size_t count, by_error *error);
/* Like by_weights_open for a directory, reading STEM.safetensors, STEM.safetensors.index.json or
 * STEM.slices.json. */
by_status by__weights_open(by_weights **out, const char *directory, const char *stem,
                           by_error *error);

/* ---- directories (merge.c) ---- */

/* True for files of a directory in Hugging Face format that are copied along with weights: config,
 * tokenizer. */
bool by__checkpoint_goes_along(const char *name);

/* The shards listed in an index and the tensors each should contain. */
typedef struct by__checkpoint_index_item {
    char *tensor;
    char *file;
} by__checkpoint_index_item;

typedef struct by__checkpoint_index {
    by__checkpoint_index_item *items;
    size_t count;
} by__checkpoint_index;

by_status by__checkpoint_index_parse(by__checkpoint_index *out, const char *path, const char *text,
                                     size_t length, by_error *error);
void by__checkpoint_index_free(by__checkpoint_index *index);

/* ---- tensors stored in parts, one for each index of the first axis (stacked.c) ---- */

/* Returns true if `name` stands for one tensor per index of the first axis. */
bool by__checkpoint_name_is_stacked(const char *name);
/* Writes the name of one part to `out`. */
void by__checkpoint_stacked_name(char *out, size_t size, const char *name, int64_t part);
/* Changes the view of such a tensor to that of one part; the part's name is written to `name`.
 * Returns the number of elements before it. */
size_t by__checkpoint_stacked_part(by_tensor_view *view, char *name, size_t size, int64_t part);
/* Reads a slice that is a box of such a tensor of `shape` into out; NULL: only checks that it
 * exists. BY_EFORMAT names the part that is missing or does not fit. */
by_status by__checkpoint_stacked_read(float *out, const by_weights *weights, const char *name,
                                      const by_shape *shape, const by_tensor_slice *slice,
                                      by_error *error);

/* ---- weights into a tensor store (store_load.c) ---- */

/* Returns true if a tensor is a buffer that older versions of transformers saved as a weight:
 * frequencies of rotary positions, the causal mask. */
bool by__weights_is_buffer(const char *name);

/* A table of positions: rows for the cells of a grid, behind some others. In files, the grid has
 * other sides, and its rows are interpolated. */
typedef struct by__checkpoint_grid {
    const char *name; /* of the entry */
    int64_t before;   /* rows in front of the grid's */
    int64_t from[2];  /* height and width in the files */
    int64_t to[2];
} by__checkpoint_grid;

/* Interpolates rows [height * width, row] of `in`, bicubic as torch.nn.functional.interpolate with
 * align_corners false (grid_rows.c). */
void by__checkpoint_grid_rows(float *out, const float *in, const by__checkpoint_grid *grid,
                              int64_t row);

typedef struct by__checkpoint_load_options {
    const char *prefix; /* before the entries' names: "m." for a state; NULL: none */
    const char *family; /* optional in files, before that ("transformer."); NULL: none */
    const char *base;   /* the files may lack this prefix of entries ("model."); NULL: none */
    const char *tied;   /* the entry that a head of its own in the files must equal; NULL: none */
    /* Returns true for entries that keep their values if the file lacks them; NULL: none do. */
    bool (*may_lack)(const char *name);
    /* Patterns (fnmatch) of entries that keep their values if the file lacks them, or has them in
     * another shape. */
    char *const *anew;
    size_t anew_count;
    const by__checkpoint_grid *grid; /* of by__checkpoint_store_load; NULL: none */
    bool exact;                      /* entries that grow need all of their rows, too */
    bool exact_codes;                /* codes of files are kept as they are, or refused */
    /* Of entries that grow, the rows from here on become the mean of those before, as new tokens
     * begin that a vocabulary gets (Hewitt 2021); 0: they keep their values. */
    int64_t known_rows;
    bool whole;          /* the entries are all of the model: other tensors are refused */
    const char *besides; /* except this one; NULL: none */
    /* and except those whose names begin with one of these, separated by spaces; NULL: none */
    const char *heads;
    int threads; /* for conversion */
} by__checkpoint_load_options;

/* Checks that the file has a tensor, of the right shape and a float format, for every entry with a
 * buffer in the flat buffer; works before or after allocation. BY_EFORMAT names the tensor that is
 * missing, or both shapes, or the first tensor without an entry. An entry that grows may have fewer
 * rows in the file, unless `exact`. */
by_status by__checkpoint_store_check(const by__store *store, int flat, const by_weights *weights,
                                     const by__checkpoint_load_options *options, by_error *error);
/* Makes the same checks and loads the values. */
by_status by__checkpoint_store_load(by__store *store, int flat, const by_weights *weights,
                                    const by__checkpoint_load_options *options, by_error *error);
/* Sets the rows of a table from options->known_rows on (mean_rows.c). */
by_status by__checkpoint_mean_rows(by__store *store, int flat, by__store_handle handle,
                                   const by_weights *weights, const by_tensor_view *tensor,
                                   const by__checkpoint_load_options *options, by_error *error);
/* Appends the names of the entries that keep their values because of options->anew: "a, b".
 * BY_ECONFIG if there is none for one of the patterns. */
by_status by__checkpoint_store_initialized(by_string *names, const by__store *store, int flat,
                                           const by_weights *weights,
                                           const by__checkpoint_load_options *options,
                                           by_error *error);

/* Sets *out to whether `path` is to be opened by by_weights_open rather than by_checkpoint_open
 * (digest.c). */
by_status by__checkpoint_path_is_weights(bool *out, const char *path, by_error *error);
/* True for a name that cannot leave its directory: not empty, no '/', not "." or "..". */
bool by__checkpoint_plain_name(const char *name);

/* ---- manifest and state (manifest.c, state.c) ---- */

typedef struct by__checkpoint_manifest {
    uint64_t step;
    by__checkpoint_file_list files;
} by__checkpoint_manifest;

/* The manifest's first line contains the XXH3-128 of everything after it, so that a flipped bit
 * anywhere in the manifest is detected too. */
by_status by__checkpoint_manifest_print(const by__checkpoint_manifest *manifest, char **out,
                                        size_t *length, by_error *error);
/* Checks that first line. `path` names the file in messages, here and below. */
by_status by__checkpoint_manifest_check_seal(const char *path, const char *text, size_t length,
                                             by_error *error);
by_status by__checkpoint_manifest_parse(by__checkpoint_manifest *out, const char *path,
                                        const char *text, size_t length, by_error *error);
/* Checks the size of a listed file; `verify`: its checksum too. */
by_status by__checkpoint_manifest_check_file(const by__checkpoint_file_record *record,
                                             const char *directory, bool verify, by_error *error);
/* Reads DIRECTORY/NAME and checks the size of every file that it lists; `verify`: the checksums
 * too. */
by_status by__checkpoint_manifest_read(by__checkpoint_manifest *out, const char *directory,
                                       const char *name, bool verify, by_error *error);
/* The same for DIRECTORY/manifest.json. */
by_status by__checkpoint_manifest_check(by__checkpoint_manifest *out, const char *directory,
                                        bool verify, by_error *error);
void by__checkpoint_manifest_free(by__checkpoint_manifest *manifest);

typedef struct by__checkpoint_state {
    uint64_t step;
    by_checkpoint_value *values; /* keys and strings owned */
    size_t count;
} by__checkpoint_state;

by_status by__checkpoint_state_print(uint64_t step, const by_checkpoint_value *values, size_t count,
                                     char **out, size_t *length, by_error *error);
by_status by__checkpoint_state_parse(by__checkpoint_state *out, const char *path, const char *text,
                                     size_t length, by_error *error);
void by__checkpoint_state_free(by__checkpoint_state *state);

/* ---- ranks that save together (together.c) ---- */

/* Collective by_checkpoint_begin, as writer `writer` of layout->writers (0 on rank 0; -1: this rank
 * writes nothing, and *out is NULL). All ranks fail together with the first error of any, which
 * names its rank. comm NULL: this process alone; also below. */
by_status by__checkpoint_begin_together(by_checkpoint_writer **out, by_comm *comm, int writer,
                                        const char *root, uint64_t step,
                                        const by_checkpoint_layout *layout, by_error *error);
/* Collective: finishes the checkpoint, and rank 0 commits it, unless `mine` is an error on any
 * rank, which *error then describes. Closes the writer. Values and files are those of rank 0. */
by_status by__checkpoint_commit_together(by_checkpoint_writer **writer, by_comm *comm,
                                         by_status mine, const by_checkpoint_value *values,
                                         size_t value_count, const by_checkpoint_file *files,
                                         size_t file_count, by_error *error);
/* Collective: all ranks return the status of rank 0, given as `mine`. */
by_status by__checkpoint_follow(by_comm *comm, by_status mine, by_error *error);

/* Writes elements [first, first + count), in row-major order: of part `number` if there are several
 * writers, else of a slice of tensor `number`. The ranges of a part or slice must be added in
 * order. */
by_status by__checkpoint_writer_add_range(by_checkpoint_writer *writer, size_t number,
                                          const by_tensor_slice *slice, size_t first, size_t count,
                                          const void *data, by_error *error);

/* ---- distribution of slices to writers (save_plan.c) ---- */

/* A slice that a rank has in memory. */
typedef struct by__checkpoint_held_slice {
    char name[256]; /* name of the tensor in the checkpoint: "m.h.0.ln_1.weight" */
    by_dtype dtype;
    int rank; /* rank of the whole tensor */
    int64_t shape[BY_TENSOR_MAX_RANK];
    bool optimizer;
    bool is_copy; /* another rank trains it, or none does: written only if no other rank has it */
    by_tensor_slice slice;
} by__checkpoint_held_slice;

/* The part of a checkpoint that one rank writes. */
typedef struct by__checkpoint_save_plan {
    by_tensor_view *tensors; /* of all ranks: the model's, then the optimizer's; names owned */
    size_t model_count;
    size_t count;
    bool *frozen;              /* for each of the model's: no rank trains it */
    size_t frozen_count;       /* number of frozen tensors */
    by_checkpoint_part *parts; /* this rank's parts, by tensor */
    size_t part_count;
    size_t *held; /* for each part: index of the held slice */
    int writers;
    int writer; /* number of this rank as a writer; -1: it writes nothing */
    size_t named;
} by__checkpoint_save_plan;

/* Collective: plans from what each rank holds, zeroed where unspecified. A slice that several ranks
 * have is written by one of them, so that the bytes are spread evenly over `writers` ranks (below
 * 1: one for each 64 MiB); a slice that no such rank has is written by one that has it. The slices
 * of each tensor must be equal or disjoint; commit detects missing ones. comm NULL: this process
 * alone, in the given order, where slices of a tensor must be consecutive. BY_ESTATE: ranks
 * disagree about a shape. */
by_status by__checkpoint_save_plan_make(by__checkpoint_save_plan *out, by_comm *comm,
                                        const by__checkpoint_held_slice *held, size_t count,
                                        int64_t writers, by_error *error);
/* Borrows the plan's tensors and parts. */
by_checkpoint_layout by__checkpoint_save_plan_layout(const by__checkpoint_save_plan *plan);
/* Returns the data of a held slice, by its index; memory returned in *owned is freed. */
typedef by_status by__checkpoint_read_held(void *user, size_t held, const void **data, void **owned,
                                           by_error *error);
/* Writes this rank's parts in the order of its files. writer NULL: it writes nothing. */
by_status by__checkpoint_save_plan_write(const by__checkpoint_save_plan *plan,
                                         by_checkpoint_writer *writer,
                                         by__checkpoint_read_held *read, void *user,
                                         by_error *error);
/* Indices of this rank's parts in the order of its files, part_count of them. */
by_status by__checkpoint_save_plan_order(const by__checkpoint_save_plan *plan,
                                         const by_checkpoint_writer *writer, size_t *order,
                                         by_error *error);
/* Writes a range of part `part`, see by__checkpoint_writer_add_range. */
by_status by__checkpoint_save_plan_add(const by__checkpoint_save_plan *plan,
                                       by_checkpoint_writer *writer, size_t part, size_t first,
                                       size_t count, const void *data, by_error *error);
/* Number of elements of a part. */
size_t by__checkpoint_save_plan_elements(const by__checkpoint_save_plan *plan, size_t part);
void by__checkpoint_save_plan_free(by__checkpoint_save_plan *plan);

/* ---- saves in the background (saver.c) ---- */

/* Saves checkpoints one after another on a separate thread. Data go through a staging buffer: as
 * much as there is room for is copied at once, and the rest as the files are written. The values
 * may be changed again when all were copied (by__checkpoint_saver_wait_copied). */
typedef struct by__checkpoint_saver by__checkpoint_saver;

typedef struct by__checkpoint_save_request {
    const char *root;
    uint64_t step;
    const by__checkpoint_save_plan *plan; /* borrowed until the save has ended */
    by__checkpoint_read_held *read;
    void *user;
    /* `read` may be called on the saver's thread, until by__checkpoint_saver_wait_copied or
     * by__checkpoint_saver_wait has returned. If false, by__checkpoint_saver_begin itself reads,
     * and returns when everything is copied. */
    bool background;
    /* What the committing process adds, see by_checkpoint_commit. Copied, except the content of
     * files, which is read from their paths at the end. */
    const by_checkpoint_value *values;
    size_t value_count;
    const by_checkpoint_file *files;
    size_t file_count;
    bool is_best; /* marked as the best so far, with this loss */
    double loss;
    by_retention retention; /* retention of earlier checkpoints; keep 0: keep all */
} by__checkpoint_save_request;

/* Statistics of a save. */
typedef struct by__checkpoint_save_end {
    uint64_t step;
    double stalled; /* seconds that training was blocked */
    double seconds; /* seconds of the whole save */
} by__checkpoint_save_end;

/* Allocates `staging` bytes (rounded up to 64 KiB; less than a few rows of tensors is slow) and
 * starts the thread. comm: a communicator of the ranks that save together, used by nothing else and
 * closed with the saver; NULL: this process alone. *comm is taken also on failure. */
by_status by__checkpoint_saver_open(by__checkpoint_saver **out, by_comm **comm, size_t staging,
                                    by_error *error);
/* Waits for the end of a save, which is soon after by_comm_fail of the job. NULL is accepted. */
void by__checkpoint_saver_close(by__checkpoint_saver **saver);
/* Collective: begins a save of the data that `read` returns. The previous save must have been
 * waited for. */
by_status by__checkpoint_saver_begin(by__checkpoint_saver *saver,
                                     const by__checkpoint_save_request *request, by_error *error);
/* Returns when all data have been read: they may then be changed. */
void by__checkpoint_saver_wait_copied(by__checkpoint_saver *saver);
/* Return whether a save is pending (begun and not waited for), whether it has ended, and whether it
 * has failed. */
bool by__checkpoint_saver_is_pending(by__checkpoint_saver *saver);
bool by__checkpoint_saver_is_done(by__checkpoint_saver *saver);
bool by__checkpoint_saver_has_failed(by__checkpoint_saver *saver);
/* Waits for the end of a pending save and returns its status, the same on all ranks; *end may be
 * NULL. BY_OK if none is pending. */
by_status by__checkpoint_saver_wait(by__checkpoint_saver *saver, by__checkpoint_save_end *end,
                                    by_error *error);
/* The same on the calling thread, without staging: by__checkpoint_saver_begin and wait in one call.
 * */
by_status by__checkpoint_save_together(by_comm *comm, const by__checkpoint_save_request *request,
                                       by_error *error);

/* ---- leases of checkpoints (lease.c) ---- */

/* While a lease of a checkpoint exists, retention keeps it, and the checkpoints whose files it
 * shares. A lease is a shared lock (flock(2)) of the manifest, visible to every host of the file
 * system; it ends with the processes that hold it, so that a killed process keeps no checkpoint. */
typedef struct by__checkpoint_lease by__checkpoint_lease;

/* *out is NULL for a directory without a manifest, which retention does not touch. BY_ESTATE: it is
 * gone, or is being removed. On a file system without locks the lease has no effect.
 */
by_status by__checkpoint_lease_open(by__checkpoint_lease **out, const char *directory,
                                    by_error *error);
/* Another lease of the same checkpoint; NULL for NULL. */
by_status by__checkpoint_lease_share(by__checkpoint_lease **out, const by__checkpoint_lease *from,
                                     by_error *error);
/* For removal: returns true if there is no lease, and prevents new ones until *out is closed. */
bool by__checkpoint_lease_exclusive(by__checkpoint_lease **out, const char *directory);
/* NULL is accepted. */
void by__checkpoint_lease_close(by__checkpoint_lease **lease);

/* ---- the root of a run's checkpoints (checkpoint_root.c) ---- */

/* True for a name that a caller's file may not have: not plain, or used by the checkpoint
 * itself. */
bool by__checkpoint_reserved(const char *name);
/* Parses "step-00000123" to 123; false for any other name. */
bool by__checkpoint_step_of_name(const char *name, uint64_t *step);
/* ROOT/step-XXXXXXXX; freed with free(). */
by_status by__checkpoint_step_path(char **out, const char *root, uint64_t step, by_error *error);
/* Locks the root (*fd, closed to release it) so that one process at a time changes it. BY_ESTATE if
 * another holds the lock for some seconds; *fd is -1 on a file system without locks. */
by_status by__checkpoint_root_lock(int *fd, const char *root, by_error *error);
/* Removes all checkpoints of steps after `step`, complete or not, after the run went back to
 * `step`; leases do not keep them, since the run will save these steps again (retention.c). */
by_status by__checkpoint_root_drop_after(const char *root, uint64_t step, by_error *error);
/* Steps of all directories named like checkpoints, newest first. */
by_status by__checkpoint_root_steps(uint64_t **out, size_t *count, const char *root,
                                    by_error *error);
/* Finds the newest checkpoint of a run, verified, to be freed with free(); *out is NULL if the path
 * is no run. */
by_status by__checkpoint_run(char **out, const char *path, by_error *error);
/* Checks that ROOT/step-N is a complete checkpoint of that step; *path is freed with free(). */
by_status by__checkpoint_root_read(by__checkpoint_manifest *manifest, char **path, const char *root,
                                   uint64_t step, bool verify, by_error *error);
/* Reads best.json; *marked is false if there is none. */
by_status by__checkpoint_root_best(bool *marked, uint64_t *step, double *loss, const char *root,
                                   by_error *error);
/* The validation loss stored in a checkpoint; NaN: it was not evaluated. */
double by__checkpoint_loss(const char *directory);
/* Removes what interrupted saves and prunes have left. The lock must be held. */
by_status by__checkpoint_root_clean(const char *root, by_error *error);

#endif
