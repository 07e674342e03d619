/* What of some data is damaged: parts of it in their order, with file and reason. */
#ifndef BY_DATA_DAMAGE_H
#define BY_DATA_DAMAGE_H

#include "banyan/data.h"

typedef struct by__damage {
    by_damage *items; /* ascending, apart from each other */
    size_t count;
    size_t capacity;
    char **texts; /* that the items point to */
    size_t text_count;
    size_t text_capacity;
    uint64_t total; /* examples of all items */
} by__damage;

/* Adds a part behind all others; text is copied. A part that follows the last one in the same file
 * for the same reason makes that longer. */
by_status by__damage_add(by__damage *damage, const by_damage *item, by_error *error);
void by__damage_free(by__damage *damage);
/* Whether any of the examples [begin, end) is damaged. */
bool by__damage_touches(const by__damage *damage, uint64_t begin, uint64_t end);

#endif
