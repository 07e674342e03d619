/* Records found by the text of their id: a hash table with chains, which holds entries that are the
 * first member of a record. */
#ifndef BY_SERVE_ID_TABLE_H
#define BY_SERVE_ID_TABLE_H

#include "serve/serve.h"

typedef struct by__id_entry {
    char id[65];
    struct by__id_entry *next;
} by__id_entry;

typedef struct by__id_table {
    by__id_entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t count;
} by__id_table;

/* Adds an entry whose id is not in the table; the id is copied from `id`, which is valid
 * (by__id_valid). */
by_status by__id_add(by__id_table *table, by__id_entry *entry, const char *id, by_error *error);
by__id_entry *by__id_find(const by__id_table *table, const char *id);
/* Takes out an entry that is in the table. */
void by__id_remove(by__id_table *table, by__id_entry *entry);
/* Entries are the caller's. */
void by__id_table_free(by__id_table *table);

#endif
