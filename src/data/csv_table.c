/* Tables from CSV: the file is read twice, first to count rows and determine the kinds of columns,
 * then to fill them. A cell needs no allocation; a category's value is stored once. */
#include "banyan/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/paths.h"
#include "data/formats/array_file.h"
#include "data/formats/csv.h"
#include "data/formats/parquet.h"
#include "data/table_parts.h"

/* State of reading rows. */
typedef struct row_reader {
    by_table *table;
    by__csv csv;
    by__csv_cell *cells; /* of the current row */
    bool skip;
    const by__table_column *required; /* NULL: none */
    by__damage *damage; /* where skipped rows are recorded; NULL: they were recorded before */
    uint64_t row;       /* index in the file */
} row_reader;

/* ---- cells ---- */

static bool is_missing(const by__csv_cell *cell)
{
    return by__table_missing(cell->text, cell->length);
}

static bool read_number(const by__csv_cell *cell, double *out)
{
    return by__table_number(cell->text, cell->length, out);
}

/* ---- rows ---- */

static by_status check_count(const by_table *t, const by__csv_cell *cell, by_error *error)
{
    size_t cells = cell->column + 1;
    if (cells > t->column_count || (cell->ends_row && cells < t->column_count)) {
        return by_error_set(error, BY_EFORMAT,
                            "%s:%" PRIu64 ": the row has %s %zu cells, but the header has %zu",
                            t->name, cell->line, cells < t->column_count ? "only" : "at least",
                            cells, t->column_count);
    }
    return BY_OK;
}

/* A column that must be numeric may not contain text. */
static by_status check_cell(const by_table *t, const by__csv_cell *cell, by_error *error)
{
    double number;
    const by__table_column *c = &t->columns[cell->column];
    if (c->info.kind != BY_COLUMN_NUMBER || is_missing(cell) || read_number(cell, &number)) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s:%" PRIu64 ": column %zu, '%s': '%.*s' is not a number", t->name,
                        cell->line, cell->column + 1, c->info.name,
                        (int)(cell->length < 40 ? cell->length : 40), cell->text);
}

/* Reads the cells of the next row. */
static by_status take_row(row_reader *r, bool *found, by_error *error)
{
    const by_table *t = r->table;
    by__csv_cell cell = {0};
    do {
        BY_TRY(by__csv_next(&r->csv, &cell, found, error));
        if (!*found) {
            return BY_OK;
        }
        BY_TRY(check_count(t, &cell, error));
        BY_TRY(check_cell(t, &cell, error));
        r->cells[cell.column] = cell;
    } while (!cell.ends_row);
    if (r->required != NULL && is_missing(&r->cells[r->required - t->columns])) {
        return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": there is no value in '%s'", t->name,
                            r->cells[0].line, r->required->info.name);
    }
    return BY_OK;
}

/* Records a skipped row that begins at `begin`, and continues with the next line. */
static by_status pass_row(row_reader *r, by__csv begin, const by_error *problem, by_error *error)
{
    char line[300];
    const char *reason = problem->message;
    const char *end = memchr(begin.at, '\n', (size_t)(begin.end - begin.at));
    (void)snprintf(line, sizeof line, "%s:", r->table->name);
    if (strncmp(reason, line, strlen(line)) == 0) { /* "FILE:LINE: " */
        reason += strlen(line);
        reason += strspn(reason, "0123456789: ");
    }
    const by_damage item = {
        .path = r->table->name, .place = begin.line, .begin = r->row, .count = 1, .reason = reason};
    r->csv = begin;
    r->csv.at = end == NULL ? begin.end : end + 1;
    r->csv.line++;
    return r->damage == NULL ? BY_OK : by__damage_add(r->damage, &item, error);
}

/* Reads the next undamaged row. */
static by_status next_row(row_reader *r, bool *found, by_error *error)
{
    for (;;) {
        by_error problem = {0};
        by__csv_skip_lines(&r->csv);
        const by__csv begin = r->csv;
        by_status status = take_row(r, found, r->skip ? &problem : error);
        if (status == BY_OK || !r->skip) {
            r->row += status == BY_OK && *found;
            return status;
        }
        if (status != BY_EFORMAT) {
            return by_error_set(error, status, "%s", problem.message);
        }
        BY_TRY(pass_row(r, begin, &problem, error));
        r->row++;
    }
}

static by_status read_header(by_table *t, by__csv *csv, by_error *error)
{
    by__csv_cell cell = {0};
    bool found = true;
    while (found && !cell.ends_row) {
        by__text name = {0};
        BY_TRY(by__csv_next(csv, &cell, &found, error));
        if (!found) {
            break;
        }
        BY_TRY(by__reserve((void **)&t->columns, &t->column_capacity, t->column_count + 1,
                           sizeof *t->columns, error));
        by__table_column *c = &t->columns[t->column_count++];
        *c = (by__table_column){0};
        char *text;
        by__csv_unescape(&name, &cell);
        BY_TRY(by__text_take(&name, &text, error));
        c->info.name = text;
        if (text[0] == '\0' || !by__utf8_valid(text, strlen(text))) {
            return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": column %zu has %s", t->name,
                                cell.line, cell.column + 1,
                                text[0] == '\0' ? "no name" : "a name that is not UTF-8");
        }
        if (by_table_find(t, text) != &c->info) {
            return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": two columns are named '%s'",
                                t->name, cell.line, text);
        }
    }
    return t->column_count > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: empty: there is no header", t->name);
}

/* Counts the rows and determines which columns contain text. */
static by_status scan(row_reader *r, by_error *error)
{
    by_table *t = r->table;
    for (;;) {
        bool found;
        double number;
        BY_TRY(next_row(r, &found, error));
        if (!found) {
            break;
        }
        t->rows++;
        for (size_t i = 0; i < t->column_count; i++) {
            by__table_column *c = &t->columns[i];
            bool missing = is_missing(&r->cells[i]);
            c->info.missing += missing;
            c->is_text = c->is_text || (!missing && !read_number(&r->cells[i], &number));
        }
    }
    return t->rows > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: there are no rows below the header", t->name);
}

static by_status fill_cell(by__table_column *c, uint64_t row, const by__csv_cell *cell,
                           by__text *scratch, by_error *error)
{
    if (c->numbers != NULL) {
        c->numbers[row] = NAN;
        if (!is_missing(cell)) {
            (void)read_number(cell, &c->numbers[row]);
        }
        return BY_OK;
    }
    if (is_missing(cell)) {
        c->categories[row] = -1;
        return BY_OK;
    }
    if (!cell->escaped) {
        return by__table_value(&c->values, cell->text, cell->length, &c->categories[row], error);
    }
    scratch->length = 0;
    by__csv_unescape(scratch, cell);
    if (scratch->failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a cell");
    }
    return by__table_value(&c->values, scratch->data, scratch->length, &c->categories[row], error);
}

static by_status fill(row_reader *r, by_error *error)
{
    by_table *t = r->table;
    by__text scratch = {0};
    by_status status = BY_OK;
    uint64_t row = 0;
    for (size_t i = 0; i < t->column_count && status == BY_OK; i++) {
        by__table_column *c = &t->columns[i];
        if (c->info.kind == BY_COLUMN_AUTO) {
            c->info.kind = c->is_text ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER;
        }
        status = c->info.kind == BY_COLUMN_NUMBER
                     ? by__alloc((void **)&c->numbers, (size_t)t->rows, sizeof *c->numbers,
                                 "numbers of a column", error)
                     : by__alloc((void **)&c->categories, (size_t)t->rows, sizeof *c->categories,
                                 "categories of a column", error);
    }
    for (; status == BY_OK && row < t->rows; row++) {
        bool found;
        status = next_row(r, &found, error);
        for (size_t i = 0; i < t->column_count && status == BY_OK; i++) {
            status = fill_cell(&t->columns[i], row, &r->cells[i], &scratch, error);
        }
    }
    by__text_free(&scratch);
    by__table_finish(t);
    return status;
}

/* ---- opening ---- */

/* Reads the rows after the header; `csv` is positioned there. */
static by_status read_rows(by_table *t, by__csv csv, const by_table_options *o, by_error *error)
{
    row_reader r = {.table = t, .csv = csv, .skip = o->skip, .damage = &t->damage};
    for (size_t i = 0; i < t->column_count && o->skip && o->required != NULL; i++) {
        if (strcmp(t->columns[i].info.name, o->required) == 0) {
            r.required = &t->columns[i];
        }
    }
    BY_TRY(by__alloc((void **)&r.cells, t->column_count, sizeof *r.cells, "a row", error));
    by_status status = scan(&r, error);
    if (status == BY_OK) {
        r.csv = csv;
        r.damage = NULL;
        status = fill(&r, error);
    }
    free(r.cells);
    return status;
}

by_status by_table_parse(by_table **out, const char *name, const char *text, size_t length,
                         const by_table_options *options, by_error *error)
{
    by_table_options o = options == NULL ? (by_table_options){0} : *options;
    by_table *t;
    by__csv csv;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a table", error));
    t->name = by__strdup(name);
    by_status status =
        t->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name") : BY_OK;
    if (status == BY_OK && by__parquet_is((const uint8_t *)text, length)) {
        status = by__table_read_parquet(t, (const uint8_t *)text, length, &o, error);
    } else if (status == BY_OK && by__is_json_lines(name)) {
        const by__table_text part = {name, text, length};
        status = by__table_read_json(t, &part, 1, &o, error);
    } else if (status == BY_OK) {
        by__csv_begin(&csv, t->name, text, length, o.separator == '\0' ? ',' : o.separator);
        status = read_header(t, &csv, error);
        if (status == BY_OK) {
            status = by__table_set_types(t, &o, error);
        }
        if (status == BY_OK) {
            status = read_rows(t, csv, &o, error);
        }
    }
    if (status != BY_OK) {
        by_table_close(&t);
        return status;
    }
    *out = t;
    return BY_OK;
}

by_status by_table_open(by_table **out, const char *path, const by_table_options *options,
                        by_error *error)
{
    uint8_t *data;
    size_t size;
    if (by__path_is_dir(path)) {
        return by__table_open_directory(out, path, options, error);
    }
    BY_TRY(by__array_file_read(&data, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by_table_parse(out, path, (const char *)data, size, options, error);
    free(data);
    return status;
}
