/* Reads many JPEG and PNG files into one array (picture_set.c). */
#ifndef BY_DATA_IMAGE_PICTURE_SET_H
#define BY_DATA_IMAGE_PICTURE_SET_H

#include "data/loader/array_set.h"

/* What was read. */
typedef struct by__image_pictures {
    uint8_t *pixels; /* of `shape`, from malloc */
    int32_t *labels; /* of each; NULL: none */
    by_shape shape;  /* [N, C, H, W] */
} by__image_pictures;

/* Reads files->images, with files->classes as labels, in threads; the result does not depend on
 * their number. Without a fit, all have the size of the first. With files->skip, those that cannot
 * be read are left out and added to `damage`. BY_EIO, BY_EFORMAT, BY_EARG with the path of the
 * first file that is wrong. */
by_status by__image_pictures_read(by__image_pictures *out, const by_image_files *files,
                                  by__loader_damage *damage, by_error *error);
/* Opens a set of pictures that are decoded when they are used (files->on_use). Those that are left
 * out are added to `damage`, which with files->skip takes to decode all of them once. */
by_status by__image_pictures_later(by_array_set **out, const by_image_files *files,
                                   by__loader_damage *damage, by_error *error);

#endif
