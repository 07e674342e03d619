/* store: named tensors and the memory behind them, for training and for inference.
 *
 * An entry is a tensor by name: its global shape, logical axes, the part of it that this process
 * holds, the format that programs compute it in, and its group. A by__handle names an entry; what
 * runs often holds handles and looks up no name.
 *
 * A flat buffer holds, for one role, the buffers of the entries of some groups one after another:
 * the masters, the copies that programs compute with, a set of gradients, one state of the
 * optimizer, key/value caches. (PyTorch's FSDP calls this a FlatParameter.) The entries of a group
 * are neighbours in every flat buffer, in the same order and, where shapes are equal, at the same
 * element offsets; so one call over a range computes the norm, the update or the sum of two
 * gradient sets of a whole group. Buffers begin at multiples of BY__ENTRY_ALIGNMENT elements; what
 * is between them is zero and stays zero.
 *
 * Life: entries and flat buffers are declared, by__store_allocate lays everything out and takes the
 * memory, one region a role. Sizes are known before (by__store_bytes), so a plan costs nothing.
 *
 * The store owns entries and memory; names are copied. Memory is the device's: by__store_write and
 * by__store_read convert from and to host values, by__store_host gives the address where the
 * device's memory is the host's.
 *
 * What a flat buffer holds of some groups may be in a scratch file instead (scratch.h), for which
 * no memory is taken: it has no address, by__store_write and by__store_read reach it as they do
 * memory, and who computes with it moves ranges of the file through memory of its own.
 *
 * Never put here: graphs, models, file formats, the meaning of a group.
 */
#ifndef BY_STORE_STORE_H
#define BY_STORE_STORE_H

#include "banyan/device.h"
#include "banyan/dtype.h"
#include "banyan/shape.h"
#include "base/base.h"
#include "base/packing.h"
#include "store/scratch.h"

/* 64 bytes of the narrowest format, so that every buffer of an entry is aligned in every format. */
#define BY__ENTRY_ALIGNMENT 32
#define BY__MAX_GROUPS      24

typedef struct by__store by__store;

/* An entry of a store: its index in the order of declaration. */
typedef int32_t by__handle;
#define BY__NO_ENTRY ((by__handle)-1)

typedef struct by__stored_tensor {
    const char *name;
    const char *axes;           /* logical axis names, space separated, outermost first; or "" */
    by_shape shape;             /* of the whole tensor, as checkpoints have it */
    by_shape local;             /* of the part held here ... */
    int64_t first[BY_MAX_RANK]; /* ... which begins at these indices ... */
    /* ... of each of so many equal sections of the axis, one behind the other: packed q|k|v has
     * three; 0: one */
    int64_t sections[BY_MAX_RANK];
    by_dtype format; /* what programs compute with */
    int group;       /* below BY__MAX_GROUPS */
    bool trainable;
    bool transposed; /* a matrix held as its transpose */
    /* Of flat buffers in the entries' formats: a matrix held packed, whose format is u8; kind NONE:
     * it is not. It is [n, k] when out_in, else [k, n]. */
    by_packing packing;
    bool out_in;
    bool grows; /* files may hold fewer rows: those behind them keep their values */
} by__stored_tensor;

typedef enum by__buffer_role {
    BY__MASTER = 0, /* the value that is trained and saved */
    BY__COPY,       /* what programs compute with where that is not the master */
    BY__GRADIENT,   /* one flat buffer a gradient set */
    BY__STATE,      /* one flat buffer a state of the optimizer */
    BY__CACHE,      /* what a sequence leaves behind: keys and values */
    BY__BUFFER_ROLES
} by__buffer_role;

/* Shape of an entry's buffer from the entry's, whose axes have these names; false: the entry has
 * none in this flat buffer. */
typedef bool by__shape_rule(const by_shape *entry, const char *axes, by_shape *buffer);

/* A range of the elements of a flat buffer. */
typedef struct by__store_run {
    int64_t first;
    int64_t count;
} by__store_run;

typedef struct by__flat_spec {
    by__buffer_role role;
    const char *name;      /* of a state: "m"; copied; NULL or "" for none */
    by_dtype dtype;        /* BY_DTYPE_COUNT: each entry's format */
    unsigned wide;         /* bit g: the entries of group g are f32 whatever dtype says */
    unsigned groups;       /* bit g: the entries of group g */
    by__shape_rule *shape; /* NULL: the entry's local shape */
    /* What this process holds of the flat buffer, in elements of the flat buffer of all groups
     * without a shape rule; with one, the entries that are within a run. Memory is taken for that
     * alone. NULL: everything. */
    const by__store_run *held;
    size_t held_count;
    /* bit g: what is held of group g is in the store's scratch file, each run from a multiple of
     * BY__SCRATCH_ALIGNMENT on; `held` is given then. */
    unsigned on_disk;
} by__flat_spec;

by_status by__store_open(by__store **out, by_device *device, by_error *error);
void by__store_close(by__store **store);

/* Declares an entry; strings are copied. local rank 0 in an entry of another rank: the whole tensor
 * is held. BY_EARG: a name is taken. */
by_status by__store_add(by__store *store, const by__stored_tensor *entry, by__handle *out,
                        by_error *error);
/* Declares a flat buffer over the entries declared so far. *out: its index. */
by_status by__store_add_flat(by__store *store, const by__flat_spec *spec, int *out,
                             by_error *error);

/* ---- parts of tensors (store_parts.c) ---- */

/* Whether a buffer has the values in another order than files, so that they are written all at
 * once and cannot be read back. */
static inline bool by__store_rearranges(const by__stored_tensor *entry)
{
    return entry->transposed || entry->packing.kind != BY_PACKING_NONE;
}
/* What a flat buffer holds of an entry, as an entry of its own: of a shape rule, whose axes are
 * some of the entry's, the axes that it leaves. Only where the entry has a buffer there. */
by__stored_tensor by__store_held(const by__store *store, int flat, by__handle handle);
/* Whether an entry holds less than the whole tensor. */
bool by__store_is_part(const by__stored_tensor *entry);
/* The boxes of the whole tensor that a part is, of equal extents. */
typedef struct by__store_box {
    int64_t offset[BY_MAX_RANK];
    by_shape shape;
} by__store_box;
int64_t by__store_box_count(const by__stored_tensor *entry);
by__store_box by__store_box_at(const by__stored_tensor *entry, int64_t k);
/* Copies box k, dense at `box`, into the part at `part` or (to_part false) from it; elements of
 * `size` bytes. */
void by__store_box_copy(const by__stored_tensor *entry, int64_t k, void *box, void *part,
                        size_t size, bool to_part);
/* What box k has of the elements [first, first + count) of the part: its own elements, as if dense,
 * [*begin, *begin + *elements). */
void by__store_box_range(const by__stored_tensor *entry, int64_t k, int64_t first, int64_t count,
                         int64_t *begin, int64_t *elements);
/* Copies elements [begin, begin + elements) of box k, of `size` bytes, out of the part, whose
 * elements from `first` on are at `values`. */
void by__store_box_read(const by__stored_tensor *entry, int64_t k, int64_t begin, int64_t elements,
                        void *out, const void *values, int64_t first, size_t size);
/* The part, dense at `part`, of the whole tensor at `whole`. */
void by__store_cut(const by__stored_tensor *entry, const void *whole, void *part, size_t size);

size_t by__store_count(const by__store *store);
const by__stored_tensor *by__store_entry(const by__store *store, by__handle handle);
/* BY__NO_ENTRY when there is none. In constant time. */
by__handle by__store_find(const by__store *store, const char *name);

/* Planned bytes of a role in memory, and of all roles in the scratch file. */
size_t by__store_bytes(const by__store *store, by__buffer_role role);
size_t by__store_disk_bytes(const by__store *store);
/* Takes the memory, zeroed: one region a role; and where there is something on disk, a scratch file
 * in `directory`. BY_ESTATE when it was taken before. */
by_status by__store_allocate(by__store *store, const char *directory, by_error *error);
bool by__store_is_allocated(const by__store *store);
/* Zeroes all buffers of a role. */
by_status by__store_clear(by__store *store, by__buffer_role role, by_error *error);

const char *by__store_flat_name(const by__store *store, int flat);
/* Buffer of an entry; {0} when it has none there, or is not held whole. */
by_memory by__store_buffer(const by__store *store, int flat, by__handle handle);
/* Its shape (rank -1: none) and format. */
by_shape by__store_shape(const by__store *store, int flat, by__handle handle);
by_dtype by__store_dtype(const by__store *store, int flat, by__handle handle);
/* Format of a group. Here and below only where all entries of a group have one. */
by_dtype by__store_group_dtype(const by__store *store, int flat, int group);
/* Elements of a group, with what is between its entries, and its range. */
int64_t by__store_group_elements(const by__store *store, int flat, int group);
by_memory by__store_group(const by__store *store, int flat, int group);
/* Elements [first, first + count) of a group; {0} when they are not held, as one run. */
by_memory by__store_range(const by__store *store, int flat, int group, int64_t first,
                          int64_t count);
/* A piece of an entry's buffer that is held. */
typedef struct by__held_piece {
    int64_t first; /* elements of the buffer */
    int64_t count; /* 0: the run has none of them */
    by_memory memory;
    bool on_disk;    /* they are in the scratch file, and memory is {0} */
    uint64_t offset; /* of them in it */
} by__held_piece;

/* The pieces of an entry's buffer that are held, one for each run. False when there is no k-th
 * run. */
bool by__store_piece(const by__store *store, int flat, by__handle handle, size_t k,
                     by__held_piece *out);
/* Where elements [first, first + count) of a group are in the scratch file; false when they are not
 * there as one run. */
bool by__store_disk_range(const by__store *store, int flat, int group, int64_t first, int64_t count,
                          uint64_t *offset);
/* Whether something of an entry's buffer is there. */
bool by__store_on_disk(const by__store *store, int flat, by__handle handle);
/* Where an entry begins in its group, in elements of flat buffers without a shape rule. */
int64_t by__store_begin(const by__store *store, by__handle handle);

/* Writes `count` values of format `dtype` (f32, bf16, f16, or u8 into u8; at any address) into the
 * first elements of an entry's buffer, rounded to its format, transposed or packed where the entry
 * is. `rows` of a tensor that grows: the first ones. On `threads` threads. Of an entry that is not
 * held whole, what is held is written; BY_EARG where it is transposed or packed. */
by_status by__store_write(by__store *store, int flat, by__handle handle, const void *values,
                          by_dtype dtype, int64_t count, int threads, by_error *error);
/* The same of a packed entry from codes that it takes as they are (by__packing_takes). */
by_status by__store_write_coded(by__store *store, int flat, by__handle handle,
                                const by__coded *coded, int threads, by_error *error);
/* The same of elements [first, first + count) of an entry that is neither. */
by_status by__store_write_part(by__store *store, int flat, by__handle handle, int64_t first,
                               const void *values, by_dtype dtype, int64_t count, int threads,
                               by_error *error);
/* Reads a buffer, neither transposed nor packed, into out, which has its number of elements: of a
 * buffer of u8 as they are, else f32. */
by_status by__store_read(const by__store *store, int flat, by__handle handle, void *out,
                         by_error *error);
/* The same of elements [first, first + count) of it. */
by_status by__store_read_part(const by__store *store, int flat, by__handle handle, int64_t first,
                              int64_t count, void *out, by_error *error);
/* out[i] = values[i] of format `dtype`; they may be the last bytes of out's own memory. */
void by__store_widen(float *out, const void *values, by_dtype dtype, size_t count);
/* Address of a buffer where the device's memory is the host's and nothing that writes it is under
 * way, else NULL. */
void *by__store_host(const by__store *store, int flat, by__handle handle);
/* NULL before memory was taken, and where nothing is on disk. */
by__scratch *by__store_scratch(const by__store *store);

#endif
