/* Resizes and crops images of any size to a model's input, as preprocessor_config.json of
 * transformers specifies. */
#ifndef BY_FORMATS_IMAGE_IMAGE_FIT_H
#define BY_FORMATS_IMAGE_IMAGE_FIT_H

#include "banyan/formats.h"
#include "base/base.h"

/* The longest side of an image that is resized. */
#define BY__IMAGE_SIDE 65535

/* Parses such a file: "do_resize", "resample" (2, bilinear, or 3, bicubic), and "size" with height
 * and width, or with "shortest_edge" and then "do_center_crop" and "crop_size". Anything else gives
 * BY_RESIZE_NONE. height and width are 0 if the file does not set them. */
void by__format_image_fit_parse(by_image_fit *out, const char *text, size_t length);

/* Checks the size of an image. BY_EARG: `fit` does not resize and has another size, or a side is
 * longer than BY__IMAGE_SIDE. */
by_status by__format_image_fit_check(const by_image_fit *fit, int64_t height, int64_t width,
                                     by_error *error);
/* Fits planes u8 [channels, height, width] into `out`, u8 [channels, fit->height, fit->width]. The
 * bits are those of Pillow's Image.resize, whose filters widen with the scale when shrinking
 * (antialiasing), and of torchvision's Resize and CenterCrop. BY_EARG as above. */
by_status by__format_image_fit(uint8_t *out, const by_image_fit *fit, int64_t channels,
                               const uint8_t *pixels, int64_t height, int64_t width,
                               by_error *error);
/* The same of the classes of an image's pixels, each of which is that of the nearest pixel. */
by_status by__format_image_fit_classes(uint8_t *out, const by_image_fit *fit,
                                       const uint8_t *classes, int64_t height, int64_t width,
                                       by_error *error);

#endif
