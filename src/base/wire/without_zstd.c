#include "base/build.h"
#include "base/wire/zstd.h"

size_t by__zstd_bytes(const uint8_t *data, size_t size)
{
    BY_UNUSED(data);
    BY_UNUSED(size);
    return 0;
}

by_status by__zstd_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                              size_t size, const char *name, by_error *error)
{
    BY_UNUSED(done);
    BY_UNUSED(out);
    BY_UNUSED(out_size);
    BY_UNUSED(data);
    BY_UNUSED(size);
    return by__build_lacks(BY_BUILD_ZSTD, name, error);
}
