/* Reads the rows of a table as series. */
#include "data/series/series_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The columns of a table that make its series. */
typedef struct found_columns {
    const by_column *time; /* NULL: none */
    double *stamps;        /* of each of its values, if these are texts */
    by__series_stamp style;
    const by_column *id; /* NULL: none */
    const by_column **channels;
    size_t count;
} found_columns;

static bool lists(const by__series_names *list, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < list->count; i++) {
        found = found || strcmp(list->items[i], name) == 0;
    }
    return found;
}

/* ---- columns ---- */

static by_status find_column(const by_column **out, const by_table *table, const char *name,
                             by_column_kind kind, by_error *error)
{
    *out = by_table_find(table, name);
    if (*out == NULL) {
        return by_error_set(error, BY_ECONFIG, "%s has no column '%s'", by_table_name(table), name);
    }
    return (*out)->kind == kind
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "%s: column '%s' is not one of %s",
                              by_table_name(table), name,
                              kind == BY_COLUMN_NUMBER ? "numbers or times" : "names");
}

/* The first value of a column of texts that is no time; NULL: all are. */
static const char *first_odd(const by_column *column)
{
    by__series_stamp style;
    double seconds;
    for (size_t i = 0; i < column->value_count; i++) {
        if (!by__series_stamp_parse(&seconds, &style, column->values[i])) {
            return column->values[i];
        }
    }
    return NULL;
}

/* The times that a column of texts has; NULL: one is none. */
static double *read_stamps(const by_column *column, by__series_stamp *style)
{
    bool all = column->value_count > 0 && first_odd(column) == NULL;
    double *stamps = all ? malloc(column->value_count * sizeof *stamps) : NULL;
    for (size_t i = 0; stamps != NULL && i < column->value_count; i++) {
        (void)by__series_stamp_parse(&stamps[i], style, column->values[i]);
    }
    return stamps;
}

/* Whether a column has times. */
static bool is_time(found_columns *f, const by_column *column)
{
    if (column->kind == BY_COLUMN_NUMBER) {
        return column->time.unit != BY_UNIT_NONE;
    }
    f->stamps = read_stamps(column, &f->style);
    return f->stamps != NULL;
}

static by_status find_time(found_columns *f, const by_table *table, const char *name,
                           by_error *error)
{
    for (size_t i = 0; name[0] == '\0' && i < by_table_column_count(table); i++) {
        const by_column *column = by_table_column(table, i);
        if (is_time(f, column)) {
            f->time = column;
            return BY_OK;
        }
    }
    if (name[0] == '\0') {
        return BY_OK;
    }
    f->time = by_table_find(table, name);
    if (f->time == NULL) {
        return by_error_set(error, BY_ECONFIG, "%s has no column '%s'", by_table_name(table), name);
    }
    if (f->time->kind == BY_COLUMN_NUMBER || is_time(f, f->time)) {
        return BY_OK;
    }
    const char *odd = first_odd(f->time);
    return by_error_set(error, BY_ECONFIG,
                        "%s: column '%s' (data.time): '%.40s' is neither a number nor a time as it "
                        "is read: " BY__SERIES_STAMPS,
                        by_table_name(table), name, odd == NULL ? "" : odd);
}

static by_status find_columns(found_columns *f, const by_table *table,
                              const by__series_columns *columns, by_error *error)
{
    size_t all = by_table_column_count(table);
    size_t named = columns->channels.count;
    BY_TRY(find_time(f, table, columns->time, error));
    if (columns->id[0] != '\0') {
        BY_TRY(find_column(&f->id, table, columns->id, BY_COLUMN_CATEGORY, error));
    }
    BY_TRY(by__alloc((void **)&f->channels, (named > all ? named : all) + 1, sizeof *f->channels,
                     "columns", error));
    for (size_t i = 0; i < named; i++) {
        BY_TRY(find_column(&f->channels[f->count++], table, columns->channels.items[i],
                           BY_COLUMN_NUMBER, error));
    }
    for (size_t i = 0; named == 0 && i < all; i++) {
        const by_column *column = by_table_column(table, i);
        if (column != f->time && column != f->id && column->kind == BY_COLUMN_NUMBER &&
            !lists(&columns->ignore, column->name)) {
            f->channels[f->count++] = column;
        }
    }
    return f->count > 0 ? BY_OK
                        : by_error_set(error, BY_ECONFIG, "%s has no column of numbers to forecast",
                                       by_table_name(table));
}

/* ---- rows ---- */

/* The number of a row's series; -1: its cell is missing. */
static int64_t series_of(const found_columns *f, uint64_t row)
{
    return f->id == NULL ? 0 : f->id->categories[row];
}

/* Counts the rows of each series, in the order of its first appearance. */
static by_status list_series(by__series_set *set, const found_columns *f, const by_table *table,
                             const by__series_part *part, by_error *error)
{
    set->series_count = f->id == NULL ? 1 : f->id->value_count;
    BY_TRY(
        by__alloc((void **)&set->series, set->series_count, sizeof *set->series, "series", error));
    if (f->id != NULL) {
        BY_TRY(by__alloc((void **)&set->names, set->series_count, sizeof *set->names, "series",
                         error));
    }
    for (uint64_t row = 0; row < by_table_rows(table); row++) {
        int64_t s = series_of(f, row);
        if (s < 0) {
            return by_error_set(error, BY_EFORMAT, "%s: row %llu: column '%s' is empty", set->name,
                                (unsigned long long)row + 1, f->id->name);
        }
        set->series[s].count += part->limit == 0 || set->series[s].count < part->limit;
    }
    for (size_t s = 0; s < set->series_count; s++) {
        set->series[s].count -=
            part->skipped < set->series[s].count ? part->skipped : set->series[s].count;
        set->series[s].first = set->rows;
        set->rows += set->series[s].count;
        if (f->id != NULL) {
            set->names[s] = by__strdup(f->id->values[s]);
            if (set->names[s] == NULL) {
                return by_error_set(error, BY_EMEMORY, "out of memory: series");
            }
            set->series[s].name = set->names[s];
        }
    }
    return set->rows > 0 ? BY_OK : by_error_set(error, BY_EFORMAT, "%s has no rows", set->name);
}

/* The time of a row; NaN: it is missing. */
static double time_of(const found_columns *f, uint64_t row)
{
    if (f->stamps == NULL) {
        return f->time->numbers[row];
    }
    int32_t value = f->time->categories[row];
    return value < 0 ? (double)NAN : f->stamps[value];
}

/* Notes the time of row number `done` of a series. */
static by_status add_time(const by__series_set *set, const found_columns *f, uint64_t row,
                          by__series_rows *series, uint64_t done, by_error *error)
{
    if (f->time == NULL) {
        return BY_OK;
    }
    double time = time_of(f, row);
    if (isnan(time) || (done > 0 && !(time > series->last))) {
        return by_error_set(error, BY_EFORMAT,
                            isnan(time) ? "%s: row %llu: the time in column '%s' is missing"
                                        : "%s: row %llu: the time in column '%s' is not after that "
                                          "of the row before it: sort the rows, and leave out "
                                          "doubles; several series need data.series",
                            set->name, (unsigned long long)row + 1, f->time->name);
    }
    double step = time - series->last;
    series->step = done == 1 || (done > 1 && step == series->step) ? step : 0.0;
    series->last = time;
    return BY_OK;
}

static by_status copy_row(by__series_set *set, const found_columns *f, uint64_t row, uint64_t to,
                          by_error *error)
{
    for (size_t c = 0; c < f->count; c++) {
        double number = f->channels[c]->numbers[row];
        uint64_t at = to * f->count + c;
        if (isfinite(number) && !isfinite((float)number)) {
            return by_error_set(error, BY_EFORMAT, "%s: row %llu: %g in column '%s' is beyond f32",
                                set->name, (unsigned long long)row + 1, number,
                                f->channels[c]->name);
        }
        set->present[at] = isfinite(number) != 0;
        set->values[at] = set->present[at] != 0 ? (float)number : 0.0f;
    }
    return BY_OK;
}

static by_status copy_rows(by__series_set *set, const found_columns *f, const by_table *table,
                           by_error *error)
{
    uint64_t *done;
    by_status status = BY_OK;
    BY_TRY(by__alloc((void **)&set->values, (size_t)set->rows * f->count, sizeof *set->values,
                     "series", error));
    BY_TRY(by__alloc((void **)&set->present, (size_t)set->rows * f->count, 1, "series", error));
    BY_TRY(by__alloc((void **)&done, set->series_count, sizeof *done, "series", error));
    for (uint64_t row = 0; status == BY_OK && row < by_table_rows(table); row++) {
        size_t s = (size_t)series_of(f, row);
        by__series_rows *series = &set->series[s];
        if (done[s] == series->count) {
            continue;
        }
        status = add_time(set, f, row, series, done[s], error);
        if (status == BY_OK) {
            status = copy_row(set, f, row, series->first + done[s]++, error);
        }
    }
    free(done);
    return status;
}

/* ---- sets ---- */

static by_status add_name(by__series_names *names, const char *name, by_error *error)
{
    char *copy = by__strdup(name);
    if (copy == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: columns");
    }
    names->items[names->count++] = copy;
    return BY_OK;
}

/* Whether a text looks like a date or a time: digits in two groups or more, and little else. */
static bool looks_like_time(const char *text)
{
    size_t digits = 0;
    size_t groups = 0;
    size_t letters = 0;
    for (const char *c = text; *c != '\0'; c++) {
        bool digit = *c >= '0' && *c <= '9';
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z');
        if (!digit && !letter && strchr(" -/.:,+", *c) == NULL) {
            return false;
        }
        groups += digit && (c == text || c[-1] < '0' || c[-1] > '9');
        digits += digit;
        letters += letter;
    }
    return groups >= 2 && digits >= 5 && letters <= 12;
}

/* Notes that a column which is left out looks like times. */
static void doubt_column(by_string *doubt, const by_column *column)
{
    const char *odd = column->kind == BY_COLUMN_CATEGORY ? first_odd(column) : NULL;
    bool begins = odd != NULL && odd != column->values[0]; /* as a time */
    if (odd != NULL && (begins || looks_like_time(odd))) {
        by_string_format(
            doubt,
            "column '%s' looks like times, but '%.40s' is none as they are read: " BY__SERIES_STAMPS
            "; write it so, or name another column in data.time",
            column->name, odd);
    }
}

static bool is_channel(const found_columns *f, const by_column *column)
{
    bool found = false;
    for (size_t c = 0; c < f->count; c++) {
        found = found || f->channels[c] == column;
    }
    return found;
}

/* Tells of the first column that looks like times, if none is read as times. */
static by_status find_doubt(by__series_set *set, const found_columns *f, const by_table *table,
                            by_error *error)
{
    by_string doubt = {0};
    for (size_t i = 0; f->time == NULL && i < by_table_column_count(table); i++) {
        const by_column *column = by_table_column(table, i);
        if (column != f->id && !is_channel(f, column) && doubt.length == 0) {
            doubt_column(&doubt, column);
        }
    }
    by__string_append(&doubt, "");
    return by__string_release(&doubt, &set->doubt, error);
}

/* A channel is a field of a forecast, beside the number of the step. */
static by_status check_names(const by__series_set *set, by_error *error)
{
    const by__series_names *names = &set->channels;
    for (size_t i = 0; i < names->count; i++) {
        bool twice = strcmp(names->items[i], "step") == 0;
        for (size_t k = 0; k < i; k++) {
            twice = twice || strcmp(names->items[i], names->items[k]) == 0;
        }
        if (twice) {
            return by_error_set(error, BY_ECONFIG,
                                "%s: two fields of a forecast would be named '%s': name each "
                                "channel once, and none 'step' (data.channels, data.ignore)",
                                set->name, names->items[i]);
        }
    }
    return BY_OK;
}

static by_status copy_names(by__series_set *set, const found_columns *f, const by_table *table,
                            by_error *error)
{
    size_t all = by_table_column_count(table);
    BY_TRY(by__alloc((void **)&set->channels.items, f->count, sizeof *set->channels.items,
                     "columns", error));
    BY_TRY(by__alloc((void **)&set->left_out.items, all + 1, sizeof *set->left_out.items, "columns",
                     error));
    for (size_t c = 0; c < f->count; c++) {
        BY_TRY(add_name(&set->channels, f->channels[c]->name, error));
    }
    for (size_t i = 0; i < all; i++) {
        const by_column *column = by_table_column(table, i);
        if (column != f->time && column != f->id && !is_channel(f, column)) {
            BY_TRY(add_name(&set->left_out, column->name, error));
        }
    }
    BY_TRY(find_doubt(set, f, table, error));
    set->time = by__strdup(f->time == NULL ? "" : f->time->name);
    set->stamped = f->stamps != NULL;
    set->style = f->style;
    return set->time != NULL ? check_names(set, error)
                             : by_error_set(error, BY_EMEMORY, "out of memory: columns");
}

static by_status hash_set(by__series_set *set, by_error *error)
{
    by__hasher *hasher;
    size_t cells = (size_t)set->rows * set->channels.count;
    BY_TRY(by__hasher_open(&hasher, error));
    for (size_t s = 0; s < set->series_count; s++) {
        by__hasher_add_u64(hasher, set->series[s].count);
        by__hasher_add(hasher, set->names == NULL ? "" : set->names[s],
                       set->names == NULL ? 1 : strlen(set->names[s]) + 1);
    }
    by__hasher_add(hasher, set->values, cells * sizeof *set->values);
    by__hasher_add(hasher, set->present, cells);
    by__hasher_hex(hasher, set->hash);
    by__hasher_close(&hasher);
    return BY_OK;
}

static by_status fill_set(by__series_set *set, const by_table *table,
                          const by__series_columns *columns, const by__series_part *part,
                          by_error *error)
{
    found_columns found = {0};
    by_status status = find_columns(&found, table, columns, error);
    if (status == BY_OK) {
        status = list_series(set, &found, table, part, error);
    }
    if (status == BY_OK) {
        status = copy_names(set, &found, table, error);
    }
    if (status == BY_OK) {
        status = copy_rows(set, &found, table, error);
    }
    free(found.channels);
    free(found.stamps);
    return status == BY_OK ? hash_set(set, error) : status;
}

by_status by__series_set_open(by__series_set **out, const char *path,
                              const by__series_columns *columns, const by__series_part *part,
                              by_error *error)
{
    static const by__series_part all = {0};
    by_table *table;
    by__series_set *set;
    const by_column_type id = {.name = columns->id, .kind = BY_COLUMN_CATEGORY};
    const by_table_options options = {.types = &id,
                                      .type_count = columns->id[0] != '\0',
                                      .ignore = (const char *const *)columns->ignore.items,
                                      .ignore_count = columns->ignore.count};
    BY_TRY(by_table_open(&table, path, &options, error));
    by_status status = by__alloc((void **)&set, 1, sizeof *set, "series", error);
    if (status == BY_OK) {
        set->name = by__strdup(path);
        status = set->name != NULL
                     ? fill_set(set, table, columns, part == NULL ? &all : part, error)
                     : by_error_set(error, BY_EMEMORY, "out of memory: series");
        if (status != BY_OK) {
            by__series_set_close(&set);
        }
    }
    by_table_close(&table);
    if (status == BY_OK) {
        *out = set;
    }
    return status;
}

void by__series_names_free(by__series_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->items[i]);
    }
    free(names->items);
}

void by__series_set_close(by__series_set **set)
{
    by__series_set *s = *set;
    if (s == NULL) {
        return;
    }
    for (size_t i = 0; s->names != NULL && i < s->series_count; i++) {
        free(s->names[i]);
    }
    by__series_names_free(&s->channels);
    by__series_names_free(&s->left_out);
    free(s->names);
    free(s->series);
    free(s->values);
    free(s->present);
    free(s->time);
    free(s->doubt);
    free(s->name);
    free(s);
    *set = NULL;
}
