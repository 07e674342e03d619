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

/* Where the current line is. */
static const char *where(char out[BY__WHERE], const lines *in)
{
    (void)snprintf(out, BY__WHERE, "%.200s:%" PRIu64, in->parts[in->part].name, in->line);
    return out;
}

static by_status read_cell(cell *out, const lines *in, const by__table_column *column,
                           const json_t *value, by_error *error)
{
    char at[BY__WHERE];
    out->text = by__row_cell_text(out->digits, value);
    if (by__json_is_number(value) || json_is_boolean(value)) {
        out->length = strlen(out->text);
        return BY_OK;
    }
    if (value != NULL && !json_is_string(value) && !json_is_null(value) && !column->ignored) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: '%s': a cell is a text, a number, true, false or null",
                            where(at, in), column->info.name);
    }
    out->length = json_string_length(value);
    return BY_OK;
}

static by__cell_class class_of(double *number, const by__table_column *column, const cell *one)
{
    return one->text == NULL ? BY__CELL_MISSING
                             : by__cell_read(number, column, one->text, one->length, '.');
}

/* The column with this name; a new one if there is none. Rows mostly have the same order, so that
 * `guess` is tried first. */
static by_status column_of(by__table_column **out, by_table *t, const lines *in, const char *name,
                           size_t guess, const by_table_options *o, by_error *error)
{
    char at[BY__WHERE];
    int32_t known = guess < t->column_count && strcmp(t->columns[guess].info.name, name) == 0
                        ? (int32_t)guess
                        : by__table_index(t, name);
    if (known >= 0) {
        *out = &t->columns[known];
        return BY_OK;
    }
    if (name[0] == '\0' || t->column_count == MOST_COLUMNS) {
        return by_error_set(error, BY_EFORMAT, "%s: %s", where(at, in),
                            name[0] == '\0' ? "a column has no name"
                                            : "more than 4096 columns: is each line a row?");
    }
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: name");
    }
    BY_TRY(by__table_add_column(t, copy, error));
    *out = &t->columns[t->column_count - 1];
    (*out)->ignored = by__table_ignores(o, name);
    return BY_OK;
}

/* Counts the rows, and finds the columns and what their cells are. */
static by_status scan(by_table *t, lines *in, const by_table_options *o, by_error *error)
{
    const char *part = NULL;
    size_t number_of_part = SIZE_MAX;
    for (;;) {
        bool found;
        const char *name;
        json_t *value;
        size_t i = 0;
        BY_TRY(next(in, &found, error));
        if (!found) {
            return BY_OK;
        }
        if (in->part != number_of_part) {
            number_of_part = in->part;
            BY_TRY(by__table_part_name(t, in->parts[in->part].name, &part, error));
        }
        BY_TRY(by__table_place_row(t, t->rows++, in->line, part, error));
        json_object_foreach(in->row, name, value)
        {
            by__table_column *c;
            cell one;
            double number;
            BY_TRY(column_of(&c, t, in, name, i++, o, error));
            BY_TRY(read_cell(&one, in, c, value, error));
            by__kind_count(c, class_of(&number, c, &one), one.text, one.length, part, in->line);
        }
    }
}

static by_status open_columns(by_table *t, by_error *error)
{
    bool again;
    BY_TRY(by__kinds_decide(t, false, &again, error));
    for (size_t i = 0; i < t->column_count; i++) {
        BY_TRY(by__column_allocate(&t->columns[i], t->rows, error));
    }
    return BY_OK;
}

static by_status fill_cell(by__table_column *c, const lines *in, uint64_t row, const cell *from,
                           by_error *error)
{
    bool fits;
    double number;
    char at[BY__WHERE];
    bool missing = class_of(&number, c, from) == BY__CELL_MISSING;
    c->info.missing += missing;
    BY_TRY(by__cell_store(c, row, missing ? "" : from->text, missing ? 0 : from->length, '.', &fits,
                          error));
    return fits ? BY_OK : by__cell_refuse(c, where(at, in), from->text, from->length, error);
}

static by_status fill(by_table *t, lines *in, by_error *error)
{
    for (uint64_t row = 0; row < t->rows; row++) {
        bool found;
        BY_TRY(next(in, &found, error));
        for (size_t i = 0; i < t->column_count; i++) {
            by__table_column *c = &t->columns[i];
            cell one;
            BY_TRY(read_cell(&one, in, c, json_object_get(in->row, c->info.name), error));
            BY_TRY(fill_cell(c, in, row, &one, error));
        }
    }
    return BY_OK;
}

by_status by__table_read_json(by_table *t, const by__table_text *parts, size_t count,
                              const by_table_options *options, by_error *error)
{
    lines in = {.parts = parts, .count = count};
    t->has_lines = true;
    by_status status = scan(t, &in, options, error);
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
