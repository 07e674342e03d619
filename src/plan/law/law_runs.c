/* Runs of a table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/law/law.h"

enum { run_columns = 4 };

static const char *or_default(const char *name, const char *otherwise)
{
    return name == NULL ? otherwise : name;
}

/* Adds the names of the columns to a message. */
static by_status refuse_column(const by_table *table, const char *name, const char *what,
                               by_error *error)
{
    by_string names = {0};
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", by_table_column(table, i)->name);
    }
    by_status status = by_string_check(&names, error);
    if (status == BY_OK) {
        status = by_error_set(error, BY_EARG, "%s: no column '%s' of %s; it has: %s",
                              by_table_name(table), name, what,
                              names.data == NULL ? "none" : names.data);
    }
    by_string_free(&names);
    return status;
}

static by_status find_numbers(const by_column **out, const by_table *table, const char *name,
                              const char *what, by_error *error)
{
    *out = by_table_find(table, name);
    if (*out == NULL) {
        return refuse_column(table, name, what, error);
    }
    if ((*out)->kind != BY_COLUMN_NUMBER) {
        return by_error_set(error, BY_EFORMAT, "%s: column '%s' has texts, not numbers: '%s'",
                            by_table_name(table), name,
                            (*out)->value_count > 0 ? (*out)->values[0] : "");
    }
    return BY_OK;
}

/* Whether the cell of a row is a text, or the number that it stands for. */
static bool has_value(const by_column *column, uint64_t row, const char *text)
{
    double number;
    if (column->kind == BY_COLUMN_NUMBER) {
        return by__parse_f64(text, &number) && column->numbers[row] == number;
    }
    int32_t value = column->categories[row];
    return value >= 0 && strcmp(column->values[value], text) == 0;
}

static by_status read_row(by_law_run *out, const by_column *const columns[run_columns],
                          const char *name, uint64_t row, by_error *error)
{
    double values[run_columns] = {0};
    for (size_t k = 0; k < run_columns; k++) {
        if (columns[k] == NULL) {
            continue;
        }
        values[k] = columns[k]->numbers[row];
        if (!(values[k] > 0.0) || !isfinite(values[k])) {
            return by_error_set(error, BY_EFORMAT,
                                "%s, row %llu: '%s' is %g; it is above 0 and finite", name,
                                (unsigned long long)row + 1, columns[k]->name, values[k]);
        }
    }
    if (!isfinite(6.0 * values[0] * values[1])) {
        return by_error_set(error, BY_EFORMAT,
                            "%s, row %llu: 6 x %g parameters x %g tokens is no finite number", name,
                            (unsigned long long)row + 1, values[0], values[1]);
    }
    *out = (by_law_run){
        .parameters = values[0], .tokens = values[1], .loss = values[2], .flops = values[3]};
    return BY_OK;
}

by_status by_law_read_runs(by_law_run **runs, size_t *count, const by_table *table,
                           const by_law_columns *columns, by_error *error)
{
    static const by_law_columns none;
    const by_law_columns *c = columns == NULL ? &none : columns;
    const by_column *found[run_columns] = {NULL};
    const by_column *where = NULL;
    void *memory;
    *runs = NULL;
    *count = 0;
    BY_TRY(find_numbers(&found[0], table, or_default(c->parameters, "parameters"), "parameters",
                        error));
    BY_TRY(find_numbers(&found[1], table, or_default(c->tokens, "tokens"), "tokens", error));
    BY_TRY(find_numbers(&found[2], table, or_default(c->loss, "loss"), "the loss", error));
    if (c->flops != NULL || by_table_find(table, "flops") != NULL) {
        BY_TRY(find_numbers(&found[3], table, or_default(c->flops, "flops"), "FLOPs", error));
    }
    if (c->where != NULL) {
        where = by_table_find(table, c->where);
        if (where == NULL) {
            return refuse_column(table, c->where, "a condition", error);
        }
    }
    BY_TRY(by__alloc(&memory, (size_t)by_table_rows(table) + 1, sizeof **runs, "runs", error));
    *runs = memory;
    by_status status = BY_OK;
    for (uint64_t row = 0; status == BY_OK && row < by_table_rows(table); row++) {
        if (where == NULL || has_value(where, row, c->is)) {
            status = read_row(&(*runs)[*count], found, by_table_name(table), row, error);
            *count += 1;
        }
    }
    if (status == BY_OK && *count == 0) {
        status = by_error_set(error, BY_EARG, "%s: no row%s%s%s%s", by_table_name(table),
                              where == NULL ? "" : " whose ", where == NULL ? "" : c->where,
                              where == NULL ? "" : " is ", where == NULL ? "" : c->is);
    }
    if (status != BY_OK) {
        free(*runs);
        *runs = NULL;
        *count = 0;
    }
    return status;
}
