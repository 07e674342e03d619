/* Forecasts of rows in memory, such as those of a request to a server: the last rows of one series
 * or of several are read as a table is, and each is continued. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tasks/forecast/forecast.h"

/* Time and series, if there are any, then the channels and what is known ahead. */
bool by__forecast_column(const by_task_data *data, size_t i, by_column_type *out)
{
    const by__series_scales *s = ((const by__forecast_data *)data)->scales;
    const char *const first[2] = {s->time, s->id};
    for (size_t k = 0; k < 2; k++) {
        if (first[k][0] != '\0' && i-- == 0) {
            bool number = k == 0 && s->numbers;
            *out = (by_column_type){first[k], number ? BY_COLUMN_NUMBER : BY_COLUMN_CATEGORY};
            return true;
        }
    }
    bool known = i >= s->channels.count;
    i -= known ? s->channels.count : 0;
    const by__series_names *names = known ? &s->known : &s->channels;
    if (i >= names->count) {
        return false;
    }
    *out = (by_column_type){names->items[i], BY_COLUMN_NUMBER};
    return true;
}

static bool is_missing(const by_table *table, const char *name)
{
    const by_column *column = name[0] == '\0' ? NULL : by_table_find(table, name);
    return column == NULL || column->missing == by_table_rows(table);
}

/* One row without any number stands for a window of means, by which a server tries its model. */
static bool is_blank(const by_table *table, const by__series_scales *s)
{
    bool blank = by_table_rows(table) == 1;
    for (size_t c = 0; c < s->channels.count; c++) {
        blank = blank && is_missing(table, s->channels.items[c]);
    }
    return blank;
}

static by_status blank_set(by__series_set **out, const by__forecast_data *d, by_error *error)
{
    by__series_set *set;
    size_t channels = d->scales->channels.count;
    size_t cells = (size_t)d->context * channels;
    BY_TRY(by__alloc((void **)&set, 1, sizeof *set, "series", error));
    set->rows = (uint64_t)d->context;
    set->series_count = 1;
    set->name = by__strdup("no rows");
    by_status status = set->name != NULL ? by__alloc((void **)&set->series, 1, sizeof *set->series,
                                                     "series", error)
                                         : by_error_set(error, BY_EMEMORY, "out of memory: series");
    if (status == BY_OK) {
        set->series[0].count = set->rows;
        status = by__alloc((void **)&set->channels.items, channels, sizeof *set->channels.items,
                           "series", error);
    }
    for (size_t c = 0; c < channels && status == BY_OK; c++) {
        set->channels.items[c] = by__strdup(d->scales->channels.items[c]);
        status = set->channels.items[c] == NULL
                     ? by_error_set(error, BY_EMEMORY, "out of memory: series")
                     : BY_OK;
        set->channels.count = c + (set->channels.items[c] != NULL);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&set->values, cells, sizeof *set->values, "series", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&set->present, cells, 1, "series", error);
    }
    if (status != BY_OK) {
        by__series_set_close(&set);
        return status;
    }
    *out = set;
    return BY_OK;
}

static by_status read_set(by__series_set **out, const by__forecast_data *d, const by_table *table,
                          by_error *error)
{
    by__series_reading reading;
    const by__series_scales *s = d->scales;
    /* Who sends no times has evenly spaced rows. */
    const by__series_columns columns = {.time = is_missing(table, s->time) ? "" : s->time,
                                        .id = s->id,
                                        .channels = s->channels,
                                        .known = s->known};
    if (is_blank(table, s)) {
        return blank_set(out, d, error);
    }
    BY_TRY(by__forecast_reading(&reading, d->config, error));
    reading.limit = 0;
    reading.skipped = 0;
    reading.skip = false;
    reading.ahead = true;
    reading.clocks = d->zone;
    return by__series_set_read(out, table, &columns, &reading, error);
}

/* A window of means is told nothing, too. */
static by_status make_inputs(by__series_set *set, const by__forecast_data *d, bool blank,
                             by_error *error)
{
    const by__series_scales *s = d->scales;
    uint64_t horizon = (uint64_t)d->model->outputs;
    if (!blank) {
        return by__series_make_inputs(set, s, horizon, true, error);
    }
    set->input_width = by__series_calendar_width(&s->calendar) + s->known.count;
    return by__alloc((void **)&set->inputs, (size_t)(set->rows + horizon) * set->input_width + 1,
                     sizeof *set->inputs, "series", error);
}

/* The last window of each series. */
static by_status last_windows(by__series_windows *windows, const by__forecast_data *d,
                              const by__series_set *set, bool blank, by_error *error)
{
    uint64_t context = (uint64_t)d->context;
    char fault[BY__FORECAST_FAULT];
    for (size_t i = 0; i < set->series_count; i++) {
        const char *name = set->series[i].name;
        if (!blank && by__forecast_window_fault(d, set, i, fault)) {
            return by_error_set(error, BY_EFORMAT, "%s%s has %s",
                                name == NULL ? "the series" : "series ", name == NULL ? "" : name,
                                fault);
        }
        windows[i] = (by__series_windows){.first = set->series[i].count - context, .count = 1};
    }
    return BY_OK;
}

by_status by__forecast_open_rows(const by_task_data *data, const by_task_examples *examples,
                                 by_array_set **set, by_source **source, by_error *error)
{
    const by__forecast_data *d = (const by__forecast_data *)data;
    by__series_set *rows = NULL;
    by__series_windows *windows = NULL;
    if (examples->table == NULL) {
        return by_error_set(error, BY_EARG, "the model reads rows of series, not images");
    }
    by_status status = read_set(&rows, d, examples->table, error);
    if (status == BY_OK) {
        status = by__series_standardize(rows, d->scales, error);
    }
    if (status == BY_OK) {
        status = make_inputs(rows, d, is_blank(examples->table, d->scales), error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&windows, rows->series_count, sizeof *windows, "rows", error);
    }
    if (status == BY_OK) {
        status = last_windows(windows, d, rows, is_blank(examples->table, d->scales), error);
    }
    const by__series_window_options options = {.context = (uint64_t)d->context,
                                               .horizon = (uint64_t)d->model->outputs,
                                               .ahead = true,
                                               .scales = true,
                                               .owns = true,
                                               .windows = windows};
    if (status == BY_OK) {
        status = by__series_source_open(source, rows, &options, error);
    }
    free(windows);
    if (status != BY_OK) {
        by__series_set_close(&rows);
        return status;
    }
    *set = NULL;
    return BY_OK;
}

/* ---- predictions ---- */

/* Lists of one window: `each` for a channel, of its points and its quantiles. */
typedef struct served_lists {
    by_field *fields;   /* [1 + channels each] */
    char (*names)[128]; /* [channels each] */
    float *numbers;     /* [channels each, horizon] */
    size_t channels, each, horizon;
} served_lists;

static by_status make_lists(served_lists *l, const by__forecast_data *d, by_error *error)
{
    size_t count = l->channels * l->each;
    BY_TRY(by__alloc((void **)&l->fields, count + 1, sizeof *l->fields, "predictions", error));
    BY_TRY(by__alloc((void **)&l->names, count, sizeof *l->names, "predictions", error));
    BY_TRY(by__alloc((void **)&l->numbers, count, l->horizon * sizeof *l->numbers, "predictions",
                     error));
    for (size_t i = 0; i < count; i++) {
        const char *channel = d->scales->channels.items[i / l->each];
        size_t k = i % l->each;
        if (k == 0) {
            (void)snprintf(l->names[i], sizeof l->names[i], "%.120s", channel);
        } else {
            (void)snprintf(l->names[i], sizeof l->names[i], "%.100s_%.20s", channel,
                           by__nn_series_level_name(d->model, k - 1));
        }
        l->fields[1 + i] = (by_field){
            .name = l->names[i], .list = l->numbers + i * l->horizon, .list_count = l->horizon};
    }
    return BY_OK;
}

static void fill_lists(const served_lists *l, const by__forecast_data *d, const float *values,
                       const float *mean, const float *deviation)
{
    size_t outputs = d->form.outputs;
    for (size_t step = 0; step < l->horizon; step++) {
        for (size_t c = 0; c < l->channels; c++) {
            by__forecast_said said;
            double m = (double)mean[c];
            double s = (double)deviation[c];
            const by__forecast_numbers n = {.form = &d->form,
                                            .first = values + step * outputs * l->channels + c,
                                            .stride = l->channels,
                                            .unit = s};
            float *to = l->numbers + c * l->each * l->horizon + step;
            by__forecast_say(&said, &n, (double)NAN);
            to[0] = (float)(m + s * said.point);
            for (size_t k = 1; k < l->each; k++) {
                to[k * l->horizon] = (float)(m + s * said.quantiles[k - 1]);
            }
        }
    }
}

by_status by__forecast_predict_rows(const by__forecast_data *d, const by_batch *batch,
                                    const float *values, size_t width, by_predicted *report,
                                    void *user, by_error *error)
{
    const by_array *mean = by_batch_array(batch, "mean");
    const by_array *deviation = by_batch_array(batch, "deviation");
    served_lists l = {.channels = d->scales->channels.count,
                      .each = d->form.level_count + 1,
                      .horizon = (size_t)d->model->outputs};
    if (mean == NULL || deviation == NULL) {
        return by_error_set(error, BY_EARG, "the windows have no scales");
    }
    by_status status = make_lists(&l, d, error);
    for (size_t i = 0; status == BY_OK && i < batch->valid_targets && i < batch->batch; i++) {
        fill_lists(&l, d, values + i * width, (const float *)mean->data + i * l.channels,
                   (const float *)deviation->data + i * l.channels);
        l.fields[0] = (by_field){.name = "index", .number = (double)i, .is_whole = true};
        report(user, l.fields, 1 + l.channels * l.each);
    }
    free(l.fields);
    free(l.names);
    free(l.numbers);
    return status;
}
