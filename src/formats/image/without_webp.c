#include "base/build.h"
#include "formats/image/image_parts.h"

by_status by__format_image_decode_webp(by__format_image_decoding *d, const uint8_t *data,
                                       size_t size, by_error *error)
{
    BY_UNUSED(d);
    BY_UNUSED(data);
    BY_UNUSED(size);
    return by__build_lacks(BY_BUILD_WEBP, "an image in WebP", error);
}
