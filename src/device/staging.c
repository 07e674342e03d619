#include "device/staging.h"

#include <string.h>

#include "base/base.h"

#define FIRST_BLOCK ((size_t)1 << 16)

static size_t bytes_of_blocks(const by__device_staging *s)
{
    size_t bytes = 0;
    for (size_t i = 0; i < s->count; i++) {
        bytes += s->blocks[i].bytes;
    }
    return bytes;
}

static by_status add_block(by__device_staging *s, size_t bytes, by_error *error)
{
    BY_TRY(by_device_pin(&s->blocks[s->count], s->device, bytes, "copies for exchanges", error));
    s->count++;
    s->used = 0;
    return BY_OK;
}

/* One block with room for all that the last use needed. */
static by_status join_blocks(by__device_staging *s, by_error *error)
{
    size_t bytes = bytes_of_blocks(s);
    while (s->count > 0) {
        by_device_unpin(&s->blocks[--s->count]);
    }
    return add_block(s, bytes, error);
}

by_status by__device_staging_begin(by__device_staging *s, by_device *device, by_error *error)
{
    s->device = device;
    BY_TRY(by__device_staging_wait(s, error));
    s->used = 0;
    return s->count > 1 ? join_blocks(s, error) : BY_OK;
}

by_status by__device_staging_take(by__device_staging *s, size_t bytes, void **out, by_error *error)
{
    size_t room = by__round_up(bytes, BY_CACHE_LINE);
    if (s->count == 0 || room > s->blocks[s->count - 1].bytes - s->used) {
        size_t all = bytes_of_blocks(s);
        size_t block = all > FIRST_BLOCK ? all : FIRST_BLOCK;
        block = s->count == 0 && s->planned > 0 ? s->planned : block;
        if (s->count == BY__STAGING_BLOCKS) {
            return by_error_set(error, BY_EMEMORY, "out of memory: copies for exchanges");
        }
        BY_TRY(add_block(s, room > block ? room : block, error));
    }
    *out = (char *)s->blocks[s->count - 1].data + s->used;
    s->used += room;
    return BY_OK;
}

static bool is_host(by_memory memory)
{
    return memory.device == NULL || memory.device->host_memory;
}

by_status by__device_stage(by__device_staging *s, by_memory memory, bool reads, void **out,
                           by_error *error)
{
    *out = (void *)memory.address;
    if (memory.bytes == 0 || is_host(memory)) {
        return BY_OK;
    }
    BY_TRY(by__device_staging_take(s, memory.bytes, out, error));
    return reads ? by__device_stage_into(s, *out, memory, error) : BY_OK;
}

by_status by__device_stage_into(by__device_staging *s, void *to, by_memory memory, by_error *error)
{
    if (memory.bytes == 0) {
        return BY_OK;
    }
    if (is_host(memory)) {
        if (to != (const void *)memory.address) {
            memcpy(to, (const void *)memory.address, memory.bytes);
        }
        return BY_OK;
    }
    s->busy = true;
    return by__device_copy_out(BY__QUEUE_COLLECTIVE, to, memory, error);
}

by_status by__device_unstage(by__device_staging *s, by_memory memory, const void *from,
                             by_error *error)
{
    if (memory.bytes == 0) {
        return BY_OK;
    }
    if (is_host(memory)) {
        if (from != (const void *)memory.address) {
            memcpy((void *)memory.address, from, memory.bytes);
        }
        return BY_OK;
    }
    s->busy = true;
    return by__device_copy_in(BY__QUEUE_COLLECTIVE, memory, from, error);
}

by_status by__device_staging_wait(by__device_staging *s, by_error *error)
{
    if (!s->busy) {
        return BY_OK;
    }
    BY_TRY(by__device_queue_finish(s->device, BY__QUEUE_COLLECTIVE, error));
    s->busy = false;
    return BY_OK;
}

void by__device_staging_close(by__device_staging *s)
{
    (void)by__device_staging_wait(s, NULL);
    while (s->count > 0) {
        by_device_unpin(&s->blocks[--s->count]);
    }
    *s = (by__device_staging){0};
}
