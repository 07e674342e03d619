/* Tables in memory: columns and their descriptions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/table_parts.h"

/* Most bytes of a list of columns in a message. */
#define MAX_LIST 200

/* ---- values ---- */

by_status by__table_value(by__table_values *v, const char *text, size_t length, int32_t *out,
                          by_error *error)
{
    uint64_t hash = by__hash64(text, length);
    for (by__base_probe p = by__base_probe_begin(&v->table, hash);
         by__base_probe_next(&v->table, &p);) {
        const char *name = v->names[p.number];
        if (strlen(name) == length && memcmp(name, text, length) == 0) {
            *out = (int32_t)p.number;
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&v->names, &v->capacity, v->count + 1, sizeof *v->names, error));
    v->names[v->count] = by__strndup(text, length);
    if (v->names[v->count] == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a value of a column");
    }
    *out = (int32_t)v->count++;
    return by__base_table_add(&v->table, hash, v->count - 1, "values of a column", error);
}

static void free_values(by__table_values *v)
{
    for (size_t i = 0; i < v->count; i++) {
        free(v->names[i]);
    }
    free(v->names);
    by__base_table_free(&v->table);
}

/* ---- columns ---- */

by_status by__table_add_column(by_table *t, char *name, by_error *error)
{
    int32_t other = by__name_table_find(&t->by_name, name);
    by_status status =
        other >= 0 ? by_error_set(error, BY_EFORMAT, "columns %d and %zu are both named '%.60s'",
                                  other + 1, t->column_count + 1, name)
                   : by__reserve((void **)&t->columns, &t->column_capacity, t->column_count + 1,
                                 sizeof *t->columns, error);
    if (status == BY_OK) {
        status = by__name_table_add(&t->by_name, name, (int32_t)t->column_count, error);
    }
    if (status != BY_OK) {
        free(name);
        return status;
    }
    t->columns[t->column_count++] = (by__table_column){.info.name = name};
    return BY_OK;
}

int32_t by__table_index(const by_table *table, const char *name)
{
    return by__name_table_find(&table->by_name, name);
}

static const char *separator_name(char separator)
{
    return separator == ';'    ? "semicolon"
           : separator == '\t' ? "tab"
           : separator == '|'  ? "pipe"
                               : "comma";
}

/* "a, b, c and 7 more" */
static void list_columns(by_string *out, const by_table *t)
{
    for (size_t i = 0; i < t->column_count; i++) {
        if (out->length + strlen(t->columns[i].info.name) > MAX_LIST && i > 0) {
            by_string_format(out, " and %zu more", t->column_count - i);
            return;
        }
        by_string_format(out, "%s%.60s", i == 0 ? "" : ", ", t->columns[i].info.name);
    }
}

/* The column whose name is nearest; beginnings and other cases count as near. */
static const char *nearest_column(const by_table *t, const char *name)
{
    const char **names;
    if (by__alloc((void **)&names, t->column_count + 1, sizeof *names, "names", NULL) != BY_OK) {
        return NULL;
    }
    for (size_t i = 0; i < t->column_count; i++) {
        names[i] = t->columns[i].info.name;
    }
    const char *near = strlen(name) < 64 ? by_nearest_name(name, names, t->column_count) : NULL;
    free(names);
    return near;
}

by_status by__table_no_column(const by_table *t, const char *name, by_status status,
                              by_error *error)
{
    by_string list = {0};
    const char *near = nearest_column(t, name);
    list_columns(&list, t);
    bool csv = t->separator != 0;
    (void)by_error_set(
        error, status, "%s: there is no column '%.60s'%s%.60s%sts columns%s%s: %s%s", t->name, name,
        near == NULL ? "; i" : "; did you mean '", near == NULL ? "" : near,
        near == NULL ? "" : "'? I", csv ? ", separated by a " : "",
        csv ? separator_name(t->separator) : "", list.data == NULL ? "" : list.data,
        csv && t->column_count == 1 ? " (data.delimiter sets another separator)" : "");
    by_string_free(&list);
    return status;
}

/* ---- kinds ---- */

static bool is_listed(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

bool by__table_ignores(const by_table_options *o, const char *name)
{
    for (size_t i = 0; i < o->type_count; i++) {
        if (strcmp(o->types[i].name, name) == 0) {
            return false;
        }
    }
    const by_encoding *e = o->learned;
    bool known = e == NULL || o->relearn;
    for (size_t i = 0; !known && i < e->number_count + e->category_count; i++) {
        const by__table_encoded *f =
            i < e->number_count ? &e->numbers[i] : &e->categories[i - e->number_count];
        known = strcmp(f->name, name) == 0;
    }
    return !known || is_listed(o->ignore, o->ignore_count, name);
}

/* Gives columns the kinds with which they were learned. */
static by_status set_learned(by_table *t, const by_encoding *e, bool relearn, by_error *error)
{
    size_t known = 0;
    const by__table_encoded *first = NULL;
    for (size_t i = 0; i < t->column_count; i++) {
        t->columns[i].ignored = !relearn;
    }
    for (size_t i = 0; i < e->number_count + e->category_count; i++) {
        const by__table_encoded *f =
            i < e->number_count ? &e->numbers[i] : &e->categories[i - e->number_count];
        int32_t at = by__table_index(t, f->name);
        first = first == NULL ? f : first;
        if (at >= 0) {
            by__table_column *c = &t->columns[at];
            c->ignored = false;
            c->own = f;
            c->info.kind = relearn          ? BY_COLUMN_AUTO
                           : f->is_category ? BY_COLUMN_CATEGORY
                                            : BY_COLUMN_NUMBER;
            known++;
        }
    }
    return known > 0 || first == NULL || relearn
               ? BY_OK
               : by__table_no_column(t, first->name, BY_EFORMAT, error);
}

by_status by__table_set_types(by_table *t, const by_table_options *o, by_error *error)
{
    if (o->learned != NULL) {
        BY_TRY(set_learned(t, o->learned, o->relearn, error));
    }
    for (size_t i = 0; i < t->column_count && o->ignore_count > 0; i++) {
        t->columns[i].ignored =
            t->columns[i].ignored || is_listed(o->ignore, o->ignore_count, t->columns[i].info.name);
    }
    for (size_t i = 0; i < o->type_count; i++) {
        int32_t at = by__table_index(t, o->types[i].name);
        if (at < 0) {
            /* With learned columns the names are theirs, and the file is at fault. */
            return by__table_no_column(t, o->types[i].name,
                                       o->learned != NULL ? BY_EFORMAT : BY_EARG, error);
        }
        t->columns[at].info.kind = o->types[i].kind;
        t->columns[at].ignored = false;
        const by_encoding *e = o->learned;
        for (size_t k = 0; e != NULL && k < e->target_count; k++) {
            if (strcmp(e->targets[k].name, o->types[i].name) == 0) {
                t->columns[at].own = &e->targets[k];
            }
        }
    }
    return BY_OK;
}

/* ---- places of rows ---- */

by_status by__table_part_name(by_table *t, const char *path, const char **out, by_error *error)
{
    BY_TRY(by__reserve((void **)&t->paths, &t->path_capacity, t->path_count + 1, sizeof *t->paths,
                       error));
    char *copy = by__strdup(path);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    t->paths[t->path_count++] = copy;
    *out = copy;
    return BY_OK;
}

by_status by__table_place_row(by_table *t, uint64_t row, uint64_t at, const char *path,
                              by_error *error)
{
    if (t->place_count > 0) {
        const by__table_place *last = &t->places[t->place_count - 1];
        if (last->path == path && at - last->at == row - last->row) {
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&t->places, &t->place_capacity, t->place_count + 1,
                       sizeof *t->places, error));
    t->places[t->place_count++] = (by__table_place){row, at, path};
    return BY_OK;
}

const char *by__table_where(char out[BY__WHERE], const by_table *t, uint64_t row)
{
    size_t low = 0;
    size_t high = t->place_count; /* the first place behind the row */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->places[middle].row <= row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        (void)snprintf(out, BY__WHERE, "row %llu", (unsigned long long)row);
        return out;
    }
    const by__table_place *place = &t->places[low - 1];
    (void)snprintf(out, BY__WHERE, "%.200s:%s%llu", place->path == NULL ? t->name : place->path,
                   t->has_lines ? "" : " row ", (unsigned long long)(place->at + row - place->row));
    return out;
}

/* Checks the categories of a column. */
static by_status check_values(const by_table *t, const by__table_column *c, by_error *error)
{
    char where[BY__WHERE];
    for (size_t i = 0; i < c->values.count && !c->ignored; i++) {
        if (by__utf8_valid(c->values.names[i], strlen(c->values.names[i]))) {
            continue;
        }
        uint64_t row = 0;
        while (row + 1 < t->rows && c->categories[row] != (int32_t)i) {
            row++;
        }
        return by_error_set(
            error, BY_EFORMAT,
            "%s: a value of column '%.60s' is not UTF-8; iconv converts files of other encodings",
            by__table_where(where, t, row), c->info.name);
    }
    return BY_OK;
}

by_status by__table_finish(by_table *t, by_error *error)
{
    for (size_t i = 0; i < t->column_count; i++) {
        by__table_column *c = &t->columns[i];
        c->info.numbers = c->numbers;
        c->info.categories = c->categories;
        c->info.values = (const char *const *)c->values.names;
        c->info.value_count = c->values.count;
        BY_TRY(check_values(t, c, error));
    }
    return BY_OK;
}

void by_table_close(by_table **table)
{
    if (table == NULL || *table == NULL) {
        return;
    }
    by_table *t = *table;
    for (size_t i = 0; i < t->column_count; i++) {
        by__table_column *c = &t->columns[i];
        free((char *)(uintptr_t)c->info.name);
        free(c->numbers);
        free(c->categories);
        free_values(&c->values);
    }
    for (size_t i = 0; i < t->path_count; i++) {
        free(t->paths[i]);
    }
    free(t->paths);
    free(t->places);
    by__name_table_free(&t->by_name);
    by__loader_damage_free(&t->damage);
    free(t->columns);
    free(t->name);
    free(t);
    *table = NULL;
}

const by_damage *by_table_damage(const by_table *table, size_t *count)
{
    *count = table->damage.count;
    return table->damage.items;
}

const char *by_table_name(const by_table *table)
{
    return table->name;
}

uint64_t by_table_rows(const by_table *table)
{
    return table->rows;
}

size_t by_table_column_count(const by_table *table)
{
    return table->column_count;
}

const by_column *by_table_column(const by_table *table, size_t index)
{
    return &table->columns[index].info;
}

const by_column *by_table_find(const by_table *table, const char *name)
{
    int32_t at = by__table_index(table, name);
    return at < 0 ? NULL : &table->columns[at].info;
}
