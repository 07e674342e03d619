#include <stdlib.h>

#include <webp/decode.h>

#include "formats/image/image_parts.h"

by_status by__format_image_decode_webp(by__format_image_decoding *d, const uint8_t *data,
                                       size_t size, by_error *error)
{
    by__format_webp_head head;
    int width = 0;
    int height = 0;
    uint8_t *rgb;
    if (!by__format_webp_parse(&head, data, size)) {
        return by_error_set(error, BY_EFORMAT, "the WebP is damaged: its head is");
    }
    if (head.is_animated) {
        return by_error_set(error, BY_EFORMAT,
                            "the WebP is animated: convert it to pictures of its own");
    }
    BY_TRY(by__format_image_begin(d, head.height, head.width, error));
    BY_TRY(by__alloc((void **)&rgb, (size_t)(head.height * head.width), 3, "an image", error));
    size_t bytes = (size_t)(head.height * head.width) * 3;
    bool good = WebPGetInfo(data, size, &width, &height) != 0 && width == head.width &&
                height == head.height &&
                WebPDecodeRGBInto(data, size, rgb, bytes, 3 * width) != NULL;
    for (int64_t y = 0; y < head.height && good; y++) {
        by__format_image_put_rgb(d, rgb + y * head.width * 3, 3, y);
    }
    free(rgb);
    return good ? BY_OK
                : by_error_set(error, BY_EFORMAT, "the WebP is damaged: it cannot be decoded");
}
