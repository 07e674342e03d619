/* Names to numbers: a hash table with open addressing. Names are not copied; they must outlive the
 * table. {0} is an empty one. */
#ifndef BY_BASE_NAME_TABLE_H
#define BY_BASE_NAME_TABLE_H

#include "base/base.h"

typedef struct by__name_slot {
    const char *name; /* NULL: free */
    int32_t number;
} by__name_slot;

typedef struct by__name_table {
    by__name_slot *slots;
    size_t capacity; /* a power of two, at most half of it in use */
    size_t count;
} by__name_table;

/* Adds a name that is not in the table. */
by_status by__name_table_add(by__name_table *table, const char *name, int32_t number,
                             by_error *error);
/* Its number; -1 when it is not there. */
int32_t by__name_table_find(const by__name_table *table, const char *name);
void by__name_table_free(by__name_table *table);

#endif
