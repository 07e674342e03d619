/* Encodings of a table's rows as arrays: what they are, and how they are applied. */
#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader/array_set.h"
#include "data/table/encoding.h"
#include "data/table/table_parts.h"

static void free_feature(by__table_encoded *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->values[i]);
    }
    free(f->values);
    by__aliases_close(&f->aliases);
    free(f->name);
}

void by_encoding_close(by_encoding **encoding)
{
    if (encoding == NULL || *encoding == NULL) {
        return;
    }
    by_encoding *e = *encoding;
    for (size_t i = 0; i < e->number_count; i++) {
        free_feature(&e->numbers[i]);
    }
    for (size_t i = 0; i < e->category_count; i++) {
        free_feature(&e->categories[i]);
    }
    for (size_t i = 0; i < e->target_count; i++) {
        free_feature(&e->targets[i]);
    }
    free(e->numbers);
    free(e->categories);
    free(e->targets);
    free(e->text);
    free(e->pair);
    free(e);
    *encoding = NULL;
}

by_status by__table_encoding_allocate(by_encoding **out, size_t numbers, size_t categories,
                                      size_t targets, by_error *error)
{
    by_encoding *e;
    BY_TRY(by__alloc((void **)&e, 1, sizeof *e, "an encoding", error));
    by_status status = by__alloc((void **)&e->numbers, numbers + 1, sizeof *e->numbers,
                                 "an encoding's numbers", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&e->categories, categories + 1, sizeof *e->categories,
                           "an encoding's categories", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&e->targets, targets + 1, sizeof *e->targets,
                           "an encoding's targets", error);
    }
    if (status != BY_OK) {
        by_encoding_close(&e);
        return status;
    }
    *out = e;
    return BY_OK;
}

by_status by__table_encoding_copy(char **out, const char *text, by_error *error)
{
    *out = by__strdup(text);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a name") : BY_OK;
}

/* ---- properties ---- */

size_t by_encoding_numbers(const by_encoding *encoding)
{
    return encoding->number_count;
}

size_t by_encoding_categories(const by_encoding *encoding)
{
    return encoding->category_count;
}

const char *by_encoding_text(const by_encoding *encoding)
{
    return encoding->text;
}

const char *by_encoding_pair(const by_encoding *encoding)
{
    return encoding->pair;
}

const char *by_encoding_feature(const by_encoding *encoding, size_t index, by_column_kind *kind)
{
    size_t numbers = encoding->number_count;
    if (encoding->text != NULL && index < (encoding->pair != NULL ? 2u : 1u)) {
        *kind = BY_COLUMN_CATEGORY;
        return index == 0 ? encoding->text : encoding->pair;
    }
    if (index >= numbers + encoding->category_count) {
        return NULL;
    }
    *kind = index < numbers ? BY_COLUMN_NUMBER : BY_COLUMN_CATEGORY;
    return index < numbers ? encoding->numbers[index].name
                           : encoding->categories[index - numbers].name;
}

size_t by_encoding_category_size(const by_encoding *encoding, size_t index)
{
    return encoding->categories[index].count + 1;
}

size_t by_encoding_targets(const by_encoding *encoding)
{
    return encoding->target_count;
}

const char *by_encoding_target(const by_encoding *encoding, size_t index)
{
    return index < encoding->target_count ? encoding->targets[index].name : NULL;
}

size_t by_encoding_classes(const by_encoding *encoding)
{
    return encoding->target_count == 0 ? 0 : encoding->targets[0].count;
}

const char *by_encoding_class(const by_encoding *encoding, size_t index)
{
    return encoding->targets[0].values[index];
}

void by_encoding_number_scale(const by_encoding *encoding, size_t index, double *mean,
                              double *deviation)
{
    *mean = encoding->numbers[index].mean;
    *deviation = encoding->numbers[index].deviation;
}

void by_encoding_target_scale(const by_encoding *encoding, size_t index, double *mean,
                              double *deviation)
{
    *mean = encoding->targets[index].mean;
    *deviation = encoding->targets[index].deviation;
}

/* ---- applying ---- */

by_status by__table_refuse_large(const by_table *table, uint64_t row, const char *column,
                                 double value, by_error *error)
{
    char where[BY__WHERE];
    char number[32];
    by__format_f64(number, value);
    return by_error_set(error, BY_EFORMAT,
                        "%s: column '%.60s': %s is too large: numbers, and numbers less the mean "
                        "over the deviation of the training data, reach to 3.4e38 (f32)",
                        by__table_where(where, table, row), column, number);
}

static by_status find_column(const by_column **out, const by_table *table,
                             const by__table_encoded *f, by_error *error)
{
    static const char *const kinds[] = {"a number", "a category"};
    const by_column *column = by_table_find(table, f->name);
    bool is_empty = column != NULL && column->missing == by_table_rows(table);
    if (column == NULL) {
        return by__table_no_column(table, f->name, BY_EFORMAT, error);
    }
    /* A column with missing values only is read as numeric. */
    if ((column->kind == BY_COLUMN_CATEGORY) != f->is_category && !is_empty) {
        return by_error_set(error, BY_EFORMAT, "%s: column '%s' is %s, but %s was learned",
                            by_table_name(table), f->name,
                            kinds[column->kind == BY_COLUMN_CATEGORY], kinds[f->is_category]);
    }
    *out = column;
    return BY_OK;
}

/* Writes (number - mean) / deviation to out[row * stride], and `missing` for missing ones. */
static by_status put_numbers(float *out, size_t stride, const by__table_encoded *f,
                             const by_table *table, float missing, by_error *error)
{
    const by_column *column = NULL;
    char times[2][32];
    BY_TRY(find_column(&column, table, f, error));
    assert(column != NULL);
    if (!by__table_time_fits(f->time, column->time)) {
        return by_error_set(
            error, BY_EFORMAT, "%s: column '%.60s' has times in %s, but times in %s were learned",
            by_table_name(table), f->name, by__table_time_print(times[0], column->time),
            by__table_time_print(times[1], f->time));
    }
    for (uint64_t row = 0; row < by_table_rows(table); row++) {
        double value = column->numbers == NULL
                           ? (double)NAN
                           : by__table_time_convert(column->numbers[row], f->time, column->time);
        float scaled = (float)((value - f->mean) / f->deviation);
        if (!isnan(value) && (fabs(value) > (double)FLT_MAX || !isfinite(scaled))) {
            return by__table_refuse_large(table, row, f->name, value, error);
        }
        out[row * stride] = isnan(value) ? missing : scaled;
    }
    return BY_OK;
}

/* Writes `first` + index of the value to out[row * stride], or `missing` or `unknown`. */
static by_status put_categories(int32_t *out, size_t stride, const by__table_encoded *f,
                                const by_table *table, int32_t first, int32_t missing,
                                int32_t unknown, by_error *error)
{
    const by_column *column = NULL;
    int32_t *ids;
    BY_TRY(find_column(&column, table, f, error));
    assert(column != NULL);
    BY_TRY(by__alloc((void **)&ids, column->value_count + 1, sizeof *ids, "values", error));
    for (size_t i = 0; i < column->value_count; i++) {
        int32_t known = by__same_value((const char *const *)f->values, f->count, &f->aliases,
                                       column->values[i]);
        ids[i] = known < 0 ? unknown : first + known;
    }
    for (uint64_t row = 0; row < by_table_rows(table); row++) {
        int32_t value = column->categories == NULL ? -1 : column->categories[row];
        out[row * stride] = value < 0 ? missing : ids[value];
    }
    free(ids);
    return BY_OK;
}

/* The error of a target that is none of the learned classes. */
static by_status refuse_class(const by__table_encoded *f, const by_table *table, uint64_t row,
                              by_error *error)
{
    char where[BY__WHERE];
    double number;
    size_t numbers = 0;
    const by_column *column = by_table_find(table, f->name);
    for (size_t i = 0; i < f->count; i++) {
        numbers += by__table_cell_number(f->values[i], strlen(f->values[i]), '.', &number);
    }
    bool continuous = f->count > 20 && numbers == f->count;
    return by_error_set(error, BY_EFORMAT,
                        "%s: '%.60s' in '%.60s' is none of the %zu classes that "
                        "were learned%s",
                        by__table_where(where, table, row), column->values[column->categories[row]],
                        f->name, f->count,
                        continuous ? ", all of them numbers: this looks like regression: set "
                                     "task.kind=regress"
                                   : "; where training data is sorted by it, data.split=random "
                                     "learns from all");
}

/* Writes one of `stride` targets to every stride-th element from `data` on. */
static by_status put_target(void *data, size_t stride, const by__table_encoded *f,
                            const by_table *table, by_error *error)
{
    uint64_t rows = by_table_rows(table);
    char where[BY__WHERE];
    if (!f->is_category) {
        BY_TRY(put_numbers(data, stride, f, table, NAN, error));
    } else {
        BY_TRY(put_categories(data, stride, f, table, 0, -1, -2, error));
    }
    for (uint64_t row = 0; row < rows; row++) {
        int32_t label = f->is_category ? ((const int32_t *)data)[row * stride] : 0;
        if (label == -1 || (!f->is_category && isnan(((const float *)data)[row * stride]))) {
            return by_error_set(error, BY_EFORMAT, "%s: there is no target in '%.60s'",
                                by__table_where(where, table, row), f->name);
        }
        if (label == -2) {
            return refuse_class(f, table, row, error);
        }
    }
    return BY_OK;
}

/* Adds an array to the set, zeroed; `columns` 0: one axis. */
static by_status add_array(by_array *arrays, size_t *count, const char *name, by_dtype dtype,
                           uint64_t rows, size_t columns, by_error *error)
{
    by_array *a = &arrays[(*count)++];
    void *data;
    size_t elements;
    *a = (by_array){.dtype = dtype, .shape = BY_SHAPE((int64_t)rows)};
    if (columns > 0) {
        a->shape = BY_SHAPE((int64_t)rows, (int64_t)columns);
    }
    if (!by__size_mul((size_t)rows, columns == 0 ? 1 : columns, &elements)) {
        return by_error_set(error, BY_EMEMORY, "size overflow: array '%s'", name);
    }
    BY_TRY(by__alloc(&data, elements, by_dtype_size(dtype), name, error));
    a->data = data;
    a->name = by__strdup(name);
    return a->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name") : BY_OK;
}

static by_status put_weights(by_array *array, const char *name, const by_table *table,
                             by_error *error)
{
    char where[BY__WHERE];
    float *out = (float *)(uintptr_t)array->data;
    const by_column *column = by_table_find(table, name);
    if (column == NULL || column->numbers == NULL) {
        return by_error_set(error, BY_EFORMAT, "%s: there is no column of numbers '%.60s'",
                            by_table_name(table), name);
    }
    for (uint64_t row = 0; row < by_table_rows(table); row++) {
        out[row] = (float)column->numbers[row];
        if (!(out[row] >= 0.0f && out[row] < INFINITY)) {
            return by_error_set(error, BY_EFORMAT,
                                "%s: a weight in '%.60s' must be a number of at least 0",
                                by__table_where(where, table, row), name);
        }
    }
    return BY_OK;
}

static by_status make_arrays(by_array *arrays, size_t *count, const by_encoding *e,
                             const by_table *table, bool targets, const char *weight,
                             by_error *error)
{
    uint64_t rows = by_table_rows(table);
    if (e->number_count > 0) {
        BY_TRY(add_array(arrays, count, "numbers", BY_F32, rows, e->number_count, error));
        float *out = (float *)(uintptr_t)arrays[*count - 1].data;
        for (size_t i = 0; i < e->number_count; i++) {
            BY_TRY(put_numbers(out + i, e->number_count, &e->numbers[i], table, 0.0f, error));
        }
    }
    if (e->category_count > 0) {
        BY_TRY(add_array(arrays, count, "categories", BY_I32, rows, e->category_count, error));
        int32_t *out = (int32_t *)(uintptr_t)arrays[*count - 1].data;
        for (size_t i = 0; i < e->category_count; i++) {
            BY_TRY(put_categories(out + i, e->category_count, &e->categories[i], table, 1, 0, 0,
                                  error));
        }
    }
    if (targets) {
        bool classes = e->targets[0].is_category;
        size_t columns = e->target_count;
        BY_TRY(add_array(arrays, count, classes ? "labels" : "targets", classes ? BY_I32 : BY_F32,
                         rows, columns == 1 ? 0 : columns, error));
        char *out = (char *)(uintptr_t)arrays[*count - 1].data;
        for (size_t i = 0; i < columns; i++) {
            BY_TRY(put_target(out + i * sizeof(float), columns, &e->targets[i], table, error));
        }
    }
    if (weight != NULL) {
        BY_TRY(add_array(arrays, count, "weight", BY_F32, rows, 0, error));
        BY_TRY(put_weights(&arrays[*count - 1], weight, table, error));
    }
    return BY_OK;
}

by_status by_encoding_apply(const by_encoding *encoding, const by_table *table, bool targets,
                            by_array_set **out, by_error *error)
{
    return by__table_encoding_apply(encoding, table, targets, NULL, NULL, out, error);
}

static void free_arrays(by_array *arrays, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free((void *)(uintptr_t)arrays[i].name);
        free((void *)(uintptr_t)arrays[i].data);
    }
}

void by__table_more_free(by__table_more *more)
{
    free_arrays(more->arrays, more->count);
    *more = (by__table_more){0};
}

by_status by__table_encoding_apply(const by_encoding *encoding, const by_table *table, bool targets,
                                   const char *weight, by__table_more *more, by_array_set **out,
                                   by_error *error)
{
    by_array arrays[4 + BY_ARRAY_LENGTH(more->arrays)] = {0};
    size_t count = 0;
    by_status status = BY_OK;
    for (; more != NULL && count < more->count; count++) {
        arrays[count] = more->arrays[count];
    }
    if (targets && encoding->target_count == 0) {
        status =
            by_error_set(error, BY_EARG, "%s: the encoding has no target", by_table_name(table));
    } else {
        status = make_arrays(arrays, &count, encoding, table, targets, weight, error);
    }
    if (status == BY_OK) {
        return by__loader_array_set_own(out, by_table_name(table), arrays, count, error);
    }
    free_arrays(arrays, count);
    return status;
}
