/* npy files: shards of tokens, one axis of unsigned integers, are read and written, as
 * numpy.load(mmap_mode="r") reads them; arrays of any shape are read.
 *
 * Format: numpy/lib/_format_impl.py: magic, version, header length, a Python dictionary literal
 * padded so that the elements start at a multiple of 64, then the elements. Token shards are '<u2',
 * '<u4' or '<u8'. Always in C order, with nothing after the elements. */
#ifndef BY_FORMATS_NPY_H
#define BY_FORMATS_NPY_H

#include "base/base.h"
#include "formats/array_file.h"

typedef struct by__format_npy_info {
    unsigned width; /* bytes of an element: 2, 4 or 8 */
    uint64_t count; /* number of elements */
    size_t offset;  /* of the first element in the file; a multiple of `width` */
} by__format_npy_info;

/* Checks a whole file in memory. BY_EFORMAT names the file, the value found and the value
 * expected. */
by_status by__format_npy_parse(by__format_npy_info *out, const char *name, const uint8_t *data,
                               size_t size, by_error *error);

/* The same for integers and floating-point numbers of any shape and byte order. */
by_status by__format_npy_parse_array(by__format_array_view *out, const char *name,
                                     const uint8_t *data, size_t size, by_error *error);

/* Opens a file for reading and checks its header against its size. The caller closes *fd. */
by_status by__format_npy_open(int *fd, by__format_npy_info *out, const char *path, by_error *error);

/* Writes a file sequentially, elements of 1, 2, 4 or 8 bytes: the element count is put into the
 * header at the end. */
typedef struct by__format_npy_writer by__format_npy_writer;

by_status by__format_npy_writer_open(by__format_npy_writer **out, const char *path, unsigned width,
                                     by_error *error);
/* Appends values, each of which must fit in the width. */
by_status by__format_npy_writer_add_u32(by__format_npy_writer *writer, const uint32_t *values,
                                        size_t count, by_error *error);
by_status by__format_npy_writer_add_u64(by__format_npy_writer *writer, const uint64_t *values,
                                        size_t count, by_error *error);
/* Writes the header and syncs the file; `hash` is set to the XXH3-128 of the elements' bytes. The
 * writer must still be closed. */
by_status by__format_npy_writer_finish(by__format_npy_writer *writer, char hash[33],
                                       by_error *error);
void by__format_npy_writer_close(by__format_npy_writer **writer);

#endif
