/* Tables from CSV: the file is read twice, first to count rows and determine the kinds of columns,
 * then to fill them. A cell needs no allocation; a category's value is stored once. */
#include "banyan/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/host/file_kind.h"
#include "base/paths.h"
#include "data/table/table_parts.h"
#include "formats/array_file.h"
#include "formats/csv.h"
#include "formats/parquet.h"

/* State of reading rows. */
typedef struct row_reader {
    by_table *table;
    by__format_csv csv;
    char decimal;
    by__format_csv_cell *cells; /* of the current row */
    bool skip;
    const by_table_options *options; /* rows need a value in its columns `required` */
    by__loader_damage
        *damage;  /* where skipped rows are recorded; NULL: they were recorded before */
    uint64_t row; /* index in the file */
} row_reader;

/* ---- rows ---- */

static by_status check_count(const by_table *t, const by__format_csv_cell *cell, by_error *error)
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
static by_status check_cell(const row_reader *r, const by__format_csv_cell *cell, by_error *error)
{
    double number;
    char where[BY__WHERE];
    const by__table_column *c = &r->table->columns[cell->column];
    if (c->info.kind != BY_COLUMN_NUMBER || c->ignored ||
        by__table_cell_read(&number, c, cell->text, cell->length, r->decimal) != BY__CELL_TEXT) {
        return BY_OK;
    }
    (void)snprintf(where, sizeof where, "%.200s:%" PRIu64, r->table->name, cell->line);
    return by__table_cell_refuse(c, where, cell->text, cell->length, error);
}

static by_status check_required(const row_reader *r, by_error *error)
{
    const by_table *t = r->table;
    double number;
    for (size_t i = 0; i < r->options->required_count; i++) {
        int32_t at = by__table_index(t, r->options->required[i]);
        if (at < 0) {
            continue;
        }
        const by__table_column *column = &t->columns[at];
        const by__format_csv_cell *cell = &r->cells[at];
        if (by__table_cell_read(&number, column, cell->text, cell->length, r->decimal) ==
            BY__CELL_MISSING) {
            return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": there is no value in '%s'",
                                t->name, r->cells[0].line, column->info.name);
        }
    }
    return BY_OK;
}

/* Reads the cells of the next row. */
static by_status read_row(row_reader *r, bool *found, by_error *error)
{
    const by_table *t = r->table;
    by__format_csv_cell cell = {0};
    do {
        BY_TRY(by__format_csv_next(&r->csv, &cell, found, error));
        if (!*found) {
            return BY_OK;
        }
        BY_TRY(check_count(t, &cell, error));
        BY_TRY(check_cell(r, &cell, error));
        r->cells[cell.column] = cell;
    } while (!cell.ends_row);
    return r->skip ? check_required(r, error) : BY_OK;
}

/* Records a skipped row that begins at `begin`, and continues behind it. */
static by_status skip_row(row_reader *r, by__format_csv begin, const by_error *problem,
                          by_error *error)
{
    char line[300];
    const char *reason = problem->message;
    (void)snprintf(line, sizeof line, "%s:", r->table->name);
    if (strncmp(reason, line, strlen(line)) == 0) { /* "FILE:LINE: " */
        reason += strlen(line);
        reason += strspn(reason, "0123456789: ");
    }
    const by_damage item = {
        .path = r->table->name, .place = begin.line, .begin = r->row, .count = 1, .reason = reason};
    r->csv = begin;
    by__format_csv_skip_row(&r->csv);
    return r->damage == NULL ? BY_OK : by__loader_damage_add(r->damage, &item, error);
}

/* Reads the next undamaged row. */
static by_status next_row(row_reader *r, bool *found, by_error *error)
{
    for (;;) {
        by_error problem = {0};
        by__format_csv_skip_lines(&r->csv);
        const by__format_csv begin = r->csv;
        by_status status = read_row(r, found, r->skip ? &problem : error);
        if (status == BY_OK || !r->skip) {
            r->row += status == BY_OK && *found;
            return status;
        }
        if (status != BY_EFORMAT) {
            return by_error_set(error, status, "%s", problem.message);
        }
        BY_TRY(skip_row(r, begin, &problem, error));
        r->row++;
    }
}

static by_status name_column(by_table *t, const by__format_csv_cell *cell, by_error *error)
{
    char *text;
    by_string name = {0};
    by__format_csv_unescape(&name, cell);
    BY_TRY(by__string_release(&name, &text, error));
    if (text[0] == '\0' || !by__utf8_valid(text, strlen(text))) {
        bool nameless = text[0] == '\0';
        bool last = cell->ends_row;
        free(text);
        return by_error_set(error, BY_EFORMAT, "%s:%" PRIu64 ": column %zu has %s%s", t->name,
                            cell->line, cell->column + 1,
                            nameless ? "no name" : "a name that is not UTF-8: iconv converts files",
                            !nameless           ? ""
                            : cell->column == 0 ? "; an index of pandas is left out by index=False"
                            : last              ? "; is there a separator at the end of each line?"
                                                : "");
    }
    by_status status = by__table_add_column(t, text, error);
    return status == BY_EFORMAT ? by_error_prefix(error, status, "%s:%" PRIu64, t->name, cell->line)
                                : status;
}

static by_status read_header(by_table *t, by__format_csv *csv, by_error *error)
{
    by__format_csv_cell cell = {0};
    bool found = true;
    while (found && !cell.ends_row) {
        BY_TRY(by__format_csv_next(csv, &cell, &found, error));
        if (found) {
            BY_TRY(name_column(t, &cell, error));
        }
    }
    return t->column_count > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: empty: there is no header", t->name);
}

/* Counts the rows, and the cells of columns of unknown kind. */
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
        BY_TRY(by__table_place_row(t, t->rows, r->cells[0].line, NULL, error));
        t->rows++;
        for (size_t i = 0; i < t->column_count; i++) {
            by__table_column *c = &t->columns[i];
            const by__format_csv_cell *cell = &r->cells[i];
            by__table_cell_class class =
                by__table_cell_read(&number, c, cell->text, cell->length, r->decimal);
            c->info.missing += class == BY__CELL_MISSING;
            if (c->info.kind == BY_COLUMN_AUTO) {
                by__table_kind_count(c, class, cell->text, cell->length, t->name, cell->line);
            }
        }
    }
    return t->rows > 0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: there are no rows below the header", t->name);
}

static void reset_rows(by_table *t)
{
    by__loader_damage_free(&t->damage);
    t->rows = 0;
    t->place_count = 0;
    for (size_t i = 0; i < t->column_count; i++) {
        t->columns[i].info.missing = 0;
    }
}

static by_status fill_cell(by__table_column *c, uint64_t row, const by__format_csv_cell *cell,
                           char decimal, by_string *scratch, by_error *error)
{
    bool fits;
    if (!cell->escaped) {
        return by__table_cell_store(c, row, cell->text, cell->length, decimal, &fits, error);
    }
    scratch->length = 0;
    by__format_csv_unescape(scratch, cell);
    if (scratch->failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a cell");
    }
    return by__table_cell_store(c, row, scratch->data, scratch->length, decimal, &fits, error);
}

static by_status fill(row_reader *r, by_error *error)
{
    by_table *t = r->table;
    by_string scratch = {0};
    by_status status = BY_OK;
    uint64_t row = 0;
    for (size_t i = 0; i < t->column_count && status == BY_OK; i++) {
        status = by__table_column_allocate(&t->columns[i], t->rows, error);
    }
    for (; status == BY_OK && row < t->rows; row++) {
        bool found;
        status = next_row(r, &found, error);
        for (size_t i = 0; i < t->column_count && status == BY_OK; i++) {
            status = fill_cell(&t->columns[i], row, &r->cells[i], r->decimal, &scratch, error);
        }
    }
    by_string_free(&scratch);
    return status == BY_OK ? by__table_finish(t, error) : status;
}

/* ---- opening ---- */

/* The decimal mark of the numbers in all cells; damaged rows are passed over. */
static char find_decimal(by__format_csv csv)
{
    by_error ignored;
    by__format_csv_cell cell;
    bool found = true;
    bool comma = false;
    while (found) {
        by__format_csv_skip_lines(&csv);
        const by__format_csv begin = csv;
        do {
            cell = (by__format_csv_cell){.ends_row = true};
            if (by__format_csv_next(&csv, &cell, &found, &ignored) != BY_OK) {
                csv = begin;
                by__format_csv_skip_row(&csv);
                break;
            }
            int sign = found ? by__table_cell_decimal(cell.text, cell.length) : 0;
            if (sign < 0) {
                return '.';
            }
            comma = comma || sign > 0;
        } while (!cell.ends_row);
    }
    return comma ? ',' : '.';
}

/* Reads the rows after the header; `csv` is positioned there. */
static by_status read_rows(by_table *t, by__format_csv csv, const by_table_options *o,
                           by_error *error)
{
    row_reader r = {.table = t,
                    .csv = csv,
                    .decimal = o->decimal,
                    .skip = o->skip,
                    .options = o,
                    .damage = &t->damage};
    bool again = false;
    if (r.decimal == '\0') {
        bool any = csv.separator != ',' && memchr(csv.at, ',', (size_t)(csv.end - csv.at)) != NULL;
        r.decimal = any ? find_decimal(csv) : '.';
    }
    BY_TRY(by__alloc((void **)&r.cells, t->column_count, sizeof *r.cells, "a row", error));
    by_status status = scan(&r, error);
    if (status == BY_OK) {
        status = by__table_kinds_decide(t, o->skip, &again, error);
    }
    if (status == BY_OK && again) {
        reset_rows(t);
        r.csv = csv;
        r.row = 0;
        status = scan(&r, error);
    }
    if (status == BY_OK) {
        r.csv = csv;
        r.damage = NULL;
        status = fill(&r, error);
    }
    free(r.cells);
    return status;
}

static by_status read_csv(by_table *t, const char *text, size_t length, const by_table_options *o,
                          by_error *error)
{
    by__format_csv csv;
    t->has_lines = true;
    t->separator = o->separator == '\0' ? by__format_csv_separator(text, length) : o->separator;
    by__format_csv_begin(&csv, t->name, text, length, t->separator);
    BY_TRY(read_header(t, &csv, error));
    BY_TRY(by__table_set_types(t, o, error));
    return read_rows(t, csv, o, error);
}

/* JSON that is not one object a line would be read as cells with quotes in them. */
static by_status check_json(const char *name, const char *text, size_t length, by_error *error)
{
    size_t at = length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < length && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0') {
        at++;
    }
    bool named = by__ends_with(name, ".json") || by__ends_with(name, ".json.gz");
    if (!named || at == length || (text[at] != '[' && text[at] != '{')) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT,
                        "%s: a table is read from JSON lines (.jsonl), an object in each: %s", name,
                        text[at] == '[' ? "jq -c '.[]' makes them of this list"
                                        : "jq -c makes them of these objects");
}

by_status by_table_parse(by_table **out, const char *name, const char *text, size_t length,
                         const by_table_options *options, by_error *error)
{
    by_table_options o = options == NULL ? (by_table_options){0} : *options;
    by_table *t;
    BY_TRY(by__alloc((void **)&t, 1, sizeof *t, "a table", error));
    t->name = by__strdup(name);
    by_status status =
        t->name == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: name") : BY_OK;
    /* By what it holds or is named: a file of another format is no table of numbers by chance. */
    if (status == BY_OK &&
        (by__format_parquet_is((const uint8_t *)text, length) || by__ends_with(name, ".parquet"))) {
        status = by__table_read_parquet(t, (const uint8_t *)text, length, &o, error);
    } else if (status == BY_OK) {
        status = by__file_check_text(name, (const uint8_t *)text, length, "table", error);
        if (status == BY_OK) {
            status = check_json(name, text, length, error);
        }
        if (status == BY_OK && by__is_json_lines(name)) {
            const by__table_text part = {name, text, length};
            status = by__table_read_json(t, &part, 1, &o, error);
        } else if (status == BY_OK) {
            status = read_csv(t, text, length, &o, error);
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
    BY_TRY(by__format_array_file_read(&data, &size, path, BY__ARRAY_FILE_LIMIT, error));
    by_status status = by_table_parse(out, path, (const char *)data, size, options, error);
    free(data);
    return status;
}
