/* Forecasting: predicts the rows that follow a window of rows of time series.
 *
 * The last part of each series is held out: first the rows to validate on, behind those to train
 * on, then the rows to test on, which no training sees. Windows to validate and test may read the
 * rows before their part, as is usual (Zhou et al. 2021). */
#include <stdlib.h>
#include <string.h>

#include "tasks/forecast/forecast.h"

#define LEARNED_FILE  "series.json"
#define LEARNED_LIMIT ((size_t)64 << 20)

extern const by__task_row by__task_forecast;

/* ---- windows ---- */

/* Windows of all rows of a series, or of its parts; to predict: its last one, if it has enough
 * rows. */
static void find_windows_of(by__forecast_data *d, const by_config *config, size_t s)
{
    uint64_t context = (uint64_t)config->model.context;
    uint64_t horizon = (uint64_t)config->model.outputs;
    uint64_t rows = d->set->series[s].count;
    uint64_t train;
    uint64_t valid;
    by__forecast_split(config, rows, &train, &valid);
    if (d->purpose == BY_TASK_PREDICT) {
        char fault[BY__FORECAST_FAULT];
        bool fits = !by__forecast_window_fault(d, d->set, s, fault);
        d->valid[s] = (by__series_windows){.first = fits ? rows - context : 0, .count = fits};
    } else if (d->own) {
        d->train[s] = by__series_windows_in(0, train, context, horizon);
        d->valid[s] = by__series_windows_in(d->test ? valid : train, d->test ? rows : valid,
                                            context, horizon);
    } else {
        d->valid[s] = by__series_windows_in(0, rows, context, horizon);
    }
}

/* A series that cannot be continued, and no other one can. */
static by_status refuse_all(const by__forecast_data *d, by_error *error)
{
    char fault[BY__FORECAST_FAULT];
    const char *name = d->set->series[0].name;
    (void)by__forecast_window_fault(d, d->set, 0, fault);
    return by_error_set(error, BY_EFORMAT, "%s: %s%s has %s%s", d->set->name,
                        name == NULL ? "the series" : "series ", name == NULL ? "" : name, fault,
                        d->set->series_count > 1 ? "; no other can be continued either" : "");
}

static by_status refuse_windows(const by__forecast_data *d, const by_config *config,
                                const char *what, by_error *error)
{
    return by_error_set(error, BY_ECONFIG,
                        "%s: no series has %lld + %lld rows %s: lower model.context or "
                        "model.outputs",
                        d->set->name, (long long)config->model.context,
                        (long long)config->model.outputs, what);
}

static by_status check_windows(const by__forecast_data *d, const by_config *config, by_error *error)
{
    bool trains = d->purpose == BY_TASK_TRAIN;
    if (d->purpose == BY_TASK_PREDICT && d->base.valid_examples == 0) {
        return refuse_all(d, error);
    }
    if (trains && d->base.train_examples == 0) {
        return refuse_windows(d, config,
                              "to train on (the last ones are held out by data.valid_fraction and "
                              "data.test_fraction, which may be lowered)",
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

static void know_model(by__forecast_data *d, const by_model_config *model)
{
    d->context = model->context;
    d->model = model;
    by__forecast_form_of(&d->form, model);
}

/* Finds the windows of all series, once context and horizon are known. */
static by_status find_windows(by__forecast_data *d, const by_config *config, by_error *error)
{
    d->base.train_examples = 0;
    d->base.valid_examples = 0;
    know_model(d, &config->model);
    for (size_t s = 0; s < d->set->series_count; s++) {
        find_windows_of(d, config, s);
        d->base.train_examples += d->purpose == BY_TASK_TRAIN ? d->train[s].count : 0;
        d->base.valid_examples += d->valid[s].count;
    }
    return check_windows(d, config, error);
}

/* ---- opening ---- */

static by_status read_learned(by__forecast_data *d, const char *directory, by_error *error)
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

static void close_data(by_task_data *data)
{
    by__forecast_data *d = (by__forecast_data *)data;
    by__forecast_free_baselines(d);
    by__series_set_close(&d->set);
    by__series_scales_close(&d->scales);
    by__series_zone_close(&d->zone);
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

static by_status describe(by__forecast_data *d, by_error *error)
{
    by_string text = {0};
    by_string_format(&text, "%zu series of %llu rows altogether; times: %s", d->set->series_count,
                     (unsigned long long)d->set->rows,
                     d->set->time[0] != '\0' ? d->set->time : "none");
    by_string_format(&text, "; %zu channel%s", d->set->channels.count,
                     d->set->channels.count == 1 ? "" : "s");
    add_names(&text, ": ", &d->set->channels);
    add_names(&text, "; left out: ", &d->set->left_out);
    by_string_format(&text, "%s%s", d->set->doubt[0] == '\0' ? "" : "; ", d->set->doubt);
    BY_TRY(by__string_release(&text, &d->summary, error));
    d->base.summary = d->summary;
    return BY_OK;
}

by_status by__forecast_reading(by__series_reading *out, const by_config *config, by_error *error)
{
    const by__forecast_keys *k = by__forecast_keys_of(config);
    *out = (by__series_reading){.limit = (uint64_t)k->rows,
                                .skipped = (uint64_t)k->skip_last,
                                .zone = k->zone,
                                .rule = k->rule,
                                .zero = strcmp(k->empty, "zero") == 0,
                                .duplicates = k->duplicates,
                                .sort = k->sort != 0,
                                .skip = strcmp(config->data.corrupt, "skip") == 0};
    return k->step[0] == '\0' || by__series_step_parse(&out->step, k->step)
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: data.resample '%s' is no step of time: write a number and s, "
                              "min, h, d or w, such as 15min, 1h or 7d",
                              by__config_where(config, "data.resample", "data.table"), k->step);
}

static by_status open_set(by__forecast_data *d, const by_task_request *r, by_error *error)
{
    const by__forecast_keys *k = d->keys;
    bool own = r->path == NULL;
    const char *path = own ? k->table : r->path;
    by__series_reading reading;
    by__series_columns columns = {.time = k->time,
                                  .id = k->series,
                                  .channels = {k->channels.items, k->channels.count},
                                  .ignore = {k->ignore.items, k->ignore.count},
                                  .known = {k->known.items, k->known.count}};
    if (path[0] == '\0' && !d->served) {
        return by_error_set(error, BY_ECONFIG, "no data: set data.table=FILE");
    }
    if (r->learned != NULL) {
        BY_TRY(read_learned(d, r->learned, error));
        columns.time = d->scales->time;
        columns.id = d->scales->id;
        columns.channels = d->scales->channels;
        columns.known = d->scales->known;
    } else if (!own) {
        return by_error_set(error, BY_EARG,
                            "%s: other data than that of the config needs what the weights were "
                            "trained with (learned)",
                            r->path);
    }
    if (d->served && d->keys->zone[0] != '\0') {
        BY_TRY(by__series_zone_open(&d->zone, d->keys->zone, error));
    }
    if (d->served) {
        return d->scales != NULL
                   ? BY_OK
                   : by_error_set(
                         error, BY_EARG,
                         "rows in memory need what the weights were trained with (learned)");
    }
    BY_TRY(by__forecast_reading(&reading, r->config, error));
    reading.ahead = r->purpose == BY_TASK_PREDICT;
    if (!own) {
        reading.limit = 0;
        reading.skipped = 0;
    }
    BY_TRY(by__series_set_open(&d->set, path, &columns, &reading, error));
    d->base.damage = d->set->damage.items;
    d->base.damage_count = d->set->damage.count;
    d->base.damaged = d->set->damage.total;
    d->base.all = d->set->rows + d->set->damage.total;
    return BY_OK;
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    by__forecast_data *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &by__task_forecast.task;
    d->keys = by__forecast_keys_of(request->config);
    d->purpose = request->purpose;
    d->own = request->path == NULL;
    d->test = request->test;
    d->served = request->purpose == BY_TASK_PREDICT && request->path == NULL;
    d->config = request->config;
    by_status status = open_set(d, request, error);
    if (status == BY_OK && d->served) {
        know_model(d, &request->config->model);
        *out = &d->base;
        return BY_OK;
    }
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
    if (status == BY_OK && d->own && d->test && request->trained != NULL) {
        know_model(d, &request->config->model);
        for (size_t s = 0; s < count; s++) {
            find_windows_of(d, request->config, s);
        }
        status = by__forecast_check_unseen(d, request, error);
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
    const by__forecast_keys *k = by__forecast_keys_of(config);
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
    by__forecast_data *d = (by__forecast_data *)data;
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
    BY_TRY(find_windows(d, config, error));
    BY_TRY(by__forecast_standardize(d, config, error));
    return by__forecast_set_known(d, config, error);
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    by__forecast_data *d = (by__forecast_data *)data;
    const by__series_window_options options = {.context = (uint64_t)config->model.context,
                                               .horizon = (uint64_t)config->model.outputs,
                                               .shuffle = training,
                                               .ahead = d->purpose == BY_TASK_PREDICT,
                                               .scales =
                                                   d->form.kind == BY__NN_SERIES_NEGATIVE_BINOMIAL,
                                               .windows = training ? d->train : d->valid};
    return by__series_source_open(out, d->set, &options, error);
}

static by_status keep(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error)
{
    by__forecast_data *d = (by__forecast_data *)data;
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
    const by__forecast_data *d = (const by__forecast_data *)data;
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

const by__task_row by__task_forecast = {
    .kind = {.name = "forecast",
             .help = "Forecasting: the rows that follow a window of rows of time series.",
             .keys = {&by__forecast_key_list},
             .size = sizeof(by__forecast_keys)},
    .task = {.name = "forecast",
             .examples = "windows",
             .metrics = by__forecast_metrics,
             .metric_count = BY__FORECAST_METRICS,
             .sums = by__forecast_sums,
             .sum_count = BY__FORECAST_SUMS,
             .keeps_test = true,
             .loss_label = by__forecast_loss_label,
             .open = open_data,
             .close = close_data,
             .knows = knows,
             .assume = assume,
             .complete = complete,
             .source = source,
             .keep = keep,
             .check = check,
             .loss = by__forecast_loss,
             .measure = by__forecast_measure,
             .predict = by__forecast_predict,
             .open_examples = by__forecast_open_rows,
             .column = by__forecast_column},
};
