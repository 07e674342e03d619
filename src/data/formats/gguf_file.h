/* GGUF files, versions 2 and 3: pairs of keys and values, descriptions of tensors, data. Everything
 * that the format promises is checked against the file's size before it is used; nothing is
 * copied. The layout is that of ggml's docs/gguf.md. */
#ifndef BY_DATA_FORMATS_GGUF_FILE_H
#define BY_DATA_FORMATS_GGUF_FILE_H

#include "base/base.h"
#include "base/name_table.h"

/* Types of values. */
typedef enum by__gguf_kind {
    BY__GGUF_KIND_U8,
    BY__GGUF_KIND_I8,
    BY__GGUF_KIND_U16,
    BY__GGUF_KIND_I16,
    BY__GGUF_KIND_U32,
    BY__GGUF_KIND_I32,
    BY__GGUF_KIND_F32,
    BY__GGUF_KIND_BOOL,
    BY__GGUF_KIND_STRING,
    BY__GGUF_KIND_ARRAY,
    BY__GGUF_KIND_U64,
    BY__GGUF_KIND_I64,
    BY__GGUF_KIND_F64
} by__gguf_kind;

typedef struct by__gguf_pair {
    char *key;
    by__gguf_kind kind; /* of the value, or of the elements of an array */
    bool is_array;
    uint64_t count;      /* elements; 1 for a value alone */
    const uint8_t *data; /* the first, in the file */
} by__gguf_pair;

#define BY__GGUF_MAX_RANK 4

typedef struct by__gguf_description {
    char *name;
    int rank;
    int64_t size[BY__GGUF_MAX_RANK]; /* the innermost first */
    uint32_t type;
    uint64_t bytes;
    const uint8_t *data;
} by__gguf_description;

typedef struct by__gguf_file {
    by__gguf_pair *pairs;
    size_t pair_count;
    by__gguf_description *tensors;
    size_t tensor_count;
    by__name_table keys;  /* to pairs */
    by__name_table names; /* to tensors */
} by__gguf_file;

/* Whether a file begins as GGUF files do. */
bool by__gguf_is_file(const char *path);
/* Checks a whole file in memory, which must outlive `out`; `name` stands for it in messages.
 * BY_EFORMAT names the pair or the tensor and what is wrong with it. */
by_status by__gguf_parse(by__gguf_file *out, const char *name, const uint8_t *data, size_t size,
                         by_error *error);
void by__gguf_free(by__gguf_file *file);

/* The pair of a key, NULL: there is none. */
const by__gguf_pair *by__gguf_find(const by__gguf_file *file, const char *key);
/* Values of a key: false where there is none, or of another kind, or (whole) it is negative. */
bool by__gguf_whole(const by__gguf_file *file, const char *key, uint64_t *out);
bool by__gguf_real(const by__gguf_file *file, const char *key, double *out);
bool by__gguf_bool(const by__gguf_file *file, const char *key, bool *out);
bool by__gguf_text(const by__gguf_file *file, const char *key, const char **out, size_t *length);
/* Whether a text value is `text`. */
bool by__gguf_is(const by__gguf_file *file, const char *key, const char *text);
/* An array of a kind; NULL: there is none. */
const by__gguf_pair *by__gguf_array(const by__gguf_file *file, const char *key, by__gguf_kind kind);
/* Element i of an array of numbers. */
int32_t by__gguf_i32_at(const by__gguf_pair *array, uint64_t i);
float by__gguf_f32_at(const by__gguf_pair *array, uint64_t i);
/* The string at *at, which moves behind it. */
const char *by__gguf_next_text(const uint8_t **at, size_t *length);

#endif
