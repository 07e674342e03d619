/* Tables from Parquet files: integers, reals and times are numbers, strings are categories. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/table_parts.h"
#include "formats/parquet.h"

/* The columns of a table that a file has: a list has one, whatever is in it. */
typedef struct parquet_columns {
    const by__format_parquet *file;
    size_t *index; /* [columns of the table] in the file */
} parquet_columns;

/* Prints a value as the text of a category. */
static const char *print(const by__format_parquet_column *from,
                         const by__format_parquet_values *values,
                         const by__format_parquet_value *value, char text[32], size_t *length)
{
    if (from->kind == BY__PARQUET_TEXT) {
        *length = (size_t)value->length;
        return values->bytes + value->as.offset;
    }
    if (from->kind == BY__PARQUET_INTEGER) {
        (void)snprintf(text, 32, "%" PRId64, value->as.integer);
    } else {
        by__format_f64(text, value->as.real);
    }
    *length = strlen(text);
    return text;
}

static by__table_cell_class class_of(double *number, const by__table_column *c,
                                     const by__format_parquet_column *from,
                                     const by__format_parquet_values *values,
                                     const by__format_parquet_value *value)
{
    if (value->length < 0) {
        return BY__CELL_MISSING;
    }
    if (from->kind == BY__PARQUET_TEXT) {
        /* The same texts are missing as in CSV files, so that a row means the same in both. */
        return by__table_cell_read(number, c, values->bytes + value->as.offset,
                                   (size_t)value->length, '.');
    }
    *number = from->kind == BY__PARQUET_INTEGER ? (double)value->as.integer : value->as.real;
    return isnan(*number) ? BY__CELL_MISSING : BY__CELL_NUMBER;
}

static by_status convert_value(by__table_column *c, uint64_t row,
                               const by__format_parquet_column *from,
                               const by__format_parquet_values *values, const by_table *t,
                               by_error *error)
{
    char text[32];
    char where[BY__WHERE];
    size_t length;
    double number = 0.0;
    const by__format_parquet_value *value = &values->items[row];
    by__table_cell_class class = class_of(&number, c, from, values, value);
    c->info.missing += class == BY__CELL_MISSING;
    if (c->numbers != NULL) {
        if (class == BY__CELL_TEXT || isinf(number)) {
            const char *cell = print(from, values, value, text, &length);
            return by__table_cell_refuse(c, by__table_where(where, t, row), cell, length, error);
        }
        c->numbers[row] = class == BY__CELL_MISSING
                              ? (double)NAN
                              : by__table_time_convert(number, c->info.time, from->time);
        return BY_OK;
    }
    c->categories[row] = -1;
    if (class == BY__CELL_MISSING) {
        return BY_OK;
    }
    const char *name = print(from, values, value, text, &length);
    if (memchr(name, '\0', length) != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: '%s' has a NUL byte",
                            by__table_where(where, t, row), c->info.name);
    }
    return by__table_value(&c->values, name, length, &c->categories[row], error);
}

/* Takes the unit in which the column was learned, or that of the file. */
static by_status set_time(by__table_column *c, const by__format_parquet_column *from,
                          const by_table *t, by_error *error)
{
    char times[2][32];
    bool learned = c->own != NULL && !c->own->is_category && c->own->time.unit != BY_UNIT_NONE &&
                   from->time.unit != BY_UNIT_NONE;
    c->info.time = learned ? c->own->time : from->time;
    if (!learned || by__table_time_fits(c->info.time, from->time)) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: column '%.60s' has times in %s, but times in %s were learned", t->name,
                        c->info.name, by__table_time_print(times[0], from->time),
                        by__table_time_print(times[1], c->own->time));
}

static by_status read_column(by_table *t, size_t index, const parquet_columns *in, by_error *error)
{
    by__table_column *c = &t->columns[index];
    const by__format_parquet_column *from = &in->file->columns[in->index[index]];
    by__format_parquet_values values = {0};
    if (c->info.kind == BY_COLUMN_AUTO) {
        bool numbers = from->kind == BY__PARQUET_INTEGER || from->kind == BY__PARQUET_REAL;
        c->info.kind = numbers ? BY_COLUMN_NUMBER : BY_COLUMN_CATEGORY;
    }
    BY_TRY(by__table_column_allocate(c, t->rows, error));
    if (from->kind == BY__PARQUET_OTHER && c->ignored) {
        c->info.missing = t->rows;
        for (uint64_t row = 0; row < t->rows; row++) {
            c->categories[row] = -1;
        }
        return BY_OK;
    }
    if (c->info.kind == BY_COLUMN_NUMBER) {
        c->info.is_truth = from->is_truth;
        BY_TRY(set_time(c, from, t, error));
    }
    BY_TRY(by__format_parquet_read(in->file, in->index[index], &values, error));
    by_status status = BY_OK;
    for (uint64_t row = 0; row < t->rows && status == BY_OK; row++) {
        status = convert_value(c, row, from, &values, t, error);
    }
    by__format_parquet_values_free(&values);
    return status;
}

static by_status name_columns(by_table *t, parquet_columns *in, by_error *error)
{
    const by__format_parquet *file = in->file;
    BY_TRY(by__alloc((void **)&in->index, file->column_count + 1, sizeof *in->index, "columns",
                     error));
    for (size_t i = 0; i < file->column_count; i++) {
        const by__format_parquet_column *from = &file->columns[i];
        size_t length = from->list_length > 0 ? from->list_length : strlen(from->name);
        char *name = by__strndup(from->name, length);
        if (name == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: name");
        }
        if (from->list_length > 0 && by__table_index(t, name) >= 0) {
            free(name);
            continue;
        }
        in->index[t->column_count] = i;
        by_status status = by__table_add_column(t, name, error);
        if (status != BY_OK) {
            return status == BY_EFORMAT ? by_error_prefix(error, status, "%s", t->name) : status;
        }
    }
    return BY_OK;
}

by_status by__table_read_parquet(by_table *t, const uint8_t *data, size_t size,
                                 const by_table_options *options, by_error *error)
{
    by__format_parquet file;
    parquet_columns in = {.file = &file};
    by_status status = by__format_parquet_open(&file, t->name, data, size,
                                               by__format_parquet_max_rows(size), error);
    if (status == BY_OK && file.rows == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s: there are no rows", t->name);
    }
    if (status == BY_OK) {
        t->rows = file.rows;
        status = by__table_place_row(t, 0, 1, NULL, error);
    }
    if (status == BY_OK) {
        status = name_columns(t, &in, error);
    }
    if (status == BY_OK) {
        status = by__table_set_types(t, options, error);
    }
    for (size_t i = 0; i < t->column_count && status == BY_OK; i++) {
        status = read_column(t, i, &in, error);
    }
    if (status == BY_OK) {
        status = by__table_finish(t, error);
    }
    free(in.index);
    by__format_parquet_close(&file);
    return status;
}
