/* The codecs of Parquet's pages, each in a file of its own: where a build lacks its library, one
 * that says so. */
#ifndef BY_FORMATS_PARQUET_CODEC_H
#define BY_FORMATS_PARQUET_CODEC_H

#include "base/base.h"

/* Decompress `size` bytes to exactly `out_size`. *done: false if they are damaged. BY_ECONFIG: the
 * program was built without the codec; `name` is the file's, for the message. */
by_status by__format_gzip_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                                     size_t size, const char *name, by_error *error);
by_status by__format_snappy_decompress(bool *done, uint8_t *out, size_t out_size,
                                       const uint8_t *data, size_t size, const char *name,
                                       by_error *error);
/* that of zstd: base/wire/zstd.h */

#endif
