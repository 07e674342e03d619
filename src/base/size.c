#include <stdlib.h>
#include <string.h>

#include "base/base.h"

bool by__size_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

bool by__size_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static by_status out_of_memory(size_t bytes, const char *what, by_error *error)
{
    char text[32];
    return by_error_set(error, BY_EMEMORY, "out of memory: %s needs %s", what,
                        by_format_bytes(text, bytes));
}

by_status by__alloc(void **out, size_t count, size_t size, const char *what, by_error *error)
{
    size_t bytes;
    if (!by__size_mul(count, size, &bytes)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: %s of %zu x %zu bytes", what, count,
                            size);
    }
    void *p = calloc(bytes == 0 ? 1 : bytes, 1);
    if (p == NULL) {
        return out_of_memory(bytes, what, error);
    }
    *out = p;
    return BY_OK;
}

by_status by__alloc_aligned(void **out, size_t bytes, const char *what, by_error *error)
{
    if (bytes > SIZE_MAX - BY_CACHE_LINE) {
        return by_error_set(error, BY_EMEMORY, "size overflow: %s of %zu bytes", what, bytes);
    }
    void *p = aligned_alloc(BY_CACHE_LINE, by__round_up(bytes == 0 ? 1 : bytes, BY_CACHE_LINE));
    if (p == NULL) {
        return out_of_memory(bytes, what, error);
    }
    *out = p;
    return BY_OK;
}

by_status by__reserve(void **array, size_t *capacity, size_t need, size_t size, by_error *error)
{
    if (need <= *capacity) {
        return BY_OK;
    }
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2) {
            wanted = need;
            break;
        }
        wanted *= 2;
    }
    size_t bytes;
    if (!by__size_mul(wanted, size, &bytes)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: array of %zu x %zu bytes", wanted,
                            size);
    }
    void *p = realloc(*array, bytes);
    if (p == NULL) {
        return out_of_memory(bytes, "array", error);
    }
    *array = p;
    *capacity = wanted;
    return BY_OK;
}

char *by__strndup(const char *s, size_t n)
{
    char *copy = malloc(n + 1);
    if (copy != NULL) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

char *by__strdup(const char *s)
{
    return by__strndup(s, strlen(s));
}
