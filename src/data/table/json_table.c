/* Tables from JSON lines: a row is an object of cells, such as a line of a payload log. Lines are
 * parsed twice, first to find the columns and their kinds, then to fill them. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/paths.h"
#include "data/table/row_cell.h"
#include "data/table/table_parts.h"

/* Most columns: more are no table, but texts or ids as names of fields. */
#define MAX_COLUMNS 4096

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
    /* To leave out damaged rows: what a row must be, and where they are recorded (NULL: they were
     * recorded before). */
    const by_table_options *skip; /* NULL: they are errors */
    bool kinds;                   /* the kinds of the columns are known */
    by__loader_damage *damage;
    uint64_t row_number; /* of the next row, those left out included */
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
static by_status next_line(lines *in, bool *found, by_error *error)
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
    out->text = by__table_row_cell_text(out->digits, value);
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

static by__table_cell_class class_of(double *number, const by__table_column *column,
                                     const cell *one)
{
    return one->text == NULL ? BY__CELL_MISSING
                             : by__table_cell_read(number, column, one->text, one->length, '.');
}

/* What makes a row one to leave out. */
static by_status check_row(const by_table *t, const lines *in, by_error *error)
{
    const char *name;
    json_t *value;
    char at[BY__WHERE];
    cell one;
    double number;
    json_object_foreach(in->row, name, value)
    {
        int32_t known = by__table_index(t, name);
        by__table_column unknown = {.info = {.name = name},
                                    .ignored = by__table_ignores(in->skip, name)};
        const by__table_column *c = known < 0 ? &unknown : &t->columns[known];
        BY_TRY(read_cell(&one, in, c, value, error));
        bool text = in->kinds && c->info.kind == BY_COLUMN_NUMBER && !c->ignored &&
                    class_of(&number, c, &one) == BY__CELL_TEXT;
        if (text) {
            return by__table_cell_refuse(c, where(at, in), one.text, one.length, error);
        }
    }
    for (size_t i = 0; i < in->skip->required_count; i++) {
        const char *required = in->skip->required[i];
        int32_t known = by__table_index(t, required);
        by__table_column unknown = {.info = {.name = required}};
        const by__table_column *target = known < 0 ? &unknown : &t->columns[known];
        BY_TRY(read_cell(&one, in, target, json_object_get(in->row, required), error));
        if (class_of(&number, target, &one) == BY__CELL_MISSING) {
            return by_error_set(error, BY_EFORMAT, "%s: there is no value in '%s'", where(at, in),
                                required);
        }
    }
    return BY_OK;
}

static by_status skip_row(const lines *in, const by_error *problem, by_error *error)
{
    char at[BY__WHERE];
    const char *reason = problem->message;
    size_t n = strlen(where(at, in));
    reason += strncmp(reason, at, n) == 0 && reason[n] == ':' ? n + 2 : 0;
    const by_damage item = {.path = in->parts[in->part].name,
                            .place = in->line,
                            .begin = in->row_number,
                            .count = 1,
                            .reason = reason};
    return in->damage == NULL ? BY_OK : by__loader_damage_add(in->damage, &item, error);
}

/* Reads the next row; damaged ones are passed over where they are left out. */
static by_status next(lines *in, const by_table *t, bool *found, by_error *error)
{
    for (;; in->row_number++) {
        by_error problem = {0};
        by_status status = next_line(in, found, in->skip == NULL ? error : &problem);
        if (in->skip == NULL || (status == BY_OK && !*found)) {
            return status;
        }
        if (status == BY_OK) {
            status = check_row(t, in, &problem);
        }
        if (status == BY_OK) {
            in->row_number++;
            return BY_OK;
        }
        if (status != BY_EFORMAT) {
            return by_error_set(error, status, "%s", problem.message);
        }
        BY_TRY(skip_row(in, &problem, error));
    }
}

static void rewind_lines(lines *in)
{
    in->part = in->at = 0;
    in->line = in->row_number = 0;
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
    if (name[0] == '\0' || t->column_count == MAX_COLUMNS) {
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
        BY_TRY(next(in, t, &found, error));
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
            if (!in->kinds) {
                by__table_kind_count(c, class_of(&number, c, &one), one.text, one.length, part,
                                     in->line);
            }
        }
    }
}

static by_status decide_kinds(by_table *t, bool skip, by_error *error)
{
    bool again;
    BY_TRY(by__table_kinds_decide(t, skip, &again, error));
    return BY_OK;
}

/* Counts the rows that stay once the kinds are known, and records the others. */
static by_status rescan(by_table *t, lines *in, const by_table_options *o, by_error *error)
{
    rewind_lines(in);
    in->kinds = true;
    in->damage = &t->damage;
    t->rows = 0;
    t->place_count = 0;
    by_status status = scan(t, in, o, error);
    in->damage = NULL;
    return status;
}

static by_status open_columns(by_table *t, by_error *error)
{
    for (size_t i = 0; i < t->column_count; i++) {
        BY_TRY(by__table_column_allocate(&t->columns[i], t->rows, error));
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
    BY_TRY(by__table_cell_store(c, row, missing ? "" : from->text, missing ? 0 : from->length, '.',
                                &fits, error));
    return fits ? BY_OK : by__table_cell_refuse(c, where(at, in), from->text, from->length, error);
}

static by_status fill(by_table *t, lines *in, by_error *error)
{
    for (uint64_t row = 0; row < t->rows; row++) {
        bool found;
        BY_TRY(next(in, t, &found, error));
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
    lines in = {.parts = parts, .count = count, .skip = options->skip ? options : NULL};
    t->has_lines = true;
    by_status status = scan(t, &in, options, error);
    if (status == BY_OK && (t->rows == 0 || t->column_count == 0)) {
        status = by_error_set(error, BY_EFORMAT, "%s: %s", t->name,
                              t->rows == 0 ? "there are no rows"
                                           : "there are no columns: every row is {}");
    }
    if (status == BY_OK) {
        status = by__table_set_types(t, options, error);
    }
    if (status == BY_OK) {
        status = decide_kinds(t, in.skip != NULL, error);
    }
    if (status == BY_OK && in.skip != NULL) {
        status = rescan(t, &in, options, error);
    }
    if (status == BY_OK) {
        status = open_columns(t, error);
    }
    if (status == BY_OK) {
        rewind_lines(&in);
        status = fill(t, &in, error);
    }
    json_decref(in.value);
    return status == BY_OK ? by__table_finish(t, error) : status;
}
