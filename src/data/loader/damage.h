/* A list of damaged parts of some data, in order, each with file and reason. */
#ifndef BY_DATA_LOADER_DAMAGE_H
#define BY_DATA_LOADER_DAMAGE_H

#include "banyan/data.h"

typedef struct by__loader_damage {
    by_damage *items; /* ascending and disjoint */
    size_t count;
    size_t capacity;
    char **texts; /* owned strings that the items refer to */
    size_t text_count;
    size_t text_capacity;
    uint64_t total; /* number of examples in all items */
} by__loader_damage;

/* Appends a part, which must follow all others; text is copied. A part adjacent to the last one, in
 * the same file and for the same reason, extends it. */
by_status by__loader_damage_add(by__loader_damage *damage, const by_damage *item, by_error *error);
void by__loader_damage_free(by__loader_damage *damage);
/* Returns true if any of the examples [begin, end) is damaged. */
bool by__loader_damage_touches(const by__loader_damage *damage, uint64_t begin, uint64_t end);
/* Examples that data.corrupt_budget lets `all` lose: below 1 it is a share of them, which allows at
 * least one unless it is 0, since a share of a small set is none; from 1 on their number. */
double by__loader_damage_allowed(double budget, uint64_t all);

#endif
