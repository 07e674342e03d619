/* The checksum of gzip, PNG, Parquet and W&B's files (ISO 3309). */
#ifndef BY_BASE_WIRE_CRC32_H
#define BY_BASE_WIRE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is that of (0: nothing), followed by n bytes. n is below 4 GiB. */
uint32_t by__crc32(uint32_t crc, const void *data, size_t n);
/* Returns the version of the library that computes it; NULL: there is none. */
const char *by__crc32_library(void);

#endif
