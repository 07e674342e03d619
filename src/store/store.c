/* Entries and flat buffers of a store: declaration, layout, allocation, and where ranges of them
 * are. */
#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/name_table.h"
#include "device/device.h"

/* A held run, in bytes of the flat buffer, and its offset in the buffer's memory or its part of the
 * scratch file. */
typedef struct held_run {
    size_t begin;
    size_t bytes;
    size_t at;
    bool on_disk;
} held_run;

typedef struct flat {
    char *name;
    by__store_flat_spec spec;
    by_shape *shape;                         /* of each entry's buffer; rank -1: no buffer */
    size_t *offset;                          /* of each buffer in the flat buffer, in bytes */
    size_t group_offset[BY__MAX_GROUPS + 1]; /* offset of each group; the last one is the end */
    size_t count;                            /* number of entries at its declaration */
    size_t block_offset;                     /* offset in the role's memory */
    held_run *runs; /* NULL: all of it is held, and offsets are those in its memory */
    size_t run_count;
    size_t held_bytes;
    size_t disk_offset; /* offset of its part of the scratch file */
    size_t disk_bytes;
} flat;

struct by__store {
    by_device *device;
    bool host_memory;
    size_t entry_unit; /* elements; buffers begin at multiples of it */
    size_t line;       /* bytes; runs begin at multiples of it */
    by__store_tensor *entries;
    int64_t *begins;                  /* of each entry: its first element in its group */
    int64_t elements[BY__MAX_GROUPS]; /* of the entries of each group, rounded up */
    size_t count;
    size_t capacity;
    size_t begins_capacity;
    by__name_table names;
    flat *flats;
    size_t flat_count;
    size_t flat_capacity;
    by_memory blocks[BY__BUFFER_ROLES];
    by__store_scratch *scratch; /* NULL: everything is in memory */
    bool allocated;
};

static const char *const role_names[BY__BUFFER_ROLES] = {
    "the parameters", "the compute copies", "the gradients", "the optimizer's state", "the caches"};

by_status by__store_open(by__store **out, by_device *device, by_error *error)
{
    by__store *store;
    by_device_info info;
    BY_TRY(by_device_describe(&info, device, error));
    BY_TRY(by__alloc((void **)&store, 1, sizeof *store, "tensor store", error));
    store->device = device;
    store->host_memory = info.host_memory;
    store->line = by__device_unit(device);
    /* Also states of one byte an element are aligned where a device asks for more than others. */
    store->entry_unit = store->line > BY_CACHE_LINE ? store->line : BY__ENTRY_ALIGNMENT;
    *out = store;
    return BY_OK;
}

int64_t by__store_padded(const by__store *store, int64_t elements)
{
    return (int64_t)by__round_up((size_t)elements, store->entry_unit);
}

static void free_flat(flat *f)
{
    free(f->name);
    free(f->shape);
    free(f->offset);
    free(f->runs);
}

void by__store_close(by__store **store)
{
    if (store == NULL || *store == NULL) {
        return;
    }
    by__store *s = *store;
    for (int role = 0; role < BY__BUFFER_ROLES; role++) {
        by_device_free(&s->blocks[role]);
    }
    by__store_scratch_close(&s->scratch);
    for (size_t i = 0; i < s->flat_count; i++) {
        free_flat(&s->flats[i]);
    }
    for (size_t i = 0; i < s->count; i++) {
        free((char *)(uintptr_t)s->entries[i].name);
        free((char *)(uintptr_t)s->entries[i].axes);
    }
    by__name_table_free(&s->names);
    free(s->flats);
    free(s->begins);
    free(s->entries);
    free(s);
    *store = NULL;
}

/* ---- declaring ---- */

/* The elements of an entry's buffer in flat buffers without a shape rule. */
static int64_t elements_of(const by__store_tensor *entry)
{
    by_shape shape =
        entry->packing.kind == BY_PACKING_NONE ? entry->local : by__packed_shape(&entry->packing);
    return by_shape_count(&shape);
}

by_status by__store_add(by__store *store, const by__store_tensor *entry, by__store_handle *out,
                        by_error *error)
{
    if (by__store_find(store, entry->name) != BY__NO_ENTRY) {
        return by_error_set(error, BY_EARG, "there are two tensors named '%s'", entry->name);
    }
    BY_TRY(by__reserve((void **)&store->entries, &store->capacity, store->count + 1,
                       sizeof *store->entries, error));
    BY_TRY(by__reserve((void **)&store->begins, &store->begins_capacity, store->count + 1,
                       sizeof *store->begins, error));
    by__store_tensor copy = *entry;
    if (copy.local.rank != copy.shape.rank) {
        copy.local = copy.shape;
    }
    char *name = by__strdup(entry->name);
    char *axes = by__strdup(entry->axes == NULL ? "" : entry->axes);
    by_status status = BY_OK;
    if (name == NULL || axes == NULL) {
        status = by_error_set(error, BY_EMEMORY, "out of memory: tensor '%s'", entry->name);
    } else {
        status = by__name_table_add(&store->names, name, (int32_t)store->count, error);
    }
    if (status != BY_OK) {
        free(name);
        free(axes);
        return status;
    }
    copy.name = name;
    copy.axes = axes;
    *out = (by__store_handle)store->count;
    store->begins[store->count] = store->elements[copy.group];
    store->elements[copy.group] += by__store_padded(store, elements_of(&copy));
    store->entries[store->count++] = copy;
    return BY_OK;
}

static by_dtype dtype_of(const flat *f, int group)
{
    return (f->spec.packed >> group & 1u) != 0 ? BY_U8
           : (f->spec.wide >> group & 1u) != 0 ? BY_F32
                                               : f->spec.dtype;
}

/* Offset of a part of a group in the flat buffer, and its bytes. */
static size_t offset_of(const flat *f, by__store_part part)
{
    return f->group_offset[part.group] +
           (size_t)part.first * by_dtype_size(dtype_of(f, part.group));
}

static size_t bytes_of(const flat *f, by__store_part part)
{
    return (size_t)part.count * by_dtype_size(dtype_of(f, part.group));
}

/* Lays out one entry's buffer at *end. */
static by_status place(const by__store *store, flat *f, size_t i, size_t *end, by_error *error)
{
    const by__store_tensor *entry = &store->entries[i];
    by_shape shape = entry->local;
    size_t elements;
    size_t bytes;
    bool has = (f->spec.groups >> entry->group & 1u) != 0 &&
               (f->spec.shape == NULL || f->spec.shape(&entry->local, entry->axes, &shape));
    bool packs = f->spec.dtype == BY_DTYPE_COUNT || (f->spec.packed >> entry->group & 1u) != 0;
    if (entry->packing.kind != BY_PACKING_NONE && packs) {
        shape = by__packed_shape(&entry->packing);
    }
    f->shape[i].rank = -1;
    if (!has) {
        return BY_OK;
    }
    by_dtype dtype = f->spec.dtype == BY_DTYPE_COUNT ? entry->format : dtype_of(f, entry->group);
    if (!by__size_add((size_t)by_shape_count(&shape), store->entry_unit - 1, &elements) ||
        !by__size_mul(elements & ~(store->entry_unit - 1), by_dtype_size(dtype), &bytes) ||
        !by__size_add(*end, bytes, &bytes)) {
        return by_error_set(error, BY_EMEMORY, "%s: the size overflows", role_names[f->spec.role]);
    }
    f->shape[i] = shape;
    f->offset[i] = *end;
    *end = bytes;
    return BY_OK;
}

static by_status lay_out(const by__store *store, flat *f, by_error *error)
{
    size_t end = 0;
    for (int group = 0; group < BY__MAX_GROUPS; group++) {
        f->group_offset[group] = end;
        for (size_t i = 0; i < f->count; i++) {
            if (store->entries[i].group == group) {
                BY_TRY(place(store, f, i, &end, error));
            }
        }
    }
    f->group_offset[BY__MAX_GROUPS] = end;
    return BY_OK;
}

/* ---- runs ---- */

by__store_part by__store_group_part(const by__store *store, int group)
{
    return (by__store_part){group, 0, store->elements[group]};
}

by__store_part by__store_entry_part(const by__store *store, by__store_handle handle)
{
    const by__store_tensor *entry = &store->entries[handle];
    return (by__store_part){entry->group, store->begins[handle], elements_of(entry)};
}

by__store_part by__store_next_entry(const by__store *store, by__store_part part,
                                    by__store_handle *handle)
{
    for (; (size_t)*handle < store->count; (*handle)++) {
        by__store_part common = by__store_part_common(by__store_entry_part(store, *handle), part);
        if (common.count > 0) {
            return common;
        }
    }
    return (by__store_part){.group = part.group};
}

static by_status add_run(const by__store *store, flat *f, size_t *capacity, int group, size_t begin,
                         size_t bytes, by_error *error)
{
    bool on_disk = (f->spec.on_disk >> group & 1u) != 0;
    size_t *end = on_disk ? &f->disk_bytes : &f->held_bytes;
    if (bytes == 0) {
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&f->runs, capacity, f->run_count + 1, sizeof *f->runs, error));
    f->runs[f->run_count++] = (held_run){begin, bytes, *end, on_disk};
    *end += by__round_up(bytes, on_disk ? BY__SCRATCH_ALIGNMENT : store->line);
    return BY_OK;
}

static bool is_held(const by__store_flat_spec *spec, by__store_part part)
{
    for (size_t k = 0; k < spec->held_count; k++) {
        if (by__store_part_has(spec->held[k], part)) {
            return true;
        }
    }
    return false;
}

/* Makes runs of the entries that are held, if they have their own shapes. */
static by_status hold_entries(const by__store *store, flat *f, by_error *error)
{
    size_t capacity = 0;
    for (size_t i = 0; i < f->count; i++) {
        const by__store_tensor *entry = &store->entries[i];
        size_t size = by_dtype_size(dtype_of(f, entry->group));
        if (f->shape[i].rank >= 0 &&
            is_held(&f->spec, by__store_entry_part(store, (by__store_handle)i))) {
            size_t count = (size_t)by__store_padded(store, by_shape_count(&f->shape[i]));
            BY_TRY(add_run(store, f, &capacity, entry->group, f->offset[i], count * size, error));
        }
    }
    return BY_OK;
}

/* Makes the runs of spec.held in the groups that the flat buffer has, group by group. */
static by_status hold_parts(const by__store *store, flat *f, by_error *error)
{
    size_t capacity = 0;
    for (int group = 0; group < BY__MAX_GROUPS; group++) {
        bool has = f->group_offset[group + 1] > f->group_offset[group];
        for (size_t k = 0; k < f->spec.held_count && has; k++) {
            const by__store_part *part = &f->spec.held[k];
            if (part->group == group) {
                BY_TRY(add_run(store, f, &capacity, group, offset_of(f, *part), bytes_of(f, *part),
                               error));
            }
        }
    }
    return BY_OK;
}

static int by_begin(const void *a, const void *b)
{
    const held_run *x = a;
    const held_run *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* The runs are disjoint. They are left in ascending order, so that they can be searched. */
static by_status hold(const by__store *store, flat *f, by_error *error)
{
    if (f->spec.held == NULL) {
        f->held_bytes = f->group_offset[BY__MAX_GROUPS];
        return BY_OK;
    }
    BY_TRY(f->spec.shape != NULL ? hold_entries(store, f, error) : hold_parts(store, f, error));
    f->spec.held = NULL; /* owned by the caller */
    if (f->run_count > 1) {
        qsort(f->runs, f->run_count, sizeof *f->runs, by_begin);
    }
    return f->runs != NULL ? BY_OK /* not NULL even if nothing is held */
                           : by__alloc((void **)&f->runs, 1, sizeof *f->runs, "runs", error);
}

by_status by__store_add_flat(by__store *store, const by__store_flat_spec *spec, int *out,
                             by_error *error)
{
    flat f = {.spec = *spec, .count = store->count};
    if (store->allocated) {
        return by_error_set(error, BY_ESTATE, "the store is allocated: nothing can be added");
    }
    BY_TRY(by__reserve((void **)&store->flats, &store->flat_capacity, store->flat_count + 1,
                       sizeof *store->flats, error));
    f.block_offset = by__store_bytes(store, spec->role);
    f.disk_offset = by__store_disk_bytes(store);
    f.name = by__strdup(spec->name == NULL ? "" : spec->name);
    f.spec.name = f.name;
    by_status status =
        f.name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a name") : BY_OK;
    if (status == BY_OK) {
        status = by__alloc((void **)&f.shape, f.count, sizeof *f.shape, "shapes", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&f.offset, f.count, sizeof *f.offset, "offsets", error);
    }
    if (status == BY_OK) {
        status = lay_out(store, &f, error);
    }
    if (status == BY_OK) {
        status = hold(store, &f, error);
    }
    if (status != BY_OK) {
        free_flat(&f);
        return status;
    }
    *out = (int)store->flat_count;
    store->flats[store->flat_count++] = f;
    return BY_OK;
}

/* ---- queries ---- */

size_t by__store_count(const by__store *store)
{
    return store->count;
}

const by__store_tensor *by__store_entry(const by__store *store, by__store_handle handle)
{
    return &store->entries[handle];
}

by__store_handle by__store_find(const by__store *store, const char *name)
{
    return by__name_table_find(&store->names, name);
}

size_t by__store_bytes(const by__store *store, by__store_buffer_role role)
{
    size_t bytes = 0;
    for (size_t i = 0; i < store->flat_count; i++) {
        const flat *f = &store->flats[i];
        bytes += f->spec.role == role ? f->held_bytes : 0;
    }
    return bytes;
}

size_t by__store_disk_bytes(const by__store *store)
{
    size_t bytes = 0;
    for (size_t i = 0; i < store->flat_count; i++) {
        bytes += store->flats[i].disk_bytes;
    }
    return bytes;
}

const char *by__store_flat_name(const by__store *store, int index)
{
    return store->flats[index].name;
}

by_shape by__store_shape(const by__store *store, int index, by__store_handle handle)
{
    const flat *f = &store->flats[index];
    return (size_t)handle < f->count ? f->shape[handle] : (by_shape){.rank = -1};
}

by__store_tensor by__store_held(const by__store *store, int index, by__store_handle handle)
{
    const by__store_tensor *entry = &store->entries[handle];
    by__store_tensor held = *entry;
    by_shape numbers = {.rank = entry->shape.rank};
    by_shape left = {0};
    if (store->flats[index].spec.shape == NULL) {
        return held;
    }
    for (int i = 0; i < numbers.rank; i++) {
        numbers.dim[i] = i + 1; /* so that the rule reveals which axes it keeps */
    }
    (void)store->flats[index].spec.shape(&numbers, entry->axes, &left);
    for (int i = 0; i < left.rank; i++) {
        int64_t from = left.dim[i] - 1;
        held.shape.dim[i] = entry->shape.dim[from];
        held.local.dim[i] = entry->local.dim[from];
        held.first[i] = entry->first[from];
        held.sections[i] = entry->sections[from];
    }
    held.shape.rank = held.local.rank = left.rank;
    held.grows = false;
    return held;
}

by_dtype by__store_dtype(const by__store *store, int index, by__store_handle handle)
{
    const flat *f = &store->flats[index];
    const by__store_tensor *entry = &store->entries[handle];
    return f->spec.dtype == BY_DTYPE_COUNT ? entry->format : dtype_of(f, entry->group);
}

by_dtype by__store_group_dtype(const by__store *store, int index, int group)
{
    return dtype_of(&store->flats[index], group);
}

/* ---- memory ---- */

by_status by__store_allocate(by__store *store, const char *directory, by_error *error)
{
    size_t on_disk = by__store_disk_bytes(store);
    if (store->allocated) {
        return by_error_set(error, BY_ESTATE, "the store is allocated already");
    }
    for (int role = 0; role < BY__BUFFER_ROLES; role++) {
        BY_TRY(by_device_alloc(&store->blocks[role], store->device,
                               by__store_bytes(store, (by__store_buffer_role)role),
                               role_names[role], error));
    }
    if (on_disk > 0) {
        BY_TRY(by__store_scratch_open(&store->scratch, directory, on_disk, error));
    }
    store->allocated = true;
    return BY_OK;
}

by__store_scratch *by__store_scratch_of(const by__store *store)
{
    return store->scratch;
}

bool by__store_is_allocated(const by__store *store)
{
    return store->allocated;
}

by_status by__store_clear(by__store *store, by__store_buffer_role role, by_error *error)
{
    by_memory block = store->blocks[role];
    for (size_t i = 0; i < store->flat_count; i++) {
        const flat *f = &store->flats[i];
        if (f->spec.role == role && f->disk_bytes > 0) {
            BY_TRY(by__store_scratch_write(store->scratch, f->disk_offset, NULL, f->disk_bytes,
                                           error));
        }
    }
    if (block.bytes == 0) {
        return BY_OK;
    }
    BY_TRY(by__device_fill(BY__QUEUE_COMPUTE, block, 0, error));
    return by_device_finish(store->device, error);
}

/* Index of the first run that ends behind an offset. */
static size_t first_run(const flat *f, size_t offset)
{
    size_t low = 0;
    size_t high = f->run_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (f->runs[middle].begin + f->runs[middle].bytes <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The run that contains these bytes of a partly held flat buffer; NULL: there is none. */
static const held_run *find_run(const flat *f, size_t offset, size_t bytes)
{
    size_t k = first_run(f, offset);
    const held_run *run = k < f->run_count ? &f->runs[k] : NULL;
    bool is_in = run != NULL && offset >= run->begin && offset + bytes <= run->begin + run->bytes;
    return is_in ? run : NULL;
}

/* Offset of these bytes in the memory, or the part of the scratch file, of the flat buffer. */
static size_t place_in(const held_run *run, size_t offset)
{
    return run->at + offset - run->begin;
}

/* Memory of these bytes of a flat buffer; {0} if they are not held in memory in one run. */
static by_memory held_bytes(const by__store *store, const flat *f, size_t offset, size_t bytes)
{
    by_memory block = store->blocks[f->spec.role];
    if (f->runs == NULL) {
        return by_memory_at(block, f->block_offset + offset, bytes);
    }
    const held_run *run = find_run(f, offset, bytes);
    return run == NULL || run->on_disk
               ? (by_memory){0}
               : by_memory_at(block, f->block_offset + place_in(run, offset), bytes);
}

by_memory by__store_buffer(const by__store *store, int index, by__store_handle handle)
{
    const flat *f = &store->flats[index];
    by_shape shape = by__store_shape(store, index, handle);
    if (shape.rank < 0) {
        return (by_memory){0};
    }
    size_t bytes =
        (size_t)by_shape_count(&shape) * by_dtype_size(by__store_dtype(store, index, handle));
    return held_bytes(store, f, f->offset[handle], bytes);
}

int64_t by__store_group_elements(const by__store *store, int index, int group)
{
    const flat *f = &store->flats[index];
    size_t bytes = f->group_offset[group + 1] - f->group_offset[group];
    return (int64_t)(bytes / by_dtype_size(dtype_of(f, group)));
}

by_memory by__store_group(const by__store *store, int index, int group)
{
    const flat *f = &store->flats[index];
    return held_bytes(store, f, f->group_offset[group],
                      f->group_offset[group + 1] - f->group_offset[group]);
}

bool by__store_piece(const by__store *store, int index, by__store_handle handle, size_t k,
                     by__store_held_piece *out)
{
    const flat *f = &store->flats[index];
    *out = (by__store_held_piece){.part.group = store->entries[handle].group};
    if (f->runs == NULL) {
        out->memory = by__store_buffer(store, index, handle);
        out->part.count =
            (int64_t)(out->memory.bytes / by_dtype_size(by__store_dtype(store, index, handle)));
        return k == 0;
    }
    if (f->shape[handle].rank < 0) {
        return false;
    }
    size_t size = by_dtype_size(by__store_dtype(store, index, handle));
    size_t begin = f->offset[handle];
    size_t end = begin + (size_t)by_shape_count(&f->shape[handle]) * size;
    k += first_run(f, begin);
    if (k >= f->run_count || f->runs[k].begin >= end) {
        return false;
    }
    const held_run *run = &f->runs[k];
    size_t low = run->begin > begin ? run->begin : begin;
    size_t high = run->begin + run->bytes < end ? run->begin + run->bytes : end;
    size_t at = place_in(run, low);
    out->part.first = (int64_t)((low - begin) / size);
    out->part.count = (int64_t)((high - low) / size);
    out->on_disk = run->on_disk;
    if (run->on_disk) {
        out->offset = f->disk_offset + at;
    } else {
        out->memory = by_memory_at(store->blocks[f->spec.role], f->block_offset + at, high - low);
    }
    return true;
}

bool by__store_disk_offset(const by__store *store, int index, by__store_part part, uint64_t *offset)
{
    const flat *f = &store->flats[index];
    const held_run *run = find_run(f, offset_of(f, part), bytes_of(f, part));
    if (run == NULL || !run->on_disk) {
        return false;
    }
    *offset = f->disk_offset + place_in(run, offset_of(f, part));
    return true;
}

bool by__store_on_disk(const by__store *store, int index, by__store_handle handle)
{
    const flat *f = &store->flats[index];
    return (size_t)handle < f->count && f->shape[handle].rank >= 0 &&
           (f->spec.on_disk >> store->entries[handle].group & 1u) != 0;
}

by_memory by__store_memory(const by__store *store, int index, by__store_part part)
{
    const flat *f = &store->flats[index];
    return held_bytes(store, f, offset_of(f, part), bytes_of(f, part));
}

void *by__store_host(const by__store *store, int index, by__store_handle handle)
{
    by_memory buffer = by__store_buffer(store, index, handle);
    return store->host_memory ? (void *)buffer.address : NULL;
}
