/* The answer of S3 to ListObjectsV2 (remote_listing.c). */
#ifndef BY_REMOTE_REMOTE_LISTING_H
#define BY_REMOTE_REMOTE_LISTING_H

#include "remote/remote.h"
#include "remote/remote_transfer.h"

typedef struct by__remote_object {
    const char *key;
    uint64_t size;
    const char *tag;
} by__remote_object;

/* Gives the objects of a page to `take`. *next: what the next page continues from, freed by the
 * caller; NULL: it is the last. `name` is for messages. BY_EFORMAT: it is no such answer. */
by_status by__remote_listing_parse(const char *text, size_t size, const char *name,
                                   by_status (*take)(void *user, const by__remote_object *object,
                                                     by_error *error),
                                   void *user, char **next, by_error *error);

#endif
