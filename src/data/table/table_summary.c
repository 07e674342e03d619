/* What a table's columns are, for people. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/table_parts.h"

/* Bytes of the names of one kind, and columns whose cells decided against numbers, that are
 * listed. */
#define MAX_NAMES 400
#define MAX_ODD   5
/* From this many rows on, columns in which nearly every one has a value of its own are named. */
#define FEW_ROWS 10
/* Numbers that are looked at to tell what is usual in a column, and how many times as far as that
 * one must be to be named. */
#define SAMPLED 4096
#define FAR     1e6

static bool is_ignored(const by_encoding_options *o, const char *name)
{
    for (size_t i = 0; i < o->ignore_count; i++) {
        if (strcmp(o->ignore[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void add_column(by_string *out, const by_table *t, const by_column *c, bool values)
{
    by_string_format(out, "%.60s", c->name);
    bool all = c->missing == by_table_rows(t);
    if (values && c->kind == BY_COLUMN_CATEGORY) {
        by_string_format(out, " (%zu%s", c->value_count, all ? "" : " values");
        by__string_append(out, c->missing > 0 ? ", " : ")");
    } else if (c->missing > 0) {
        by__string_append(out, " (");
    }
    if (c->missing > 0) {
        by_string_format(out, all ? "all missing)" : "%" PRIu64 " missing)", c->missing);
    }
}

/* "2 numbers: a, b (3 missing)" */
static void add_kind(by_string *out, const by_table *t, const by_encoding_options *o,
                     by_column_kind kind)
{
    by_string names = {0};
    size_t count = 0;
    size_t listed = 0;
    for (size_t i = 0; i < by_table_column_count(t); i++) {
        const by_column *c = by_table_column(t, i);
        bool is_target = by__table_target_of(o, c->name) < o->target_count;
        if (c->kind != kind || is_target || is_ignored(o, c->name)) {
            continue;
        }
        count++;
        if (names.length < MAX_NAMES) {
            by__string_append(&names, listed++ == 0 ? "" : ", ");
            add_column(&names, t, c, true);
        }
    }
    bool number = kind == BY_COLUMN_NUMBER;
    if (count > 0) {
        by_string_format(out, "%s%zu %s: %s", out->length > 0 ? "; " : "", count,
                         count == 1 ? number ? "number" : "category"
                                    : (number ? "numbers" : "categories"),
                         names.data);
        if (listed < count) {
            by_string_format(out, " and %zu more", count - listed);
        }
    }
    out->failed = out->failed || names.failed;
    by_string_free(&names);
}

/* "target price, a number", or "targets price, rent, numbers" */
static void add_targets(by_string *out, const by_table *t, const by_encoding_options *o)
{
    const by_column *first = o->target_count == 1 ? by_table_find(t, o->targets[0]) : NULL;
    size_t listed = 0;
    if (first != NULL && first->kind == BY_COLUMN_NUMBER) {
        by_string_format(out, "; target %.60s, a number", first->name);
    } else if (first != NULL) {
        by_string_format(out, "; target %.60s, one of %zu classes", first->name,
                         first->value_count);
    } else if (o->target_count > 1) {
        size_t before = out->length;
        while (listed < o->target_count && out->length - before < MAX_NAMES) {
            by_string_format(out, "%s%.60s", listed == 0 ? "; targets " : ", ", o->targets[listed]);
            listed++;
        }
        if (listed < o->target_count) {
            by_string_format(out, " and %zu more", o->target_count - listed);
        }
        by__string_append(out, ", numbers");
    }
}

by_status by_table_summary(const by_table *table, const by_encoding_options *options, char **out,
                           by_error *error)
{
    by_string text = {0};
    const by_encoding_options *o = options;
    add_kind(&text, table, o, BY_COLUMN_NUMBER);
    add_kind(&text, table, o, BY_COLUMN_CATEGORY);
    if (o->ignore_count > 0) {
        by_string_format(&text, "; %zu ignored", o->ignore_count);
    }
    add_targets(&text, table, o);
    return by__string_release(&text, out, error);
}

/* What is odd about a column of categories. */
static void add_doubt(by_string *out, const by_table *table, const by_column *c)
{
    uint64_t cells = by_table_rows(table) - c->missing;
    const char *problem = by__table_cell_problem(c->odd + 1, strlen(c->odd) - 2);
    by_string_format(out, "column '%.60s' is one of categories, since %s:%" PRIu64 " has %s",
                     c->name, c->odd_path, c->odd_line, c->odd);
    if (c->odd_cells == cells) {
        by_string_format(out, "; %" PRIu64 " of %" PRIu64 " cells resemble numbers%s%s",
                         c->near_cells, cells, problem == NULL ? "" : ": ",
                         problem == NULL ? "" : problem);
    } else {
        by_string_format(out,
                         "; %" PRIu64 " of %" PRIu64
                         " cells are numbers (data.number_columns makes it one of numbers)",
                         cells - c->odd_cells, cells);
    }
}

static bool is_constant(const by_column *c, uint64_t rows)
{
    for (uint64_t i = 1; i < rows; i++) {
        if (c->numbers[i] != c->numbers[0]) {
            return false;
        }
    }
    return rows > 1;
}

static int by_number(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts at most SAMPLED numbers of a column, evenly spaced, less `center` if it is finite; returns
 * their count. */
static size_t sample_numbers(double out[SAMPLED], const by_column *c, uint64_t rows, double center)
{
    size_t count = 0;
    uint64_t step = rows / SAMPLED + 1;
    for (uint64_t i = 0; i < rows; i += step) {
        if (!isnan(c->numbers[i])) {
            out[count++] = isfinite(center) ? fabs(c->numbers[i] - center) : c->numbers[i];
        }
    }
    qsort(out, count, sizeof *out, by_number);
    return count;
}

/* Adds the cell that is farthest from the others of a column of numbers, if it is so far that
 * these hardly differ beside it. */
static bool add_far(by_string *out, const by_table *t, const by_column *c)
{
    double sample[SAMPLED];
    char where[BY__WHERE];
    uint64_t rows = by_table_rows(t);
    size_t count = sample_numbers(sample, c, rows, (double)INFINITY);
    if (count < FEW_ROWS) {
        return false;
    }
    double middle = sample[count / 2];
    count = sample_numbers(sample, c, rows, middle);
    double usual = sample[count - 1 - count / 10]; /* nine in ten are not farther */
    usual = usual > 0.0 ? usual : sample[count - 1 - count / 100];
    uint64_t far = 0;
    double most = 0.0;
    for (uint64_t i = 0; i < rows; i++) {
        double distance = fabs(c->numbers[i] - middle);
        if (distance > most) {
            most = distance;
            far = i;
        }
    }
    if (!(usual > 0.0) || !(most > FAR * usual)) {
        return false;
    }
    by_string_format(out,
                     "column '%.60s': %s has %g, %.0e times as far from the median as nine in ten "
                     "numbers, which hardly differ beside it: mend it, or leave its row out",
                     c->name, by__table_where(where, t, far), c->numbers[far], most / usual);
    return true;
}

/* Adds what is wrong with a column as a whole; false: nothing is. */
static bool add_useless(by_string *out, const by_table *t, const by_column *c, bool is_target)
{
    uint64_t rows = by_table_rows(t);
    uint64_t cells = rows - c->missing;
    bool own =
        c->kind == BY_COLUMN_CATEGORY && cells >= FEW_ROWS && c->value_count >= cells - cells / 10;
    if (cells == 0 && !is_target) {
        by_string_format(out,
                         "column '%.60s' has no value in any row, so nothing is learned from it: "
                         "leave it out (data.ignore)",
                         c->name);
    } else if (own && is_target) {
        by_string_format(out,
                         "target '%.60s' has %zu classes in %" PRIu64
                         " rows: where nearly every row has a class of its own, nothing is learned "
                         "of other rows; numbers are predicted by task.kind=regress",
                         c->name, c->value_count, cells);
    } else if (own) {
        by_string_format(out,
                         "column '%.60s' has %zu values in %" PRIu64
                         " rows: nearly every row has a category of its own, from which nothing is "
                         "learned of other rows; leave it out (data.ignore), or make it numbers or "
                         "a few categories",
                         c->name, c->value_count, cells);
    } else if (is_target && c->kind == BY_COLUMN_NUMBER && is_constant(c, rows)) {
        by_string_format(out, "target '%.60s' is %g in every row: there is nothing to learn",
                         c->name, c->numbers[0]);
    } else {
        return c->kind == BY_COLUMN_NUMBER && add_far(out, t, c);
    }
    return true;
}

by_status by_table_doubts(const by_table *table, const by_encoding_options *options, char **out,
                          by_error *error)
{
    by_string text = {0};
    by_string more = {0};
    size_t count = 0;
    for (size_t i = 0; i < by_table_column_count(table); i++) {
        const by_column *c = by_table_column(table, i);
        bool is_target = by__table_target_of(options, c->name) < options->target_count;
        by_string doubt = {0};
        bool odd = c->odd_cells > 0;
        if (is_ignored(options, c->name) || (!odd && !add_useless(&doubt, table, c, is_target))) {
            continue;
        }
        if (odd) {
            add_doubt(&doubt, table, c);
        }
        if (count++ < MAX_ODD) {
            by_string_format(&text, "%s%s", text.length > 0 ? "\n" : "",
                             doubt.failed ? "" : doubt.data);
        } else if (more.length < MAX_NAMES) {
            by_string_format(&more, "%s%.60s", more.length > 0 ? ", " : "", c->name);
        }
        by_string_free(&doubt);
    }
    if (count > MAX_ODD) {
        by_string_format(&text, "\nand %zu more such columns: %s", count - MAX_ODD,
                         more.failed ? "" : more.data);
    }
    by_string_free(&more);
    return by__string_release(&text, out, error);
}
