/* Kinds of a table's columns: declared, learned, or found in the cells. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "data/table/table_parts.h"

/* In a column of numbers, at most one cell in so many is taken for a mistake; a single one also in
 * a short table, which a category of one cell cannot be told from in fewer cells than these. */
#define MISTAKES       1000
#define SINGLE_MISTAKE 20
/* At most one cell in so many need not resemble a number for the others to be worth a remark. */
#define RESEMBLING 10

/* Whether a text is a value of a learned category, though it looks like a missing cell. */
static bool is_learned(const by__table_column *c, const char *text, size_t length)
{
    char copy[64];
    if (c->own == NULL || !c->own->is_category || length >= sizeof copy) {
        return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    return by__same_value((const char *const *)c->own->values, c->own->count, &c->own->aliases,
                          copy) >= 0;
}

by__table_cell_class by__table_cell_read(double *number, const by__table_column *c,
                                         const char *text, size_t length, char decimal)
{
    if (by__table_cell_missing(text, length)) {
        return is_learned(c, text, length) ? BY__CELL_TEXT : BY__CELL_MISSING;
    }
    switch (c->info.kind) {
    case BY_COLUMN_CATEGORY:
        return BY__CELL_TEXT;
    case BY_COLUMN_NUMBER:
    case BY_COLUMN_AUTO:
        break;
    }
    if (c->own != NULL && c->own->is_truth) {
        return by__table_cell_as_number(text, length, decimal, number) ? BY__CELL_NUMBER
                                                                       : BY__CELL_TEXT;
    }
    return by__table_cell_number(text, length, decimal, number) ? BY__CELL_NUMBER : BY__CELL_TEXT;
}

void by__table_kind_count(by__table_column *c, by__table_cell_class class, const char *text,
                          size_t length, const char *path, uint64_t at)
{
    if (class == BY__CELL_NUMBER) {
        c->number_cells++;
    } else if (class == BY__CELL_TEXT) {
        if (c->info.odd_cells++ == 0) {
            (void)by__table_cell_quote(c->info.odd, text, length);
            c->info.odd_path = path;
            c->info.odd_line = at;
        }
        c->near_cells += by__data_cell_resembles(text, length);
    }
}

by_status by__table_cell_refuse(const by__table_column *c, const char *where, const char *text,
                                size_t length, by_error *error)
{
    char quoted[64];
    const char *problem = by__table_cell_problem(text, length);
    return by_error_set(error, BY_EFORMAT, "%s: column '%.60s': %s is not a number%s%s", where,
                        c->info.name, by__table_cell_quote(quoted, text, length),
                        problem == NULL ? "" : ": ", problem == NULL ? "" : problem);
}

/* The error of the first odd cell of a column of numbers. */
static by_status refuse_odd(const by__table_column *c, by_error *error)
{
    const char *problem = by__table_cell_problem(c->info.odd + 1, strlen(c->info.odd) - 2);
    return by_error_set(
        error, BY_EFORMAT,
        "%s:%" PRIu64 ": column '%.60s': %s is not a number, as %" PRIu64 " of %" PRIu64
        " cells are%s%s; mend the file, leave such rows out (data.corrupt=skip), take the "
        "column as categories (data.category_columns) or leave it out (data.ignore)",
        c->info.odd_path, c->info.odd_line, c->info.name, c->info.odd, c->number_cells,
        c->number_cells + c->info.odd_cells, problem == NULL ? "" : ": ",
        problem == NULL ? "" : problem);
}

by_status by__table_kinds_decide(by_table *t, bool skip, bool *again, by_error *error)
{
    *again = false;
    for (size_t i = 0; i < t->column_count; i++) {
        by__table_column *c = &t->columns[i];
        uint64_t odd = c->info.odd_cells;
        if (c->info.kind != BY_COLUMN_AUTO) {
            c->info.odd_cells = 0; /* counted before the kind was known */
            c->info.odd[0] = '\0';
            continue;
        }
        uint64_t cells = c->number_cells + odd;
        bool mistakes =
            odd > 0 && (odd <= cells / MISTAKES || (odd == 1 && cells >= SINGLE_MISTAKE));
        if (mistakes && !c->ignored) {
            if (!skip) {
                return refuse_odd(c, error);
            }
            *again = true;
            odd = 0;
        }
        c->info.kind = odd > 0 ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER;
        /* Of a column of texts nothing is odd, unless nearly all of them resemble numbers. */
        c->info.near_cells = c->near_cells;
        bool near = c->number_cells + c->near_cells >= cells - cells / RESEMBLING;
        if (odd == 0 || (c->number_cells == 0 && !near)) {
            c->info.odd_cells = 0;
            c->info.odd[0] = '\0';
        }
    }
    return BY_OK;
}

by_status by__table_column_allocate(by__table_column *c, uint64_t rows, by_error *error)
{
    return c->info.kind == BY_COLUMN_NUMBER
               ? by__alloc((void **)&c->numbers, (size_t)rows, sizeof *c->numbers,
                           "numbers of a column", error)
               : by__alloc((void **)&c->categories, (size_t)rows, sizeof *c->categories,
                           "categories of a column", error);
}

by_status by__table_cell_store(by__table_column *c, uint64_t row, const char *text, size_t length,
                               char decimal, bool *fits, by_error *error)
{
    double number = 0.0;
    by__table_cell_class class = by__table_cell_read(&number, c, text, length, decimal);
    *fits = true;
    if (c->numbers != NULL) {
        *fits = class != BY__CELL_TEXT;
        c->numbers[row] = class == BY__CELL_NUMBER ? number : (double)NAN;
        return BY_OK;
    }
    if (class == BY__CELL_MISSING) {
        c->categories[row] = -1;
        return BY_OK;
    }
    return by__table_value(&c->values, text, length, &c->categories[row], error);
}
