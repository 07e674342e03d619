/* A hash table from names to numbers, with open addressing. Names are not copied and must outlive
 * the table. {0} is an empty table. */
#ifndef BY_BASE_NAME_TABLE_H
#define BY_BASE_NAME_TABLE_H

#include "base/base.h"

typedef struct by__name_slot {
    const char *name; /* NULL: unused slot */
    int32_t number;
} by__name_slot;

typedef struct by__name_table {
    by__name_slot *slots;
    size_t capacity; /* a power of two; at most half the slots are used */
    size_t count;
} by__name_table;

/* Adds a name, which must not be in the table yet. */
by_status by__name_table_add(by__name_table *table, const char *name, int32_t number,
                             by_error *error);
/* Returns the name's number, or -1 if it is not in the table. */
int32_t by__name_table_find(const by__name_table *table, const char *name);
void by__name_table_free(by__name_table *table);

#endif
