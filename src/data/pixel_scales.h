/* Mean and deviation of the pixels of each channel, as preprocessor_config.json of transformers has
 * them: a model reads (pixel / 255 - mean) / deviation. */
#ifndef BY_DATA_PIXEL_SCALES_H
#define BY_DATA_PIXEL_SCALES_H

#include "base/base.h"

typedef struct by__pixel_scales {
    size_t channels;
    float *mean; /* [channels] */
    float *deviation;
} by__pixel_scales;

/* Zeros; freed with by__pixel_scales_free also when this fails. */
by_status by__pixel_scales_allocate(by__pixel_scales *scales, size_t channels, by_error *error);
void by__pixel_scales_free(by__pixel_scales *scales);
/* Reads "image_mean" and "image_std" of such a text. BY_EFORMAT names what is wrong with it; freed
 * with by__pixel_scales_free also then. */
by_status by__pixel_scales_parse(by__pixel_scales *scales, const char *path, const char *text,
                                 size_t length, by_error *error);

#endif
