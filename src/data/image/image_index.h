/* Indexes of shards, kept between runs (image_index.c). */
#ifndef BY_DATA_IMAGE_IMAGE_INDEX_H
#define BY_DATA_IMAGE_IMAGE_INDEX_H

#include "formats/shards/shard_content.h"
#include "remote/remote.h"

/* What tells a version of a shard: its path, size and time of change, or its URL, size and tag.
 * Freed with free(); NULL: it cannot be told, or is read faster than an index. */
by_status by__image_index_key(char **out, const char *path, const by__remote_file *remote,
                              by_error *error);
/* Maps the index of a shard of `size` bytes in a directory; false: there is none of this key that
 * is whole. */
bool by__image_index_open(by__map *out, const char *directory, const char *key, uint64_t size);
/* Keeps an index. It is not an error if it cannot be written. */
void by__image_index_save(by__format_shard_index *index, const char *directory, const char *key);

#endif
