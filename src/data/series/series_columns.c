/* Which columns of a table are times, tell the series, or are channels. */
#include "data/series/series_columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/series/series_scales.h"

static bool lists(const by__series_names *list, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < list->count; i++) {
        found = found || strcmp(list->items[i], name) == 0;
    }
    return found;
}

double by__series_time_unit(const by_column *time)
{
    static const double units[] = {
        [BY_UNIT_NONE] = 1.0,         [BY_UNIT_DAY] = 86400.0,      [BY_UNIT_SECOND] = 1.0,
        [BY_UNIT_MILLISECOND] = 1e-3, [BY_UNIT_MICROSECOND] = 1e-6, [BY_UNIT_NANOSECOND] = 1e-9};
    return units[time->time.unit];
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

/* The times that a column of texts has; NULL: one is none. skip: some are, and the others NaN. */
static double *read_stamps(const by_column *column, bool skip, by__series_stamp *style)
{
    bool all = column->value_count > 0 && (skip || first_odd(column) == NULL);
    double *stamps = all ? malloc(column->value_count * sizeof *stamps) : NULL;
    bool any = false;
    for (size_t i = 0; stamps != NULL && i < column->value_count; i++) {
        by__series_stamp found;
        if (by__series_stamp_parse(&stamps[i], &found, column->values[i])) {
            int digits = found.digits > style->digits ? found.digits : style->digits;
            *style = found;
            style->digits = digits; /* whole seconds may have none */
            any = true;
        } else {
            stamps[i] = (double)NAN;
        }
    }
    if (!any) {
        free(stamps);
        return NULL;
    }
    return stamps;
}

/* Whether a column has times. */
static bool is_time(by__series_found *f, const by_column *column, bool skip)
{
    if (column->kind == BY_COLUMN_NUMBER) {
        return column->time.unit != BY_UNIT_NONE;
    }
    f->stamps = read_stamps(column, skip, &f->style);
    return f->stamps != NULL;
}

static by_status find_time(by__series_found *f, const by_table *table, const char *name, bool skip,
                           by_error *error)
{
    for (size_t i = 0; name[0] == '\0' && i < by_table_column_count(table); i++) {
        const by_column *column = by_table_column(table, i);
        if (is_time(f, column, false)) {
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
    if (f->time->kind == BY_COLUMN_NUMBER || is_time(f, f->time, skip)) {
        return BY_OK;
    }
    const char *odd = first_odd(f->time);
    return by_error_set(error, BY_ECONFIG,
                        "%s: column '%s' (data.time): '%.40s' is neither a number nor a time as it "
                        "is read: " BY__SERIES_STAMPS,
                        by_table_name(table), name, odd == NULL ? "" : odd);
}

by_status by__series_find_columns(by__series_found *f, const by_table *table,
                                  const by__series_columns *columns, bool skip, by_error *error)
{
    size_t all = by_table_column_count(table);
    size_t named = columns->channels.count;
    BY_TRY(find_time(f, table, columns->time, skip, error));
    if (columns->id[0] != '\0') {
        BY_TRY(find_column(&f->id, table, columns->id, BY_COLUMN_CATEGORY, error));
    }
    BY_TRY(by__alloc((void **)&f->channels, (named > all ? named : all) + 1, sizeof *f->channels,
                     "columns", error));
    BY_TRY(by__alloc((void **)&f->known, columns->known.count + 1, sizeof *f->known, "columns",
                     error));
    for (size_t i = 0; i < columns->known.count; i++) {
        BY_TRY(find_column(&f->known[f->known_count++], table, columns->known.items[i],
                           BY_COLUMN_NUMBER, error));
    }
    for (size_t i = 0; i < named; i++) {
        if (lists(&columns->known, columns->channels.items[i])) {
            return by_error_set(error, BY_ECONFIG,
                                "column '%s' is in data.channels and in data.known: what is "
                                "forecast is not known ahead",
                                columns->channels.items[i]);
        }
        BY_TRY(find_column(&f->channels[f->count++], table, columns->channels.items[i],
                           BY_COLUMN_NUMBER, error));
    }
    for (size_t i = 0; named == 0 && i < all; i++) {
        const by_column *column = by_table_column(table, i);
        if (column != f->time && column != f->id && column->kind == BY_COLUMN_NUMBER &&
            !lists(&columns->ignore, column->name) && !lists(&columns->known, column->name)) {
            f->channels[f->count++] = column;
        }
    }
    return f->count > 0 ? BY_OK
                        : by_error_set(error, BY_ECONFIG, "%s has no column of numbers to forecast",
                                       by_table_name(table));
}

/* ---- names ---- */

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

/* Whether at least nine of ten texts of a column are times. */
static bool is_mostly_time(const by_column *column)
{
    size_t times = 0;
    size_t count = column->kind == BY_COLUMN_CATEGORY ? column->value_count : 0;
    for (size_t i = 0; i < count; i++) {
        by__series_stamp style;
        double seconds;
        times += by__series_stamp_parse(&seconds, &style, column->values[i]);
    }
    return times > 0 && 10 * times >= 9 * count;
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

static bool is_channel(const by__series_found *f, const by_column *column)
{
    bool found = false;
    for (size_t c = 0; c < f->count; c++) {
        found = found || f->channels[c] == column;
    }
    return found;
}

/* Tells of the first column that looks like times, if none is read as times; refuses one whose rows
 * are times but for a few. */
static by_status find_doubt(by__series_set *set, const by__series_found *f, const by_table *table,
                            const by__series_names *ignore, by_error *error)
{
    by_string doubt = {0};
    for (size_t i = 0; f->time == NULL && i < by_table_column_count(table); i++) {
        const by_column *column = by_table_column(table, i);
        if (column != f->id && is_mostly_time(column) && !lists(ignore, column->name)) {
            by_string_free(&doubt);
            return by_error_set(error, BY_EFORMAT,
                                "%s: column '%s' has times, but also '%.40s': mend it, leave such "
                                "rows out (data.time=%s, data.corrupt=skip), or the whole column "
                                "(data.ignore)",
                                set->name, column->name, first_odd(column), column->name);
        }
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

by_status by__series_copy_names(by__series_set *set, const by__series_found *f,
                                const by_table *table, const by__series_columns *columns,
                                by_error *error)
{
    size_t all = by_table_column_count(table);
    BY_TRY(by__alloc((void **)&set->channels.items, f->count, sizeof *set->channels.items,
                     "columns", error));
    BY_TRY(by__alloc((void **)&set->left_out.items, all + 1, sizeof *set->left_out.items, "columns",
                     error));
    for (size_t c = 0; c < f->count; c++) {
        BY_TRY(by__series_names_add(&set->channels, f->channels[c]->name, error));
    }
    BY_TRY(by__alloc((void **)&set->known.items, f->known_count + 1, sizeof *set->known.items,
                     "columns", error));
    for (size_t i = 0; i < f->known_count; i++) {
        BY_TRY(by__series_names_add(&set->known, f->known[i]->name, error));
    }
    for (size_t i = 0; i < all; i++) {
        const by_column *column = by_table_column(table, i);
        if (column != f->time && column != f->id && !is_channel(f, column) &&
            !lists(&set->known, column->name)) {
            BY_TRY(by__series_names_add(&set->left_out, column->name, error));
        }
    }
    BY_TRY(find_doubt(set, f, table, &columns->ignore, error));
    set->time = by__strdup(f->time == NULL ? "" : f->time->name);
    set->stamped = f->stamps != NULL;
    set->unit = f->time == NULL ? 1.0 : by__series_time_unit(f->time);
    set->style = f->style;
    return set->time != NULL ? check_names(set, error)
                             : by_error_set(error, BY_EMEMORY, "out of memory: columns");
}
