/* checkpoint: weights and training state on disk.
 *
 * What it is for: safetensors files read (mapped) and written (streamed from the caller's memory),
 * shards with an index, and checkpoint directories that are either whole or do not exist.
 *
 * Types: by__sink is one file being written (hashed on the way, synced, renamed at commit).
 * by__safetensors is one mapped file with its checked entries. by_weights joins the shards of a
 * directory. by__manifest lists a checkpoint's files; by__state holds its typed values.
 *
 * How a checkpoint becomes visible: everything is written and synced in `step-N.tmp`, the
 * manifest last; the directory is synced, renamed to `step-N`, and the root is synced. A directory
 * that is removed loses its name first (`.trash-...`). Both kinds of leftovers go at the next save.
 *
 * Several writers: one process begins and commits and holds the root's lock all the while; each
 * writes files of its own, and the others leave `slices-RANK` and `files-RANK`, what they have
 * written and where, checksums included. Commit takes these, checks that each element was written
 * once, and removes them.
 *
 * Background: by__saver runs whole saves on a thread, out of a staging buffer, so that who trains
 * waits for a copy at most.
 *
 * Who owns what: readers own their maps and names, so a view is valid until its by_weights closes.
 * Writers own nothing of the caller's and copy no tensor data.
 *
 * Never put here: what a parameter means, how ranks split one, models, devices, the config.
 */
#ifndef BY_CHECKPOINT_STORAGE_H
#define BY_CHECKPOINT_STORAGE_H

#include "banyan/checkpoint.h"
#include "banyan/comm.h"
#include "banyan/op.h"
#include "base/base.h"
#include "store/store.h"

#define BY_DEFAULT_SHARD_BYTES UINT64_C(5000000000)
/* JSON read whole into memory: index, manifest, state, config. */
#define BY_MAX_JSON_BYTES ((size_t)100000000)

/* ---- one file being written (sink.c) ---- */

typedef struct by__file_record {
    char *name;
    uint64_t size;
    char hash[33];
    char *in; /* "step-00000100": the file is that checkpoint's; NULL: it is here */
} by__file_record;

typedef struct by__file_list {
    by__file_record *items;
    size_t count;
    size_t capacity;
} by__file_list;

void by__file_list_free(by__file_list *list);
/* The record of a file; NULL when there is none. */
const by__file_record *by__file_list_find(const by__file_list *list, const char *name);
/* Adds copies of the strings; `in` may be NULL. */
by_status by__file_list_add(by__file_list *list, const char *name, uint64_t size,
                            const char hash[33], const char *in, by_error *error);

typedef struct by__sink by__sink;

/* Starts DIRECTORY/NAME.tmp and reserves `size` bytes (the exact or expected length), so that a
 * full disk is found before the work and not at its end. */
by_status by__sink_open(by__sink **out, const char *directory, const char *name, uint64_t size,
                        by_error *error);
by_status by__sink_add(by__sink *sink, const void *data, size_t n, by_error *error);
/* Writes out what was added, gives the file its name without a sync and hands over its descriptor,
 * through the page cache: for what follows out of order. Closes the sink, also on failure. */
by_status by__sink_release(by__sink **sink, int *fd, by_error *error);
/* Reserves `size` bytes for an open file; BY_EIO when the disk has not as many. */
by_status by__reserve_space(int fd, const char *path, uint64_t size, by_error *error);
/* Syncs, renames to NAME, adds a record to `written` (may be NULL) and closes, also on failure. */
by_status by__sink_commit(by__sink **sink, by__file_list *written, by_error *error);
/* Closes and removes what was written. NULL is accepted. */
void by__sink_discard(by__sink **sink);
/* A whole small file, and a copy of an existing one. */
by_status by__sink_put(const char *directory, const char *name, const void *data, size_t n,
                       by__file_list *written, by_error *error);
by_status by__sink_copy(const char *directory, const char *name, const char *source,
                        by__file_list *written, by_error *error);

/* Files of at least so many bytes are shared with an earlier checkpoint where they are equal.
 * Smaller ones cost nothing, and what shares nothing survives more. */
#define BY__SHARED_BYTES ((size_t)64 << 10)

/* ---- safetensors (safetensors_read.c, safetensors_write.c) ---- */

/* A tensor in pieces (pieces.c), and one with an adapter's product added to it (delta.c). */
typedef struct by__pieces by__pieces;
typedef struct by__delta by__delta;

/* A tensor that is computed as it is read, such as one that another format holds. `read` puts the
 * elements [first, first + count) of the row-major order into out, in the entry's dtype; it takes
 * no memory and may be called by several threads. */
typedef struct by__computed {
    void (*read)(const struct by__computed *self, uint64_t first, size_t count, void *out);
} by__computed;

typedef struct by__tensor_entry {
    char *name;
    const char *type; /* as the file calls it: "F32", "I64", ... */
    int dtype;        /* by_dtype, or -1 when banyan has no such type */
    size_t rank;      /* may exceed BY_TENSOR_MAX_RANK: shape then holds the first ones */
    int64_t shape[BY_TENSOR_MAX_RANK];
    uint64_t begin; /* relative to the end of the header */
    uint64_t end;
    const uint8_t *data;          /* NULL: cut over files, or computed */
    const char *file;             /* path of the file it is in */
    by__pieces *pieces;           /* where it is in files that hold slices; or NULL */
    by__delta *delta;             /* what it is computed from; or NULL */
    const by__computed *computed; /* borrowed; or NULL */
} by__tensor_entry;

typedef struct by__safetensors {
    by__tensor_entry *entries; /* in order of their offsets */
    size_t count;
} by__safetensors;

/* Parses and checks a whole file in memory; `file` names it in messages and must outlive `out`. */
by_status by__safetensors_parse(by__safetensors *out, const char *file, const uint8_t *data,
                                size_t size, by_error *error);
void by__safetensors_free(by__safetensors *file);
/* "F32", and back; -1: not one of banyan's. */
const char *by__type_name(by_dtype dtype);
int by__type_of_name(const char *name);

/* How tensors are laid out in files (weights_plan.c): a function of names, dtypes and shapes. */
typedef struct by__planned_tensor {
    size_t file;
    uint64_t begin; /* byte offset in its file */
    uint64_t bytes;
} by__planned_tensor;

typedef struct by__planned_file {
    char name[256];
    by__text header; /* with its length in front: the bytes before the first tensor */
    uint64_t size;
    size_t first; /* its tensors: order[first], ... order[first + count - 1], front to back */
    size_t count;
} by__planned_file;

typedef struct by__weights_plan {
    by__planned_file *files;
    size_t file_count;
    by__planned_tensor *tensors; /* in the caller's order */
    size_t *order;               /* indices of tensors in the order of files and offsets */
    size_t count;
    char index_name[256];
    char *index; /* text of the index of shards; NULL: one file */
    size_t index_length;
} by__weights_plan;

/* Plans STEM.safetensors, or shards and an index when over `shard_bytes` (0: default). BY_EARG: a
 * name, shape or dtype cannot be written. */
by_status by__weights_plan_make(by__weights_plan *out, const char *stem,
                                const by_tensor_view *tensors, size_t count, uint64_t shard_bytes,
                                by_error *error);
/* Gives the shards of a plan that has an index names with another stem. */
by_status by__weights_plan_rename(by__weights_plan *plan, const char *stem,
                                  const by_tensor_view *tensors, by_error *error);
void by__weights_plan_free(by__weights_plan *plan);
/* The text of an index of shards: files[i] has tensors[i]. */
by_status by__weights_index_print(char **out, size_t *length, const by_tensor_view *tensors,
                                  const char *const *files, size_t count, by_error *error);

/* Writes DIRECTORY/STEM.safetensors, or shards and an index when over `shard_bytes` (0: default).
 * Shards have names that nothing in the directory has, so that an index that is there stays valid
 * until the new one takes its place; when they cannot be written, they are removed. */
by_status by__weights_write(const char *directory, const char *stem, const by_tensor_view *tensors,
                            size_t count, uint64_t shard_bytes, by__file_list *written,
                            by_error *error);

/* Writes tensors as by__weights_plan_make lays them out: views[i] has name, type and shape of what
 * is in entries[i]. `written` may be NULL. */
by_status by__entries_write(const char *directory, const char *stem, const by_tensor_view *views,
                            const by__tensor_entry *const *entries, size_t count,
                            uint64_t shard_bytes, by__file_list *written, by_error *error);

/* ---- directories in Hugging Face form (merge.c) ---- */

/* Writes all weights as model.safetensors, or shards over `shard_bytes` (0: default). */
by_status by__weights_copy(const char *directory, const by_weights *weights, uint64_t shard_bytes,
                           by_error *error);
/* Copies the files of a directory in Hugging Face form that are not weights: those of its config
 * and its tokenizer. */
by_status by__copy_along(const char *directory, const char *from, by_error *error);
/* Gives a finished directory its name on the disk, and takes nobody else's: BY_EARG when there is
 * something of that name. */
by_status by__publish(const char *temporary, const char *directory, by_error *error);

/* ---- parts of tensors (slice.c) ---- */

/* Elements of a slice; BY_EARG when it is not within the tensor. */
by_status by__slice_check(const by_tensor_view *tensor, const by_tensor_slice *slice,
                          size_t *elements, by_error *error);
/* Whether a slice has all elements of its tensor. */
bool by__slice_is_whole(const by_tensor_view *tensor, const by_tensor_slice *slice);
/* What a slice is called in a file: the tensor's name and, unless it is all of it, "[0:20]" or
 * "[0:17,2:4]". Freed with free(). */
by_status by__slice_name(char **out, const by_tensor_view *tensor, const by_tensor_slice *slice,
                         by_error *error);

/* The boxes that a slice is, which follow each other in its memory: a flat range begins and ends
 * within a row of each axis but the first. */
typedef struct by__box {
    int64_t offset[BY_TENSOR_MAX_RANK];
    int64_t shape[BY_TENSOR_MAX_RANK];
} by__box;
#define BY__SLICE_BOXES (2 * BY_TENSOR_MAX_RANK - 1)
/* Their number, at most BY__SLICE_BOXES. The slice was checked. */
int by__slice_boxes(by__box boxes[BY__SLICE_BOXES], const by_tensor_view *tensor,
                    const by_tensor_slice *slice);

/* The runs of consecutive elements that a slice is, in row-major order, all of one length. */
typedef struct by__runs {
    const by_tensor_view *tensor;
    const by_tensor_slice *slice;
    size_t left;   /* elements */
    size_t length; /* of a run */
    int axes;      /* the first ones, which a run does not go over */
    int64_t index[BY_TENSOR_MAX_RANK];
} by__runs;
/* `elements` as by__slice_check found it. Tensor and slice are borrowed. */
void by__runs_begin(by__runs *runs, const by_tensor_view *tensor, const by_tensor_slice *slice,
                    size_t elements);
/* The next run, elements [*first, *first + *count) of the tensor; false behind the last. */
bool by__runs_next(by__runs *runs, uint64_t *first, size_t *count);
/* BY_ESTATE unless the slices, none of which is empty, hold each element of the tensor once. */
by_status by__slices_cover(const by_tensor_view *tensor, const by_tensor_slice *const *slices,
                           size_t count, by_error *error);

/* ---- tensors that are cut over files (pieces.c, slice_index.c) ---- */

by_status by__pieces_open(by__pieces **out, const by_tensor_view *tensor, by_error *error);
void by__pieces_close(by__pieces **pieces);
/* Adds a slice that was checked; its data is borrowed. */
by_status by__pieces_add(by__pieces *pieces, const by_tensor_slice *slice, const uint8_t *data,
                         by_error *error);
/* Copies a slice that was checked. The pieces must make up the tensor. */
void by__pieces_read(const by__pieces *pieces, const by_tensor_slice *slice, void *out);
/* The whole tensor in memory, put together at the first call; owned by the pieces. */
by_status by__pieces_whole(by__pieces *pieces, const void **data, by_error *error);

typedef struct by__cut_slice {
    by_tensor_slice slice;
    char *file; /* it is there under by__slice_name's name */
} by__cut_slice;

typedef struct by__cut_tensor {
    by_tensor_view view; /* name owned, no data */
    size_t first;        /* its slices */
    size_t count;
} by__cut_tensor;

/* STEM.slices.json */
typedef struct by__slice_index {
    by__cut_tensor *tensors;
    size_t count;
    size_t capacity;
    by__cut_slice *slices;
    size_t slice_count;
    size_t slice_capacity;
} by__slice_index;

/* Both copy; a slice is one of the tensor that was added last. */
by_status by__slice_index_add_tensor(by__slice_index *index, const by_tensor_view *view,
                                     by_error *error);
by_status by__slice_index_add(by__slice_index *index, const by_tensor_slice *slice,
                              const char *file, by_error *error);
by_status by__slice_index_print(const by__slice_index *index, char **out, size_t *length,
                                by_error *error);
/* Checks that the slices of each tensor make it up. */
by_status by__slice_index_parse(by__slice_index *out, const char *path, const char *text,
                                size_t length, by_error *error);
void by__slice_index_free(by__slice_index *index);

/* Computes a slice, which was checked and has `elements`, in `dtype`, a float format (delta.c). */
void by__delta_read(const by__delta *delta, const by_tensor_slice *slice, size_t elements,
                    by_dtype dtype, void *out);

/* ---- weights of codes and scales (coded_weights.c) ---- */

typedef struct by__coded_tensor {
    by__computed computed;
    by__coded coded;
    bool in_out; /* the tensor is [k, n], else [n, k] */
} by__coded_tensor;

/* Puts tensors of f32 in the place of codes and their scales, in the entries of a directory: of
 * `count` sorted entries, as many as it returns stay in *out, sorted. `config` is the text of
 * config.json. *own and *coded are what the new entries are; freed with free(), the names of *own
 * before. *out is NULL when nothing is coded. */
typedef struct by__coded_entries {
    const by__tensor_entry **entries;
    size_t count;
    by__tensor_entry *own;
    by__coded_tensor *coded;
    size_t own_count;
    bool rows_as_integers; /* what they are multiplied with becomes integers of 8 bits */
} by__coded_entries;
by_status by__coded_entries_make(by__coded_entries *out, const by__tensor_entry *const *entries,
                                 size_t count, const char *path, const char *config,
                                 by_error *error);
void by__coded_entries_free(by__coded_entries *coded);

/* The codes of a tensor; NULL: it has none, or something is added to it. */
const by__coded *by__entry_coded(const by__tensor_entry *entry);
const by__coded *by__weights_coded(const by_weights *weights, const char *name);
/* config.json says that what codes are multiplied with becomes integers of 8 bits (W8A8). */
bool by__weights_rows_as_integers(const by_weights *weights);

/* ---- several files as one (weights.c, weights_entries.c) ---- */

/* The i-th tensor in byte order of names, whatever its type. */
const by__tensor_entry *by__weights_entry(const by_weights *weights, size_t i);
/* The tensor of that name; NULL: there is none. */
const by__tensor_entry *by__weights_find(const by_weights *weights, const char *name);
/* Like by_weights_tensor; data is NULL where the tensor is cut over files. */
/* Memory of a file's values that will hardly be read again is given back to the system; values that
 * are no file's stay. */
void by__weights_release(const by_weights *weights, const void *data, size_t bytes);
by_status by__weights_describe(const by_weights *weights, const char *name, by_tensor_view *out,
                               by_error *error);
/* Calls take(user, ...) with the bytes of a whole tensor from front to back: at once, or, where it
 * is cut over files or computed, some at a time. Ends with the first error. */
by_status by__entry_bytes(const by__tensor_entry *entry,
                          by_status (*take)(void *user, const void *bytes, size_t n,
                                            by_error *error),
                          void *user, by_error *error);
/* Copies a slice, which was checked and has `elements`, of an entry of a type that banyan has. */
void by__entry_read(const by__tensor_entry *entry, const by_tensor_view *tensor,
                    const by_tensor_slice *slice, size_t elements, void *out);

/* Takes `prefix` off the names of all tensors. BY_EFORMAT names one that does not begin so. */
by_status by__weights_strip(by_weights *weights, const char *prefix, by_error *error);
/* Weights of `count` entries with their own names, which the caller keeps as long as the weights
 * are open. `config` (freed with them, also on failure; NULL: none) is the text of a config.json,
 * `path` what messages name. BY_EFORMAT: two have one name. */
by_status by__weights_of(by_weights **out, const char *path, char *config,
                         const by__tensor_entry *entries, size_t count, by_error *error);
/* Like by_weights_open of a directory, for STEM.safetensors, STEM.safetensors.index.json or
 * STEM.slices.json. */
by_status by__weights_open(by_weights **out, const char *directory, const char *stem,
                           by_error *error);

/* ---- directories (merge.c) ---- */

/* Files of a directory in Hugging Face form that are not weights: of its config, its tokenizer. */
bool by__goes_along(const char *name);

/* The shards that an index names and the tensors each should hold. */
typedef struct by__index_item {
    char *tensor;
    char *file;
} by__index_item;

typedef struct by__index {
    by__index_item *items;
    size_t count;
} by__index;

by_status by__index_parse(by__index *out, const char *path, const char *text, size_t length,
                          by_error *error);
void by__index_free(by__index *index);

/* ---- tensors that files hold in parts (stacked.c) ---- */

/* Whether `name` stands for one tensor of files for each index of the first axis. */
bool by__name_is_stacked(const char *name);
/* Makes the view of such a tensor that of its part; the part's name goes to `name`. Returns the
 * elements in front of it. */
size_t by__stacked_part(by_tensor_view *view, char *name, size_t room, int64_t part);
/* Reads a slice, a box, of such a tensor of `shape` into out; NULL: only checks that it is there.
 * BY_EFORMAT names the part that is missing or does not fit. */
by_status by__stacked_read(float *out, const by_weights *weights, const char *name,
                           const by_shape *shape, const by_tensor_slice *slice, by_error *error);

/* ---- weights into a tensor store (store_load.c) ---- */

/* Whether a tensor is a buffer that older versions of transformers wrote as a weight: frequencies
 * of rotary positions, the causal mask. */
bool by__weights_is_buffer(const char *name);

typedef struct by__load_options {
    const char *prefix; /* in front of the entries' names: "m." for a state; NULL: none */
    const char *family; /* files may have this in front of that ("transformer."); NULL: none */
    /* Entries that keep their values where the file lacks them; NULL: none do. */
    bool (*may_lack)(const char *name);
    bool whole;          /* the entries are all of the model: a tensor of another name is refused */
    const char *besides; /* but for this one; NULL: none */
    int threads;         /* that convert */
} by__load_options;

/* Checks that a tensor is there, in its shape and a float format, for every entry that has a buffer
 * in the flat buffer; before or after memory is taken. BY_EFORMAT names the tensor that is missing,
 * or both shapes, or the first tensor that no entry is for. An entry that grows may have fewer rows
 * in the file. */
by_status by__store_check(const by__store *store, int flat, const by_weights *weights,
                          const by__load_options *options, by_error *error);
/* Checks the same and writes the values. */
by_status by__store_load(by__store *store, int flat, const by_weights *weights,
                         const by__load_options *options, by_error *error);

/* Whether by_weights_open, not by_checkpoint_open, is for `path` (digest.c). */
by_status by__path_is_weights(bool *out, const char *path, by_error *error);
/* True for a name that stays in its directory: not empty, no '/', not "." or "..". */
bool by__plain_name(const char *name);

/* ---- manifest and state (manifest.c, state.c) ---- */

typedef struct by__manifest {
    uint64_t step;
    by__file_list files;
} by__manifest;

/* The manifest's first line holds the XXH3-128 of everything behind that line, so that a flipped
 * bit anywhere in it is found as well. */
by_status by__manifest_print(const by__manifest *manifest, char **out, size_t *length,
                             by_error *error);
/* Checks that first line. `path` names the file in messages, here and below. */
by_status by__manifest_check_seal(const char *path, const char *text, size_t length,
                                  by_error *error);
by_status by__manifest_parse(by__manifest *out, const char *path, const char *text, size_t length,
                             by_error *error);
/* Checks the size of a file that is listed; `verify`: its checksum too. */
by_status by__manifest_check_file(const by__file_record *record, const char *directory, bool verify,
                                  by_error *error);
/* Reads DIRECTORY/NAME and checks the size of every file it lists; `verify`: the checksums too. */
by_status by__manifest_read(by__manifest *out, const char *directory, const char *name, bool verify,
                            by_error *error);
/* The same of DIRECTORY/manifest.json. */
by_status by__manifest_check(by__manifest *out, const char *directory, bool verify,
                             by_error *error);
void by__manifest_free(by__manifest *manifest);

typedef struct by__state {
    uint64_t step;
    by_checkpoint_value *values; /* keys and strings owned */
    size_t count;
} by__state;

by_status by__state_print(uint64_t step, const by_checkpoint_value *values, size_t count,
                          char **out, size_t *length, by_error *error);
by_status by__state_parse(by__state *out, const char *path, const char *text, size_t length,
                          by_error *error);
void by__state_free(by__state *state);

/* ---- ranks that save together (together.c) ---- */

/* Collective by_checkpoint_begin, as writer `writer` of layout->writers (0 on rank 0; -1: this rank
 * writes nothing, and *out is NULL). All ranks fail together, with the first error of any, which
 * names its rank. comm NULL: this process alone, and likewise below. */
by_status by__checkpoint_begin_together(by_checkpoint_writer **out, by_comm *comm, int writer,
                                        const char *root, uint64_t step,
                                        const by_checkpoint_layout *layout, by_error *error);
/* Collective: finishes, and rank 0 commits, unless `mine` is an error on any rank, which *error
 * then describes. Closes the writer. Values and files are those of rank 0. */
by_status by__checkpoint_commit_together(by_checkpoint_writer **writer, by_comm *comm,
                                         by_status mine, const by_checkpoint_value *values,
                                         size_t value_count, const by_checkpoint_file *files,
                                         size_t file_count, by_error *error);
/* Collective: all ranks end as rank 0 did, which gives `mine`. */
by_status by__checkpoint_follow(by_comm *comm, by_status mine, by_error *error);

/* Writes elements [first, first + count), in row-major order, of what a writer adds: of part
 * `number` where there are several writers, else of a slice of tensor `number`. The ranges of a
 * part or slice are added in their order. */
by_status by__writer_add_range(by_checkpoint_writer *writer, size_t number,
                               const by_tensor_slice *slice, size_t first, size_t count,
                               const void *data, by_error *error);

/* ---- who writes what (save_plan.c) ---- */

/* A slice that a rank has in memory. */
typedef struct by__held_slice {
    char name[256]; /* of the tensor, as the checkpoint has it: "m.h.0.ln_1.weight" */
    by_dtype dtype;
    int rank; /* of the whole tensor */
    int64_t shape[BY_TENSOR_MAX_RANK];
    bool optimizer;
    bool
        is_copy; /* of what another rank trains, or nobody: written only where nobody else has it */
    by_tensor_slice slice;
} by__held_slice;

/* What one rank writes of a checkpoint. */
typedef struct by__save_plan {
    by_tensor_view *tensors; /* of all ranks: the model's, then the optimizer's; names owned */
    size_t model_count;
    size_t count;
    bool *frozen;              /* of each of the model's: nobody trains it */
    size_t frozen_count;       /* so many are */
    by_checkpoint_part *parts; /* this rank's, by tensor */
    size_t part_count;
    size_t *held; /* of each part: the number of the slice as it was given */
    int writers;
    int writer; /* this rank's number; -1: it writes nothing */
    size_t named;
} by__save_plan;

/* Collective: plans from what each rank holds, zeroed where it says nothing. A slice that
 * several have is written by one of them, so that the bytes are shared among `writers` ranks
 * (below 1: one for each 64 MiB), spread evenly; what no such rank has is written by one that
 * has it. In each tensor all slices must be equal or disjoint; commit finds what is missing.
 * comm NULL: this process alone, in the order given, slices of a tensor behind each other.
 * BY_ESTATE: ranks disagree about a shape. */
by_status by__save_plan_make(by__save_plan *out, by_comm *comm, const by__held_slice *held,
                             size_t count, int64_t writers, by_error *error);
/* Borrows the plan's tensors and parts. */
by_checkpoint_layout by__save_plan_layout(const by__save_plan *plan);
/* Gives the data of a held slice, by its number; memory that is not NULL in *owned is freed. */
typedef by_status by__read_held(void *user, size_t held, const void **data, void **owned,
                                by_error *error);
/* Adds this rank's parts in the order of its files. writer NULL: it writes nothing. */
by_status by__save_plan_write(const by__save_plan *plan, by_checkpoint_writer *writer,
                              by__read_held *read, void *user, by_error *error);
/* Numbers of this rank's parts in the order of its files, part_count of them. */
by_status by__save_plan_order(const by__save_plan *plan, const by_checkpoint_writer *writer,
                              size_t *order, by_error *error);
/* Adds a range of part `part`, see by__writer_add_range. */
by_status by__save_plan_add(const by__save_plan *plan, by_checkpoint_writer *writer, size_t part,
                            size_t first, size_t count, const void *data, by_error *error);
/* Elements of a part. */
size_t by__save_plan_elements(const by__save_plan *plan, size_t part);
void by__save_plan_free(by__save_plan *plan);

/* ---- saves in the background (saver.c) ---- */

/* Saves one checkpoint after the other on a thread of its own. What is saved goes through a staging
 * buffer: as much of it as there is room for is copied at once, and the rest as the files are
 * written. Who changes the values waits until all were copied (by__saver_let_go), and no longer. */
typedef struct by__saver by__saver;

typedef struct by__save_request {
    const char *root;
    uint64_t step;
    const by__save_plan *plan; /* borrowed until the save has ended */
    by__read_held *read;
    void *user;
    /* `read` may be called by the saver's thread, until by__saver_let_go or by__saver_wait has
     * returned. Else by__saver_begin reads, and returns when all is copied. */
    bool beside;
    /* What the process that commits adds and does then, see by_checkpoint_commit. Copied, but for
     * the files' paths, whose content is read at the end. */
    const by_checkpoint_value *values;
    size_t value_count;
    const by_checkpoint_file *files;
    size_t file_count;
    bool is_best; /* marked as the best so far, of this loss */
    double loss;
    by_retention retention; /* of those before it; keep 0: they all stay */
} by__save_request;

/* What a save took. */
typedef struct by__save_end {
    uint64_t step;
    double stalled; /* seconds that others stood still for it ... */
    double seconds; /* ... and that it took */
} by__save_end;

/* Takes `staging` bytes (what is less than a few tensors' rows makes it slow; rounded up to 64
 * KiB) and starts the thread. comm: a communicator of the ranks that save together, on which nobody
 * else calls; closed with the saver. NULL: this process alone. *comm is taken also on failure. */
by_status by__saver_open(by__saver **out, by_comm **comm, size_t staging, by_error *error);
/* Waits for the end of a save. Behind by_comm_fail of the job that is soon. NULL is accepted. */
void by__saver_close(by__saver **saver);
/* Collective: begins a save of what `read` gives. The one before was waited for. */
by_status by__saver_begin(by__saver *saver, const by__save_request *request, by_error *error);
/* Returns when nothing is read any more: what is saved may change. */
void by__saver_let_go(by__saver *saver);
/* Whether a save was begun and not waited for; whether it has ended; and whether in failure. */
bool by__saver_is_pending(by__saver *saver);
bool by__saver_is_done(by__saver *saver);
bool by__saver_has_failed(by__saver *saver);
/* Waits for its end and gives its status, which all ranks have alike; *end may be NULL. BY_OK where
 * none is pending. */
by_status by__saver_wait(by__saver *saver, by__save_end *end, by_error *error);
/* The same on the thread that calls, without staging: by__saver_begin and wait in one. */
by_status by__save_together(by_comm *comm, const by__save_request *request, by_error *error);

/* ---- who uses a checkpoint (lease.c) ---- */

/* While there is a lease of it, retention leaves a checkpoint, and those that hold its files. It is
 * a shared lock (flock(2)) of the manifest, on any host that has the file system, and ends with the
 * processes that have it: nobody who was killed keeps a checkpoint. */
typedef struct by__lease by__lease;

/* *out is NULL for a directory without a manifest, which retention does not touch. BY_ESTATE: it is
 * gone, or is being removed just now. A file system without locks gives a lease that keeps nothing.
 */
by_status by__lease_open(by__lease **out, const char *directory, by_error *error);
/* Another one, of the same checkpoint; NULL of NULL. */
by_status by__lease_share(by__lease **out, const by__lease *from, by_error *error);
/* For who removes: true when nobody has a lease, and nobody gets one until *out is closed. */
bool by__lease_alone(by__lease **out, const char *directory);
/* NULL is accepted. */
void by__lease_close(by__lease **lease);

/* ---- the root of a run's checkpoints (checkpoint_root.c) ---- */

/* True for a name that a caller's file may not have: not plain, or one of the checkpoint's own. */
bool by__checkpoint_reserved(const char *name);
/* "step-00000123" to 123; false for any other name. */
bool by__step_of_name(const char *name, uint64_t *step);
/* ROOT/step-XXXXXXXX; freed with free(). */
by_status by__step_path(char **out, const char *root, uint64_t step, by_error *error);
/* Takes the root's lock (*fd, closed to release it) so that one process at a time changes it.
 * BY_ESTATE when another holds it for some seconds; *fd is -1 on a file system without locks. */
by_status by__root_lock(int *fd, const char *root, by_error *error);
/* Removes the checkpoints of steps behind `step`, whole or not, which a run has given up; leases do
 * not keep them, since the run will save these steps again (retention.c). */
by_status by__root_drop_behind(const char *root, uint64_t step, by_error *error);
/* Steps of all directories that are named like checkpoints, newest first. */
by_status by__root_steps(uint64_t **out, size_t *count, const char *root, by_error *error);
/* Whether ROOT/step-N is a whole checkpoint of that step; *path is freed with free(). */
by_status by__root_read(by__manifest *manifest, char **path, const char *root, uint64_t step,
                        bool verify, by_error *error);
/* What best.json says; *marked is false when there is none. */
by_status by__root_best(bool *marked, uint64_t *step, double *loss, const char *root,
                        by_error *error);
/* The validation loss that a checkpoint was saved with; NaN: it was not evaluated. */
double by__checkpoint_loss(const char *directory);
/* Removes what saves and prunes that were cut short left behind. The lock is held. */
by_status by__root_clean(const char *root, by_error *error);

#endif
