/* Reader of the safetensors format: u64 little-endian length N of a JSON header, the header, then
 * the data. A file is accepted only if every byte of its data belongs to exactly one tensor. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "checkpoint/storage.h"

#define MAX_HEADER_BYTES UINT64_C(100000000)

/* All types of the format, so that a file with types that banyan lacks is still checked and its
 * other tensors are usable. */
static const struct {
    const char *name;
    unsigned bits;
    int dtype;
} types[] = {
    {"BOOL", 8, BY_BOOL}, {"F4", 4, -1},          {"F6_E2M3", 6, -1},     {"F6_E3M2", 6, -1},
    {"U8", 8, BY_U8},     {"I8", 8, BY_I8},       {"F8_E5M2", 8, -1},     {"F8_E4M3", 8, BY_F8},
    {"F8_E8M0", 8, -1},   {"F8_E4M3FNUZ", 8, -1}, {"F8_E5M2FNUZ", 8, -1}, {"I16", 16, -1},
    {"U16", 16, -1},      {"F16", 16, BY_F16},    {"BF16", 16, BY_BF16},  {"I32", 32, BY_I32},
    {"U32", 32, -1},      {"F32", 32, BY_F32},    {"C64", 64, -1},        {"F64", 64, -1},
    {"I64", 64, -1},      {"U64", 64, -1},
};

int by__checkpoint_type_of_name(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            return types[i].dtype;
        }
    }
    return -1;
}

/* Position for messages: "FILE: tensor 'NAME'". */
typedef struct tensor_place {
    const char *file;
    const char *name;
    by_error *error;
} tensor_place;

static by_status bad(const tensor_place *at, const char *text)
{
    return by_error_set(at->error, BY_EFORMAT, "%s: tensor '%.200s': %s", at->file, at->name, text);
}

static by_status read_type(by__checkpoint_tensor_entry *entry, unsigned *bits, const json_t *value,
                           const tensor_place *at)
{
    const char *name = json_string_value(value);
    if (name == NULL) {
        return bad(at, "expected a string \"dtype\"");
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            entry->type = types[i].name;
            entry->dtype = types[i].dtype;
            *bits = types[i].bits;
            return BY_OK;
        }
    }
    return by_error_set(at->error, BY_EFORMAT, "%s: tensor '%.200s': unknown dtype '%.40s'",
                        at->file, at->name, name);
}

/* Reads the shape and computes the bytes that it takes. */
static by_status read_shape(by__checkpoint_tensor_entry *entry, unsigned bits, uint64_t *bytes,
                            const json_t *value, const tensor_place *at)
{
    if (!json_is_array(value)) {
        return bad(at, "expected an array \"shape\"");
    }
    size_t total = bits;
    bool fits = true;
    bool empty = false;
    entry->rank = json_array_size(value);
    for (size_t i = 0; i < entry->rank; i++) {
        const json_t *item = json_array_get(value, i);
        json_int_t dim = json_integer_value(item);
        if (!json_is_integer(item) || dim < 0) {
            return bad(at, "expected non-negative integers in \"shape\"");
        }
        if (i < BY_TENSOR_MAX_RANK) {
            entry->shape[i] = dim;
        }
        empty = empty || dim == 0;
        fits = fits && by__size_mul(total, (size_t)dim, &total);
    }
    if (!fits && !empty) {
        return bad(at, "the product of \"shape\" overflows");
    }
    if (!empty && total % 8 != 0) {
        return bad(at, "its elements do not fill whole bytes");
    }
    *bytes = empty ? 0 : total / 8;
    return BY_OK;
}

static by_status read_offsets(by__checkpoint_tensor_entry *entry, uint64_t bytes,
                              uint64_t data_bytes, const json_t *value, const tensor_place *at)
{
    const json_t *first = json_array_get(value, 0);
    const json_t *second = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(second) ||
        json_integer_value(first) < 0 || json_integer_value(second) < json_integer_value(first)) {
        return bad(at, "expected \"data_offsets\" [begin, end] with 0 <= begin <= end");
    }
    entry->begin = (uint64_t)json_integer_value(first);
    entry->end = (uint64_t)json_integer_value(second);
    if (entry->end > data_bytes) {
        return by_error_set(at->error, BY_EFORMAT,
                            "%s: tensor '%.200s' ends at data offset %" PRIu64
                            ", but the file has only %" PRIu64 " bytes of data: it is truncated",
                            at->file, at->name, entry->end, data_bytes);
    }
    if (entry->end - entry->begin != bytes) {
        return by_error_set(at->error, BY_EFORMAT,
                            "%s: tensor '%.200s': data_offsets [%" PRIu64 ", %" PRIu64
                            "] hold %" PRIu64 " bytes, expected %" PRIu64 " for its %s shape",
                            at->file, at->name, entry->begin, entry->end, entry->end - entry->begin,
                            bytes, entry->type);
    }
    return BY_OK;
}

static by_status read_entry(by__checkpoint_tensor_entry *entry, const char *name,
                            const json_t *value, const uint8_t *data, uint64_t data_bytes,
                            const char *file, by_error *error)
{
    const tensor_place at = {file, name, error};
    unsigned bits = 0;
    uint64_t bytes = 0;
    if (!json_is_object(value)) {
        return bad(&at, "expected an object with dtype, shape and data_offsets");
    }
    BY_TRY(read_type(entry, &bits, json_object_get(value, "dtype"), &at));
    BY_TRY(read_shape(entry, bits, &bytes, json_object_get(value, "shape"), &at));
    BY_TRY(read_offsets(entry, bytes, data_bytes, json_object_get(value, "data_offsets"), &at));
    entry->file = file;
    entry->data = data + entry->begin;
    entry->name = by__strdup(name);
    return entry->name != NULL ? BY_OK
                               : by_error_set(error, BY_EMEMORY, "out of memory: tensor names");
}

static by_status check_metadata(const json_t *value, const char *file, by_error *error)
{
    bool good = json_is_object(value);
    for (void *i = json_object_iter((json_t *)(uintptr_t)value); good && i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)value, i)) {
        good = json_is_string(json_object_iter_value(i));
    }
    return good ? BY_OK
                : by_error_set(error, BY_EFORMAT, "%s: __metadata__ must map strings to strings",
                               file);
}

static int by_offset(const void *a, const void *b)
{
    const by__checkpoint_tensor_entry *x = a;
    const by__checkpoint_tensor_entry *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end != y->end ? (x->end < y->end ? -1 : 1) : strcmp(x->name, y->name);
}

/* Checks that each tensor starts where the previous one ended, and the last ends with the file. */
static by_status check_cover(const by__checkpoint_safetensors *list, uint64_t data_bytes,
                             const char *file, by_error *error)
{
    uint64_t end = 0;
    for (size_t i = 0; i < list->count; i++) {
        const by__checkpoint_tensor_entry *entry = &list->entries[i];
        if (entry->begin != end) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: tensor '%.200s' starts at data offset %" PRIu64
                                ", expected %" PRIu64 ": tensors %s",
                                file, entry->name, entry->begin, end,
                                entry->begin < end ? "overlap" : "leave a hole");
        }
        end = entry->end;
    }
    if (end != data_bytes) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: tensors end at data offset %" PRIu64 ", but the file has %" PRIu64
                            " bytes of data",
                            file, end, data_bytes);
    }
    return BY_OK;
}

static by_status read_entries(by__checkpoint_safetensors *out, json_t *header, const char *file,
                              const uint8_t *data, uint64_t data_bytes, by_error *error)
{
    if (!json_is_object(header)) {
        return by_error_set(error, BY_EFORMAT, "%s: the header is not a JSON object", file);
    }
    BY_TRY(by__alloc((void **)&out->entries, json_object_size(header), sizeof *out->entries,
                     "tensor list", error));
    for (void *i = json_object_iter(header); i != NULL; i = json_object_iter_next(header, i)) {
        const char *name = json_object_iter_key(i);
        const json_t *value = json_object_iter_value(i);
        if (strcmp(name, "__metadata__") == 0) {
            BY_TRY(check_metadata(value, file, error));
            continue;
        }
        BY_TRY(read_entry(&out->entries[out->count], name, value, data, data_bytes, file, error));
        out->count++;
    }
    if (out->count > 0) {
        qsort(out->entries, out->count, sizeof *out->entries, by_offset);
    }
    return check_cover(out, data_bytes, file, error);
}

by_status by__checkpoint_safetensors_parse(by__checkpoint_safetensors *out, const char *file,
                                           const uint8_t *data, size_t size, by_error *error)
{
    if (size < 8) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: %zu bytes; a safetensors file begins with an 8-byte header length",
                            file, size);
    }
    if (memcmp(data, "GGUF", 4) == 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: this is a GGUF file, not a safetensors file; convert it with "
                            "banyan export %s --format safetensors --output DIR",
                            file, file);
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | data[i];
    }
    if (length > MAX_HEADER_BYTES) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: header length at byte 0 is %" PRIu64
                            ", over the format's limit of %" PRIu64
                            "; this is not a safetensors file",
                            file, length, MAX_HEADER_BYTES);
    }
    if (length > size - 8) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: the header takes %" PRIu64
                            " bytes from byte 8, but the file ends at byte %zu: it is truncated",
                            file, length, size);
    }
    const char *text = (const char *)data + 8;
    if (length == 0 || text[0] != '{') {
        return by_error_set(error, BY_EFORMAT, "%s: expected '{' at byte 8", file);
    }
    json_error_t json_error;
    json_t *header = by_json_load(text, (size_t)length, JSON_REJECT_DUPLICATES, &json_error);
    if (header == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: header, byte %zu: %s", file,
                            8 + (size_t)(json_error.position < 0 ? 0 : json_error.position),
                            json_error.text);
    }
    by__checkpoint_safetensors list = {0};
    by_status status =
        read_entries(&list, header, file, data + 8 + length, size - 8 - length, error);
    json_decref(header);
    if (status != BY_OK) {
        by__checkpoint_safetensors_free(&list);
        return status;
    }
    *out = list;
    return BY_OK;
}

void by__checkpoint_safetensors_free(by__checkpoint_safetensors *file)
{
    for (size_t i = 0; i < file->count; i++) {
        free(file->entries[i].name);
    }
    free(file->entries);
    *file = (by__checkpoint_safetensors){0};
}
