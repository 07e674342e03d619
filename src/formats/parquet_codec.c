/* Decompresses pages with the codecs of their files. */
#include "formats/parquet_codec.h"

#include "base/wire/zstd.h"
#include "formats/parquet.h"

enum { CODEC_SNAPPY = 1, CODEC_GZIP, CODEC_ZSTD = 6, CODEC_COUNT = 8 };

static const char *const names[CODEC_COUNT] = {"none",   "snappy", "gzip", "LZO",
                                               "Brotli", "LZ4",    "zstd", "LZ4_RAW"};

by_status by__format_parquet_decompress(int codec, uint8_t *out, size_t out_size,
                                        const uint8_t *data, size_t size, const char *name,
                                        by_error *error)
{
    bool done = false;
    switch (codec) {
    case CODEC_GZIP:
        BY_TRY(by__format_gzip_decompress(&done, out, out_size, data, size, name, error));
        break;
    case CODEC_SNAPPY:
        BY_TRY(by__format_snappy_decompress(&done, out, out_size, data, size, name, error));
        break;
    case CODEC_ZSTD:
        BY_TRY(by__zstd_decompress(&done, out, out_size, data, size, name, error));
        break;
    default:
        return by_error_set(error, BY_EFORMAT,
                            "%s: pages are compressed by %s, which is not read here; write the "
                            "file with snappy, gzip or zstd, or without compression",
                            name, codec >= 0 && codec < CODEC_COUNT ? names[codec] : "?");
    }
    return done ? BY_OK
                : by_error_set(error, BY_EFORMAT, "%s: damaged Parquet file: a page by %s", name,
                               names[codec]);
}
