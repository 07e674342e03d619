/* A hash table from names to numbers. Names are not copied and must outlive
 * the table. {0} is an empty table. */
#ifndef BY_BASE_NAME_TABLE_H
#define BY_BASE_NAME_TABLE_H

#include "base/hash_table.h"

typedef struct by__name_table {
    struct by__name_entry {
        const char *name;
        int32_t number;
    } * entries;
    size_t capacity;
    by__base_table table;
} by__name_table;

/* Adds a name, which must not be in the table yet. */
by_status by__name_table_add(by__name_table *table, const char *name, int32_t number,
                             by_error *error);
/* Returns the name's number, or -1 if it is not in the table. */
int32_t by__name_table_find(const by__name_table *table, const char *name);
void by__name_table_free(by__name_table *table);

#endif
