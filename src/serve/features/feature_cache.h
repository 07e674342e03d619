/* Features of entities that were asked for a moment ago: one place for each of the hashes of their
 * names, so that memory is bounded and what is new takes the place of what is old. */
#ifndef BY_SERVE_FEATURE_CACHE_H
#define BY_SERVE_FEATURE_CACHE_H

#include "serve/features/feature_store.h"

typedef struct by__feature_cache by__feature_cache;

/* `places` entities for `seconds` each. *out is NULL where one of both is 0. */
by_status by__feature_cache_open(by__feature_cache **out, size_t places, double seconds,
                                 by_error *error);
void by__feature_cache_close(by__feature_cache **cache);
/* Fills `count` empty slots with what was put under a name. cache may be NULL: nothing is found. */
bool by__feature_cache_find(const by__feature_cache *cache, const char *name,
                            by__feature_slot *slots, size_t count);
/* Remembers slots, with references of its own to their values; without memory for it, nothing. */
void by__feature_cache_put(by__feature_cache *cache, const char *name,
                           const by__feature_slot *slots, size_t count);

#endif
