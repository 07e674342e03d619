/* Forecasting: predicts the rows that follow a window of rows of time series.
 *
 * The last part of each series is held out: first the rows to validate on, behind those to train
 * on, then the rows to test on, which no training sees. Windows to validate and test may read the
 * rows before their part, as is usual (Zhou et al. 2021). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/array_set.h"
#include "banyan/ops.h"
#include "data/series/series_source.h"
#include "tasks/tasks.h"

#define LEARNED_FILE  "series.json"
#define LEARNED_LIMIT ((size_t)64 << 20)

typedef struct forecast_keys {
    char *table;
    char *time;
    char *series;
    by_string_list channels;
    by_string_list ignore;
    int64_t rows;
    double test_fraction;
    char *loss;
    int64_t season;
} forecast_keys;

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "table", BY__KEY_TEXT, BY__OWN(forecast_keys, table), "\"\"",
     .help = "table of the series: a CSV file (optionally gzipped) whose first row has the column "
             "names, a Parquet file, JSON lines of rows, or a directory of Parquet files or of "
             "JSON lines"},
    {"data", "time", BY__KEY_TEXT, BY__OWN(forecast_keys, time), "\"\"",
     .help = "column of times, such as 2026-11-29 07:45:00, or of numbers, which must ascend "
             "within a series; empty: the first one of dates or times"},
    {"data", "series", BY__KEY_TEXT, BY__OWN(forecast_keys, series), "\"\"",
     .help = "column that tells which series a row belongs to; empty: there is one"},
    {"data", "channels", BY__KEY_TEXTS, BY__OWN(forecast_keys, channels), "[]",
     .help = "columns of numbers to read and to forecast; empty: all others of numbers"},
    {"data", "ignore", BY__KEY_TEXTS, BY__OWN(forecast_keys, ignore), "[]",
     .help = "columns that are left out, where channels names none"},
    {"data", "rows", BY__KEY_INT, BY__OWN(forecast_keys, rows), "0", 0, BY__COUNT_LIMIT,
     .help = "rows of each series that are used, from its first one; 0: all"},
    {"data", "test_fraction", BY__KEY_SHARE, BY__OWN(forecast_keys, test_fraction), "0", 0,
     BY__COUNT_LIMIT,
     .help = "share, or from 1 on the number, of the last rows of each series that neither "
             "training nor validation sees: `banyan eval RUN --test` reads them"},
    {"task", "loss", BY__KEY_TEXT, BY__OWN(forecast_keys, loss), "squared",
     .choices = "squared|smooth_l1",
     .help = "squared error or smooth L1 (Huber 1964, beta 1) of the standardized values"},
    {"task", "season", BY__KEY_INT, BY__OWN(forecast_keys, season), "0", 0, BY__MI24,
     .help = "rows of a period, such as 24 for a day of hours: evaluations tell the error of "
             "repeating the last one, if the context has it; 0: none"},
};
/* clang-format on */
static const by__config_key_list key_list = BY__KEY_LIST(keys);

typedef struct forecast_data {
    by_task_data base;
    const forecast_keys *keys; /* of the config that was opened, which must outlive it */
    by__series_set *set;
    by__series_scales *scales;
    by__series_windows *train; /* [series] */
    by__series_windows *valid; /* [series] held out, or to predict */
    by_task_purpose purpose;
    bool own;        /* the config's data, not another table */
    bool test;       /* the part that is kept for a test is evaluated */
    int64_t context; /* rows that the model reads */
    char *learned;   /* the scales, as JSON */
    char learned_hash[33];
    char *summary;
} forecast_data;

extern const by__task_row by__task_forecast;

static const forecast_keys *own_keys(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_forecast.kind);
}

/* ---- parts ---- */

static uint64_t count_of(uint64_t rows, double share)
{
    return share >= 1.0 ? (share < (double)rows ? (uint64_t)share : rows)
                        : by_split_count(rows, share);
}

/* The first rows of a series that are to train on, and those in front of its part to test on. */
static void split_rows(const by_config *config, uint64_t rows, uint64_t *train, uint64_t *valid)
{
    uint64_t test = count_of(rows, own_keys(config)->test_fraction);
    uint64_t held_out = count_of(rows, config->data.valid_fraction);
    *valid = rows - test;
    *train = held_out < *valid ? *valid - held_out : 0;
}

/* Windows of all rows of a series, or of its parts; to predict: its last one. */
static by_status find_windows_of(forecast_data *d, const by_config *config, size_t s,
                                 by_error *error)
{
    uint64_t context = (uint64_t)config->model.context;
    uint64_t horizon = (uint64_t)config->model.outputs;
    uint64_t rows = d->set->series[s].count;
    uint64_t train;
    uint64_t valid;
    split_rows(config, rows, &train, &valid);
    if (d->purpose == BY_TASK_PREDICT && rows < context) {
        const char *name = d->set->series[s].name;
        return by_error_set(error, BY_EFORMAT, "%s: %s%s has %llu rows, and the model reads %llu",
                            d->set->name, name == NULL ? "the series" : "series ",
                            name == NULL ? "" : name, (unsigned long long)rows,
                            (unsigned long long)context);
    }
    if (d->purpose == BY_TASK_PREDICT) {
        d->valid[s] = (by__series_windows){.first = rows - context, .count = 1};
    } else if (d->own) {
        d->train[s] = by__series_windows_in(0, train, context, horizon);
        d->valid[s] = by__series_windows_in(d->test ? valid : train, d->test ? rows : valid,
                                            context, horizon);
    } else {
        d->valid[s] = by__series_windows_in(0, rows, context, horizon);
    }
    return BY_OK;
}

static by_status refuse_windows(const forecast_data *d, const by_config *config, const char *what,
                                by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "%s: no series has %lld + %lld rows %s: lower model.context or "
                        "model.outputs",
                        d->set->name, (long long)config->model.context,
                        (long long)config->model.outputs, what);
}

static by_status check_windows(const forecast_data *d, const by_config *config, by_error *error)
{
    bool trains = d->purpose == BY_TASK_TRAIN;
    if (trains && d->base.train_examples == 0) {
        return refuse_windows(d, config,
                              "to train on (the last ones are held out by data.valid_fraction and "
                              "data.test_fraction)",
                              error);
    }
    if (d->base.valid_examples > 0 || (trains && !(config->data.valid_fraction > 0.0))) {
        return BY_OK;
    }
    if (d->test) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: the run keeps no part for a test of %lld rows or more: set "
                            "data.test_fraction when it is trained",
                            d->set->name, (long long)config->model.outputs);
    }
    if (trains) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.valid_fraction %g holds out less than the %lld rows of a "
                            "forecast: raise it, or set it to 0 to validate on nothing",
                            d->set->name, config->data.valid_fraction,
                            (long long)config->model.outputs);
    }
    return refuse_windows(d, config, "to evaluate on", error);
}

/* Finds the windows of all series, once context and horizon are known. */
static by_status find_windows(forecast_data *d, const by_config *config, by_error *error)
{
    d->base.train_examples = 0;
    d->base.valid_examples = 0;
    d->context = config->model.context;
    for (size_t s = 0; s < d->set->series_count; s++) {
        BY_TRY(find_windows_of(d, config, s, error));
        d->base.train_examples += d->purpose == BY_TASK_TRAIN ? d->train[s].count : 0;
        d->base.valid_examples += d->valid[s].count;
    }
    return check_windows(d, config, error);
}

/* ---- scales ---- */

static by_status learn(forecast_data *d, const by_task_request *r,
                       const by__series_columns *columns, by_error *error)
{
    uint64_t *train;
    uint64_t all = 0;
    BY_TRY(by__alloc((void **)&train, d->set->series_count, sizeof *train, "rows", error));
    for (size_t s = 0; s < d->set->series_count; s++) {
        uint64_t valid;
        split_rows(r->config, d->set->series[s].count, &train[s], &valid);
        all += train[s];
    }
    if (all == 0) {
        free(train);
        return by_error_set(error, BY_ECONFIG,
                            "%s: data.valid_fraction %g and data.test_fraction %g leave none of "
                            "%llu rows to train on: lower them",
                            d->set->name, r->config->data.valid_fraction, d->keys->test_fraction,
                            (unsigned long long)d->set->rows);
    }
    by_status status = by__series_learn(&d->scales, d->set, columns, train, error);
    free(train);
    return status == BY_OK ? by__series_scales_print(d->scales, &d->learned, error) : status;
}

static by_status read_learned(forecast_data *d, const char *directory, by_error *error)
{
    char *path = by__path_join(directory, LEARNED_FILE);
    if (path == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a path");
    }
    size_t length;
    by_status status = by__file_read(&d->learned, &length, path, LEARNED_LIMIT, error);
    if (status == BY_OK) {
        status = by__series_scales_parse(&d->scales, path, d->learned, error);
    }
    free(path);
    return status;
}

/* ---- opening ---- */

static void close_data(by_task_data *data)
{
    forecast_data *d = (forecast_data *)data;
    by__series_set_close(&d->set);
    by__series_scales_close(&d->scales);
    free(d->train);
    free(d->valid);
    free(d->learned);
    free(d->summary);
    free(d);
}

/* Adds names: "a, b". */
static void add_names(by_string *text, const char *what, const by__series_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        by_string_format(text, "%s%s", i == 0 ? what : ", ", names->items[i]);
    }
}

static by_status describe(forecast_data *d, by_error *error)
{
    by_string text = {0};
    by_string_format(&text, "%zu series of %llu rows altogether; times: %s", d->set->series_count,
                     (unsigned long long)d->set->rows,
                     d->set->time[0] != '\0' ? d->set->time : "none");
    by_string_format(&text, "; %zu channel%s", d->set->channels.count,
                     d->set->channels.count == 1 ? "" : "s");
    add_names(&text, ": ", &d->set->channels);
    add_names(&text, "; left out: ", &d->set->left_out);
    BY_TRY(by__string_release(&text, &d->summary, error));
    d->base.summary = d->summary;
    return BY_OK;
}

static by_status open_set(forecast_data *d, const by_task_request *r, by_error *error)
{
    const forecast_keys *k = d->keys;
    bool own = r->path == NULL;
    const char *path = own ? k->table : r->path;
    by__series_columns columns = {.time = k->time,
                                  .id = k->series,
                                  .channels = {k->channels.items, k->channels.count},
                                  .ignore = {k->ignore.items, k->ignore.count}};
    if (path[0] == '\0') {
        return by_error_set(error, BY_ECONFIG, "no data: set data.table=FILE");
    }
    if (r->learned != NULL) {
        BY_TRY(read_learned(d, r->learned, error));
        columns.time = d->scales->time;
        columns.id = d->scales->id;
        columns.channels = d->scales->channels;
    } else if (!own) {
        return by_error_set(error, BY_EARG,
                            "%s: other data than that of the config needs what the weights were "
                            "trained with (learned)",
                            r->path);
    }
    BY_TRY(by__series_set_open(&d->set, path, &columns, own ? (uint64_t)k->rows : 0, error));
    if (d->scales == NULL) {
        BY_TRY(learn(d, r, &columns, error));
    }
    by__hash128_hex(d->learned_hash, d->learned, strlen(d->learned));
    by__series_standardize(d->set, d->scales);
    return BY_OK;
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    forecast_data *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &by__task_forecast.task;
    d->keys = own_keys(request->config);
    d->purpose = request->purpose;
    d->own = request->path == NULL;
    d->test = request->test;
    by_status status = open_set(d, request, error);
    size_t count = status == BY_OK ? d->set->series_count : 0;
    if (status == BY_OK) {
        status = by__alloc((void **)&d->train, count, sizeof *d->train, "windows", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&d->valid, count, sizeof *d->valid, "windows", error);
    }
    if (status == BY_OK) {
        status = describe(d, error);
    }
    if (status != BY_OK) {
        close_data(&d->base);
        return status;
    }
    d->base.held_out = "the last rows of each series";
    d->base.bytes = d->set->rows * d->set->channels.count * (sizeof(float) + 1);
    *out = &d->base;
    return BY_OK;
}

static unsigned knows(const by_config *config)
{
    const forecast_keys *k = own_keys(config);
    bool named = k->table[0] != '\0';
    return (config->model.channels > 0 ? (unsigned)BY_TASK_SIZES : 0) |
           (named ? (unsigned)BY_TASK_DATA : 0) |
           (named && config->data.valid_fraction > 0.0 ? (unsigned)BY_TASK_HOLDS_OUT : 0);
}

static void assume(by_config *config)
{
    config->model.channels = config->model.channels < 0 ? 7 : config->model.channels;
}

static by_status complete(by_task_data *data, by_config *config, by_error *error)
{
    forecast_data *d = (forecast_data *)data;
    int64_t channels = (int64_t)d->set->channels.count;
    const char *reads = by_model_reads(&config->model);
    if (strcmp(reads, "series") != 0) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind forecast needs a model of series, such as model.kind "
                            "dlinear or patchtst; model.kind %s reads %s",
                            config->model.kind, reads);
    }
    if (config->model.channels > 0 && config->model.channels != channels) {
        return by_error_set(error, BY_ECONFIG,
                            "model.channels is %lld, but %s has %lld; leave it out",
                            (long long)config->model.channels, d->set->name, (long long)channels);
    }
    config->model.channels = channels;
    BY_TRY(by_config_resolve(config, error));
    return find_windows(d, config, error);
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    forecast_data *d = (forecast_data *)data;
    const by__series_window_options options = {.context = (uint64_t)config->model.context,
                                               .horizon = (uint64_t)config->model.outputs,
                                               .shuffle = training,
                                               .ahead = d->purpose == BY_TASK_PREDICT,
                                               .windows = training ? d->train : d->valid};
    return by__series_source_open(out, d->set, &options, error);
}

static by_status keep(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error)
{
    forecast_data *d = (forecast_data *)data;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = (by_task_kept){
        .files = {{.name = LEARNED_FILE, .data = d->learned, .size = strlen(d->learned)}},
        .file_count = 1,
        .values = {{.key = "train_hash", .kind = BY_VALUE_STRING, .as.string = d->set->hash},
                   {.key = "learned_hash", .kind = BY_VALUE_STRING, .as.string = d->learned_hash}},
        .value_count = 2,
        .eos = -1};
    return BY_OK;
}

static by_status check(const by_task_data *data, const by_checkpoint *checkpoint, by_error *error)
{
    const forecast_data *d = (const forecast_data *)data;
    const char *content;
    const char *learned;
    BY_TRY(by_checkpoint_value_string(checkpoint, "train_hash", &content, error));
    BY_TRY(by_checkpoint_value_string(checkpoint, "learned_hash", &learned, error));
    return strcmp(content, d->set->hash) == 0 && strcmp(learned, d->learned_hash) == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s was trained on other series than %s has now, or on another part "
                              "of them; restore the file, or start a new run",
                              by_checkpoint_path(checkpoint), d->set->name);
}

/* ---- loss ---- */

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const forecast_keys *own = own_keys(config);
    const by_model_config *m = &config->model;
    by_shape shape = BY_SHAPE(request->batch, m->outputs, m->channels);
    int64_t all = request->batch * m->outputs * m->channels;
    if (model->output == BY_NONE || strcmp(by_model_reads(m), "series") != 0) {
        return by_error_set(error, BY_ECONFIG, "task.kind forecast needs a model of series");
    }
    by_value targets = by_graph_input(graph, "targets", BY_F32, shape);
    by_value weight = by_graph_input(graph, "weight", BY_F32, shape);
    by_value x = by_reshape(graph, model->output, BY_SHAPE(all, 1));
    targets = by_reshape(graph, targets, BY_SHAPE(all, 1));
    weight = by_reshape(graph, weight, BY_SHAPE(all));
    model->loss = own != NULL && strcmp(own->loss, "smooth_l1") == 0
                      ? by_smooth_l1(graph, x, targets, weight, 1.0f)
                      : by_squared_error(graph, x, targets, weight);
    model->evaluated =
        request->mode == BY_MODEL_TRAIN
            ? BY_NONE
            : by_reshape(graph, model->output, BY_SHAPE(request->batch, m->outputs * m->channels));
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    const forecast_keys *own = own_keys(config);
    return own != NULL && strcmp(own->loss, "smooth_l1") == 0
               ? "smooth L1 error (standardized values)"
               : "squared error (standardized values)";
}

/* ---- metrics, of standardized values ---- */

enum { SUM_COUNT, SUM_SQUARE, SUM_ABSOLUTE, SUM_LAST, SUM_SEASON };
static const by_task_sum sums_of[] = {[SUM_COUNT] = {.name = "count"},
                                      [SUM_SQUARE] = {.name = "square"},
                                      [SUM_ABSOLUTE] = {.name = "absolute"},
                                      [SUM_LAST] = {.name = "last_square"},
                                      [SUM_SEASON] = {.name = "season_square"}};

/* Adds the errors of a forecast, and of repeating the last row and the last period. */
static void measure_one(const forecast_data *d, double *const *sums, const float *series,
                        int64_t context, const float *targets, const float *weights,
                        const float *values, size_t count)
{
    int64_t channels = (int64_t)d->set->channels.count;
    int64_t season = d->keys->season;
    for (size_t i = 0; i < count; i++) {
        int64_t step = (int64_t)i / channels;
        int64_t channel = (int64_t)i % channels;
        double w = (double)weights[i];
        double y = (double)targets[i];
        double error = (double)values[i] - y;
        double last = (double)series[(context - 1) * channels + channel] - y;
        *sums[SUM_COUNT] += w;
        *sums[SUM_SQUARE] += w * error * error;
        *sums[SUM_ABSOLUTE] += w * fabs(error);
        *sums[SUM_LAST] += w * last * last;
        if (season > 0 && season <= context) {
            int64_t row = context - season + step % season;
            double e = (double)series[row * channels + channel] - y;
            *sums[SUM_SEASON] += w * e * e;
        }
    }
}

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by_array *series = by_batch_array(batch, "series");
    const by_array *targets = by_batch_array(batch, "targets");
    const by_array *weight = by_batch_array(batch, "weight");
    for (size_t i = 0; series != NULL && targets != NULL && weight != NULL && i < batch->batch;
         i++) {
        int64_t context = series->shape.dim[1];
        size_t reads = (size_t)(context * series->shape.dim[2]);
        measure_one((const forecast_data *)data, sums, (const float *)series->data + i * reads,
                    context, (const float *)targets->data + i * width,
                    (const float *)weight->data + i * width, values + i * width, width);
    }
}

static double mse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_SQUARE] / *sums[SUM_COUNT];
}

static double mae(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_ABSOLUTE] / *sums[SUM_COUNT];
}

static double last_mse(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_LAST] / *sums[SUM_COUNT];
}

static double season_mse(const by_task_data *data, const double *const *sums,
                         const by_evaluation *e)
{
    const forecast_data *d = (const forecast_data *)data;
    BY_UNUSED(e);
    bool known = d->keys->season > 0 && d->keys->season <= d->context;
    return known ? *sums[SUM_SEASON] / *sums[SUM_COUNT] : (double)NAN;
}

static const by_metric metrics[] = {{"mse", false, 4, mse},
                                    {"mae", false, 4, mae},
                                    {"last_mse", false, 4, last_mse},
                                    {"season_mse", false, 4, season_mse}};

/* ---- predictions ---- */

/* The time of a step behind the last row; the fields have times if the rows are evenly spaced. */
static by_field time_field(const forecast_data *d, const by__series_rows *rows, size_t step,
                           char text[40])
{
    double time = rows->last + (double)(step + 1) * rows->step;
    by_field field = {.name = d->set->time, .number = time, .is_whole = time == floor(time)};
    if (d->set->stamped) {
        by__series_stamp_print(text, time, &d->set->style);
        field.text = text;
    }
    return field;
}

/* Reports a row for each step of a series' forecast. */
static void report_steps(const forecast_data *d, uint64_t series, const float *values, size_t steps,
                         by_field *fields, by_predicted *report, void *user)
{
    size_t channels = d->set->channels.count;
    const by__series_rows *rows = &d->set->series[series];
    for (size_t step = 0; step < steps; step++) {
        size_t count = 0;
        char text[40];
        if (d->set->names != NULL) {
            fields[count++] = (by_field){.name = d->scales->id, .text = d->set->names[series]};
        }
        fields[count++] = (by_field){.name = "step", .number = (double)step + 1, .is_whole = true};
        if (rows->step > 0.0) {
            fields[count++] = time_field(d, rows, step, text);
        }
        for (size_t c = 0; c < channels; c++) {
            fields[count++] =
                (by_field){.name = d->set->channels.items[c],
                           .number = d->scales->mean[c] +
                                     d->scales->deviation[c] * (double)values[step * channels + c]};
        }
        report(user, fields, count);
    }
}

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const forecast_data *d = (const forecast_data *)data;
    const by_array *weight = by_batch_array(batch, "weight");
    size_t channels = d->set->channels.count;
    by_field *fields;
    BY_UNUSED(sum);
    BY_TRY(by__alloc((void **)&fields, channels + 3, sizeof *fields, "predictions", error));
    for (size_t i = 0; weight != NULL && i < batch->batch; i++) {
        if (((const float *)weight->data)[i * width] > 0.0f) {
            report_steps(d, batch->first_sample + i, values + i * width, width / channels, fields,
                         report, user);
        }
    }
    free(fields);
    return BY_OK;
}

const by__task_row by__task_forecast = {
    .kind = {.name = "forecast",
             .help = "Forecasting: the rows that follow a window of rows of time series.",
             .keys = {&key_list},
             .size = sizeof(forecast_keys)},
    .task = {.name = "forecast",
             .examples = "windows",
             .metrics = metrics,
             .metric_count = BY_ARRAY_LENGTH(metrics),
             .sums = sums_of,
             .sum_count = BY_ARRAY_LENGTH(sums_of),
             .keeps_test = true,
             .best_by_metric = true,
             .loss_label = loss_label,
             .open = open_data,
             .close = close_data,
             .knows = knows,
             .assume = assume,
             .complete = complete,
             .source = source,
             .keep = keep,
             .check = check,
             .loss = loss,
             .measure = measure,
             .predict = predict},
};
