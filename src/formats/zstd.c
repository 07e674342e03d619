#include <zstd.h>

#include "formats/parquet_codec.h"

by_status by__format_zstd_decompress(bool *done, uint8_t *out, size_t out_size, const uint8_t *data,
                                     size_t size, const char *name, by_error *error)
{
    BY_UNUSED(name);
    BY_UNUSED(error);
    *done = ZSTD_decompress(out, out_size, data, size) == out_size;
    return BY_OK;
}
