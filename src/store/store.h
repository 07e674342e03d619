/* store: named tensors and their memory, for training and for inference.
 *
 * An entry describes a named tensor: its global shape, logical axes, the part of it that this
 * process holds, the format that programs compute with, and its group. A by__store_handle
 * identifies an entry; code that runs often keeps handles instead of looking up names.
 *
 * A flat buffer holds, for one role, the buffers of the entries of some groups one after another:
 * the masters, the copies that programs compute with, a set of gradients, one state of the
 * optimizer, key/value caches. (PyTorch's FSDP calls this a FlatParameter.) The entries of a group
 * are neighbours in every flat buffer, in the same order and, where shapes are equal, at the same
 * element offsets; so one call over a range computes the norm, the update or the sum of two
 * gradient sets of a whole group. Buffers begin at multiples of BY__ENTRY_ALIGNMENT elements; the
 * padding between them is zero and stays zero.
 *
 * Life: entries and flat buffers are declared first; by__store_allocate then lays everything out
 * and allocates the memory, one region per role. Sizes are known before (by__store_bytes), so
 * planning needs no memory.
 *
 * The store owns entries and memory; names are copied. Memory is the device's: by__store_write and
 * by__store_read convert from and to host values, by__store_host returns the address if device
 * memory is host memory.
 *
 * Some groups of a flat buffer may be in a scratch file (scratch.h) instead of memory: they have no
 * address, by__store_write and by__store_read access them as they do memory, and code that computes
 * with them transfers ranges of the file through its own buffers.
 *
 * Never put here: graphs, models, file formats, the meaning of a group.
 */
#ifndef BY_STORE_STORE_H
#define BY_STORE_STORE_H

#include "banyan/device.h"
#include "banyan/dtype.h"
#include "banyan/shape.h"
#include "base/base.h"
#include "base/packing/packing.h"
#include "store/scratch.h"

/* Buffers of entries begin at multiples of this many elements, 64 bytes of the narrowest format
 * that programs compute with, and of more where the device asks for more (by__store_padded). */
#define BY__ENTRY_ALIGNMENT 32
#define BY__MAX_GROUPS      28

typedef struct by__store by__store;

/* An entry of a store: its index in the order of declaration. */
typedef int32_t by__store_handle;
#define BY__NO_ENTRY ((by__store_handle)-1)

typedef struct by__store_tensor {
    const char *name;
    const char *axes;           /* logical axis names, space separated, outermost first; or "" */
    by_shape shape;             /* of the whole tensor, as in checkpoints */
    by_shape local;             /* of the part held here, */
    int64_t first[BY_MAX_RANK]; /* which begins at these indices */
    /* of each of this many equal sections of the axis, held one after another: packed q|k|v has
     * three; 0: one section */
    int64_t sections[BY_MAX_RANK];
    by_dtype format; /* dtype that programs compute with */
    int group;       /* below BY__MAX_GROUPS */
    bool trainable;
    bool transposed; /* a matrix held as its transpose */
    /* In flat buffers with the entries' own formats, and in packed groups: the packing of a weight,
     * whose format is u8; kind NONE: it is not packed. Matrices are [n, k] if out_in, else
     * [k, n]. Elements of its parts are bytes. */
    by_packing packing;
    bool out_in;
    bool grows; /* files may hold fewer rows: further rows keep their values */
} by__store_tensor;

typedef enum by__store_buffer_role {
    BY__MASTER = 0, /* the value that is trained and saved */
    BY__COPY,       /* the value that programs compute with, if it is not the master */
    BY__GRADIENT,   /* one flat buffer per gradient set */
    BY__STATE,      /* one flat buffer per state of the optimizer */
    BY__CACHE,      /* keys and values of past tokens */
    BY__BUFFER_ROLES
} by__store_buffer_role;

/* Derives the shape of an entry's buffer from the entry's shape and axis names. Returns false if
 * the entry has no buffer in this flat buffer. */
typedef bool by__store_shape_rule(const by_shape *entry, const char *axes, by_shape *buffer);

/* A part of a group of entries: elements [first, first + count) of it, in flat buffers without a
 * shape rule; or of one entry's buffer, which belongs to that group. */
typedef struct by__store_part {
    int group;
    int64_t first;
    int64_t count;
} by__store_part;

typedef struct by__store_flat_spec {
    by__store_buffer_role role;
    const char *name;            /* of a state: "m"; copied; NULL or "": none */
    by_dtype dtype;              /* BY_DTYPE_COUNT: each entry's format */
    unsigned wide;               /* bit g: the entries of group g are f32 whatever dtype says */
    unsigned packed;             /* bit g: those of group g are packed and u8 whatever it says */
    unsigned groups;             /* bit g: the entries of group g are included */
    by__store_shape_rule *shape; /* NULL: the entry's local shape */
    /* What this process holds: parts of the groups; with a shape rule, the entries that lie within
     * one. Memory is allocated for these alone. NULL: everything. */
    const by__store_part *held;
    size_t held_count;
    /* bit g: the held parts of group g are in the store's scratch file, each at a multiple of
     * BY__SCRATCH_ALIGNMENT; requires `held`. */
    unsigned on_disk;
} by__store_flat_spec;

by_status by__store_open(by__store **out, by_device *device, by_error *error);
/* The elements that an entry with this many takes in a flat buffer: up to the next one's begin. */
int64_t by__store_padded(const by__store *store, int64_t elements);
void by__store_close(by__store **store);

/* Declares an entry; strings are copied. local of rank 0 for an entry of another rank: the whole
 * tensor is held. BY_EARG: the name is taken. */
by_status by__store_add(by__store *store, const by__store_tensor *entry, by__store_handle *out,
                        by_error *error);
/* Declares a flat buffer over the entries declared so far. *out: its index. */
by_status by__store_add_flat(by__store *store, const by__store_flat_spec *spec, int *out,
                             by_error *error);

/* ---- parts of groups ---- */

/* What two parts have in common; its count is 0 if that is nothing. */
static inline by__store_part by__store_part_common(by__store_part a, by__store_part b)
{
    int64_t first = a.first > b.first ? a.first : b.first;
    int64_t end = a.first + a.count < b.first + b.count ? a.first + a.count : b.first + b.count;
    return (by__store_part){a.group, first, a.group == b.group && first < end ? end - first : 0};
}
/* Returns true if all of `part`, which is not empty, is in `whole`. */
static inline bool by__store_part_has(by__store_part whole, by__store_part part)
{
    return by__store_part_common(whole, part).count == part.count;
}
/* All of a group, with the padding between entries, and the elements of one entry. */
by__store_part by__store_group_part(const by__store *store, int group);
by__store_part by__store_entry_part(const by__store *store, by__store_handle handle);
/* What the first entry from *handle on that has elements in a part has there; *handle: that entry.
 * The count is 0 if there is none. */
by__store_part by__store_next_entry(const by__store *store, by__store_part part,
                                    by__store_handle *handle);

/* ---- parts of tensors (store_parts.c) ---- */

/* Returns true if a buffer has its values in another order than files: they must be written all at
 * once and cannot be read back. */
static inline bool by__store_rearranges(const by__store_tensor *entry)
{
    return entry->transposed || entry->packing.kind != BY_PACKING_NONE;
}
/* What a flat buffer holds of an entry, described as an entry; with a shape rule, which keeps some
 * of the entry's axes, with these axes. Only for entries that have a buffer there. */
by__store_tensor by__store_held(const by__store *store, int flat, by__store_handle handle);
/* Returns true if an entry holds less than the whole tensor. */
bool by__store_is_part(const by__store_tensor *entry);
/* A part as boxes of the whole tensor, of equal extents; *place: where box k is in the part. */
int64_t by__store_box_count(const by__store_tensor *entry);
by_tensor_slice by__store_box(const by__store_tensor *entry, int64_t k, by_tensor_slice *place);
/* Copies box k, dense at `box`, into the part at `part` or (to_part false) from it; elements have
 * `size` bytes. */
void by__store_box_copy(const by__store_tensor *entry, int64_t k, void *box, void *part,
                        size_t size, bool to_part);
/* What box k has of some of the part's elements, as a range of the box's own elements. */
by_tensor_slice by__store_box_range(const by__store_tensor *entry, int64_t k, by__store_part part);
/* Copies the part, dense at `part`, from the whole tensor at `whole`. */
void by__store_cut(const by__store_tensor *entry, const void *whole, void *part, size_t size);

size_t by__store_count(const by__store *store);
const by__store_tensor *by__store_entry(const by__store *store, by__store_handle handle);
/* The entry with that name, or BY__NO_ENTRY. Takes constant time. */
by__store_handle by__store_find(const by__store *store, const char *name);

/* Planned bytes of a role in memory, and of all roles in the scratch file. */
size_t by__store_bytes(const by__store *store, by__store_buffer_role role);
size_t by__store_disk_bytes(const by__store *store);
/* Allocates the memory, zeroed: one region per role; and if anything is on disk, a scratch file in
 * `directory`. BY_ESTATE: already allocated. */
by_status by__store_allocate(by__store *store, const char *directory, by_error *error);
bool by__store_is_allocated(const by__store *store);
/* Zeroes all buffers of a role. */
by_status by__store_clear(by__store *store, by__store_buffer_role role, by_error *error);

const char *by__store_flat_name(const by__store *store, int flat);
/* Buffer of an entry; {0} if it has none there, or is not held whole. */
by_memory by__store_buffer(const by__store *store, int flat, by__store_handle handle);
/* Shape (rank -1: no buffer) and format of that buffer. */
by_shape by__store_shape(const by__store *store, int flat, by__store_handle handle);
by_dtype by__store_dtype(const by__store *store, int flat, by__store_handle handle);
/* Format of a group. Here and below the entries of a group must have one format. */
by_dtype by__store_group_dtype(const by__store *store, int flat, int group);
/* Number of elements of a group, including padding between entries, and its memory. */
int64_t by__store_group_elements(const by__store *store, int flat, int group);
by_memory by__store_group(const by__store *store, int flat, int group);
/* Memory of a part of a group; {0} if it is not held in one piece. */
by_memory by__store_memory(const by__store *store, int flat, by__store_part part);
/* A held piece of an entry's buffer. */
typedef struct by__store_held_piece {
    by__store_part part; /* of the buffer */
    by_memory memory;
    bool on_disk;    /* it is in the scratch file, and memory is {0} */
    uint64_t offset; /* its offset in the scratch file */
} by__store_held_piece;

/* The held pieces of an entry's buffer, one for each held part that contains some of its elements,
 * in ascending order. Returns false if there is no k-th one. */
bool by__store_piece(const by__store *store, int flat, by__store_handle handle, size_t k,
                     by__store_held_piece *out);
/* Offset of a part of a group in the scratch file. Returns false if it is not there in one
 * piece. */
bool by__store_disk_offset(const by__store *store, int flat, by__store_part part, uint64_t *offset);
/* Returns true if any part of an entry's buffer is in the scratch file. */
bool by__store_on_disk(const by__store *store, int flat, by__store_handle handle);

/* Writes `count` values of format `dtype` (f32, bf16, f16, or u8 into u8; at any address) to the
 * first elements of an entry's buffer, converted to its format, and transposed or packed if the
 * entry is. For a tensor that grows these are its first rows. Runs on `threads` threads. Of an
 * entry that is not held whole only the held part is written; BY_EARG if it is also transposed or
 * packed. */
by_status by__store_write(by__store *store, int flat, by__store_handle handle, const void *values,
                          by_dtype dtype, int64_t count, int threads, by_error *error);
/* The same for a packed entry from codes that can be stored unchanged (by__packing_accepts): one
 * for each of its matrices. */
by_status by__store_write_coded(by__store *store, int flat, by__store_handle handle,
                                const by__coded *const *coded, int threads, by_error *error);
/* The same for elements [first, first + count) of an entry that is neither transposed nor
 * packed. */
by_status by__store_write_part(by__store *store, int flat, by__store_handle handle, int64_t first,
                               const void *values, by_dtype dtype, int64_t count, int threads,
                               by_error *error);
/* Reads a whole buffer that is not transposed: u8, and so the panels of a packed entry, unchanged,
 * any other format as f32. */
by_status by__store_read(const by__store *store, int flat, by__store_handle handle, void *out,
                         by_error *error);
/* The same for elements [first, first + count). */
by_status by__store_read_part(const by__store *store, int flat, by__store_handle handle,
                              int64_t first, int64_t count, void *out, by_error *error);
/* out[i] = values[i] of format `dtype`; the values may be the last bytes of out's own memory. */
void by__store_widen(float *out, const void *values, by_dtype dtype, size_t count);
/* Address of a buffer if device memory is host memory and no write to it is in flight, else
 * NULL. */
void *by__store_host(const by__store *store, int flat, by__store_handle handle);
/* NULL before allocation, and if nothing is on disk. */
by__store_scratch *by__store_scratch_of(const by__store *store);

#endif
