/* Data compressed by zstd: pages of Parquet, the kernels inside the program. */
#ifndef BY_BASE_WIRE_ZSTD_H
#define BY_BASE_WIRE_ZSTD_H

#include "base/base.h"

/* The bytes that data decompresses to, as it says; 0: it does not say, or is not zstd's, or the
 * program was built without zstd. */
size_t by__zstd_bytes(const uint8_t *data, size_t size);
/* Decompresses `size` bytes to exactly `out_size`. *done: false if they are damaged. BY_ECONFIG:
 * the program was built without zstd; `name` is the data's, for the message. */
by_status by__zstd_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                              size_t size, const char *name, by_error *error);

#endif
