/* What the decoders of image_file.h share (image_file.c): an image is decoded row by row, with the
 * values that Pillow's convert("L") and convert("RGB") have, which torchvision's loader uses. */
#ifndef BY_FORMATS_IMAGE_IMAGE_PARTS_H
#define BY_FORMATS_IMAGE_IMAGE_PARTS_H

#include "formats/image/image_file.h"

/* An image being decoded. */
typedef struct by__format_image_decoding {
    int64_t channels; /* 1 or 3 */
    int64_t most;     /* pixels that are decoded at most; 0: BY__IMAGE_PIXELS */
    const by_image_fit *fit;
    uint8_t *pixels; /* [channels, height, width] */
    int64_t height;
    int64_t width;
    unsigned reduction; /* sides of a JPEG are divided by 1, 2, 4 or 8, rounded up; 0: 1 */
    int64_t rows;       /* of the result that are needed; those behind are 0. 0: all */
    bool stored;        /* of a PNG: one channel of numbers as they are stored, indexes or grey */
} by__format_image_decoding;

/* Allocates the image, if one of this size may be decoded. */
by_status by__format_image_begin(by__format_image_decoding *d, int64_t height, int64_t width,
                                 by_error *error);
/* Puts a row of grey values, or of `step` bytes a pixel of which the first three are RGB. */
void by__format_image_put_grey(const by__format_image_decoding *d, const uint8_t *row, int64_t y);
void by__format_image_put_rgb(const by__format_image_decoding *d, const uint8_t *row, size_t step,
                              int64_t y);

/* What the head of a WebP says (image_webp_head.c). */
typedef struct by__format_webp_head {
    int64_t height;
    int64_t width;
    bool is_animated;
} by__format_webp_head;

bool by__format_image_is_webp(const uint8_t *data, size_t size);
/* Returns false if the head is damaged. Sizes are at most 2^24. */
bool by__format_webp_parse(by__format_webp_head *out, const uint8_t *data, size_t size);

/* image_jpeg.c, image_png.c and image_webp.c. BY_EFORMAT: the data are damaged. */
by_status by__format_image_decode_jpeg(by__format_image_decoding *d, const uint8_t *data,
                                       size_t size, by_error *error);
by_status by__format_image_decode_png(by__format_image_decoding *d, const uint8_t *data,
                                      size_t size, by_error *error);
by_status by__format_image_decode_webp(by__format_image_decoding *d, const uint8_t *data,
                                       size_t size, by_error *error);

#endif
