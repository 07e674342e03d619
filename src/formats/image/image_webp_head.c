#include <string.h>

#include "formats/image/image_parts.h"

enum { riff = 12, chunk = 8 }; /* bytes before the first chunk, and before the data of a chunk */

static uint32_t little(const uint8_t *at, size_t bytes)
{
    uint32_t out = 0;
    for (size_t i = 0; i < bytes; i++) {
        out |= (uint32_t)at[i] << (8 * i);
    }
    return out;
}

bool by__format_image_is_webp(const uint8_t *data, size_t size)
{
    return size >= riff && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

bool by__format_webp_parse(by__format_webp_head *out, const uint8_t *data, size_t size)
{
    const uint8_t *in = data + riff + chunk;
    size_t rest = size < riff + chunk ? 0 : size - riff - chunk;
    if (!by__format_image_is_webp(data, size) || rest < 5) {
        return false;
    }
    *out = (by__format_webp_head){.is_animated = false};
    if (memcmp(data + riff, "VP8L", 4) == 0) { /* without loss */
        uint32_t bits = little(in + 1, 4);
        out->width = (bits & 0x3fff) + 1;
        out->height = (bits >> 14 & 0x3fff) + 1;
        return in[0] == 0x2f;
    }
    if (rest < 10) {
        return false;
    }
    if (memcmp(data + riff, "VP8 ", 4) == 0) { /* a key frame, with its start code */
        out->width = little(in + 6, 2) & 0x3fff;
        out->height = little(in + 8, 2) & 0x3fff;
        return (in[0] & 1) == 0 && memcmp(in + 3, "\x9d\x01\x2a", 3) == 0;
    }
    out->is_animated = (in[0] & 2) != 0;
    out->width = (int64_t)little(in + 4, 3) + 1;
    out->height = (int64_t)little(in + 7, 3) + 1;
    return memcmp(data + riff, "VP8X", 4) == 0; /* with further parts */
}
