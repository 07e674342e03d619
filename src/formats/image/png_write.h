/* Images as PNG, by libpng. */
#ifndef BY_FORMATS_IMAGE_PNG_WRITE_H
#define BY_FORMATS_IMAGE_PNG_WRITE_H

#include "base/base.h"

/* An image to write: u8 [channels, height, width] of 1 or 3 channels, grey or RGB, or the indexes
 * of colours. */
typedef struct by__format_image_pixels {
    const uint8_t *pixels;
    int64_t channels;
    int64_t height;
    int64_t width;
    const uint8_t (*palette)[3]; /* [colours]; NULL: none */
    int colours;
    bool packed; /* [height, width, channels] instead */
} by__format_image_pixels;

/* Encodes it as a PNG; the same image has the same bytes. Freed with free().
 * BY_EARG: a size that PNG does not have; BY_ECONFIG: the program was built without libpng. */
by_status by__format_png_encode(uint8_t **out, size_t *size, const by__format_image_pixels *image,
                                by_error *error);

/* Appends a PNG of pixels u8 [height, width, 3], RGB; errors as above. */
by_status by__format_image_write_png(by_string *out, const uint8_t *rgb, int64_t height,
                                     int64_t width, by_error *error);

#endif
