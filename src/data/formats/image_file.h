/* Images as clients send them: JPEG and PNG, decoded by libjpeg-turbo and libpng. */
#ifndef BY_DATA_IMAGE_FILE_H
#define BY_DATA_IMAGE_FILE_H

#include "base/base.h"

/* Decodes an image into u8 [channels, height, width], 1 or 3 channels: grey or RGB, into which the
 * library converts other ones; alpha is laid on black. Nothing is allocated for an image of another
 * size. BY_EFORMAT: the data are neither JPEG nor PNG, or are damaged; BY_EARG: another height or
 * width. */
by_status by__image_decode(uint8_t *out, int64_t channels, int64_t height, int64_t width,
                           const uint8_t *data, size_t size, by_error *error);

#endif
