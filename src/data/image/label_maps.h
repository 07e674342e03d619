/* The classes of the pixels of images: arrays of integers, or a PNG for each picture
 * (label_maps.c). */
#ifndef BY_DATA_IMAGE_LABEL_MAPS_H
#define BY_DATA_IMAGE_LABEL_MAPS_H

#include "banyan/array_set.h"
#include "base/base.h"

/* Most classes: a byte holds them and that there is none. */
#define BY__LABEL_CLASSES 255

/* Reads the maps of pictures, files->labels[kept[i]] for i < shape->dim[0] of files->images, in
 * threads, and fits them to the images' [N, C, H, W]. *out, u8 [N, H, W], is freed with free().
 * BY_EFORMAT, BY_EIO with the path of a file that is wrong, or of another size than its picture. */
by_status by__image_maps_read(uint8_t **out, const by_image_files *files, const int32_t *kept,
                              const by_shape *shape, by_error *error);
/* Converts `count` classes to bytes of a set: one higher, 0 for those that are negative or
 * `ignore`. BY_EFORMAT names `path` and a class that does not fit. */
by_status by__image_maps_convert(uint8_t *out, const int32_t *classes, size_t count, int64_t ignore,
                                 const char *path, by_error *error);
/* The number of pixels of each of `count` maps that have a class. */
void by__image_maps_count(float *out, const uint8_t *maps, size_t count, size_t plane);

#endif
