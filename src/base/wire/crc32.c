/* CRC-32, by zlib. */
#include <zlib.h>

#include "base/wire/crc32.h"

uint32_t by__crc32(uint32_t crc, const void *data, size_t n)
{
    return (uint32_t)crc32(crc, data, (uInt)n);
}

const char *by__crc32_library(void)
{
    return zlibVersion();
}
