/* GGUF files, versions 2 and 3: key/value pairs, descriptions of tensors, data. Everything that the
 * format requires is checked against the file's size before it is used; nothing is copied. The
 * layout is that of ggml's docs/gguf.md. */
#ifndef BY_FORMATS_GGUF_FILE_H
#define BY_FORMATS_GGUF_FILE_H

#include "base/base.h"
#include "base/name_table.h"

/* Types of values. */
typedef enum by__format_gguf_kind {
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
} by__format_gguf_kind;

typedef struct by__format_gguf_pair {
    char *key;
    by__format_gguf_kind kind; /* type of the value, or of the elements of an array */
    bool is_array;
    uint64_t count;      /* number of elements; 1 for a scalar */
    const uint8_t *data; /* the first element, in the file */
} by__format_gguf_pair;

#define BY__GGUF_MAX_RANK 4

typedef struct by__format_gguf_description {
    char *name;
    int rank;
    int64_t size[BY__GGUF_MAX_RANK]; /* innermost first */
    uint32_t type;
    uint64_t bytes;
    const uint8_t *data;
} by__format_gguf_description;

typedef struct by__format_gguf_file {
    by__format_gguf_pair *pairs;
    size_t pair_count;
    by__format_gguf_description *tensors;
    size_t tensor_count;
    by__name_table keys;  /* index of the pairs by key */
    by__name_table names; /* index of the tensors by name */
} by__format_gguf_file;

/* Returns true if a file begins with GGUF's magic bytes. */
bool by__format_gguf_is_file(const char *path);
/* Checks a whole file in memory, which must outlive `out`; `name` is used in messages. BY_EFORMAT
 * names the pair or the tensor and the problem. */
by_status by__format_gguf_parse(by__format_gguf_file *out, const char *name, const uint8_t *data,
                                size_t size, by_error *error);
void by__format_gguf_free(by__format_gguf_file *file);

/* The pair with a key; NULL: there is none. */
const by__format_gguf_pair *by__format_gguf_find(const by__format_gguf_file *file, const char *key);
/* Read the value of a key. Return false if it is missing, of another type, or (whole) negative. */
bool by__format_gguf_whole(const by__format_gguf_file *file, const char *key, uint64_t *out);
bool by__format_gguf_real(const by__format_gguf_file *file, const char *key, double *out);
bool by__format_gguf_bool(const by__format_gguf_file *file, const char *key, bool *out);
bool by__format_gguf_text(const by__format_gguf_file *file, const char *key, const char **out,
                          size_t *length);
/* Returns true if a string value equals `text`. */
bool by__format_gguf_is(const by__format_gguf_file *file, const char *key, const char *text);
/* An array with elements of this type; NULL: there is none. */
const by__format_gguf_pair *by__format_gguf_array(const by__format_gguf_file *file, const char *key,
                                                  by__format_gguf_kind kind);
/* Element i of an array of numbers. */
int32_t by__format_gguf_i32_at(const by__format_gguf_pair *array, uint64_t i);
float by__format_gguf_f32_at(const by__format_gguf_pair *array, uint64_t i);
/* Reads the string at *at and advances *at past it. */
const char *by__format_gguf_next_text(const uint8_t **at, size_t *length);

#endif
