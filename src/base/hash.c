#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/base.h"
#include "base/paths.h"

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

void by__hasher_add_u64(by__hasher *hasher, uint64_t value)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(value >> (8 * i));
    }
    by__hasher_add(hasher, bytes, sizeof bytes);
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

/* Reads instead of mapping, so that a bad sector or a concurrent truncation is an error and not a
 * SIGBUS. */
by_status by__hash_file_hex(char out[33], const char *path, by_error *error)
{
    const size_t block = (size_t)64 << 10; /* stays in the second-level cache */
    by__hasher *hasher = NULL;
    void *buffer = NULL;
    by_status status = BY_OK;
    ssize_t n = 0;
    int fd;
    BY_TRY(by__open_regular(&fd, NULL, path, error));
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    status = by__hasher_open(&hasher, error);
    if (status == BY_OK) {
        status = by__alloc_aligned(&buffer, block, "read buffer", error);
    }
    while (status == BY_OK && (n = read(fd, buffer, block)) != 0) {
        if (n > 0) {
            by__hasher_add(hasher, buffer, (size_t)n);
        } else if (errno != EINTR) {
            status = by__io_error(error, "read", path);
        }
    }
    if (status == BY_OK) {
        by__hasher_hex(hasher, out);
    }
    free(buffer);
    by__hasher_close(&hasher);
    (void)close(fd);
    return status;
}
