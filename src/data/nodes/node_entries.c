#include "data/nodes/node_entries.h"

#include <stdlib.h>

/* A sparse product costs a few times as much for each entry as a dense one. */
#define WORTH 10

static int64_t count_entries(const by__nodes_set *set)
{
    int64_t count = 0;
    for (int64_t i = 0; i < set->nodes * set->features; i++) {
        count += set->whole.x[i] != 0.0f;
    }
    return count;
}

static by_status allocate(by__nodes_entries *e, const by__nodes_set *set, by_error *error)
{
    size_t count = (size_t)e->count;
    const struct {
        void *out;
        size_t count;
        size_t size;
    } arrays[] = {
        {&e->values, count, sizeof(float)},
        {&e->offsets, (size_t)set->nodes + 1, sizeof(int32_t)},
        {&e->columns, count, sizeof(int32_t)},
        {&e->back_offsets, (size_t)set->features + 1, sizeof(int32_t)},
        {&e->back_rows, count, sizeof(int32_t)},
        {&e->back_entries, count, sizeof(int32_t)},
    };
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays); i++) {
        BY_TRY(by__alloc(arrays[i].out, arrays[i].count, arrays[i].size, "features", error));
        e->bytes += arrays[i].count * arrays[i].size;
    }
    return BY_OK;
}

static void fill_rows(const by__nodes_entries *e, const by__nodes_set *set)
{
    int32_t at = 0;
    for (int64_t i = 0; i < set->nodes; i++) {
        for (int64_t k = 0; k < set->features; k++) {
            float value = set->whole.x[i * set->features + k];
            if (value != 0.0f) {
                e->values[at] = value;
                e->columns[at++] = (int32_t)k;
                e->back_offsets[k + 1]++;
            }
        }
        e->offsets[i + 1] = at;
    }
}

/* Entries of a column are in the order of rows. back_offsets[k + 1] has the number of entries of
 * column k. */
static void transpose(const by__nodes_entries *e, const by__nodes_set *set)
{
    int32_t *ends = e->back_offsets;
    int32_t before = 0;
    for (int64_t k = 0; k < set->features; k++) { /* where column k begins, at k + 1 */
        int32_t count = ends[k + 1];
        ends[k + 1] = before;
        before += count;
    }
    for (int64_t i = 0; i < set->nodes; i++) {
        for (int32_t at = e->offsets[i]; at < e->offsets[i + 1]; at++) {
            int32_t place = ends[e->columns[at] + 1]++;
            e->back_rows[place] = (int32_t)i;
            e->back_entries[place] = at;
        }
    }
}

by_status by__nodes_entries_make(by__nodes_entries *out, const by__nodes_set *set, by_error *error)
{
    by__nodes_entries e = {.count = count_entries(set)};
    if (e.count == 0 || e.count > INT32_MAX || e.count > set->nodes * set->features / WORTH) {
        *out = (by__nodes_entries){0};
        return BY_OK;
    }
    by_status status = allocate(&e, set, error);
    if (status != BY_OK) {
        by__nodes_entries_free(&e);
        return status;
    }
    fill_rows(&e, set);
    transpose(&e, set);
    *out = e;
    return BY_OK;
}

void by__nodes_entries_free(by__nodes_entries *entries)
{
    free(entries->values);
    free(entries->offsets);
    free(entries->columns);
    free(entries->back_offsets);
    free(entries->back_rows);
    free(entries->back_entries);
    *entries = (by__nodes_entries){0};
}
