#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

/* Open addressing with linear probing; at most half of the slots are taken, so that a chain is
 * short and always ends. A slot holds a value's index, BY_NONE when it is free. An entry is only a
 * hint where to look: the name itself is read from the value, so that an entry whose value was
 * renamed matches nothing. */

static size_t first_slot(const by__names_index *index, const char *name)
{
    return (size_t)by__hash64(name, strlen(name)) & (index->capacity - 1);
}

void by__names_index_add(by__names_index *index, const by__value *values, by_value value)
{
    size_t slot = first_slot(index, values[value].name);
    while (index->slots[slot] != BY_NONE) {
        slot = (slot + 1) & (index->capacity - 1);
    }
    index->slots[slot] = value;
    index->count++;
}

static by_status grow(by__names_index *index, const by__value *values, by_error *error)
{
    by__names_index larger = {.capacity = index->capacity == 0 ? 64 : 2 * index->capacity};
    BY_TRY(
        by__alloc((void **)&larger.slots, larger.capacity, sizeof *larger.slots, "names", error));
    for (size_t i = 0; i < larger.capacity; i++) {
        larger.slots[i] = BY_NONE;
    }
    for (size_t i = 0; i < index->capacity; i++) {
        by_value value = index->slots[i];
        if (value != BY_NONE && values[value].name != NULL) {
            by__names_index_add(&larger, values, value);
        }
    }
    free(index->slots);
    *index = larger;
    return BY_OK;
}

by_status by__names_index_reserve(by__names_index *index, const by__value *values, by_error *error)
{
    return 2 * (index->count + 1) > index->capacity ? grow(index, values, error) : BY_OK;
}

by_value by__names_index_find(const by__names_index *index, const by__value *values,
                              const char *name)
{
    if (index->capacity == 0) {
        return BY_NONE;
    }
    for (size_t slot = first_slot(index, name); index->slots[slot] != BY_NONE;
         slot = (slot + 1) & (index->capacity - 1)) {
        const char *have = values[index->slots[slot]].name;
        if (have != NULL && strcmp(have, name) == 0) {
            return index->slots[slot];
        }
    }
    return BY_NONE;
}

void by__names_index_free(by__names_index *index)
{
    free(index->slots);
    *index = (by__names_index){0};
}
