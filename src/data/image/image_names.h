/* The names of classes that shards of pictures have, and how their labels are numbered by them
 * (image_names.c). */
#ifndef BY_DATA_IMAGE_IMAGE_NAMES_H
#define BY_DATA_IMAGE_IMAGE_NAMES_H

#include "data/image/image_folder.h"

/* What was found in a shard. */
typedef struct by__image_shard_found {
    by__image_folder folder; /* classes: those that the shard names, or those of its texts */
    int32_t *order;          /* of these, by their names; of texts only */
    size_t order_capacity;
    bool declares; /* the shard names its classes */
    bool texts;    /* a label is a text, whose class is one of the folder's */
    bool numbers;  /* a label is a number */
} by__image_shard_found;

void by__image_shard_found_free(by__image_shard_found *found);
/* The class of a label that is a text: one of those that the shard names, or of its texts, which it
 * is added to. BY_EFORMAT, with what is wrong and no more: it is none of the first, or no text. */
by_status by__image_names_class(int32_t *out, by__image_shard_found *found, const char *text,
                                size_t size, by_error *error);
/* If a shard has labels that are texts, the classes of `out` become all that the shards name, in
 * the order of their names, and labels are numbered by them. BY_EFORMAT: a shard has numbers
 * without names. found: those of `count` shards, at `paths`. */
by_status by__image_names_collect(by__image_folder *out, by__image_shard_found *const *found,
                                  const char *const *paths, size_t count, by_error *error);
/* Takes the names of the classes that a shard has, unless they are fixed: the first says which
 * there are. Numbers the labels of a shard by classes that are fixed. */
by_status by__image_names_take(by__image_folder *out, by__image_folder *found, const char *path,
                               by_error *error);

#endif
