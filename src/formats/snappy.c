#include <snappy-c.h>

#include "formats/parquet_codec.h"

by_status by__format_snappy_decompress(bool *done, uint8_t *out, size_t out_size,
                                       const uint8_t *data, size_t size, const char *name,
                                       by_error *error)
{
    size_t found;
    BY_UNUSED(name);
    BY_UNUSED(error);
    *done = snappy_uncompressed_length((const char *)data, size, &found) == SNAPPY_OK &&
            found == out_size &&
            snappy_uncompress((const char *)data, size, (char *)out, &found) == SNAPPY_OK;
    return BY_OK;
}
