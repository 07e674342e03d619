#include <zstd.h>

#include "base/wire/zstd.h"

size_t by__zstd_bytes(const uint8_t *data, size_t size)
{
    unsigned long long bytes = ZSTD_getFrameContentSize(data, size);
    return bytes == ZSTD_CONTENTSIZE_UNKNOWN || bytes == ZSTD_CONTENTSIZE_ERROR ? 0 : (size_t)bytes;
}

by_status by__zstd_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                              size_t size, const char *name, by_error *error)
{
    BY_UNUSED(name);
    BY_UNUSED(error);
    *done = ZSTD_decompress(out, out_size, data, size) == out_size;
    return BY_OK;
}
