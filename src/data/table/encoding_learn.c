/* Learns the encoding of a table's rows from data. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader/array_set.h"
#include "data/table/encoding.h"
#include "data/table/table_parts.h"

/* Mean and population standard deviation, in two passes in the order of the part. Sums of numbers
 * of f32 are finite in doubles. */
static by_status learn_number(by__table_encoded *f, const by_column *column,
                              const by__loader_part_rows *rows, uint64_t count,
                              const by_table *table, by_error *error)
{
    double sum = 0.0;
    double squares = 0.0;
    uint64_t n = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t row = by__part_row(rows, i);
        double value = column->numbers[row];
        if (fabs(value) > (double)FLT_MAX) {
            return by__table_refuse_large(table, row, column->name, value, error);
        }
        if (!isnan(value)) {
            sum += value;
            n++;
        }
    }
    f->mean = n == 0 ? 0.0 : sum / (double)n;
    for (uint64_t i = 0; i < count; i++) {
        double value = column->numbers[by__part_row(rows, i)];
        if (!isnan(value)) {
            squares += (value - f->mean) * (value - f->mean);
        }
    }
    f->deviation = n == 0 ? 1.0 : sqrt(squares / (double)n);
    if (!(f->deviation > 0.0)) {
        f->deviation = 1.0;
    }
    f->time = column->time;
    f->is_truth = column->is_truth;
    return BY_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

by_status by__table_encoded_index(by__table_encoded *f, by_error *error)
{
    return by__aliases_open(&f->aliases, (const char *const *)f->values, f->count, error);
}

static by_status learn_category(by__table_encoded *f, const by_column *column,
                                const by__loader_part_rows *rows, uint64_t count, by_error *error)
{
    uint64_t *counts;
    by__value_groups groups = {0};
    BY_TRY(by__alloc((void **)&counts, column->value_count + 1, sizeof *counts, "values", error));
    for (uint64_t i = 0; i < count; i++) {
        int32_t value = column->categories[by__part_row(rows, i)];
        if (value >= 0) {
            counts[value]++;
        }
    }
    by_status status =
        by__value_groups_open(&groups, column->values, counts, column->value_count, error);
    free(counts);
    if (status == BY_OK) {
        f->values = groups.names;
        f->count = groups.count;
        groups.names = NULL;
        groups.count = 0;
        if (f->count > 1) {
            qsort(f->values, f->count, sizeof *f->values, by_bytes);
        }
        status = by__table_encoded_index(f, error);
    }
    by__value_groups_close(&groups);
    return status;
}

#define SPACE " \t\r\n"

/* Adds a tag unless it is known. */
static by_status add_tag(by__table_encoded *f, size_t *capacity, const char *tag, size_t length,
                         by_error *error)
{
    for (size_t i = 0; i < f->count; i++) {
        if (strncmp(f->values[i], tag, length) == 0 && f->values[i][length] == '\0') {
            return BY_OK;
        }
    }
    BY_TRY(by__reserve((void **)&f->values, capacity, f->count + 1, sizeof *f->values, error));
    f->values[f->count] = by__strndup(tag, length);
    if (f->values[f->count] == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a tag");
    }
    f->count++;
    return BY_OK;
}

/* The distinct tags of the words of texts. */
static by_status learn_tags(by__table_encoded *f, const by_column *column,
                            const by__loader_part_rows *rows, uint64_t count, by_error *error)
{
    size_t capacity = 0;
    *f = (by__table_encoded){.is_category = true};
    BY_TRY(by__table_encoding_copy(&f->name, column->name, error));
    for (uint64_t i = 0; i < count; i++) {
        int32_t value = column->categories == NULL ? -1 : column->categories[by__part_row(rows, i)];
        const char *tag = value < 0 ? "" : column->values[value];
        while (*(tag += strspn(tag, SPACE)) != '\0') {
            size_t length = strcspn(tag, SPACE);
            BY_TRY(add_tag(f, &capacity, tag, length, error));
            tag += length;
        }
    }
    if (f->count > 1) {
        qsort(f->values, f->count, sizeof *f->values, by_bytes);
    }
    return by__table_encoded_index(f, error);
}

static by_status learn_column(by__table_encoded *f, const by_column *column,
                              const by__loader_part_rows *rows, uint64_t count,
                              const by_table *table, by_error *error)
{
    *f = (by__table_encoded){.is_category = column->kind == BY_COLUMN_CATEGORY};
    BY_TRY(by__table_encoding_copy(&f->name, column->name, error));
    if (f->is_category) {
        return learn_category(f, column, rows, count, error);
    }
    return learn_number(f, column, rows, count, table, error);
}

static bool is_ignored(const by_encoding_options *o, const char *name)
{
    for (size_t i = 0; i < o->ignore_count; i++) {
        if (strcmp(o->ignore[i], name) == 0) {
            return true;
        }
    }
    return false;
}

size_t by__table_target_of(const by_encoding_options *o, const char *column)
{
    size_t i = 0;
    while (i < o->target_count && strcmp(o->targets[i], column) != 0) {
        i++;
    }
    return i;
}

static by_status check_names(const by_table *table, const by_encoding_options *o, by_error *error)
{
    for (size_t i = 0; i < o->ignore_count + o->target_count; i++) {
        size_t t = i - o->ignore_count;
        const char *name = i < o->ignore_count ? o->ignore[i] : o->targets[t];
        const by_column *column = by_table_find(table, name);
        if (column == NULL) {
            return by__table_no_column(table, name, BY_EARG, error);
        }
        if (i < o->ignore_count || o->target_count == 1) {
            continue;
        }
        if (by__table_target_of(o, name) != t) {
            return by_error_set(error, BY_EARG, "%s: the target '%.60s' is named twice",
                                by_table_name(table), name);
        }
        if (column->kind != BY_COLUMN_NUMBER) {
            return by_error_set(error, BY_EARG,
                                "%s: column '%.60s' is one of categories: of several targets, each "
                                "is a number",
                                by_table_name(table), name);
        }
    }
    return BY_OK;
}

/* A column of texts must be one, and is no target. */
static by_status learn_text(char **out, const char *name, const by_table *table,
                            const by_encoding_options *o, by_error *error)
{
    const by_column *column = by_table_find(table, name);
    if (column == NULL) {
        return by__table_no_column(table, name, BY_EARG, error);
    }
    if (column->kind != BY_COLUMN_CATEGORY || by__table_target_of(o, name) < o->target_count) {
        return by_error_set(error, BY_EARG, "%s: column '%.60s' is %s, and cannot be the text",
                            by_table_name(table), name,
                            column->kind == BY_COLUMN_NUMBER ? "one of numbers" : "a target");
    }
    return by__table_encoding_copy(out, name, error);
}

static by_status learn_all(by_encoding *e, const by_table *table, const by_part *part,
                           const by_encoding_options *o, by_error *error)
{
    const char *name = by_table_name(table);
    by__loader_part_rows rows;
    by__loader_part_rows_init(&rows, part);
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        const by_column *column = by_table_column(table, i);
        size_t target = by__table_target_of(o, column->name);
        by__table_encoded *f;
        if (target < o->target_count) {
            f = &e->targets[target];
        } else if (o->text != NULL || is_ignored(o, column->name)) {
            continue;
        } else if (column->kind == BY_COLUMN_CATEGORY) {
            f = &e->categories[e->category_count++];
        } else {
            f = &e->numbers[e->number_count++];
        }
        BY_TRY(o->tags && target < o->target_count
                   ? learn_tags(f, column, &rows, part->count, error)
                   : learn_column(f, column, &rows, part->count, table, error));
    }
    if (o->target_count == 1 && e->targets[0].is_category && e->targets[0].count == 0) {
        return by_error_set(error, BY_EFORMAT, "%s: all targets in column '%s' are missing", name,
                            o->targets[0]);
    }
    return e->number_count + e->category_count > 0 || e->text != NULL
               ? BY_OK
               : by_error_set(error, BY_EARG, "%s: no column is left as a feature", name);
}

by_status by_encoding_learn(by_encoding **out, const by_table *table, const by_part *part,
                            const by_encoding_options *options, by_error *error)
{
    by_encoding *e;
    size_t columns = by_table_column_count(table);
    if (!by__loader_part_fits(part, by_table_rows(table))) {
        return by_error_set(error, BY_EARG,
                            "%s: the part of %" PRIu64 " rows is not of its %" PRIu64,
                            by_table_name(table), part->total, by_table_rows(table));
    }
    BY_TRY(check_names(table, options, error));
    BY_TRY(by__table_encoding_allocate(&e, columns, columns, options->target_count, error));
    e->target_count = options->target_count;
    by_status status =
        options->text == NULL ? BY_OK : learn_text(&e->text, options->text, table, options, error);
    if (status == BY_OK && options->text != NULL && options->pair != NULL) {
        status = learn_text(&e->pair, options->pair, table, options, error);
    }
    if (status == BY_OK) {
        status = learn_all(e, table, part, options, error);
    }
    if (status != BY_OK) {
        by_encoding_close(&e);
        return status;
    }
    *out = e;
    return BY_OK;
}
