/* Pictures in shards, files that hold many of them: which there are, and in which class
 * (image_shard.c). */
#ifndef BY_DATA_IMAGE_IMAGE_SHARD_H
#define BY_DATA_IMAGE_IMAGE_SHARD_H

#include "data/image/image_folder.h"

/* Whether a file is a shard, by its name or how it begins, or a folder has one, as its names say.
 * Of a URL, its name says it. */
bool by__image_is_shard(const char *path);
/* Adds the pictures of a shard, in its order, or of all shards in a folder by their names.
 * labelled: each must have a label, a number or the name of a class that is fixed. BY_EFORMAT names
 * the sample. */
by_status by__image_shard_add(by__image_folder *out, const char *path, bool labelled,
                              by_error *error);
/* The same of several paths, in threads; the pictures are in the order of the paths. A URL may name
 * a range of shards, NAME-{000..123}.tar. */
by_status by__image_shard_add_all(by__image_folder *out, const char *const *paths, size_t count,
                                  bool labelled, by_error *error);

#endif
