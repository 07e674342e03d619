/* Decompresses pages with the libraries of the codecs. */
#include <limits.h>

#include <zlib.h>
#ifdef BY_SNAPPY
#include <snappy-c.h>
#endif
#ifdef BY_ZSTD
#include <zstd.h>
#endif

#include "formats/parquet.h"

enum { CODEC_NONE = 0, CODEC_SNAPPY, CODEC_GZIP, CODEC_ZSTD = 6, CODEC_COUNT = 8 };

static const char *const names[CODEC_COUNT] = {"none",   "snappy", "gzip", "LZO",
                                               "Brotli", "LZ4",    "zstd", "LZ4_RAW"};

static bool inflate_gzip(uint8_t *out, size_t out_size, const uint8_t *data, size_t size)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)size,
                       .next_out = out,
                       .avail_out = (uInt)out_size};
    if (size > UINT_MAX || out_size > UINT_MAX || inflateInit2(&stream, 32 + MAX_WBITS) != Z_OK) {
        return false;
    }
    int result = inflate(&stream, Z_FINISH);
    bool done = result == Z_STREAM_END && stream.avail_out == 0;
    (void)inflateEnd(&stream);
    return done;
}

by_status by__format_parquet_decompress(int codec, uint8_t *out, size_t out_size,
                                        const uint8_t *data, size_t size, const char *name,
                                        by_error *error)
{
    bool done = false;
    switch (codec) {
    case CODEC_GZIP:
        done = inflate_gzip(out, out_size, data, size);
        break;
#ifdef BY_SNAPPY
    case CODEC_SNAPPY: {
        size_t found;
        done = snappy_uncompressed_length((const char *)data, size, &found) == SNAPPY_OK &&
               found == out_size &&
               snappy_uncompress((const char *)data, size, (char *)out, &found) == SNAPPY_OK;
        break;
    }
#endif
#ifdef BY_ZSTD
    case CODEC_ZSTD:
        done = ZSTD_decompress(out, out_size, data, size) == out_size;
        break;
#endif
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
