/* Resizes and crops images of any size to a model's input, as preprocessor_config.json of
 * transformers specifies. */
#ifndef BY_FORMATS_IMAGE_IMAGE_FIT_H
#define BY_FORMATS_IMAGE_IMAGE_FIT_H

#include "banyan/formats.h"
#include "base/base.h"

/* The longest side of an image that is resized. */
#define BY__IMAGE_SIDE 65535

/* Parses the text of such a file: the size and filter that its steps lead to, as the processor that
 * it names takes them. Where images are not resized, height and width are 0 if it sets no size.
 * BY_EFORMAT names the key that asks for what is not built, its value and the way out. */
by_status by__format_image_fit_parse(by_image_fit *out, const char *path, const char *text,
                                     size_t length, by_error *error);

/* Checks the size of an image. BY_EARG: `fit` does not resize and has another size, or a side is
 * longer than BY__IMAGE_SIDE. */
by_status by__format_image_fit_check(const by_image_fit *fit, int64_t height, int64_t width,
                                     by_error *error);
/* Fits planes u8 [channels, height, width] into `out`, u8 [channels, fit->height, fit->width]. The
 * bits are those of Pillow's Image.resize, whose filters widen with the scale when shrinking
 * (antialiasing), and of the center that transformers crops. BY_EARG as above. */
by_status by__format_image_fit(uint8_t *out, const by_image_fit *fit, int64_t channels,
                               const uint8_t *pixels, int64_t height, int64_t width,
                               by_error *error);
/* The same of the classes of an image's pixels, each of which is that of the nearest pixel. */
by_status by__format_image_fit_classes(uint8_t *out, const by_image_fit *fit,
                                       const uint8_t *classes, int64_t height, int64_t width,
                                       by_error *error);

#endif
