/* Mean and standard deviation of the pixels of each channel, as in preprocessor_config.json of
 * transformers: a model's input is (pixel / 255 - mean) / deviation. */
#ifndef BY_DATA_LOADER_PIXEL_SCALES_H
#define BY_DATA_LOADER_PIXEL_SCALES_H

#include "base/base.h"

typedef struct by__loader_pixel_scales {
    size_t channels;
    float *mean; /* [channels] */
    float *deviation;
} by__loader_pixel_scales;

/* Allocates zeros; call by__loader_pixel_scales_free also on failure. */
by_status by__loader_pixel_scales_allocate(by__loader_pixel_scales *scales, size_t channels,
                                           by_error *error);
void by__loader_pixel_scales_free(by__loader_pixel_scales *scales);
/* Parses "image_mean" and "image_std". BY_EFORMAT names the problem; call
 * by__loader_pixel_scales_free also on failure. */
by_status by__loader_pixel_scales_parse(by__loader_pixel_scales *scales, const char *path,
                                        const char *text, size_t length, by_error *error);

#endif
