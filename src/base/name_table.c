#include "base/name_table.h"

#include <stdlib.h>
#include <string.h>

by_status by__name_table_add(by__name_table *table, const char *name, int32_t number,
                             by_error *error)
{
    size_t at = table->table.count;
    BY_TRY(by__reserve((void **)&table->entries, &table->capacity, at + 1, sizeof *table->entries,
                       error));
    BY_TRY(by__base_table_add(&table->table, by__hash64(name, strlen(name)), at, "names", error));
    table->entries[at] = (struct by__name_entry){name, number};
    return BY_OK;
}

int32_t by__name_table_find(const by__name_table *table, const char *name)
{
    uint64_t hash = table->table.count == 0 ? 0 : by__hash64(name, strlen(name));
    for (by__base_probe p = by__base_probe_begin(&table->table, hash);
         by__base_probe_next(&table->table, &p);) {
        if (strcmp(table->entries[p.number].name, name) == 0) {
            return table->entries[p.number].number;
        }
    }
    return -1;
}

void by__name_table_free(by__name_table *table)
{
    free(table->entries);
    by__base_table_free(&table->table);
    *table = (by__name_table){0};
}
