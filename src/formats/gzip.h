/* gzip files (RFC 1952), decompressed as a whole by zlib. */
#ifndef BY_FORMATS_GZIP_H
#define BY_FORMATS_GZIP_H

#include "base/base.h"

/* Returns true if the data begin with gzip's magic bytes. */
static inline bool by__format_gzip_is(const uint8_t *data, size_t size)
{
    return size >= 3 && data[0] == 0x1f && data[1] == 0x8b && data[2] == 8;
}
/* Decompresses all members, concatenated. Freed with free(). BY_EFORMAT: damaged (zlib checks the
 * CRC), truncated, or more than `max` bytes. */
by_status by__format_gzip_inflate(uint8_t **out, size_t *out_size, const char *name,
                                  const uint8_t *data, size_t size, size_t max, by_error *error);
/* The same, written to an open file piece by piece; `path` is that of the file. */
by_status by__format_gzip_to_file(int file, const char *path, const char *name, const uint8_t *data,
                                  size_t size, by_error *error);
/* Decompresses data of deflate (RFC 1951) alone, which make exactly `size` bytes of `out`.
 * BY_EFORMAT: damaged, or more or fewer bytes. */
by_status by__format_gzip_inflate_raw(uint8_t *out, size_t size, const char *name,
                                      const uint8_t *data, size_t data_size, by_error *error);

#endif
