/* Files that hold one array: IDX, npy. What a parser finds is a view of the file in memory;
 * by__array_convert makes from it what a batch holds. */
#ifndef BY_DATA_FORMATS_ARRAY_FILE_H
#define BY_DATA_FORMATS_ARRAY_FILE_H

#include "banyan/dtype.h"
#include "banyan/shape.h"
#include "base/base.h"

typedef enum by__element {
    BY__ELEMENT_U8 = 0,
    BY__ELEMENT_I8,
    BY__ELEMENT_U16,
    BY__ELEMENT_I16,
    BY__ELEMENT_U32,
    BY__ELEMENT_I32,
    BY__ELEMENT_U64,
    BY__ELEMENT_I64,
    BY__ELEMENT_F32,
    BY__ELEMENT_F64,
    BY__ELEMENT_COUNT
} by__element;

typedef struct by__array_view {
    by__element element;
    bool big_endian;
    by_shape shape;      /* all elements: their bytes fit in size_t */
    const uint8_t *data; /* in the file's bytes; of any alignment */
} by__array_view;

size_t by__element_size(by__element element);
/* The type that a batch holds such elements in: u8 for u8, i32 for other integers, f32 for floating
 * point. */
by_dtype by__element_dtype(by__element element);
/* A view of `size` bytes behind `offset`, of which the shape must take all; names the file in
 * errors. BY_EFORMAT: the bytes are fewer or more, or the product of the extents overflows. */
by_status by__array_view_check(const by__array_view *view, const char *name, size_t offset,
                               size_t size, by_error *error);
/* Writes all elements as u8, i32 or f32 (rounded to nearest). BY_EFORMAT: an integer does not fit,
 * or a fraction would be cut off; names its place. */
by_status by__array_convert(void *out, by_dtype dtype, const by__array_view *view, const char *name,
                            by_error *error);

/* Bytes of a file of arrays or rows, inflated, at most. */
#define BY__ARRAY_FILE_LIMIT ((size_t)1 << 36)
/* A file's content, inflated if it is compressed with gzip. Freed with free(). BY_EFORMAT: more
 * than `max` bytes, or damaged. */
by_status by__array_file_read(uint8_t **out, size_t *size, const char *path, size_t max,
                              by_error *error);
/* Parses by the first bytes: npy or IDX. */
by_status by__array_file_parse(by__array_view *out, const char *name, const uint8_t *data,
                               size_t size, by_error *error);

#endif
