/* Tables from JSON lines: a row is an object of cells, such as a line of a payload log. Lines are
 * parsed twice, first to find the columns and their kinds, then to fill them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "data/row_cell.h"
#include "data/table_parts.h"

/* Most columns: more are no table, but texts or ids as names of fields. */
#define MOST_COLUMNS 4096

/* A cell as the text that a CSV file would have. */
typedef struct cell {
    const char *text; /* NULL: missing */
    size_t length;
    char digits[BY__CELL_DIGITS]; /* where the text of a number is */
} cell;

/* Reads the rows of all parts in order. */
typedef struct lines {
    const by__table_text *parts;
    size_t count;
    size_t part;
    size_t at;     /* in the part */
    uint64_t line; /* that was read last */
    json_t *value; /* of that line; owned */
    json_t *row;   /* within `value` */
} lines;

/* Message about the current line. */
#define AT "%s:%" PRIu64 ": "

static by_status parse_line(lines *in, const char *begin, size_t length, by_error *error)
{
    const char *name = in->parts[in->part].name;
    json_error_t problem;
    json_decref(in->value);
    in->value = by_json_load(begin, length, JSON_REJECT_DUPLICATES, &problem);
    if (!json_is_object(in->value)) {
        return by_error_set(error, BY_EFORMAT, AT "%s", name, in->line,
                            in->value == NULL ? problem.text : "not a JSON object");
    }
    in->row = json_object_get(in->value, "row");
    in->row = json_is_object(in->row) && by__json_spelled(in->row) == NULL ? in->row : in->value;
    return BY_OK;
}

/* Reads the next line that is not blank. */
static by_status next(lines *in, bool *found, by_error *error)
{
    for (*found = false; in->part < in->count; in->part++, in->at = 0, in->line = 0) {
        const by__table_text *p = &in->parts[in->part];
        while (in->at < p->length) {
            const char *begin = p->text + in->at;
            const char *end = memchr(begin, '\n', p->length - in->at);
            size_t length = end == NULL ? p->length - in->at : (size_t)(end - begin);
            in->at += length + (end != NULL);
            in->line++;
            while (length > 0 && strchr(" \t\r", begin[length - 1]) != NULL) {
                length--;
            }
            if (length > 0) {
                *found = true;
                return parse_line(in, begin, length, error);
            }
        }
    }
    return BY_OK;
}

static by_status read_cell(cell *out, const lines *in, const char *name, const json_t *value,
                           by_error *error)
{
    out->text = by__row_cell_text(out->digits, value);
    if (by__json_is_number(value)) {
        out->length = strlen(out->text);
        return BY_OK;
    }
    if (value != NULL && !json_is_string(value) && !json_is_null(value)) {
        return by_error_set(error, BY_EFORMAT, AT "'%s': a cell is a text, a number or null",
                            in->parts[in->part].name, in->line, name);
    }
    out->length = json_string_length(value);
    if (out->text != NULL && by__table_missing(out->text, out->length)) {
        out->text = NULL;
    }
    return BY_OK;
}

/* The column with this name; a new one if there is none. Rows mostly have the same order, so that
 * `guess` is tried first. */
static by_status column_of(by__table_column **out, by_table *t, const lines *in, const char *name,
                           size_t guess, by_error *error)
{
    for (size_t k = 0; k <= t->column_count; k++) {
        size_t i = k == 0 ? guess : k - 1;
        if (i < t->column_count && strcmp(t->columns[i].info.name, name) == 0) {
            *out = &t->columns[i];
            return BY_OK;
        }
    }
    if (name[0] == '\0' || t->column_count == MOST_COLUMNS) {
        return by_error_set(error, BY_EFORMAT, AT "%s", in->parts[in->part].name, in->line,
                            name[0] == '\0' ? "a column has no name"
                                            : "more than 4096 columns: is each line a row?");
    }
    BY_TRY(by__reserve((void **)&t->columns, &t->column_capacity, t->column_count + 1,
                       sizeof *t->columns, error));
    *out = &t->columns[t->column_count];
    **out = (by__table_column){.info.name = by__strdup(name)};
    if ((*out)->info.name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: name");
    }
    t->column_count++;
    return BY_OK;
}

/* Counts the rows, and finds the columns and which of them contain text. */
static by_status scan(by_table *t, lines *in, by_error *error)
{
    for (;;) {
        bool found;
        const char *name;
        json_t *value;
        size_t i = 0;
        BY_TRY(next(in, &found, error));
        if (!found) {
            return BY_OK;
        }
        t->rows++;
        json_object_foreach(in->row, name, value)
        {
            by__table_column *c;
            cell one;
            double number;
            BY_TRY(column_of(&c, t, in, name, i++, error));
            BY_TRY(read_cell(&one, in, name, value, error));
            c->is_text = c->is_text ||
                         (one.text != NULL && !by__table_number(one.text, one.length, &number));
        }
    }
}

static by_status open_columns(by_table *t, by_error *error)
{
    for (size_t i = 0; i < t->column_count; i++) {
        by__table_column *c = &t->columns[i];
        size_t rows = (size_t)t->rows;
        if (c->info.kind == BY_COLUMN_AUTO) {
            c->info.kind = c->is_text ? BY_COLUMN_CATEGORY : BY_COLUMN_NUMBER;
        }
        BY_TRY(c->info.kind == BY_COLUMN_NUMBER
                   ? by__alloc((void **)&c->numbers, rows, sizeof *c->numbers, "numbers", error)
                   : by__alloc((void **)&c->categories, rows, sizeof *c->categories, "categories",
                               error));
    }
    return BY_OK;
}

static by_status fill_cell(by__table_column *c, const lines *in, uint64_t row, const cell *from,
                           by_error *error)
{
    c->info.missing += from->text == NULL;
    if (c->numbers == NULL) {
        c->categories[row] = -1;
        return from->text == NULL ? BY_OK
                                  : by__table_value(&c->values, from->text, from->length,
                                                    &c->categories[row], error);
    }
    c->numbers[row] = (double)NAN;
    if (from->text == NULL || by__table_number(from->text, from->length, &c->numbers[row])) {
        return BY_OK;
    }
    return by_error_set(error, BY_EFORMAT, AT "'%s': '%.*s' is not a number",
                        in->parts[in->part].name, in->line, c->info.name,
                        (int)(from->length < 40 ? from->length : 40), from->text);
}

static by_status fill(by_table *t, lines *in, by_error *error)
{
    for (uint64_t row = 0; row < t->rows; row++) {
        bool found;
        BY_TRY(next(in, &found, error));
        for (size_t i = 0; i < t->column_count; i++) {
            by__table_column *c = &t->columns[i];
            cell one;
            BY_TRY(
                read_cell(&one, in, c->info.name, json_object_get(in->row, c->info.name), error));
            BY_TRY(fill_cell(c, in, row, &one, error));
        }
    }
    return BY_OK;
}

by_status by__table_read_json(by_table *t, const by__table_text *parts, size_t count,
                              const by_table_options *options, by_error *error)
{
    lines in = {.parts = parts, .count = count};
    by_status status = scan(t, &in, error);
    if (status == BY_OK && (t->rows == 0 || t->column_count == 0)) {
        status = by_error_set(error, BY_EFORMAT, "%s: there are no rows", t->name);
    }
    if (status == BY_OK) {
        status = by__table_set_types(t, options, error);
    }
    if (status == BY_OK) {
        status = open_columns(t, error);
    }
    if (status == BY_OK) {
        in.part = 0;
        in.at = 0;
        in.line = 0;
        status = fill(t, &in, error);
    }
    json_decref(in.value);
    by__table_finish(t);
    return status;
}
