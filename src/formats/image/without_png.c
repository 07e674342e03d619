#include "base/build.h"
#include "formats/image/image_parts.h"
#include "formats/image/png_write.h"

by_status by__format_image_decode_png(by__format_image_decoding *d, const uint8_t *data,
                                      size_t size, by_error *error)
{
    BY_UNUSED(d);
    BY_UNUSED(data);
    BY_UNUSED(size);
    return by__build_lacks(BY_BUILD_PNG, "an image in PNG", error);
}

by_status by__format_image_write_png(by_string *out, const uint8_t *rgb, int64_t height,
                                     int64_t width, by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(rgb);
    BY_UNUSED(height);
    BY_UNUSED(width);
    return by__build_lacks(BY_BUILD_PNG, "a grid of images in PNG", error);
}

by_status by__format_png_encode(uint8_t **out, size_t *size, const by__format_image_pixels *image,
                                by_error *error)
{
    BY_UNUSED(out);
    BY_UNUSED(size);
    BY_UNUSED(image);
    return by__build_lacks(BY_BUILD_PNG, "writing an image as PNG", error);
}
