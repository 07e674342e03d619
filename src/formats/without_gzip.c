#include "base/build.h"
#include "formats/gzip.h"
#include "formats/parquet_codec.h"

by_status by__format_gzip_inflate(uint8_t **out, size_t *out_size, const char *name,
                                  const uint8_t *data, size_t size, size_t max, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(out_size);
    BY_UNUSED(data);
    BY_UNUSED(size);
    BY_UNUSED(max);
    return by__build_lacks(BY_BUILD_ZLIB, name, error);
}

by_status by__format_gzip_to_file(int file, const char *path, const char *name, const uint8_t *data,
                                  size_t size, by_error *error)
{
    BY_UNUSED(file);
    BY_UNUSED(path);
    BY_UNUSED(data);
    BY_UNUSED(size);
    return by__build_lacks(BY_BUILD_ZLIB, name, error);
}

by_status by__format_gzip_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                                     size_t size, const char *name, by_error *error)
{
    BY_UNUSED(done);
    BY_UNUSED(out);
    BY_UNUSED(out_size);
    BY_UNUSED(data);
    BY_UNUSED(size);
    return by__build_lacks(BY_BUILD_ZLIB, name, error);
}

by_status by__format_gzip_inflate_raw(uint8_t *out, size_t size, const char *name,
                                      const uint8_t *data, size_t data_size, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(size);
    BY_UNUSED(data);
    BY_UNUSED(data_size);
    return by__build_lacks(BY_BUILD_ZLIB, name, error);
}
