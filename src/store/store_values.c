/* Copies host values to buffers of the store and back, with conversion. */
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "store/store.h"

/* Elements converted at a time: the scratch buffer stays in the first-level cache. A transposed
 * matrix is converted in blocks of LINES of its rows and CHUNK / LINES of its columns. */
#define CHUNK 2048
#define LINES 32

/* Converts values first .. first + count to f32. */
static void read_part(float *out, const void *values, by_dtype dtype, size_t first, size_t count)
{
    const char *from = (const char *)values + first * by_dtype_size(dtype);
    if (dtype == BY_F32) {
        memcpy(out, from, count * sizeof *out);
        return;
    }
    by__store_widen(out, from, dtype, count);
}

void by__store_widen(float *out, const void *values, by_dtype dtype, size_t count)
{
    if (dtype == BY_F32) {
        memmove(out, values, count * sizeof *out);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)values + i * sizeof bits, sizeof bits);
        out[i] = dtype == BY_BF16 ? by__bf16_to_f32(bits) : by__f16_to_f32(bits);
    }
}

static void store_part(void *out, by_dtype dtype, size_t first, const float *from, size_t stride,
                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (dtype == BY_F32) {
            ((float *)out)[first + i] = from[i * stride];
        } else {
            float value = from[i * stride];
            ((uint16_t *)out)[first + i] =
                dtype == BY_BF16 ? by__f32_to_bf16(value) : by__f32_to_f16(value);
        }
    }
}

/* Converts rows line .. line + lines of the transpose [columns, rows] of values [rows, columns]. */
static void convert_transposed(void *out, by_dtype to, const void *values, by_dtype from,
                               const by_shape *shape, size_t line, size_t lines)
{
    float scratch[CHUNK];
    size_t rows = (size_t)shape->dim[0];
    size_t columns = (size_t)shape->dim[1];
    for (size_t k = 0; k < rows; k += CHUNK / LINES) {
        size_t count = rows - k < CHUNK / LINES ? rows - k : CHUNK / LINES;
        for (size_t i = 0; i < count; i++) {
            read_part(scratch + i * LINES, values, from, (k + i) * columns + line, lines);
        }
        for (size_t j = 0; j < lines; j++) {
            store_part(out, to, (line + j) * rows + k, scratch + j, LINES, count);
        }
    }
}

static void convert(void *out, by_dtype to, const void *values, by_dtype from,
                    const by__store_tensor *entry, size_t count, int threads)
{
    if (to == BY_U8) {
        memcpy(out, values, count);
        return;
    }
    size_t unit = entry->transposed ? LINES : CHUNK;
    size_t units = entry->transposed ? (size_t)entry->local.dim[1] : count;
    int64_t pieces = (int64_t)((units + unit - 1) / unit);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < pieces; i++) {
        size_t first = (size_t)i * unit;
        size_t part = units - first < unit ? units - first : unit;
        if (entry->transposed) {
            convert_transposed(out, to, values, from, &entry->local, first, part);
        } else {
            float scratch[CHUNK];
            read_part(scratch, values, from, first, part);
            store_part(out, to, first, scratch, 1, part);
        }
    }
}

/* Elements of a piece converted at a time. */
#define PART (1 << 18)

/* Values of a part of an entry. */
typedef struct given {
    const char *values;
    by_dtype dtype;
    by__store_part part;
} given;

/* Writes the values that lie within a piece of an entry; `staged` has room for PART elements. */
static by_status write_piece(by__store *store, by_dtype to, const by__store_held_piece *piece,
                             const by__store_tensor *entry, const given *g, char *staged,
                             int threads, by_error *error)
{
    size_t size = by_dtype_size(to);
    by__store_part common = by__store_part_common(piece->part, g->part);
    int64_t end = common.first + common.count;
    for (int64_t at = common.first; at < end; at += PART) {
        size_t part = (size_t)(end - at < PART ? end - at : PART);
        size_t begin = (size_t)(at - piece->part.first) * size;
        const char *from = g->values + (size_t)(at - g->part.first) * by_dtype_size(g->dtype);
        convert(staged, to, from, g->dtype, entry, part, threads);
        BY_TRY(
            piece->on_disk
                ? by__store_scratch_write(by__store_scratch_of(store), piece->offset + begin,
                                          staged, part * size, error)
                : by_device_write(by_memory_at(piece->memory, begin, part * size), staged, error));
    }
    return BY_OK;
}

/* Writes the held part of an entry that is not transposed. */
static by_status write_held(by__store *store, int flat, by__store_handle handle, const given *g,
                            int threads, by_error *error)
{
    void *staged;
    by__store_held_piece piece;
    by_status status = BY_OK;
    by_dtype to = by__store_dtype(store, flat, handle);
    size_t most = (size_t)(g->part.count < PART ? g->part.count : PART);
    BY_TRY(by__alloc_aligned(&staged, most * sizeof(float), "staging", error));
    for (size_t k = 0; status == BY_OK && by__store_piece(store, flat, handle, k, &piece); k++) {
        status = write_piece(store, to, &piece, by__store_entry(store, handle), g, staged, threads,
                             error);
    }
    free(staged);
    return status;
}

/* Elements per row of a packed entry, as in files. */
static int64_t packed_row(const by__store_tensor *entry)
{
    return entry->out_in ? entry->packing.k : entry->packing.n;
}

/* Number of elements of an entry's buffer. */
static int64_t elements_of(const by__store *store, int flat, by__store_handle handle)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    by_shape shape = by__store_shape(store, flat, handle);
    bool packed = entry->packing.kind != BY_PACKING_NONE;
    return shape.rank < 0 ? 0 : packed ? by_shape_count(&entry->shape) : by_shape_count(&shape);
}

static by_status check_write(const by__store *store, int flat, by__store_handle handle,
                             by_dtype dtype, int64_t first, int64_t count, by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    by_shape shape = by__store_shape(store, flat, handle);
    by_dtype to = by__store_dtype(store, flat, handle);
    bool packed = entry->packing.kind != BY_PACKING_NONE;
    int64_t elements = elements_of(store, flat, handle);
    bool codes = dtype == BY_U8 && to == BY_U8 && !packed;
    bool floats = by_dtype_is_float(dtype) && (by_dtype_is_float(to) || packed);
    bool whole = count == elements || (packed && entry->grows && count % packed_row(entry) == 0);
    if ((!codes && !floats) || shape.rank < 0 || first < 0 || count < 0 ||
        count > elements - first ||
        (by__store_rearranges(entry) &&
         (first > 0 || !whole || by__store_buffer(store, flat, handle).bytes == 0))) {
        return by_error_set(error, BY_EARG, "'%s': cannot write %lld values of %s to it",
                            entry->name, (long long)count, by_dtype_name(dtype));
    }
    return BY_OK;
}

by_status by__store_write_part(by__store *store, int flat, by__store_handle handle, int64_t first,
                               const void *values, by_dtype dtype, int64_t count, int threads,
                               by_error *error)
{
    const given g = {values, dtype, {by__store_entry(store, handle)->group, first, count}};
    BY_TRY(check_write(store, flat, handle, dtype, first, count, error));
    if (by__store_rearranges(by__store_entry(store, handle))) {
        return by__store_write(store, flat, handle, values, dtype, count, threads, error);
    }
    return write_held(store, flat, handle, &g, threads, error);
}

/* Transposes or packs all of an entry into `out`. */
static by_status rearrange(void *out, by_dtype to, const void *values, by_dtype dtype,
                           const by__store_tensor *entry, int64_t count, int threads,
                           by_error *error)
{
    if (entry->packing.kind != BY_PACKING_NONE) {
        return by__pack_weight(out, &entry->packing, entry->out_in, values, dtype,
                               count / packed_row(entry) / by__packed_matrices(&entry->packing),
                               threads, error);
    }
    convert(out, to, values, dtype, entry, (size_t)count, threads);
    return BY_OK;
}

by_status by__store_write(by__store *store, int flat, by__store_handle handle, const void *values,
                          by_dtype dtype, int64_t count, int threads, by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    by_dtype to = by__store_dtype(store, flat, handle);
    by_memory buffer = by__store_buffer(store, flat, handle);
    void *host = by__store_host(store, flat, handle);
    BY_TRY(check_write(store, flat, handle, dtype, 0, count, error));
    if (host != NULL && buffer.bytes > 0) {
        return rearrange(host, to, values, dtype, entry, count, threads, error);
    }
    if (!by__store_rearranges(entry)) {
        return by__store_write_part(store, flat, handle, 0, values, dtype, count, threads, error);
    }
    void *staged;
    BY_TRY(by__alloc_aligned(&staged, buffer.bytes, "staging", error));
    by_status status = rearrange(staged, to, values, dtype, entry, count, threads, error);
    if (status == BY_OK) {
        status = by_device_write(buffer, staged, error);
    }
    free(staged);
    return status;
}

by_status by__store_write_coded(by__store *store, int flat, by__store_handle handle,
                                const by__coded *const *coded, int threads, by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    by_memory buffer = by__store_buffer(store, flat, handle);
    void *host = by__store_host(store, flat, handle);
    void *staged = NULL;
    by_status status = BY_OK;
    if (host == NULL) {
        BY_TRY(by__alloc_aligned(&staged, buffer.bytes, "staging", error));
    }
    for (int64_t i = 0; i < by__packed_matrices(&entry->packing) && status == BY_OK; i++) {
        status = by__pack_coded(host != NULL ? host : staged, &entry->packing, i, coded[i], threads,
                                error);
    }
    if (status == BY_OK && host == NULL) {
        status = by_device_write(buffer, staged, error);
    }
    free(staged);
    return status;
}

by_status by__store_read_part(const by__store *store, int flat, by__store_handle handle,
                              int64_t first, int64_t count, void *out, by_error *error)
{
    const by__store_tensor *entry = by__store_entry(store, handle);
    const by__store_part wanted = {entry->group, first, count};
    by__store_held_piece piece;
    int64_t done = 0;
    by_dtype dtype = by__store_dtype(store, flat, handle);
    size_t size = by_dtype_size(dtype);
    bool is_float = by_dtype_is_float(dtype);
    size_t wide = is_float ? sizeof(float) : size;
    bool readable = by__store_shape(store, flat, handle).rank >= 0 && !entry->transposed;
    for (size_t k = 0; readable && by__store_piece(store, flat, handle, k, &piece); k++) {
        by__store_part common = by__store_part_common(piece.part, wanted);
        if (common.count == 0) {
            continue;
        }
        size_t at = (size_t)(common.first - piece.part.first) * size;
        size_t bytes = (size_t)common.count * size;
        char *to = (char *)out + (size_t)(common.first - first) * wide;
        char *raw = to + (size_t)common.count * wide - bytes;
        BY_TRY(piece.on_disk ? by__store_scratch_read(by__store_scratch_of(store),
                                                      piece.offset + at, raw, bytes, error)
                             : by_device_read(raw, by_memory_at(piece.memory, at, bytes), error));
        if (is_float) {
            by__store_widen((float *)(void *)to, raw, dtype, (size_t)common.count);
        }
        done += common.count;
    }
    return done == count
               ? BY_OK
               : by_error_set(error, BY_EARG, "'%s': there are no values to read", entry->name);
}

by_status by__store_read(const by__store *store, int flat, by__store_handle handle, void *out,
                         by_error *error)
{
    by_shape shape = by__store_shape(store, flat, handle);
    return by__store_read_part(store, flat, handle, 0, shape.rank < 0 ? 1 : by_shape_count(&shape),
                               out, error);
}
