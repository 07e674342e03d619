/* Reads the rows of a table as series. */
#include "data/series/series_set.h"

#include <stdlib.h>
#include <string.h>

#include "data/series/series_columns.h"

static by_status hash_set(by__series_set *set, by_error *error)
{
    by__hasher *hasher;
    size_t cells = (size_t)set->rows * set->channels.count;
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t s = 0; s < set->series_count; s++) {
        by__hasher_add_u64(hasher, set->series[s].count);
        by__hasher_add(hasher, set->names == NULL ? "" : set->names[s],
                       set->names == NULL ? 1 : strlen(set->names[s]) + 1);
    }
    by__hasher_add(hasher, set->values, cells * sizeof *set->values);
    by__hasher_add(hasher, set->present, cells);
    if (set->known_values != NULL) {
        by__hasher_add(hasher, set->known_values,
                       (size_t)set->known_rows * set->known.count * sizeof *set->known_values);
    }
    by__hasher_hex(hasher, set->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

static by_status fill_set(by__series_set *set, const by_table *table,
                          const by__series_columns *columns, const by__series_reading *reading,
                          by_error *error)
{
    by__series_found found = {0};
    by_status status = by__series_find_columns(&found, table, columns, reading->skip, error);
    if (status == BY_OK) {
        status = by__series_copy_names(set, &found, table, columns, error);
    }
    if (status == BY_OK) {
        status = by__series_take_rows(set, &found, table, reading, error);
    }
    free(found.channels);
    free(found.known);
    free(found.stamps);
    return status == BY_OK ? hash_set(set, error) : status;
}

by_status by__series_set_read(by__series_set **out, const by_table *table,
                              const by__series_columns *columns, const by__series_reading *reading,
                              by_error *error)
{
    static const by__series_reading plain = {0};
    by__series_set *set;
    BY_TRY(by__alloc((void **)&set, 1, sizeof *set, "series", error));
    set->name = by__strdup(by_table_name(table));
    by_status status =
        set->name != NULL ? fill_set(set, table, columns, reading == NULL ? &plain : reading, error)
                          : by_error_set(error, BY_EMEMORY, "out of memory: series");
    if (status != BY_OK) {
        by__series_set_close(&set);
        return status;
    }
    *out = set;
    return BY_OK;
}

by_status by__series_set_open(by__series_set **out, const char *path,
                              const by__series_columns *columns, const by__series_reading *reading,
                              by_error *error)
{
    by_table *table;
    const by_column_type id = {.name = columns->id, .kind = BY_COLUMN_CATEGORY};
    const by_table_options options = {.types = &id,
                                      .type_count = columns->id[0] != '\0',
                                      .ignore = (const char *const *)columns->ignore.items,
                                      .ignore_count = columns->ignore.count,
                                      .skip = reading != NULL && reading->skip};
    BY_TRY(by_table_open(&table, path, &options, error));
    by_status status = by__series_set_read(out, table, columns, reading, error);
    by_table_close(&table);
    return status;
}

void by__series_names_free(by__series_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->items[i]);
    }
    free(names->items);
}

void by__series_set_close(by__series_set **set)
{
    by__series_set *s = *set;
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; s->names != NULL && i < s->series_count; i++) {
        free(s->names[i]);
    }
    by__series_names_free(&s->channels);
    by__series_names_free(&s->left_out);
    by__series_names_free(&s->known);
    free(s->known_values);
    free(s->inputs);
    free(s->names);
    free(s->series);
    free(s->values);
    free(s->present);
    free(s->mean);
    free(s->deviation);
    free(s->time);
    free(s->doubt);
    free(s->times);
    by__series_zone_close(&s->zone);
    by__loader_damage_free(&s->damage);
    free(s->name);
    free(s);
    *set = NULL;
}
