/* Pictures in folders of S3 (image_remote.c). */
#ifndef BY_DATA_IMAGE_IMAGE_REMOTE_H
#define BY_DATA_IMAGE_IMAGE_REMOTE_H

#include "data/image/image_folder.h"

/* Adds what is in a folder of S3, in the order of a local one: its shards, or the pictures of a
 * folder for each class, or with `classes` false any. out->remote is open. */
by_status by__image_remote_add(by__image_folder *out, const char *url, bool classes,
                               by_error *error);

#endif
