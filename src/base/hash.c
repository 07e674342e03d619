#include <stdlib.h>
#include <xxhash.h>

#include "base/base.h"

struct by__hasher {
    XXH3_state_t *state;
};

static void hex(char out[33], XXH128_hash_t hash)
{
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)hash.high64,
                   (unsigned long long)hash.low64);
}

uint64_t by__hash64(const void *data, size_t length)
{
    return XXH3_64bits(data, length);
}

void by__hash128_hex(char out[33], const void *data, size_t length)
{
    hex(out, XXH3_128bits(data, length));
}

by_status by__hasher_open(by__hasher **out, by_error *error)
{
    by__hasher *hasher;
    BY_TRY(by__alloc((void **)&hasher, 1, sizeof *hasher, "hash state", error));
    hasher->state = XXH3_createState();
    if (hasher->state == NULL || XXH3_128bits_reset(hasher->state) != XXH_OK) {
        by__hasher_close(&hasher);
        return by_error_set(error, BY_EMEMORY, "out of memory: hash state");
    }
    *out = hasher;
    return BY_OK;
}

void by__hasher_add(by__hasher *hasher, const void *data, size_t length)
{
    (void)XXH3_128bits_update(hasher->state, data, length);
}

void by__hasher_hex(const by__hasher *hasher, char out[33])
{
    hex(out, XXH3_128bits_digest(hasher->state));
}

void by__hasher_close(by__hasher **hasher)
{
    if (*hasher != NULL) {
        (void)XXH3_freeState((*hasher)->state);
        free(*hasher);
        *hasher = NULL;
    }
}

by_status by__hash_file_hex(char out[33], const char *path, by_error *error)
{
    by__map map;
    BY_TRY(by__map_open(&map, path, error));
    by__hash128_hex(out, map.data, map.size);
    by__map_close(&map);
    return BY_OK;
}
