/* Pictures that are decoded when they are used (picture_use.c). */
#ifndef BY_DATA_IMAGE_PICTURE_USE_H
#define BY_DATA_IMAGE_PICTURE_USE_H

#include "data/image/image_pages.h"
#include "data/loader/array_set.h"
#include "remote/remote.h"

/* Opens a set of the pictures files->images[kept[i]], i < count, with the labels, which are taken
 * over, also on failure; all are fitted by `fit`. */
by_status by__image_pictures_use(by_array_set **out, const by_image_files *files,
                                 const by_image_fit *fit, const size_t *kept, size_t count,
                                 int32_t *labels, by_error *error);
/* Reads the bytes of a picture of the files. remote: reads paths that are URLs; pages: keeps those
 * that are decompressed for it. */
by_status by__image_picture_bytes(uint8_t **data, size_t *size, by__remote *remote,
                                  by__image_pages *pages, const char *path,
                                  const by_image_range *range, by_error *error);
/* How messages name a picture: its file, and of one in a shard the sample and its place. */
#define BY__IMAGE_NAME 512
const char *by__image_picture_name(char out[BY__IMAGE_NAME], const char *path,
                                   const by_image_range *range);
/* Sets the error for a picture that cannot be decoded, and says where it lies and what to do. */
by_status by__image_picture_refuse(const char *path, const by_image_range *range,
                                   const by_error *why, const char *advice, by_error *error);
#define BY__IMAGE_MAY_SKIP                                                                         \
    " (data.corrupt=skip, or --skip of eval and predict, leaves out what cannot be read)"

#endif
