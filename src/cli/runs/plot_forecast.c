/* banyan plot --show forecast: the last held-out window of a series, with what it was. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/plot.h"
#include "banyan/train.h"
#include "runs/plot_forecast.h"

#define MAX_CHANNELS 16 /* charts on a page */
#define NAME         128

/* One channel: what was before the window, and the window. */
typedef struct forecast_chart {
    char name[NAME];
    char band[NAME];
    size_t field;  /* index of its point; its quantiles follow, and what it was */
    size_t levels; /* quantiles */
    double *past;  /* [past_count] what each row was, up to the window */
    size_t past_count;
    size_t past_capacity;
    double *rows; /* [4, horizon] truth, point, low, high */
    double *x;    /* [2 horizon + horizon] from -2 horizon on */
    double *truth;
    by_plot_series series[3];
} forecast_chart;

typedef struct forecast_drawing {
    const cli_forecast_request *request;
    size_t horizon;
    char series[NAME]; /* the one that is drawn; "": none is known yet */
    bool named;        /* whether series have names */
    bool failed;
    forecast_chart charts[MAX_CHANNELS];
    size_t count;
} forecast_drawing;

/* ---- reading predictions ---- */

static bool is_truth(const by_field *field, const char *channel)
{
    size_t length = strlen(channel);
    return strncmp(field->name, channel, length) == 0 && strcmp(field->name + length, "_true") == 0;
}

/* Finds the channels among the fields of a row: each ends with what it was. */
static void find_channels(forecast_drawing *d, const by_field *fields, size_t count)
{
    for (size_t i = 0; i < count && d->count < MAX_CHANNELS; i++) {
        for (size_t k = i + 1; k < count; k++) {
            if (is_truth(&fields[k], fields[i].name)) {
                forecast_chart *c = &d->charts[d->count++];
                c->field = i;
                c->levels = k - i - 1;
                (void)snprintf(c->name, NAME, "%.100s", fields[i].name);
                if (c->levels > 1) {
                    size_t length = strlen(c->name) + 1;
                    (void)snprintf(c->band, NAME, "%.40s to %.40s", fields[i + 1].name + length,
                                   fields[k - 1].name + length);
                }
                c->rows = calloc(4 * d->horizon, sizeof *c->rows);
                d->failed = d->failed || c->rows == NULL;
                i = k;
                break;
            }
        }
    }
}

static void add_past(forecast_drawing *d, forecast_chart *c, double value)
{
    if (c->past_count == c->past_capacity) {
        size_t capacity = 2 * c->past_capacity + 256;
        double *grown = realloc(c->past, capacity * sizeof *grown);
        if (grown == NULL) {
            d->failed = true;
            return;
        }
        c->past = grown;
        c->past_capacity = capacity;
    }
    c->past[c->past_count++] = value;
}

static void take_row(void *user, const by_field *fields, size_t count)
{
    forecast_drawing *d = user;
    bool named = fields[0].text != NULL && strcmp(fields[0].name, "step") != 0;
    const by_field *step = &fields[named ? 1 : 0];
    size_t at = (size_t)step->number - 1;
    if (d->count == 0) {
        find_channels(d, fields, count);
        const char *wanted = d->request->series;
        (void)snprintf(d->series, NAME, "%.120s",
                       wanted != NULL ? wanted
                       : named        ? fields[0].text
                                      : "");
    }
    if (d->failed || at >= d->horizon || (named && strcmp(fields[0].text, d->series) != 0)) {
        return;
    }
    d->named = named;
    for (size_t i = 0; i < d->count; i++) {
        forecast_chart *c = &d->charts[i];
        double truth = fields[c->field + c->levels + 1].number;
        if (at == 0) {
            add_past(d, c, truth);
        }
        c->rows[at] = truth;
        c->rows[d->horizon + at] = fields[c->field].number;
        c->rows[2 * d->horizon + at] = fields[c->field + 1].number;
        c->rows[3 * d->horizon + at] = fields[c->field + c->levels].number;
    }
}

/* ---- drawing ---- */

static by_status make_chart(by_plot_options *out, const forecast_drawing *d, forecast_chart *c,
                            by_error *error)
{
    size_t h = d->horizon;
    size_t past = c->past_count - 1 < 2 * h ? c->past_count - 1 : 2 * h;
    assert(h > 0);
    c->x = calloc(past + h, sizeof *c->x);
    c->truth = calloc(past + h, sizeof *c->truth);
    if (c->x == NULL || c->truth == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a chart");
    }
    for (size_t i = 0; i < past + h; i++) {
        c->x[i] = (double)i - (double)past + 1.0;
        c->truth[i] = i < past ? c->past[c->past_count - 1 - past + i] : c->rows[i - past];
    }
    size_t count = 0;
    if (c->levels > 1) {
        c->series[count++] = (by_plot_series){.name = c->band,
                                              .x = c->x + past,
                                              .y = c->rows + 3 * h,
                                              .low = c->rows + 2 * h,
                                              .count = h,
                                              .group = 2};
    }
    c->series[count++] =
        (by_plot_series){.name = "truth", .x = c->x, .y = c->truth, .count = past + h, .group = 1};
    c->series[count++] = (by_plot_series){
        .name = "forecast", .x = c->x + past, .y = c->rows + h, .count = h, .group = 2};
    *out = (by_plot_options){.title = c->name,
                             .x_label = "rows ahead",
                             .whole_x = true,
                             .series = c->series,
                             .series_count = count};
    return BY_OK;
}

static by_status draw(forecast_drawing *d, const char *out, by_error *error)
{
    by_plot_options pages[MAX_CHANNELS];
    by_status status = BY_OK;
    if (d->failed) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a forecast");
    }
    if (d->count == 0 || d->charts[0].past_count == 0) {
        return by_error_set(error, BY_EARG, "the data has no window of a series '%s'", d->series);
    }
    for (size_t i = 0; i < d->count && status == BY_OK; i++) {
        status = make_chart(&pages[i], d, &d->charts[i], error);
    }
    return status == BY_OK ? by_plot_write_all(pages, d->count, out, error) : status;
}

static by_status predict_and_draw(void *user, const by_pretrained *model, const char *run,
                                  by_error *error)
{
    const cli_forecast_request *r = user;
    const by_task_request what = {
        .purpose = BY_TASK_EVALUATE, .path = r->data, .test = r->test && r->data == NULL};
    by_task_data *data = NULL;
    cli_spool spool = {.path = NULL};
    by_config *config;
    by_status status = cli_copy_config(&config, model, error);
    forecast_drawing *d = calloc(1, sizeof *d);
    if (status != BY_OK || d == NULL) {
        free(d);
        return status != BY_OK ? status : by_error_set(error, BY_EMEMORY, "out of memory: a chart");
    }
    d->request = r;
    config->train.eval_batches = -1;
    if (strcmp(config->task.kind, "forecast") != 0) {
        status = by_error_set(error, BY_EARG, "--show forecast is of task.kind forecast, not %s",
                              config->task.kind);
    }
    if (status == BY_OK) {
        status = cli_open_task_data(&data, &spool, config, model, run, &what, error);
    }
    if (status == BY_OK) {
        status = by_task_complete(data, config, error);
    }
    if (status == BY_OK) {
        d->horizon = (size_t)config->model.outputs;
        status = by_predict(config, by_pretrained_weights(model), data, take_row,
                            cli_stop_requested, d, error);
    }
    if (status == BY_OK) {
        status = draw(d, r->out == NULL ? "forecast.png" : r->out, error);
    }
    if (status == BY_OK && r->tensorboard) {
        status = cli_track_picture(model, run, "forecast", r->out == NULL ? "forecast.png" : r->out,
                                   error);
    }
    for (size_t i = 0; i < d->count; i++) {
        free(d->charts[i].past);
        free(d->charts[i].rows);
        free(d->charts[i].x);
        free(d->charts[i].truth);
    }
    free(d);
    by_task_close(&data);
    cli_spool_close(&spool);
    by_config_close(&config);
    return status;
}

int cli_plot_forecast(const cli_command *command, const char *path, cli_forecast_request *request)
{
    int code = cli_with_pretrained(command, path, request->device, request->best, false, NULL,
                                   predict_and_draw, request);
    if (code == CLI_DONE) {
        cli_tell_written(request->out == NULL ? "forecast.png" : request->out);
    }
    return code;
}
