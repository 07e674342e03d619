/* Pictures of folders, shards and files, here or remote, in one list (image_list.c). */
#ifndef BY_DATA_IMAGE_IMAGE_LIST_H
#define BY_DATA_IMAGE_IMAGE_LIST_H

#include "data/image/image_folder.h"

/* Lists what the paths name. With `classes` each is a folder of classes, or a shard with labels or
 * a folder of these, and the pictures are mixed (by__image_folder_mix). out->remote is open if one
 * is a URL. */
by_status by__image_list(by__image_folder *out, const char *const *paths, size_t count,
                         bool classes, by_error *error);

#endif
