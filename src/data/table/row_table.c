#include "data/table/row_table.h"

#include <stdio.h>
#include <string.h>

#include "data/table/table_parts.h"

static by_status add_columns(by_table *t, const by_table_options *o, by_error *error)
{
    for (size_t i = 0; i < o->type_count; i++) {
        char *copy = by__strdup(o->types[i].name);
        if (copy == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: name");
        }
        BY_TRY(by__table_add_column(t, copy, error));
    }
    return by__table_set_types(t, o, error);
}

static by_status fill(by_table *t, const char *const *cells, by_error *error)
{
    for (size_t i = 0; i < t->column_count; i++) {
        by__table_column *c = &t->columns[i];
        BY_TRY(by__table_column_allocate(c, t->rows, error));
        for (uint64_t row = 0; row < t->rows; row++) {
            double number;
            bool fits;
            char where[BY__WHERE];
            const char *text = cells[row * t->column_count + i];
            text = text == NULL ? "" : text;
            size_t length = strlen(text);
            c->info.missing +=
                by__table_cell_read(&number, c, text, length, '.') == BY__CELL_MISSING;
            BY_TRY(by__table_cell_store(c, row, text, length, '.', &fits, error));
            if (!fits) {
                return by__table_cell_refuse(c, by__table_where(where, t, row), text, length,
                                             error);
            }
        }
    }
    return BY_OK;
}

by_status by__table_row(by_table **out, const by_column_type *types, size_t columns,
                        const by_encoding *learned, const char *const *cells, size_t rows,
                        by_error *error)
{
    by_table *t;
    const by_table_options options = {.types = types, .type_count = columns, .learned = learned};
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a table", error));
    t->name = by__strdup("the rows");
    t->rows = rows;
    by_status status =
        t->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name") : BY_OK;
    if (status == BY_OK) {
        status = add_columns(t, &options, error);
    }
    if (status == BY_OK) {
        status = fill(t, cells, error);
    }
    if (status == BY_OK) {
        status = by__table_finish(t, error);
    }
    if (status != BY_OK) {
        by_table_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}
