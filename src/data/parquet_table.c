/* Tables from Parquet files: integers, reals and times are numbers, strings are categories. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/formats/parquet.h"
#include "data/table_parts.h"

/* The same strings are missing values as in CSV files, so that a row means the same in both, and in
 * a request. */
static bool is_null(const by__parquet_column *from, const by__parquet_values *values,
                    const by__parquet_value *value)
{
    return value->length < 0 || (from->kind == BY__PARQUET_REAL && isnan(value->as.real)) ||
           (from->kind == BY__PARQUET_TEXT &&
            by__table_missing(values->bytes + value->as.offset, (size_t)value->length));
}

/* Prints a value as the text of a category. */
static const char *print(const by__parquet_column *from, const by__parquet_values *values,
                         const by__parquet_value *value, char text[32], size_t *length)
{
    if (from->kind == BY__PARQUET_TEXT) {
        *length = (size_t)value->length;
        return values->bytes + value->as.offset;
    }
    int n = from->kind == BY__PARQUET_INTEGER ? snprintf(text, 32, "%" PRId64, value->as.integer)
                                              : snprintf(text, 32, "%.17g", value->as.real);
    *length = (size_t)n;
    return text;
}

static bool number_of(const by__parquet_column *from, const by__parquet_values *values,
                      const by__parquet_value *value, double *out)
{
    if (from->kind == BY__PARQUET_TEXT) {
        return by__table_number(values->bytes + value->as.offset, (size_t)value->length, out);
    }
    *out = from->kind == BY__PARQUET_INTEGER ? (double)value->as.integer : value->as.real;
    return isfinite(*out);
}

static by_status take_value(by__table_column *c, uint64_t row, const by__parquet_column *from,
                            const by__parquet_values *values, const by_table *t, by_error *error)
{
    char text[32];
    size_t length;
    const by__parquet_value *value = &values->items[row];
    bool missing = is_null(from, values, value);
    c->info.missing += missing;
    if (c->numbers != NULL) {
        c->numbers[row] = (double)NAN;
        if (missing || number_of(from, values, value, &c->numbers[row])) {
            return BY_OK;
        }
        return by_error_set(error, BY_EFORMAT, "%s: row %" PRIu64 ", '%s' is no finite number",
                            t->name, row + 1, c->info.name);
    }
    c->categories[row] = -1;
    if (missing) {
        return BY_OK;
    }
    const char *name = print(from, values, value, text, &length);
    if (memchr(name, '\0', length) != NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: row %" PRIu64 ", '%s' has a NUL byte", t->name,
                            row + 1, c->info.name);
    }
    return by__table_value(&c->values, name, length, &c->categories[row], error);
}

static by_status read_column(by_table *t, size_t index, const by__parquet *file, by_error *error)
{
    by__table_column *c = &t->columns[index];
    const by__parquet_column *from = &file->columns[index];
    by__parquet_values values = {0};
    size_t rows = (size_t)t->rows;
    if (c->info.kind == BY_COLUMN_AUTO) {
        c->info.kind = from->kind == BY__PARQUET_TEXT ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER;
    }
    BY_TRY(by__parquet_read(file, index, &values, error));
    by_status status =
        c->info.kind == BY_COLUMN_NUMBER
            ? by__alloc((void **)&c->numbers, rows, sizeof *c->numbers, "numbers", error)
            : by__alloc((void **)&c->categories, rows, sizeof *c->categories, "categories", error);
    for (uint64_t row = 0; row < t->rows && status == BY_OK; row++) {
        status = take_value(c, row, from, &values, t, error);
    }
    by__parquet_values_free(&values);
    return status;
}

static by_status name_columns(by_table *t, const by__parquet *file, by_error *error)
{
    for (size_t i = 0; i < file->column_count; i++) {
        const char *name = file->columns[i].name;
        BY_TRY(by__reserve((void **)&t->columns, &t->column_capacity, t->column_count + 1,
                           sizeof *t->columns, error));
        if (by_table_find(t, name) != NULL) {
            return by_error_set(error, BY_EFORMAT, "%s: two columns are named '%s'", t->name, name);
        }
        by__table_column *c = &t->columns[t->column_count];
        *c = (by__table_column){.info.name = by__strdup(name)};
        if (c->info.name == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: name");
        }
        t->column_count++;
    }
    return BY_OK;
}

by_status by__table_read_parquet(by_table *t, const uint8_t *data, size_t size,
                                 const by_table_options *options, by_error *error)
{
    by__parquet file;
    by_status status = by__parquet_open(&file, t->name, data, size, by__parquet_most(size), error);
    if (status == BY_OK && file.rows == 0) {
        status = by_error_set(error, BY_EFORMAT, "%s: there are no rows", t->name);
    }
    if (status == BY_OK) {
        t->rows = file.rows;
        status = name_columns(t, &file, error);
    }
    if (status == BY_OK) {
        status = by__table_set_types(t, options, error);
    }
    for (size_t i = 0; i < t->column_count && status == BY_OK; i++) {
        status = read_column(t, i, &file, error);
    }
    if (status == BY_OK) {
        by__table_finish(t);
    }
    by__parquet_close(&file);
    return status;
}
