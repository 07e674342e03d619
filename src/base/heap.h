/* A binary heap in an array of the caller: the item that comes before all others is the first.
 *
 * The functions are inlined into a caller that names its type's size and its order, so that they
 * cost what a heap of that type would. */
#ifndef BY_BASE_HEAP_H
#define BY_BASE_HEAP_H

#include <string.h>

#include "base/base.h"

/* Returns true if a comes before b. */
typedef bool by__heap_order(const void *user, const void *a, const void *b);

#define BY__HEAP_INLINE static inline __attribute__((always_inline))

/* Writes an item to a heap whose place `count` is free; the caller counts it. `item` is not in the
 * heap. */
BY__HEAP_INLINE void by__heap_push(void *items, size_t count, size_t size, const void *item,
                                   by__heap_order *before, const void *user)
{
    char *heap = items;
    size_t at = count;
    for (; at > 0 && before(user, item, heap + (at - 1) / 2 * size); at = (at - 1) / 2) {
        memcpy(heap + at * size, heap + (at - 1) / 2 * size, size);
    }
    memcpy(heap + at * size, item, size);
}

/* Writes an item to place `at` of a heap of `count` items, or further down. Every place below `at`
 * is in order. Making a heap of an array: for each of its places from the last on. */
BY__HEAP_INLINE void by__heap_sink(void *items, size_t count, size_t size, size_t at,
                                   const void *item, by__heap_order *before, const void *user)
{
    char *heap = items;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && before(user, heap + (child + 1) * size, heap + child * size)) {
            child++;
        }
        if (!before(user, heap + child * size, item)) {
            break;
        }
        memcpy(heap + at * size, heap + child * size, size);
    }
    memcpy(heap + at * size, item, size);
}

/* Moves the first of `count` items to *out; the caller counts the rest. */
BY__HEAP_INLINE void by__heap_pop(void *items, size_t count, size_t size, void *out,
                                  by__heap_order *before, const void *user)
{
    char *heap = items;
    memcpy(out, heap, size);
    if (count > 1) {
        by__heap_sink(items, count - 1, size, 0, heap + (count - 1) * size, before, user);
    }
}

#endif
