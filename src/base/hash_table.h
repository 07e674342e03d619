/* A hash table of numbers, with open addressing, for what stands in an array of the caller: there
 * are the keys, and there the caller compares them. {0} is an empty table.
 *
 *     by__base_probe p = by__base_probe_begin(&table, hash);
 *     while (by__base_probe_next(&table, &p)) {
 *         if (equal(&items[p.number], key)) {
 *             return p.number;
 *         }
 *     }
 *     BY_TRY(by__base_table_add(&table, hash, count, "items", error));
 *     items[count++] = ...;
 *
 * A slot holds half of the hash, so that other keys are rarely compared, and none when the table
 * grows. Records with lists of their own are in serve/base/id_table.h. */
#ifndef BY_BASE_HASH_TABLE_H
#define BY_BASE_HASH_TABLE_H

#include "base/base.h"

typedef struct by__base_table {
    struct by__base_table_slot {
        uint32_t hash;
        uint32_t number; /* + 1; 0: free */
    } * slots;
    size_t slot_count; /* a power of two, at least twice the count */
    size_t count;
} by__base_table;

/* The search for a key. */
typedef struct by__base_probe {
    size_t slot;
    uint32_t hash;
    uint32_t number; /* of the entry found: its key may be the one */
} by__base_probe;

static inline by__base_probe by__base_probe_begin(const by__base_table *table, uint64_t hash)
{
    return (by__base_probe){.slot = (uint32_t)hash & (table->slot_count - 1),
                            .hash = (uint32_t)hash};
}

/* Finds the next entry with this hash. Returns false if there is none. */
static inline bool by__base_probe_next(const by__base_table *table, by__base_probe *p)
{
    while (table->slot_count > 0 && table->slots[p->slot].number != 0) {
        const struct by__base_table_slot *slot = &table->slots[p->slot];
        p->slot = (p->slot + 1) & (table->slot_count - 1);
        if (slot->hash == p->hash) {
            p->number = slot->number - 1;
            return true;
        }
    }
    return false;
}

/* Adds a number below 2^31 whose key, with this hash, is not in the table. BY_EMEMORY, naming
 * `what`: nothing was added. */
by_status by__base_table_add(by__base_table *table, uint64_t hash, size_t number, const char *what,
                             by_error *error);
void by__base_table_free(by__base_table *table);

#endif
