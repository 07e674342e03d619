/* JPEG, PNG and WebP images from clients, decoded by libjpeg-turbo, libpng and libwebp. */
#ifndef BY_FORMATS_IMAGE_IMAGE_FILE_H
#define BY_FORMATS_IMAGE_IMAGE_FILE_H

#include "formats/image/image_fit.h"

/* Most pixels of an image that is decoded, of one's own data and of a request: a small file can
 * contain any number, and each thread that decodes needs memory for all of them. */
#define BY__IMAGE_PIXELS         ((int64_t)1 << 26)
#define BY__REQUEST_IMAGE_PIXELS ((int64_t)1 << 24)

/* Returns true if the data begin as a JPEG, PNG or WebP does. */
bool by__format_image_is_file(const uint8_t *data, size_t size);
/* Most pixels of the images of one request: what a worker decodes in about three seconds, if they
 * are interlaced. */
#define BY__IMAGES_PIXELS (4 * BY__REQUEST_IMAGE_PIXELS)

/* Finds the size of an image in its head. Returns false if it is not there. */
bool by__format_image_size(int64_t *height, int64_t *width, const uint8_t *data, size_t size);
/* Decodes an image into u8 [channels, fit->height, fit->width] with 1 or 3 channels, grey or RGB:
 * the values of Pillow's convert("L") and convert("RGB"), which torchvision's loader uses. So alpha
 * is left out, not composited; gamma and profiles of colours, and the orientation in EXIF, are
 * ignored; grey of 16 bits is not scaled: above 255 it is 255. If `fit` does not resize, an image
 * of another size is refused before memory is allocated for it. *out is freed with free(); its
 * height and width are those of `fit`, or, if these are 0, the image's own. BY_EFORMAT: the data
 * are neither JPEG, PNG nor WebP, are an animation, or are damaged; BY_EARG: a size that `fit` does
 * not accept, or more than BY__IMAGE_PIXELS. */
by_status by__format_image_decode(uint8_t **out, int64_t *height, int64_t *width, int64_t channels,
                                  const by_image_fit *fit, const uint8_t *data, size_t size,
                                  by_error *error);
/* The same of an image from a client, with at most BY__REQUEST_IMAGE_PIXELS. */
by_status by__format_image_decode_request(uint8_t **out, int64_t *height, int64_t *width,
                                          int64_t channels, const by_image_fit *fit,
                                          const uint8_t *data, size_t size, by_error *error);
/* The same of one's own image as it is, for who needs less of it: the sides of a JPEG are divided
 * by `reduction`, 1, 2, 4 or 8, and rounded up, and rows from `rows` on of the result are 0. Others
 * are decoded whole. */
by_status by__format_image_decode_reduced(uint8_t **out, int64_t *height, int64_t *width,
                                          int64_t channels, unsigned reduction, int64_t rows,
                                          const uint8_t *data, size_t size, by_error *error);

/* Decodes the classes of the pixels of an image, u8 [height, width]: a PNG with a palette, whose
 * indexes they are, or grey of up to 8 bits, as its numbers are stored. Freed with free(). */
by_status by__format_image_decode_classes(uint8_t **out, int64_t *height, int64_t *width,
                                          const uint8_t *data, size_t size, by_error *error);

#endif
