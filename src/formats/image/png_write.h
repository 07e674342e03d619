/* Images as PNG, by libpng. */
#ifndef BY_FORMATS_IMAGE_PNG_WRITE_H
#define BY_FORMATS_IMAGE_PNG_WRITE_H

#include "base/base.h"

/* Appends a PNG of pixels u8 [height, width, 3], RGB. BY_EARG: a size that PNG does not have;
 * BY_ECONFIG: the program was built without libpng. */
by_status by__format_image_write_png(by_string *out, const uint8_t *rgb, int64_t height,
                                     int64_t width, by_error *error);

#endif
