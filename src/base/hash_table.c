#include "base/hash_table.h"

#include <stdlib.h>

static void insert(by__base_table *table, struct by__base_table_slot entry)
{
    size_t at = entry.hash & (table->slot_count - 1);
    while (table->slots[at].number != 0) {
        at = (at + 1) & (table->slot_count - 1);
    }
    table->slots[at] = entry;
}

static by_status grow(by__base_table *table, const char *what, by_error *error)
{
    by__base_table larger = {.slot_count = table->slot_count == 0 ? 64 : 2 * table->slot_count,
                             .count = table->count};
    BY_TRY(by__alloc((void **)&larger.slots, larger.slot_count, sizeof *larger.slots, what, error));
    for (size_t i = 0; i < table->slot_count; i++) {
        if (table->slots[i].number != 0) {
            insert(&larger, table->slots[i]);
        }
    }
    free(table->slots);
    *table = larger;
    return BY_OK;
}

by_status by__base_table_add(by__base_table *table, uint64_t hash, size_t number, const char *what,
                             by_error *error)
{
    if (number > INT32_MAX) {
        return by_error_set(error, BY_EMEMORY, "%s: more than 2^31 entries", what);
    }
    if (2 * (table->count + 1) > table->slot_count) {
        BY_TRY(grow(table, what, error));
    }
    insert(table, (struct by__base_table_slot){(uint32_t)hash, (uint32_t)number + 1});
    table->count++;
    return BY_OK;
}

void by__base_table_free(by__base_table *table)
{
    free(table->slots);
    *table = (by__base_table){0};
}
