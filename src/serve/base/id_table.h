/* Hash table of records by the text of their id, with chaining. Entries are embedded as the first
 * member of a record. */
#ifndef BY_SERVE_ID_TABLE_H
#define BY_SERVE_ID_TABLE_H

#include "serve/base/serve.h"

typedef struct by__id_entry {
    char id[65];
    struct by__id_entry *next;
} by__id_entry;

typedef struct by__id_table {
    by__id_entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t count;
} by__id_table;

/* Adds an entry whose id is not in the table; `id`, which must be valid (by__id_valid), is
 * copied. */
by_status by__id_add(by__id_table *table, by__id_entry *entry, const char *id, by_error *error);
by__id_entry *by__id_find(const by__id_table *table, const char *id);
/* Removes an entry that is in the table. */
void by__id_remove(by__id_table *table, by__id_entry *entry);
/* Frees the table; entries belong to the caller. */
void by__id_table_free(by__id_table *table);

#endif
