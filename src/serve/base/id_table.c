#include "serve/base/id_table.h"

#include <stdlib.h>
#include <string.h>

static size_t bucket_of(const by__serve_id_table *table, const char *id)
{
    return (size_t)by__hash64(id, strlen(id)) & (table->bucket_count - 1);
}

static void insert(by__serve_id_table *table, by__serve_id_entry *entry)
{
    by__serve_id_entry **bucket = &table->buckets[bucket_of(table, entry->id)];
    entry->next = *bucket;
    *bucket = entry;
}

static by_status grow(by__serve_id_table *table, by_error *error)
{
    by__serve_id_table larger = {.bucket_count =
                                     table->bucket_count == 0 ? 256 : 2 * table->bucket_count,
                                 .count = table->count};
    BY_TRY(by__alloc((void **)&larger.buckets, larger.bucket_count, sizeof(by__serve_id_entry *),
                     "a table of requests", error));
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (by__serve_id_entry *e = table->buckets[i], *next; e != NULL; e = next) {
            next = e->next;
            insert(&larger, e);
        }
    }
    free(table->buckets);
    *table = larger;
    return BY_OK;
}

by_status by__serve_id_add(by__serve_id_table *table, by__serve_id_entry *entry, const char *id,
                           by_error *error)
{
    if (table->count == table->bucket_count) {
        BY_TRY(grow(table, error));
    }
    memcpy(entry->id, id, strlen(id) + 1);
    insert(table, entry);
    table->count++;
    return BY_OK;
}

by__serve_id_entry *by__serve_id_find(const by__serve_id_table *table, const char *id)
{
    by__serve_id_entry *e = table->bucket_count == 0 ? NULL : table->buckets[bucket_of(table, id)];
    while (e != NULL && strcmp(e->id, id) != 0) {
        e = e->next;
    }
    return e;
}

void by__serve_id_remove(by__serve_id_table *table, by__serve_id_entry *entry)
{
    by__serve_id_entry **at = &table->buckets[bucket_of(table, entry->id)];
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    table->count--;
}

void by__serve_id_table_free(by__serve_id_table *table)
{
    free(table->buckets);
    *table = (by__serve_id_table){0};
}
