/* Files that hold one array: IDX, npy. A parser returns a view of the file in memory;
 * by__format_array_convert converts it to what a batch holds. */
#ifndef BY_FORMATS_ARRAY_FILE_H
#define BY_FORMATS_ARRAY_FILE_H

#include "banyan/dtype.h"
#include "banyan/shape.h"
#include "base/base.h"

typedef enum by__format_element {
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
} by__format_element;

typedef struct by__format_array_view {
    by__format_element element;
    bool big_endian;
    by_shape shape;      /* of all elements: their bytes fit in size_t */
    const uint8_t *data; /* in the file's byte order; of any alignment */
} by__format_array_view;

size_t by__format_element_size(by__format_element element);
/* The dtype of a batch for such elements: u8 for u8, i32 for other integers, f32 for floating
 * point. */
by_dtype by__format_element_dtype(by__format_element element);
/* Checks that the elements of a view take exactly the `size` bytes after `offset`; `name` is the
 * file, for errors. BY_EFORMAT: there are fewer or more bytes, or the product of the extents
 * overflows. */
by_status by__format_array_view_check(const by__format_array_view *view, const char *name,
                                      size_t offset, size_t size, by_error *error);
/* Converts all elements to u8, i32 or f32 (rounded to nearest). BY_EFORMAT: an integer does not
 * fit, or a fraction would be truncated; the message gives its index. */
by_status by__format_array_convert(void *out, by_dtype dtype, const by__format_array_view *view,
                                   const char *name, by_error *error);

/* Largest size in bytes, after decompression, of a file of arrays or rows. */
#define BY__ARRAY_FILE_LIMIT ((size_t)1 << 36)
/* Reads a file, decompressed if it is gzip, or an array of an archive, FILE.npz/NAME. Freed with
 * free(). BY_EFORMAT: more than `max` bytes, or damaged. */
by_status by__format_array_file_read(uint8_t **out, size_t *size, const char *path, size_t max,
                                     by_error *error);
/* Returns true if the data begin as npy or IDX does. */
bool by__format_array_is_file(const uint8_t *data, size_t size);
/* Parses npy or IDX, detected by the first bytes. */
by_status by__format_array_file_parse(by__format_array_view *out, const char *name,
                                      const uint8_t *data, size_t size, by_error *error);

#endif
