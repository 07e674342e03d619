/* gzip files (RFC 1952), inflated as a whole by zlib. */
#ifndef BY_DATA_FORMATS_GZIP_H
#define BY_DATA_FORMATS_GZIP_H

#include "base/base.h"

/* Whether the content begins as gzip's does. */
bool by__gzip_is(const uint8_t *data, size_t size);
/* Inflates all members, one behind the other. Freed with free(). BY_EFORMAT: damaged (zlib checks
 * the CRC), cut short, or more than `max` bytes. */
by_status by__gzip_inflate(uint8_t **out, size_t *out_size, const char *name, const uint8_t *data,
                           size_t size, size_t max, by_error *error);

#endif
