#include "serve/features/feature_cache.h"

#include <stdlib.h>
#include <string.h>

#include "serve/features/murmur3.h"

typedef struct cached_row {
    char *name;   /* NULL: empty */
    double until; /* by__now */
    size_t count;
    by__feature_slot *slots;
} cached_row;

struct by__feature_cache {
    cached_row *places;
    size_t count;
    double seconds;
    uint32_t seed; /* random, so that clients cannot choose names that share a slot */
};

static void clear(cached_row *p)
{
    for (size_t i = 0; i < p->count && p->slots != NULL; i++) {
        json_decref(p->slots[i].value);
    }
    free(p->slots);
    free(p->name);
    *p = (cached_row){0};
}

static cached_row *place_of(const by__feature_cache *cache, const char *name)
{
    return &cache->places[by__feature_murmur3_32(name, strlen(name), cache->seed) % cache->count];
}

by_status by__feature_cache_open(by__feature_cache **out, size_t places, double seconds,
                                 by_error *error)
{
    by__feature_cache *c;
    *out = NULL;
    if (places == 0 || seconds <= 0.0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&c, 1, sizeof *c, "a cache of features", error));
    c->count = places;
    c->seconds = seconds;
    by_status status = by__serve_random_bytes(&c->seed, sizeof c->seed, error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&c->places, places, sizeof *c->places, "a cache of features", error);
    }
    if (status != BY_OK) {
        free(c);
        return status;
    }
    *out = c;
    return BY_OK;
}

void by__feature_cache_close(by__feature_cache **cache)
{
    by__feature_cache *c = *cache;
    *cache = NULL;
    if (c != NULL) {
        for (size_t i = 0; i < c->count; i++) {
            clear(&c->places[i]);
        }
        free(c->places);
        free(c);
    }
}

bool by__feature_cache_find(const by__feature_cache *cache, const char *name,
                            by__feature_slot *slots, size_t count)
{
    const cached_row *p = cache == NULL ? NULL : place_of(cache, name);
    if (p == NULL || p->name == NULL || strcmp(p->name, name) != 0 || p->count != count ||
        by__now() > p->until) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        slots[i] = p->slots[i];
        (void)json_incref(slots[i].value);
    }
    return true;
}

void by__feature_cache_put(by__feature_cache *cache, const char *name,
                           const by__feature_slot *slots, size_t count)
{
    cached_row *p = cache == NULL ? NULL : place_of(cache, name);
    if (p == NULL) {
        return;
    }
    clear(p);
    p->name = by__strdup(name);
    p->slots = calloc(count, sizeof *slots);
    if (p->name == NULL || p->slots == NULL) {
        clear(p);
        return;
    }
    p->until = by__now() + cache->seconds;
    p->count = count;
    for (size_t i = 0; i < count; i++) {
        p->slots[i] = slots[i];
        (void)json_incref(slots[i].value);
    }
}
