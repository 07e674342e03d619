/* Cache of recently fetched features: a direct-mapped table indexed by the hash of an entity's
 * name, so that memory is bounded and new entries replace old ones. */
#ifndef BY_SERVE_FEATURES_FEATURE_CACHE_H
#define BY_SERVE_FEATURES_FEATURE_CACHE_H

#include "serve/features/feature_store.h"

typedef struct by__feature_cache by__feature_cache;

/* Opens a cache of `places` entities, each kept for `seconds`. *out is NULL if either is 0. */
by_status by__feature_cache_open(by__feature_cache **out, size_t places, double seconds,
                                 by_error *error);
void by__feature_cache_close(by__feature_cache **cache);
/* Fills `count` empty slots with the cached ones of a name; false: not cached. cache may be NULL:
 * nothing is found. */
bool by__feature_cache_find(const by__feature_cache *cache, const char *name,
                            by__feature_slot *slots, size_t count);
/* Caches slots with new references to their values; does nothing when memory is exhausted. */
void by__feature_cache_put(by__feature_cache *cache, const char *name,
                           const by__feature_slot *slots, size_t count);

#endif
