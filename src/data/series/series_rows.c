/* The rows of series, of those of a table: in the order of time, one for each time, and where it is
 * asked for one for each step of time. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/series/series_columns.h"

/* Days begin at midnight, weeks on Monday: 1970 began on a Thursday. */
#define DAY    86400.0
#define MONDAY (-3.0 * DAY)

/* A row of the table. */
typedef struct timed_row {
    double time; /* in seconds since 1970, or as its column of numbers has it; without times 0 */
    uint64_t row;
} timed_row;

/* Rows that become one: none of them, if nothing is known of a step. */
typedef struct row_group {
    uint64_t first; /* in the placed rows */
    uint64_t count;
    double time;
} row_group;

/* Why a row of the table is refused. */
typedef enum row_fault { FAULT_NO_SERIES, FAULT_NO_TIME, FAULT_ORDER, FAULT_TWICE } row_fault;

typedef struct faulty_row {
    uint64_t row;
    row_fault fault;
} faulty_row;

/* Work in progress. */
typedef struct gathering {
    by__series_set *set;
    const by__series_found *found;
    const by_table *table;
    const by__series_reading *reading;
    timed_row *placed; /* [rows], of one series after the other */
    uint64_t *begins;  /* [series_count + 1] where each begins */
    row_group *groups;
    size_t group_count, group_capacity;
    faulty_row *faults; /* that are left out */
    size_t fault_count, fault_capacity;
} gathering;

/* ---- what is left out ---- */

static void describe(const gathering *g, row_fault fault, char *text, size_t size)
{
    const char *name = fault == FAULT_NO_SERIES ? g->found->id->name : g->found->time->name;
    if (fault == FAULT_NO_SERIES) {
        (void)snprintf(text, size, "column '%.200s' is empty", name);
    } else if (fault == FAULT_NO_TIME) {
        (void)snprintf(text, size, "the time in column '%.200s' is missing", name);
    } else {
        (void)snprintf(text, size,
                       "the time in column '%.200s' is not after that of the row before it: %s; "
                       "several series need data.series",
                       name,
                       fault == FAULT_TWICE
                           ? "leave out doubles, or set data.duplicates to what they become"
                           : "sort the rows, or set data.sort: true");
    }
}

/* Refuses a row, or leaves it out. */
static by_status leave_out(gathering *g, uint64_t row, row_fault fault, by_error *error)
{
    char text[500];
    if (!g->reading->skip) {
        describe(g, fault, text, sizeof text);
        return by_error_set(error, BY_EFORMAT, "%s: row %llu: %s", g->set->name,
                            (unsigned long long)row + 1, text);
    }
    BY_TRY(by__reserve((void **)&g->faults, &g->fault_capacity, g->fault_count + 1,
                       sizeof *g->faults, error));
    g->faults[g->fault_count++] = (faulty_row){row, fault};
    return BY_OK;
}

static int compare_faults(const void *a, const void *b)
{
    const faulty_row *x = a;
    const faulty_row *y = b;
    return x->row < y->row ? -1 : x->row > y->row;
}

/* Lists what was left out: damaged rows of the file, which are none of the table, then others. */
static by_status list_damage(gathering *g, by_error *error)
{
    size_t count;
    const by_damage *damaged = by_table_damage(g->table, &count);
    for (size_t i = 0; i < count; i++) {
        BY_TRY(by__loader_damage_add(&g->set->damage, &damaged[i], error));
    }
    if (g->fault_count > 0) {
        qsort(g->faults, g->fault_count, sizeof *g->faults, compare_faults);
    }
    for (size_t i = 0; i < g->fault_count; i++) {
        char text[500];
        uint64_t row = g->faults[i].row;
        describe(g, g->faults[i].fault, text, sizeof text);
        const by_damage part = {
            .path = g->set->name, .place = row + 1, .begin = row, .count = 1, .reason = text};
        BY_TRY(by__loader_damage_add(&g->set->damage, &part, error));
    }
    return BY_OK;
}

/* ---- times ---- */

/* The time of a row, as clocks show it where the file has no zone; NaN: it is missing, or none. */
static double time_of(const gathering *g, uint64_t row)
{
    const by__series_found *f = g->found;
    if (f->time == NULL) {
        return 0.0;
    }
    if (f->stamps == NULL) {
        return f->time->numbers[row] * g->set->unit;
    }
    int32_t value = f->time->categories[row];
    return value < 0 ? (double)NAN : f->stamps[value];
}

/* Turns what clocks show into times. Where clocks are put back they show an hour twice, and what a
 * row follows tells which it is: the row behind it, if the newest row is the first. */
static void apply_zone(gathering *g, uint64_t begin, uint64_t end)
{
    uint64_t up = 0;
    uint64_t down = 0;
    double after = -INFINITY;
    for (uint64_t i = begin + 1; i < end; i++) {
        up += g->placed[i].time > g->placed[i - 1].time;
        down += g->placed[i].time < g->placed[i - 1].time;
    }
    bool newest_first = g->reading->sort && down > up;
    for (uint64_t k = 0; k < end - begin; k++) {
        double *time = &g->placed[newest_first ? end - 1 - k : begin + k].time;
        *time = isnan(*time) ? *time : by__series_zone_time(g->set->zone, *time, after);
        after = *time;
    }
}

/* ---- placing ---- */

/* The number of a row's series; -1: its cell is missing. */
static int64_t series_of(const by__series_found *f, uint64_t row)
{
    return f->id == NULL ? 0 : f->id->categories[row];
}

static by_status name_series(by__series_set *set, const by__series_found *f, by_error *error)
{
    set->series_count = f->id == NULL ? 1 : f->id->value_count;
    BY_TRY(
        by__alloc((void **)&set->series, set->series_count, sizeof *set->series, "series", error));
    if (f->id == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&set->names, set->series_count, sizeof *set->names, "series", error));
    for (size_t s = 0; s < set->series_count; s++) {
        set->names[s] = by__strdup(f->id->values[s]);
        if (set->names[s] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: series");
        }
        set->series[s].name = set->names[s];
    }
    return BY_OK;
}

/* Places the rows by series, in the order of the table. */
static by_status place_rows(gathering *g, by_error *error)
{
    size_t count = g->set->series_count;
    uint64_t rows = by_table_rows(g->table);
    uint64_t *next;
    BY_TRY(by__alloc((void **)&g->begins, count + 1, sizeof *g->begins, "series", error));
    BY_TRY(by__alloc((void **)&g->placed, (size_t)rows, sizeof *g->placed, "series", error));
    for (uint64_t row = 0; row < rows; row++) {
        int64_t s = series_of(g->found, row);
        if (s >= 0) {
            g->begins[s + 1]++;
        } else {
            BY_TRY(leave_out(g, row, FAULT_NO_SERIES, error));
        }
    }
    for (size_t s = 0; s < count; s++) {
        g->begins[s + 1] += g->begins[s];
    }
    BY_TRY(by__alloc((void **)&next, count, sizeof *next, "series", error));
    memcpy(next, g->begins, count * sizeof *next);
    for (uint64_t row = 0; row < rows; row++) {
        int64_t s = series_of(g->found, row);
        if (s >= 0) {
            g->placed[next[s]++] = (timed_row){time_of(g, row), row};
        }
    }
    free(next);
    bool local = g->found->stamps != NULL && g->found->style.zone[0] == '\0';
    for (size_t s = 0; s < count && local && g->set->zone != NULL; s++) {
        apply_zone(g, g->begins[s], g->begins[s + 1]);
    }
    return BY_OK;
}

/* ---- order ---- */

static int compare_rows(const void *a, const void *b)
{
    const timed_row *x = a;
    const timed_row *y = b;
    return x->time != y->time ? (x->time < y->time ? -1 : 1) : x->row < y->row ? -1 : 1;
}

/* Drops the rows of a series that do not count, so that times ascend; *end is behind the last one
 * that is left. Rows of one time stay together if they become one. */
static by_status order_series(gathering *g, uint64_t begin, uint64_t *end, by_error *error)
{
    const char *twice = g->reading->duplicates == NULL ? "fail" : g->reading->duplicates;
    bool merge = strcmp(twice, "mean") == 0 || strcmp(twice, "sum") == 0;
    uint64_t kept = begin;
    for (uint64_t i = begin; i < *end; i++) { /* NaN cannot be sorted */
        if (isnan(g->placed[i].time)) {
            BY_TRY(leave_out(g, g->placed[i].row, FAULT_NO_TIME, error));
        } else {
            g->placed[kept++] = g->placed[i];
        }
    }
    if (g->reading->sort && kept > begin) {
        qsort(g->placed + begin, (size_t)(kept - begin), sizeof *g->placed, compare_rows);
    }
    *end = kept;
    kept = begin;
    for (uint64_t i = begin; i < *end; i++) {
        const timed_row row = g->placed[i];
        double before = kept > begin ? g->placed[kept - 1].time : -INFINITY;
        bool same = row.time == before;
        if (row.time > before || (same && merge)) {
            g->placed[kept++] = row;
        } else if (same && strcmp(twice, "last") == 0) {
            g->placed[kept - 1] = row;
        } else if (!same || strcmp(twice, "first") != 0) {
            BY_TRY(leave_out(g, row.row, same ? FAULT_TWICE : FAULT_ORDER, error));
        }
    }
    *end = kept;
    return BY_OK;
}

/* ---- steps ---- */

static by_status add_group(gathering *g, const row_group *group, by_error *error)
{
    BY_TRY(by__reserve((void **)&g->groups, &g->group_capacity, g->group_count + 1,
                       sizeof *g->groups, error));
    g->groups[g->group_count++] = *group;
    return BY_OK;
}

/* Where time is cut: whole days as the clocks of the place show them, shorter steps evenly from
 * midnight on the first day. */
typedef struct row_steps {
    const by__series_zone *zone;
    double step;
    bool days;
    double shift; /* clocks are ahead by so much, where steps are shorter than a day */
} row_steps;

/* Seconds by which times may miss where they belong: a double resolves today's to 2.4e-7 s, and a
 * step such as 0.1 s, times its number, to 1e-6 s. */
#define RESOLUTION 5e-6

static double step_number(const row_steps *s, double time)
{
    double clock = time + (s->days ? by__series_zone_offset(s->zone, time) : s->shift);
    return floor((clock - MONDAY + RESOLUTION) / s->step);
}

static double step_time(const row_steps *s, double number)
{
    double clock = number * s->step + MONDAY;
    return s->days ? by__series_zone_time(s->zone, clock, -INFINITY) : clock - s->shift;
}

/* A few rows far apart must not become more than memory has room for. */
#define MOST_STEPS 1000.0

static by_status check_steps(const gathering *g, double steps, uint64_t rows, by_error *error)
{
    return steps <= MOST_STEPS * (double)(rows + 100)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: data.resample would make %.0f steps of %llu rows of a series: "
                              "choose a longer one",
                              g->set->name, steps, (unsigned long long)rows);
}

/* Groups the rows of a series by steps of time, without leaving one out. */
static by_status resample_series(gathering *g, uint64_t begin, uint64_t end, by_error *error)
{
    bool exact = g->reading->rule != NULL && strcmp(g->reading->rule, "none") == 0;
    row_steps s = {.zone = g->set->zone, .step = g->reading->step};
    s.days = fmod(s.step, DAY) == 0.0;
    s.shift = by__series_zone_offset(s.zone, g->placed[begin].time);
    double first = step_number(&s, g->placed[begin].time);
    double steps = step_number(&s, g->placed[end - 1].time) - first + 1.0;
    BY_TRY(check_steps(g, steps, end - begin, error));
    uint64_t at = begin;
    for (uint64_t k = 0; (double)k < steps; k++) {
        double n = first + (double)k;
        row_group group = {.first = at, .time = step_time(&s, n)};
        for (; at < end && step_number(&s, g->placed[at].time) <= n; at++) {
            if (!exact || fabs(g->placed[at].time - group.time) <= RESOLUTION) {
                group.first = group.count == 0 ? at : group.first;
                group.count++;
            }
        }
        BY_TRY(add_group(g, &group, error));
    }
    return BY_OK;
}

/* A group of each time. */
static by_status group_times(gathering *g, uint64_t begin, uint64_t end, by_error *error)
{
    for (uint64_t i = begin; i < end;) {
        row_group group = {.first = i, .time = g->placed[i].time};
        do {
            group.count++;
            i++;
        } while (g->found->time != NULL && i < end && g->placed[i].time == group.time);
        BY_TRY(add_group(g, &group, error));
    }
    return BY_OK;
}

/* ---- values ---- */

/* What the rows of a group say in a column of numbers; NaN: nothing. What is known of a step, such
 * as a price, is neither added up nor 0 where there are no rows. */
static double value_of(const gathering *g, const row_group *group, const by_column *column,
                       bool known)
{
    const double *numbers = column->numbers;
    bool steps = g->reading->step > 0.0;
    const char *rule = steps ? g->reading->rule : g->reading->duplicates;
    double sum = 0.0;
    double first = (double)NAN;
    double last = (double)NAN;
    uint64_t count = 0;
    for (uint64_t i = 0; i < group->count; i++) {
        double number = numbers[g->placed[group->first + i].row];
        if (isfinite(number)) {
            first = count == 0 ? number : first;
            last = number;
            sum += number;
            count++;
        }
    }
    if (count == 0) {
        return steps && group->count == 0 && g->reading->zero && !known ? 0.0 : (double)NAN;
    }
    return rule == NULL || strcmp(rule, "mean") == 0 ? sum / (double)count
           : strcmp(rule, "sum") == 0                ? (known ? sum / (double)count : sum)
           : strcmp(rule, "first") == 0              ? first
                                                     : last;
}

static by_status set_values(gathering *g, const row_group *group, uint64_t to, by_error *error)
{
    by__series_set *set = g->set;
    for (size_t c = 0; c < g->found->count; c++) {
        double number = value_of(g, group, g->found->channels[c], false);
        uint64_t at = to * g->found->count + c;
        if (isfinite(number) && !isfinite((float)number)) {
            return by_error_set(error, BY_EFORMAT, "%s: row %llu: %g in column '%s' is beyond f32",
                                set->name, (unsigned long long)g->placed[group->first].row + 1,
                                number, g->found->channels[c]->name);
        }
        set->present[at] = isfinite(number) != 0;
        set->values[at] = set->present[at] != 0 ? (float)number : 0.0f;
    }
    return BY_OK;
}

static by_status set_known(gathering *g, by_error *error)
{
    by__series_set *set = g->set;
    size_t count = g->found->known_count;
    size_t cells;
    set->known_rows = g->group_count;
    if (count == 0) {
        return BY_OK;
    }
    if (!by__size_mul(g->group_count, count, &cells)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: series");
    }
    BY_TRY(
        by__alloc((void **)&set->known_values, cells, sizeof *set->known_values, "series", error));
    for (size_t i = 0; i < cells; i++) {
        double number = value_of(g, &g->groups[i / count], g->found->known[i % count], true);
        set->known_values[i] = isfinite((float)number) ? (float)number : NAN;
    }
    return BY_OK;
}

/* Notes the times of a series, as clocks show them, and whether they are evenly spaced: in time, or
 * on the clocks, as days are where clocks are put forward and back. */
static void set_times(gathering *g, by__series_rows *series, const row_group *groups)
{
    const by__series_zone *zone = g->set->zone;
    double step = 0.0;
    double clock_step = 0.0;
    bool even = series->count > 1;
    bool even_clock = even;
    for (uint64_t i = 0; g->found->time != NULL && i < series->count; i++) {
        double *clock = &g->set->times[series->first + i];
        *clock = groups[i].time + by__series_zone_offset(zone, groups[i].time);
        if (i > 0) {
            double gap = groups[i].time - groups[i - 1].time;
            step = i == 1 ? gap : step;
            clock_step = i == 1 ? clock[0] - clock[-1] : clock_step;
            even = even && fabs(gap - step) <= RESOLUTION;
            even_clock = even_clock && fabs(clock[0] - clock[-1] - clock_step) <= RESOLUTION;
        }
    }
    if (g->found->time == NULL || series->count == 0) {
        return;
    }
    series->by_clock = !even && even_clock;
    series->step = even ? step : even_clock ? clock_step : 0.0;
    series->last = series->by_clock ? g->set->times[series->first + series->count - 1]
                                    : groups[series->count - 1].time;
}

/* ---- steps as text ---- */

bool by__series_step_parse(double *seconds, const char *text)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"s", 1.0}, {"min", 60.0}, {"h", 3600.0}, {"d", DAY}, {"w", 7.0 * DAY}};
    char *end;
    double number = strtod(text, &end);
    number = end == text ? 1.0 : number;
    end += strspn(end, " ");
    for (size_t i = 0; i < BY_ARRAY_LENGTH(units); i++) {
        if (strcmp(end, units[i].name) == 0) {
            *seconds = number * units[i].seconds;
            return *seconds >= 1e-3 && *seconds <= 1e9;
        }
    }
    return false;
}

/* ---- the whole ---- */

/* Whether a group has a number of a channel. */
static bool says_anything(const gathering *g, const row_group *group)
{
    bool any = false;
    for (size_t c = 0; c < g->found->count; c++) {
        any = any || !isnan(value_of(g, group, g->found->channels[c], false));
    }
    return any;
}

/* Groups the rows of one series, and leaves out those that the reading does not want. */
static by_status take_series(gathering *g, size_t s, by_error *error)
{
    const by__series_reading *r = g->reading;
    by__series_rows *series = &g->set->series[s];
    uint64_t begin = g->begins[s];
    uint64_t end = g->begins[s + 1];
    size_t before = g->group_count;
    if (g->found->time != NULL) {
        BY_TRY(order_series(g, begin, &end, error));
    }
    if (end > begin) {
        BY_TRY(r->step > 0.0 ? resample_series(g, begin, end, error)
                             : group_times(g, begin, end, error));
    }
    uint64_t count = g->group_count - before;
    uint64_t known = count;
    while (g->found->known_count > 0 && count > 0 &&
           !says_anything(g, &g->groups[before + count - 1])) {
        count--;
    }
    count = r->limit > 0 && count > r->limit ? r->limit : count;
    count -= r->skipped < count ? r->skipped : count;
    known = count < known && !r->ahead ? count : known;
    g->group_count = before + (size_t)known;
    series->known_first = before;
    series->known_count = known;
    series->first = g->set->rows;
    series->count = count;
    g->set->rows += count;
    return BY_OK;
}

static by_status fill_rows(gathering *g, by_error *error)
{
    by__series_set *set = g->set;
    size_t cells;
    if (!by__size_mul((size_t)set->rows, g->found->count, &cells)) {
        return by_error_set(error, BY_EMEMORY, "out of memory: series");
    }
    BY_TRY(by__alloc((void **)&set->values, cells, sizeof *set->values, "series", error));
    BY_TRY(by__alloc((void **)&set->present, cells, 1, "series", error));
    if (g->found->time != NULL) {
        BY_TRY(by__alloc((void **)&set->times, (size_t)set->rows, sizeof *set->times, "series",
                         error));
    }
    for (size_t s = 0; s < set->series_count; s++) {
        by__series_rows *series = &set->series[s];
        const row_group *groups = g->groups + series->known_first;
        for (uint64_t i = 0; i < series->count; i++) {
            BY_TRY(set_values(g, &groups[i], series->first + i, error));
        }
        set_times(g, series, groups);
    }
    return set_known(g, error);
}

static by_status gather(gathering *g, by_error *error)
{
    by__series_set *set = g->set;
    const char *zone = g->reading->zone != NULL ? g->reading->zone : "";
    const char *written = g->found->stamps == NULL ? "" : g->found->style.zone;
    if (g->reading->step > 0.0 && g->found->time == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.resample needs a column of times: name it in data.time",
                            set->name);
    }
    if (g->reading->clocks != NULL) {
        BY_TRY(by__series_zone_copy(&set->zone, g->reading->clocks, error));
    } else if (zone[0] != '\0' || written[0] != '\0') {
        BY_TRY(by__series_zone_open(&set->zone, zone[0] != '\0' ? zone : written, error));
    }
    BY_TRY(name_series(set, g->found, error));
    BY_TRY(place_rows(g, error));
    for (size_t s = 0; s < set->series_count; s++) {
        BY_TRY(take_series(g, s, error));
    }
    BY_TRY(list_damage(g, error));
    return set->rows > 0 ? fill_rows(g, error)
                         : by_error_set(error, BY_EFORMAT, "%s has no rows", set->name);
}

by_status by__series_take_rows(by__series_set *set, const by__series_found *f,
                               const by_table *table, const by__series_reading *reading,
                               by_error *error)
{
    gathering g = {.set = set, .found = f, .table = table, .reading = reading};
    by_status status = gather(&g, error);
    free(g.placed);
    free(g.begins);
    free(g.groups);
    free(g.faults);
    return status;
}
