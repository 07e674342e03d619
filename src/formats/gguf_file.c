#include "formats/gguf_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_KEY  ((uint64_t)65535)
#define MAX_NAME ((uint64_t)63)

/* Position of the sequential reader. */
typedef struct gguf_cursor {
    const char *name; /* name of the file */
    const uint8_t *data;
    size_t size;
    size_t at;
    by_error *error;
} gguf_cursor;

static by_status cut_short(const gguf_cursor *c, const char *what)
{
    return by_error_set(c->error, BY_EFORMAT,
                        "%s: %s at byte %zu goes beyond the file's end at byte %zu", c->name, what,
                        c->at, c->size);
}

static uint64_t little(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i > 0; i--) {
        value = value << 8 | p[i - 1];
    }
    return value;
}

static by_status read_number(gguf_cursor *c, size_t bytes, uint64_t *out, const char *what)
{
    if (bytes > c->size - c->at) {
        return cut_short(c, what);
    }
    *out = little(c->data + c->at, bytes);
    c->at += bytes;
    return BY_OK;
}

/* Reads a string and converts it to a C string, freed with free(). */
static by_status read_name(gguf_cursor *c, char **out, uint64_t most, const char *what)
{
    uint64_t length;
    BY_TRY(read_number(c, 8, &length, what));
    if (length == 0 || length > most) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: %s of %" PRIu64 " bytes at byte %zu; 1 to %" PRIu64 " are allowed",
                            c->name, what, length, c->at - 8, most);
    }
    if (length > c->size - c->at) {
        return cut_short(c, what);
    }
    const char *text = (const char *)c->data + c->at;
    if (memchr(text, '\0', (size_t)length) != NULL || !by__utf8_valid(text, (size_t)length)) {
        return by_error_set(c->error, BY_EFORMAT, "%s: %s at byte %zu is no text", c->name, what,
                            c->at);
    }
    *out = by__strndup(text, (size_t)length);
    c->at += (size_t)length;
    return *out != NULL ? BY_OK : by_error_set(c->error, BY_EMEMORY, "out of memory: %s", what);
}

/* ---- pairs ---- */

/* Bytes of a value; 0: variable. */
static size_t kind_bytes(uint64_t kind)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kind < BY_ARRAY_LENGTH(bytes) ? bytes[kind] : 0;
}

static by_status skip_text(gguf_cursor *c, const char *key)
{
    uint64_t length;
    BY_TRY(read_number(c, 8, &length, key));
    if (length > c->size - c->at) {
        return cut_short(c, key);
    }
    c->at += (size_t)length;
    return BY_OK;
}

/* Skips `count` values. */
static by_status skip_values(gguf_cursor *c, const by__format_gguf_pair *pair)
{
    size_t each = kind_bytes((uint64_t)pair->kind);
    if (pair->kind == BY__GGUF_KIND_STRING) {
        for (uint64_t i = 0; i < pair->count; i++) {
            BY_TRY(skip_text(c, pair->key));
        }
        return BY_OK;
    }
    if (pair->count > (c->size - c->at) / each) {
        return cut_short(c, pair->key);
    }
    for (uint64_t i = 0; pair->kind == BY__GGUF_KIND_BOOL && i < pair->count; i++) {
        if (c->data[c->at + i] > 1) {
            return by_error_set(c->error, BY_EFORMAT, "%s: '%.100s' is %u, not 0 or 1", c->name,
                                pair->key, c->data[c->at + i]);
        }
    }
    c->at += (size_t)pair->count * each;
    return BY_OK;
}

static by_status read_pair(gguf_cursor *c, by__format_gguf_pair *pair)
{
    uint64_t kind;
    BY_TRY(read_name(c, &pair->key, MAX_KEY, "a key"));
    BY_TRY(read_number(c, 4, &kind, pair->key));
    pair->count = 1;
    if (kind == BY__GGUF_KIND_ARRAY) {
        pair->is_array = true;
        BY_TRY(read_number(c, 4, &kind, pair->key));
        BY_TRY(read_number(c, 8, &pair->count, pair->key));
    }
    if (kind != BY__GGUF_KIND_STRING && kind_bytes(kind) == 0) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: '%.100s' has values of type %" PRIu64
                            ", which GGUF does not have%s",
                            c->name, pair->key, kind, pair->is_array ? " in an array" : "");
    }
    pair->kind = (by__format_gguf_kind)kind;
    pair->data = c->data + c->at;
    return skip_values(c, pair);
}

static by_status read_pairs(by__format_gguf_file *out, gguf_cursor *c, uint64_t count)
{
    if (count > (c->size - c->at) / 13) { /* least size of a pair */
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: %" PRIu64 " pairs cannot be in a file of %zu bytes", c->name,
                            count, c->size);
    }
    BY_TRY(by__alloc((void **)&out->pairs, (size_t)count, sizeof *out->pairs, "pairs", c->error));
    for (size_t i = 0; i < count; i++) {
        by__format_gguf_pair *pair = &out->pairs[out->pair_count++];
        BY_TRY(read_pair(c, pair));
        if (by__name_table_find(&out->keys, pair->key) >= 0) {
            return by_error_set(c->error, BY_EFORMAT, "%s: '%.100s' is there twice", c->name,
                                pair->key);
        }
        BY_TRY(by__name_table_add(&out->keys, pair->key, (int32_t)i, c->error));
    }
    return BY_OK;
}

/* ---- tensors ---- */

/* Elements and bytes per block of each type of ggml; 0: no type has this number. */
static const struct {
    uint16_t elements;
    uint16_t bytes;
} blocks[] = {
    {1, 4},    {1, 2},    {32, 18},  {32, 20},   {0, 0},     {0, 0},     {32, 22},   {32, 24},
    {32, 34},  {32, 36},  {256, 84}, {256, 110}, {256, 144}, {256, 176}, {256, 210}, {256, 292},
    {256, 66}, {256, 74}, {256, 98}, {256, 50},  {32, 18},   {256, 110}, {256, 82},  {256, 136},
    {1, 1},    {1, 2},    {1, 4},    {1, 8},     {1, 8},     {256, 56},  {1, 2},     {0, 0},
    {0, 0},    {0, 0},    {256, 54}, {256, 66},  {0, 0},     {0, 0},     {0, 0},     {32, 17},
};

static by_status bad_tensor(const gguf_cursor *c, const by__format_gguf_description *t,
                            const char *what)
{
    return by_error_set(c->error, BY_EFORMAT, "%s: tensor '%s': %s", c->name, t->name, what);
}

static by_status read_shape(gguf_cursor *c, by__format_gguf_description *t)
{
    uint64_t rank;
    size_t elements = 1;
    BY_TRY(read_number(c, 4, &rank, t->name));
    if (rank > BY__GGUF_MAX_RANK) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: tensor '%s' has %" PRIu64 " dimensions; 4 are the most", c->name,
                            t->name, rank);
    }
    t->rank = (int)rank;
    for (int i = 0; i < BY__GGUF_MAX_RANK; i++) {
        uint64_t size = 1;
        if (i < t->rank) {
            BY_TRY(read_number(c, 8, &size, t->name));
        }
        if (size > INT64_MAX || !by__size_mul(elements, (size_t)size, &elements) ||
            elements > INT64_MAX) {
            return bad_tensor(c, t, "its size overflows");
        }
        t->size[i] = (int64_t)size;
    }
    return BY_OK;
}

static by_status read_type(gguf_cursor *c, by__format_gguf_description *t)
{
    uint64_t type;
    size_t bytes = 1;
    BY_TRY(read_number(c, 4, &type, t->name));
    if (type >= BY_ARRAY_LENGTH(blocks) || blocks[type].elements == 0) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: tensor '%s' is of type %" PRIu64 ", which ggml does not have",
                            c->name, t->name, type);
    }
    if (t->size[0] % blocks[type].elements != 0) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: tensor '%s': rows of %" PRId64 " elements are no whole blocks of "
                            "%u",
                            c->name, t->name, t->size[0], blocks[type].elements);
    }
    t->type = (uint32_t)type;
    bytes = (size_t)t->size[0] / blocks[type].elements;
    /* at most the number of elements, which does not overflow */
    for (int i = 1; i < BY__GGUF_MAX_RANK; i++) {
        bytes *= (size_t)t->size[i];
    }
    if (!by__size_mul(bytes, blocks[type].bytes, &bytes)) {
        return bad_tensor(c, t, "its size overflows");
    }
    t->bytes = bytes;
    return BY_OK;
}

/* Tensors follow each other in the order of their descriptions, each aligned. */
static by_status read_tensor(gguf_cursor *c, by__format_gguf_description *t, uint64_t *offset,
                             uint64_t alignment)
{
    uint64_t said;
    BY_TRY(read_name(c, &t->name, MAX_NAME, "the name of a tensor"));
    BY_TRY(read_shape(c, t));
    BY_TRY(read_type(c, t));
    BY_TRY(read_number(c, 8, &said, t->name));
    if (said != *offset) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: tensor '%s' is at offset %" PRIu64 " of the data; %" PRIu64
                            " is where the one before it ends",
                            c->name, t->name, said, *offset);
    }
    if (t->bytes > UINT64_MAX - alignment - *offset) {
        return bad_tensor(c, t, "its size overflows");
    }
    *offset += t->bytes;
    *offset += (alignment - *offset % alignment) % alignment;
    return BY_OK;
}

static by_status read_tensors(by__format_gguf_file *out, gguf_cursor *c, uint64_t count,
                              uint64_t alignment)
{
    uint64_t offset = 0;
    if (count > (c->size - c->at) / 25) { /* least size of a description */
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: %" PRIu64 " tensors cannot be in a file of %zu bytes", c->name,
                            count, c->size);
    }
    BY_TRY(by__alloc((void **)&out->tensors, (size_t)count, sizeof *out->tensors, "tensors",
                     c->error));
    for (size_t i = 0; i < count; i++) {
        by__format_gguf_description *t = &out->tensors[out->tensor_count++];
        BY_TRY(read_tensor(c, t, &offset, alignment));
        if (by__name_table_find(&out->names, t->name) >= 0) {
            return bad_tensor(c, t, "it is there twice");
        }
        BY_TRY(by__name_table_add(&out->names, t->name, (int32_t)i, c->error));
    }
    return BY_OK;
}

/* Sets the address of each tensor's data, which begin at the next multiple of the alignment. */
static by_status place_data(by__format_gguf_file *out, const gguf_cursor *c, uint64_t alignment)
{
    uint64_t start = c->at + (alignment - c->at % alignment) % alignment;
    uint64_t offset = 0;
    for (size_t i = 0; i < out->tensor_count; i++) {
        by__format_gguf_description *t = &out->tensors[i];
        if (start > c->size || offset > c->size - start || t->bytes > c->size - start - offset) {
            return by_error_set(c->error, BY_EFORMAT,
                                "%s: tensor '%s' of %" PRIu64
                                " bytes goes beyond the file's end at byte %zu: it is truncated",
                                c->name, t->name, t->bytes, c->size);
        }
        t->data = c->data + start + offset;
        offset += t->bytes;
        offset += (alignment - offset % alignment) % alignment;
    }
    return BY_OK;
}

static by_status read_alignment(const by__format_gguf_file *file, const gguf_cursor *c,
                                uint64_t *out)
{
    const by__format_gguf_pair *pair = by__format_gguf_find(file, "general.alignment");
    *out = 32;
    if (pair == NULL) {
        return BY_OK;
    }
    if (pair->kind != BY__GGUF_KIND_U32 || pair->is_array) {
        return by_error_set(c->error, BY_EFORMAT, "%s: general.alignment is not a u32", c->name);
    }
    *out = little(pair->data, 4);
    if (*out == 0 || (*out & (*out - 1)) != 0) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: general.alignment %" PRIu64 " is no power of two", c->name, *out);
    }
    return BY_OK;
}

static by_status read_file(by__format_gguf_file *out, gguf_cursor *c)
{
    uint64_t version;
    uint64_t tensors;
    uint64_t pairs;
    uint64_t alignment;
    if (c->size < 4 || memcmp(c->data, "GGUF", 4) != 0) {
        return by_error_set(c->error, BY_EFORMAT, "%s does not begin with GGUF", c->name);
    }
    c->at = 4;
    BY_TRY(read_number(c, 4, &version, "the version"));
    if (version != 2 && version != 3) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s is of version %" PRIu64 "%s; 2 and 3 are read", c->name, version,
                            (version & 0xffff) == 0 && version != 0 ? ", a big-endian file" : "");
    }
    BY_TRY(read_number(c, 8, &tensors, "the number of tensors"));
    BY_TRY(read_number(c, 8, &pairs, "the number of pairs"));
    if (tensors > INT32_MAX || pairs > INT32_MAX) {
        return by_error_set(c->error, BY_EFORMAT,
                            "%s: %" PRIu64 " tensors and %" PRIu64 " pairs cannot be in a file of "
                            "%zu bytes",
                            c->name, tensors, pairs, c->size);
    }
    BY_TRY(read_pairs(out, c, pairs));
    BY_TRY(read_alignment(out, c, &alignment));
    BY_TRY(read_tensors(out, c, tensors, alignment));
    return place_data(out, c, alignment);
}

by_status by__format_gguf_parse(by__format_gguf_file *out, const char *name, const uint8_t *data,
                                size_t size, by_error *error)
{
    by__format_gguf_file file = {0};
    gguf_cursor c = {.name = name, .data = data, .size = size, .error = error};
    by_status status = read_file(&file, &c);
    if (status != BY_OK) {
        by__format_gguf_free(&file);
        return status;
    }
    *out = file;
    return BY_OK;
}

void by__format_gguf_free(by__format_gguf_file *file)
{
    for (size_t i = 0; i < file->pair_count; i++) {
        free(file->pairs[i].key);
    }
    for (size_t i = 0; i < file->tensor_count; i++) {
        free(file->tensors[i].name);
    }
    free(file->pairs);
    free(file->tensors);
    by__name_table_free(&file->keys);
    by__name_table_free(&file->names);
    *file = (by__format_gguf_file){0};
}

bool by__format_gguf_is_file(const char *path)
{
    char magic[4];
    struct stat info;
    /* Opening a FIFO would wait for a writer. */
    bool regular = stat(path, &info) == 0 && S_ISREG(info.st_mode);
    FILE *file = regular ? fopen(path, "rb") : NULL;
    bool is = file != NULL && fread(magic, 1, 4, file) == 4 && memcmp(magic, "GGUF", 4) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is;
}

/* ---- values ---- */

const by__format_gguf_pair *by__format_gguf_find(const by__format_gguf_file *file, const char *key)
{
    int32_t i = by__name_table_find(&file->keys, key);
    return i < 0 ? NULL : &file->pairs[i];
}

bool by__format_gguf_whole(const by__format_gguf_file *file, const char *key, uint64_t *out)
{
    const by__format_gguf_pair *pair = by__format_gguf_find(file, key);
    if (pair == NULL || pair->is_array) {
        return false;
    }
    size_t bytes = kind_bytes((uint64_t)pair->kind);
    uint64_t value = little(pair->data, bytes);
    switch (pair->kind) {
    case BY__GGUF_KIND_U8:
    case BY__GGUF_KIND_U16:
    case BY__GGUF_KIND_U32:
    case BY__GGUF_KIND_U64:
        *out = value;
        return true;
    case BY__GGUF_KIND_I8:
    case BY__GGUF_KIND_I16:
    case BY__GGUF_KIND_I32:
    case BY__GGUF_KIND_I64:
        *out = value;
        return value >> (8 * bytes - 1) == 0;
    default:
        return false;
    }
}

bool by__format_gguf_real(const by__format_gguf_file *file, const char *key, double *out)
{
    const by__format_gguf_pair *pair = by__format_gguf_find(file, key);
    if (pair == NULL || pair->is_array) {
        return false;
    }
    if (pair->kind == BY__GGUF_KIND_F64) {
        memcpy(out, pair->data, sizeof *out);
        return true;
    }
    *out = pair->kind == BY__GGUF_KIND_F32 ? (double)by__format_gguf_f32_at(pair, 0) : 0.0;
    return pair->kind == BY__GGUF_KIND_F32;
}

bool by__format_gguf_bool(const by__format_gguf_file *file, const char *key, bool *out)
{
    const by__format_gguf_pair *pair = by__format_gguf_find(file, key);
    if (pair == NULL || pair->is_array || pair->kind != BY__GGUF_KIND_BOOL) {
        return false;
    }
    *out = pair->data[0] != 0;
    return true;
}

bool by__format_gguf_text(const by__format_gguf_file *file, const char *key, const char **out,
                          size_t *length)
{
    const by__format_gguf_pair *pair = by__format_gguf_find(file, key);
    if (pair == NULL || pair->is_array || pair->kind != BY__GGUF_KIND_STRING) {
        return false;
    }
    const uint8_t *at = pair->data;
    *out = by__format_gguf_next_text(&at, length);
    return true;
}

bool by__format_gguf_is(const by__format_gguf_file *file, const char *key, const char *text)
{
    const char *value;
    size_t length;
    return by__format_gguf_text(file, key, &value, &length) && length == strlen(text) &&
           memcmp(value, text, length) == 0;
}

const by__format_gguf_pair *by__format_gguf_array(const by__format_gguf_file *file, const char *key,
                                                  by__format_gguf_kind kind)
{
    const by__format_gguf_pair *pair = by__format_gguf_find(file, key);
    return pair != NULL && pair->is_array && pair->kind == kind ? pair : NULL;
}

int32_t by__format_gguf_i32_at(const by__format_gguf_pair *array, uint64_t i)
{
    return (int32_t)(uint32_t)little(array->data + 4 * i, 4);
}

float by__format_gguf_f32_at(const by__format_gguf_pair *array, uint64_t i)
{
    float value;
    memcpy(&value, array->data + 4 * i, sizeof value);
    return value;
}

const char *by__format_gguf_next_text(const uint8_t **at, size_t *length)
{
    const char *text = (const char *)*at + 8;
    *length = (size_t)little(*at, 8);
    *at += 8 + *length;
    return text;
}
