#include "banyan/shape.h"

#include <stddef.h>
#include <stdio.h>

int64_t by_shape_count(const by_shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        count *= shape->dim[i];
    }
    return count;
}

const char *by_shape_print(const by_shape *shape, char buffer[128])
{
    size_t used = (size_t)snprintf(buffer, 128, "[");
    for (int i = 0; i < shape->rank && i < BY_MAX_RANK && used < 100; i++) {
        used += (size_t)snprintf(buffer + used, 128 - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)shape->dim[i]);
    }
    (void)snprintf(buffer + used, 128 - used, "]");
    return buffer;
}

bool by_shape_equal(const by_shape *a, const by_shape *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}
