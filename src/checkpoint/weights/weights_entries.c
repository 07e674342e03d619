/* The entries of weights: look-up by name, hiding, and replacement by those of adapters. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/weights/adapter.h"
#include "checkpoint/weights/weights.h"

const by__checkpoint_tensor_entry *by__weights_find(const by_weights *weights, const char *name)
{
    size_t low = 0;
    size_t high = weights->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(weights->entries[middle]->name, name);
        if (order == 0) {
            return weights->entries[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

by_status by__weights_strip(by_weights *weights, const char *prefix, by_error *error)
{
    size_t length = strlen(prefix);
    for (size_t i = 0; i < weights->count; i++) {
        char *name = weights->entries[i]->name;
        if (strncmp(name, prefix, length) != 0) {
            return by_error_set(error, BY_EFORMAT, "%s: the name of tensor '%.200s' lacks '%s'",
                                weights->path, name, prefix);
        }
    }
    for (size_t i = 0; i < weights->count; i++) { /* keeps their order */
        char *name = weights->entries[i]->name;
        memmove(name, name + length, strlen(name + length) + 1);
    }
    return BY_OK;
}

by_status by__weights_own_adapter(by_weights *weights, by_adapter *adapter, by_error *error)
{
    if (weights->adapter != NULL) {
        return by_error_set(error, BY_ESTATE, "%s: the weights have an adapter already",
                            weights->path);
    }
    BY_TRY(by__alloc((void **)&weights->adapted, by_weights_count(by_adapter_weights(adapter)),
                     sizeof *weights->adapted, "adapters", error));
    weights->adapter = adapter;
    return BY_OK;
}

void by__weights_hide(by_weights *weights, bool (*hides)(const char *name))
{
    size_t kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        if (!hides(weights->entries[i]->name)) {
            weights->entries[kept++] = weights->entries[i];
        }
    }
    weights->count = kept;
}

/* Replaces `base` by an entry with the same name. */
static void put_in_place(by_weights *weights, const by__checkpoint_tensor_entry *base,
                         by__checkpoint_tensor_entry entry)
{
    by__checkpoint_tensor_entry *place = &weights->adapted[weights->adapted_count++];
    *place = entry;
    place->name = base->name;
    for (size_t i = 0; i < weights->count; i++) {
        if (weights->entries[i] == base) {
            weights->entries[i] = place;
        }
    }
}

void by__weights_add(by_weights *weights, const by__checkpoint_tensor_entry *base,
                     by__checkpoint_delta *delta, by_dtype dtype)
{
    by__checkpoint_tensor_entry entry = *base;
    uint64_t elements = (base->end - base->begin) / by_dtype_size((by_dtype)base->dtype);
    entry.type = by__checkpoint_type_name(dtype);
    entry.dtype = (int)dtype;
    entry.begin = 0;
    entry.end = elements * by_dtype_size(dtype);
    entry.data = NULL;
    entry.pieces = NULL;
    entry.delta = delta;
    put_in_place(weights, base, entry);
}

void by__weights_replace(by_weights *weights, const by__checkpoint_tensor_entry *base,
                         const by__checkpoint_tensor_entry *own)
{
    put_in_place(weights, base, *own);
}

bool by_weights_in_codes(const by_weights *weights)
{
    return weights->coded.own_count > 0;
}

bool by__weights_rows_as_integers(const by_weights *weights)
{
    return weights->coded.rows_as_integers;
}

const by__coded *by__weights_coded(const by_weights *weights, const char *name)
{
    const by__checkpoint_tensor_entry *entry = by__weights_find(weights, name);
    return entry == NULL ? NULL : by__checkpoint_entry_coded(entry);
}

bool by__weights_in_bf16(const by_weights *weights)
{
    bool found = false;
    for (size_t i = 0; i < weights->count; i++) {
        const by__checkpoint_tensor_entry *entry = weights->entries[i];
        if (entry->rank >= 2 && (entry->dtype == BY_F32 || entry->dtype == BY_F16)) {
            return false;
        }
        found = found || (entry->rank >= 2 && entry->dtype == BY_BF16);
    }
    return found;
}

size_t by_weights_count(const by_weights *weights)
{
    return weights->count;
}

const char *by_weights_name(const by_weights *weights, size_t i)
{
    return weights->entries[i]->name;
}

const by__checkpoint_tensor_entry *by__weights_entry(const by_weights *weights, size_t i)
{
    return weights->entries[i];
}

bool by_weights_has(const by_weights *weights, const char *name)
{
    return by__weights_find(weights, name) != NULL;
}

const char *by_weights_config(const by_weights *weights)
{
    return weights->config;
}

const char *by_weights_path(const by_weights *weights)
{
    return weights->path;
}

/* Tells the system that this part of a mapped file need not stay in memory; it is read again on the
 * next use. */
static void release_pages(const void *data, size_t bytes)
{
    uintptr_t begin = (uintptr_t)data & ~(uintptr_t)(sysconf(_SC_PAGESIZE) - 1);
    (void)madvise((void *)begin, (uintptr_t)data + bytes - begin, MADV_DONTNEED);
}

void by__weights_release(const by_weights *weights, const void *data, size_t bytes)
{
    uintptr_t begin = (uintptr_t)data;
    for (size_t i = 0; i < weights->shard_count && data != NULL; i++) {
        const by__map *map = &weights->shards[i]->map;
        uintptr_t first = (uintptr_t)map->data;
        if (begin >= first && begin < first + map->size && bytes <= first + map->size - begin) {
            release_pages(data, bytes);
        }
    }
}
