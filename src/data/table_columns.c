/* Tables in memory: columns and their descriptions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table_parts.h"

#define NUMBER_LENGTH 64u /* a longer text is not a number */

/* ---- values ---- */

/* The slot of a value in the hash table, or the free slot for it. */
static size_t find_slot(const by__table_values *v, const char *text, size_t length)
{
    size_t at = (size_t)by__hash64(text, length) & (v->slot_count - 1);
    while (v->slots[at] != 0) {
        const char *name = v->names[v->slots[at] - 1];
        if (strlen(name) == length && memcmp(name, text, length) == 0) {
            break;
        }
        at = (at + 1) & (v->slot_count - 1);
    }
    return at;
}

static by_status grow_slots(by__table_values *v, by_error *error)
{
    by__table_values wide = *v;
    wide.slot_count = v->slot_count == 0 ? 16 : 2 * v->slot_count;
    BY_TRY(by__alloc((void **)&wide.slots, wide.slot_count, sizeof *wide.slots, "values", error));
    for (size_t i = 0; i < v->count; i++) {
        wide.slots[find_slot(&wide, v->names[i], strlen(v->names[i]))] = (int32_t)(i + 1);
    }
    free(v->slots);
    v->slots = wide.slots;
    v->slot_count = wide.slot_count;
    return BY_OK;
}

by_status by__table_value(by__table_values *v, const char *text, size_t length, int32_t *out,
                          by_error *error)
{
    if (2 * v->count >= v->slot_count) {
        BY_TRY(grow_slots(v, error));
    }
    size_t slot = find_slot(v, text, length);
    if (v->slots[slot] == 0) {
        if (v->count == INT32_MAX) {
            return by_error_set(error, BY_EMEMORY, "more than 2^31 - 1 values in a column");
        }
        BY_TRY(
            by__reserve((void **)&v->names, &v->capacity, v->count + 1, sizeof *v->names, error));
        v->names[v->count] = by__strndup(text, length);
        if (v->names[v->count] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a value of a column");
        }
        v->slots[slot] = (int32_t)++v->count;
    }
    *out = v->slots[slot] - 1;
    return BY_OK;
}

static void free_values(by__table_values *v)
{
    for (size_t i = 0; i < v->count; i++) {
        free(v->names[i]);
    }
    free(v->names);
    free(v->slots);
}

bool by__table_number(const char *at, size_t length, double *out)
{
    char text[NUMBER_LENGTH];
    const char *begin = at;
    const char *end = at + length;
    while (begin < end && *begin == ' ') {
        begin++;
    }
    while (end > begin && end[-1] == ' ') {
        end--;
    }
    size_t n = (size_t)(end - begin);
    if (n == 0 || n >= sizeof text) {
        return false;
    }
    memcpy(text, begin, n);
    text[n] = '\0';
    return strspn(text, "+-.0123456789eE") == n && by__parse_f64(text, out) && isfinite(*out);
}

bool by__table_missing(const char *text, size_t length)
{
    static const char *const marks[] = {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(marks); i++) {
        if (length == strlen(marks[i]) && memcmp(text, marks[i], length) == 0) {
            return true;
        }
    }
    return false;
}

by_status by__table_set_types(by_table *t, const by_table_options *o, by_error *error)
{
    for (size_t i = 0; i < o->type_count; i++) {
        size_t k = 0;
        while (k < t->column_count && strcmp(t->columns[k].info.name, o->types[i].name) != 0) {
            k++;
        }
        if (k == t->column_count) {
            return by_error_set(error, BY_EARG, "%s: there is no column '%s'", t->name,
                                o->types[i].name);
        }
        t->columns[k].info.kind = o->types[i].kind;
    }
    return BY_OK;
}

void by__table_finish(by_table *t)
{
    for (size_t i = 0; i < t->column_count; i++) {
        by__table_column *c = &t->columns[i];
        c->info.numbers = c->numbers;
        c->info.categories = c->categories;
        c->info.values = (const char *const *)c->values.names;
        c->info.value_count = c->values.count;
    }
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
    by__damage_free(&t->damage);
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
    for (size_t i = 0; i < table->column_count; i++) {
        if (strcmp(table->columns[i].info.name, name) == 0) {
            return &table->columns[i].info;
        }
    }
    return NULL;
}
