#include "base/name_table.h"

#include <stdlib.h>
#include <string.h>

/* Returns the slot that holds `name`, or else the free slot where it would go. */
static by__name_slot *slot_of(by__name_slot *slots, size_t capacity, const char *name)
{
    size_t at = (size_t)by__hash64(name, strlen(name)) & (capacity - 1);
    while (slots[at].name != NULL && strcmp(slots[at].name, name) != 0) {
        at = (at + 1) & (capacity - 1);
    }
    return &slots[at];
}

static by_status grow(by__name_table *table, by_error *error)
{
    size_t capacity = table->capacity == 0 ? 64 : 2 * table->capacity;
    by__name_slot *slots;
    BY_TRY(by__alloc((void **)&slots, capacity, sizeof *slots, "names", error));
    for (size_t i = 0; i < table->capacity; i++) {
        if (table->slots[i].name != NULL) {
            *slot_of(slots, capacity, table->slots[i].name) = table->slots[i];
        }
    }
    free(table->slots);
    table->slots = slots;
    table->capacity = capacity;
    return BY_OK;
}

by_status by__name_table_add(by__name_table *table, const char *name, int32_t number,
                             by_error *error)
{
    if (2 * (table->count + 1) > table->capacity) {
        BY_TRY(grow(table, error));
    }
    *slot_of(table->slots, table->capacity, name) = (by__name_slot){name, number};
    table->count++;
    return BY_OK;
}

int32_t by__name_table_find(const by__name_table *table, const char *name)
{
    if (table->capacity == 0) {
        return -1;
    }
    const by__name_slot *slot = slot_of(table->slots, table->capacity, name);
    return slot->name == NULL ? -1 : slot->number;
}

void by__name_table_free(by__name_table *table)
{
    free(table->slots);
    *table = (by__name_table){0};
}
