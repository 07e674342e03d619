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
/* Parses the text of such a file: its steps "do_rescale" and "do_normalize" become one mean and one
 * deviation. channels: of the model, 0: it is not known. BY_EFORMAT names the problem; call
 * by__loader_pixel_scales_free also on failure. */
by_status by__loader_pixel_scales_parse(by__loader_pixel_scales *scales, const char *path,
                                        const char *text, size_t length, int64_t channels,
                                        by_error *error);

#endif
