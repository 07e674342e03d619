/* What `predict` says of the rows behind the last one of each series, and of held-out windows with
 * what these rows were. */
#include <math.h>
#include <stdlib.h>

#include "nn/series.h"
#include "tasks/forecast/forecast.h"

/* Fields of a row, and the names of those that are quantiles, "sold_0.1", and, of held-out windows,
 * of the numbers that were to be forecast, "sold_true". */
typedef struct report_row {
    by_field *fields;
    char (*names)[128]; /* [channels * (levels + 1)] */
    size_t levels;
    bool held_out;
} report_row;

/* A window that is reported. */
typedef struct report_window {
    size_t series;
    uint64_t origin;      /* its first row that is forecast */
    const float *values;  /* [horizon, P, channels] */
    const float *targets; /* [horizon, channels] */
    const float *weights; /* [horizon, channels] */
    size_t horizon;
} report_window;

static by_status make_row(report_row *row, const by__forecast_data *d, by_error *error)
{
    size_t channels = d->set->channels.count;
    row->levels = d->form.level_count;
    row->held_out = d->purpose != BY_TASK_PREDICT;
    size_t each = row->levels + 1;
    BY_TRY(by__alloc((void **)&row->fields, channels * (each + 1) + 4, sizeof *row->fields,
                     "predictions", error));
    BY_TRY(
        by__alloc((void **)&row->names, channels * each, sizeof *row->names, "predictions", error));
    for (size_t c = 0; c < channels && d->keys->anomaly != 0; c++) {
        (void)snprintf(row->names[c], sizeof row->names[0], "%.100s_score",
                       d->set->channels.items[c]);
    }
    for (size_t c = 0; c < channels && d->keys->anomaly == 0; c++) {
        for (size_t k = 0; k < each; k++) {
            (void)snprintf(row->names[c * each + k], sizeof row->names[0], "%.100s_%.20s",
                           d->set->channels.items[c],
                           k < row->levels ? by__nn_series_level_name(d->model, k) : "true");
        }
    }
    return BY_OK;
}

/* The time of a row that is there. */
static double known_time(const by__series_set *set, uint64_t row)
{
    return by__series_zone_time(set->zone, set->times[row], -INFINITY);
}

/* A field of a time in seconds since 1970, or as clocks show it. */
static by_field time_field(const by__forecast_data *d, double time, bool by_clock, char text[40])
{
    bool local = d->set->stamped && d->set->style.zone[0] == '\0';
    if (by_clock && !local) { /* steps of a day or more are counted on the clock of data.zone */
        time = by__series_zone_time(d->set->zone, time, -INFINITY);
    }
    double number = time / d->set->unit;
    by_field field = {.name = d->set->time, .number = number, .is_whole = number == floor(number)};
    if (d->set->stamped) {
        time += local && !by_clock ? by__series_zone_offset(d->set->zone, time) : 0.0;
        by__series_stamp_print(text, time, &d->set->style);
        field.text = text;
    }
    return field;
}

/* The time of a row of a window's forecast, where rows are evenly spaced. */
static by_field step_field(const by__forecast_data *d, const by__series_rows *rows, uint64_t row,
                           char text[40])
{
    double time = rows->last + ((double)row - (double)(rows->count - 1)) * rows->step;
    return time_field(d, time, rows->by_clock, text);
}

/* The point of a channel, its quantiles, and the number that it was. Returns how many. */
static size_t channel_fields(const by__forecast_data *d, const report_row *row,
                             const report_window *w, size_t step, size_t c, by_field *out)
{
    size_t channels = d->set->channels.count;
    size_t width = channels * d->form.outputs;
    double mean = d->set->mean[w->series * channels + c];
    double deviation = d->set->deviation[w->series * channels + c];
    by__forecast_said said;
    char(*names)[128] = row->names + c * (row->levels + 1);
    const by__forecast_numbers n = {.form = &d->form,
                                    .first = w->values + step * width + c,
                                    .stride = channels,
                                    .unit = deviation};
    by__forecast_say(&said, &n, (double)NAN);
    size_t count = 0;
    out[count++] =
        (by_field){.name = d->set->channels.items[c], .number = mean + deviation * said.point};
    for (size_t k = 0; k < row->levels; k++) {
        out[count++] = (by_field){.name = names[k], .number = mean + deviation * said.quantiles[k]};
    }
    if (row->held_out) {
        size_t i = step * channels + c;
        bool known = w->weights[i] > 0.0f;
        out[count++] =
            (by_field){.name = names[row->levels],
                       .number = known ? mean + deviation * (double)w->targets[i] : (double)NAN};
    }
    return count;
}

/* Reports a row for each step of a window's forecast. */
static void report_steps(const by__forecast_data *d, const report_row *row, const report_window *w,
                         by_predicted *report, void *user)
{
    const by__series_rows *rows = &d->set->series[w->series];
    for (size_t step = 0; step < w->horizon; step++) {
        size_t count = 0;
        char text[40];
        if (d->set->names != NULL) {
            row->fields[count++] =
                (by_field){.name = d->scales->id, .text = d->set->names[w->series]};
        }
        row->fields[count++] =
            (by_field){.name = "step", .number = (double)step + 1, .is_whole = true};
        if (rows->step > 0.0) {
            row->fields[count++] = step_field(d, rows, w->origin + step, text);
        }
        for (size_t c = 0; c < d->set->channels.count; c++) {
            count += channel_fields(d, row, w, step, c, row->fields + count);
        }
        report(user, row->fields, count);
    }
}

/* How odd a number is: the negative log-likelihood, or without a distribution the error of its
 * forecast in units of that of repeating the last row, or the last period. */
static double score_of(const by__forecast_data *d, const report_window *w, size_t c)
{
    size_t channels = d->set->channels.count;
    size_t at = w->series * channels + c;
    double y = (double)w->targets[c];
    double naive = d->naive[at];
    const by__forecast_numbers n = {.form = &d->form,
                                    .first = w->values + c,
                                    .stride = channels,
                                    .unit = d->set->deviation[at]};
    by__forecast_said said;
    if (!(w->weights[c] > 0.0f)) {
        return (double)NAN;
    }
    by__forecast_say(&said, &n, y);
    return d->form.kind >= BY__NN_SERIES_NORMAL
               ? said.nll
               : fabs(y - said.point) / (naive > 0.0 ? naive : 1.0);
}

/* Reports how odd the first row of a window's forecast is: the mean over its channels, and each. */
static void report_score(const by__forecast_data *d, const report_row *row, const report_window *w,
                         by_predicted *report, void *user)
{
    size_t channels = d->set->channels.count;
    uint64_t at = d->set->series[w->series].first + w->origin;
    double sum = 0.0;
    double known = 0.0;
    char text[40];
    size_t count = 0;
    if (d->set->names != NULL) {
        row->fields[count++] = (by_field){.name = d->scales->id, .text = d->set->names[w->series]};
    }
    row->fields[count++] = (by_field){.name = "row", .number = (double)w->origin, .is_whole = true};
    if (d->set->times != NULL) {
        row->fields[count++] = time_field(d, known_time(d->set, at), false, text);
    }
    by_field *score = &row->fields[count++];
    for (size_t c = 0; c < channels; c++) {
        double odd = score_of(d, w, c);
        known += isnan(odd) ? 0.0 : 1.0;
        sum += isnan(odd) ? 0.0 : odd;
        row->fields[count++] = (by_field){.name = row->names[c], .number = odd};
    }
    *score = (by_field){.name = "score", .number = known > 0.0 ? sum / known : (double)NAN};
    report(user, row->fields, count);
}

/* A window has a number that counts, unless it is padding. */
static bool counts(const float *weights, size_t targets)
{
    bool any = false;
    for (size_t i = 0; i < targets; i++) {
        any = any || weights[i] > 0.0f;
    }
    return any;
}

/* Tells of each series that is not continued, because it has too few rows or numbers. */
static void report_skipped(const by__forecast_data *d, by_predicted *report, void *user)
{
    for (size_t s = 0; s < d->set->series_count; s++) {
        char text[BY__FORECAST_FAULT];
        if (d->valid[s].count == 0 && d->set->names != NULL &&
            by__forecast_window_fault(d, d->set, s, text)) {
            const by_field fields[2] = {{.name = d->scales->id, .text = d->set->names[s]},
                                        {.name = "skipped", .text = text}};
            report(user, fields, 2);
        }
    }
}

by_status by__forecast_predict(by_task_data *data, const by_batch *batch, double sum,
                               const float *values, size_t width, by_predicted *report, void *user,
                               by_error *error)
{
    const by__forecast_data *d = (const by__forecast_data *)data;
    const by_array *weight = by_batch_array(batch, "weight");
    const by_array *target = by_batch_array(batch, "targets");
    size_t targets = width / d->form.outputs;
    report_row row = {0};
    BY_UNUSED(sum);
    if (d->served) {
        return by__forecast_predict_rows(d, batch, values, width, report, user, error);
    }
    by_status status = make_row(&row, d, error);
    if (status == BY_OK && d->purpose == BY_TASK_PREDICT && batch->first_sample == 0) {
        report_skipped(d, report, user);
    }
    for (size_t i = 0; status == BY_OK && weight != NULL && target != NULL && i < batch->batch;
         i++) {
        report_window w = {.values = values + i * width,
                           .targets = (const float *)target->data + i * targets,
                           .weights = (const float *)weight->data + i * targets,
                           .horizon = targets / d->set->channels.count};
        if (counts(w.weights, targets)) {
            w.series = by__forecast_place(d, batch->first_sample + i, &w.origin);
            d->keys->anomaly != 0 ? report_score(d, &row, &w, report, user)
                                  : report_steps(d, &row, &w, report, user);
        }
    }
    free(row.fields);
    free(row.names);
    return status;
}
