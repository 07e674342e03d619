/* Hash table of records by the text of their id, with chaining. Entries are embedded as the first
 * member of a record. */
#ifndef BY_SERVE_BASE_ID_TABLE_H
#define BY_SERVE_BASE_ID_TABLE_H

#include "serve/base/serve.h"

typedef struct by__serve_id_entry {
    char id[65];
    struct by__serve_id_entry *next;
} by__serve_id_entry;

typedef struct by__serve_id_table {
    by__serve_id_entry **buckets;
    size_t bucket_count; /* a power of two */
    size_t count;
} by__serve_id_table;

/* Adds an entry whose id is not in the table; `id`, which must be valid (by__serve_id_valid), is
 * copied. */
by_status by__serve_id_add(by__serve_id_table *table, by__serve_id_entry *entry, const char *id,
                           by_error *error);
by__serve_id_entry *by__serve_id_find(const by__serve_id_table *table, const char *id);
/* Removes an entry that is in the table. */
void by__serve_id_remove(by__serve_id_table *table, by__serve_id_entry *entry);
/* Frees the table; entries belong to the caller. */
void by__serve_id_table_free(by__serve_id_table *table);

#endif
