/* CRC-32 in a build without zlib: a bit at a time. */
#include "base/wire/crc32.h"

#define POLYNOMIAL 0xedb88320u

uint32_t by__crc32(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
        }
    }
    return ~crc;
}

const char *by__crc32_library(void)
{
    return NULL;
}
