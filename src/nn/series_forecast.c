#include "nn/series.h"

#include <stdlib.h>
#include <string.h>

static const by__config_key keys[] = {
    {"task", "loss", BY__KEY_TEXT, BY__OWN(by__nn_series_forecast, loss), "mse",
     .choices = "mse|mae|smooth_l1|quantile",
     .help = "what is forecast: points, by squared, absolute or smooth L1 error (Huber 1964, beta "
             "1) of the standardized values, or quantiles, by the pinball loss"},
    {"task", "quantiles", BY__KEY_TEXTS, BY__OWN(by__nn_series_forecast, quantiles),
     "[0.1, 0.5, 0.9]", .later = true,
     .help = "levels of loss quantile, ascending between 0 and 1"},
};
const by__config_key_list by__nn_series_forecast_keys = BY__KEY_LIST(keys);

/* NULL: the family has no such keys. */
static by__nn_series_forecast *forecast_of(const by_model_config *config)
{
    const by__config_kind *kind = by__config_kind_named(config->own, config->kind);
    for (size_t i = 0; kind != NULL && i < BY_ARRAY_LENGTH(kind->keys); i++) {
        if (kind->keys[i] == &by__nn_series_forecast_keys) {
            return by__config_kind_own(config->own, kind);
        }
    }
    return NULL;
}

const char *by__nn_series_loss(const by_model_config *config)
{
    const by__nn_series_forecast *forecast = forecast_of(config);
    return forecast == NULL ? "mse" : forecast->loss;
}

by__nn_series_kind by__nn_series_kind_of(const by_model_config *config)
{
    return strcmp(by__nn_series_loss(config), "quantile") == 0 ? BY__NN_SERIES_QUANTILES
                                                               : BY__NN_SERIES_POINT;
}

int64_t by__nn_series_outputs(const by_model_config *config)
{
    size_t levels = by__nn_series_levels(config);
    return levels == 0 ? 1 : (int64_t)levels;
}

/* ---- levels ---- */

/* 0: it is no number. */
static double level_of(const by_string_list *levels, size_t i)
{
    char *end;
    double level = strtod(levels->items[i], &end);
    return *end == '\0' && end != levels->items[i] ? level : 0.0;
}

size_t by__nn_series_levels(const by_model_config *config)
{
    bool point = by__nn_series_kind_of(config) == BY__NN_SERIES_POINT;
    return point ? 0 : forecast_of(config)->quantiles.count;
}

double by__nn_series_level(const by_model_config *config, size_t i)
{
    return level_of(&forecast_of(config)->quantiles, i);
}

const char *by__nn_series_level_name(const by_model_config *config, size_t i)
{
    return forecast_of(config)->quantiles.items[i];
}

/* NULL, or what is wrong. */
static const char *wrong_levels(const by_string_list *levels)
{
    double before = 0.0;
    for (size_t i = 0; i < levels->count; i++) {
        double level = level_of(levels, i);
        if (!(level > before && level < 1.0)) {
            return "must be numbers between 0 and 1 that ascend";
        }
        before = level;
    }
    return levels->count == 0    ? "must name one level at least"
           : levels->count > 100 ? "must be 100 levels at most"
                                 : NULL;
}

by_status by__nn_series_forecast_check(const by_config *config,
                                       const by__nn_series_forecast *forecast, by_error *error)
{
    const char *wrong = wrong_levels(&forecast->quantiles);
    return wrong == NULL
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "%s: task.quantiles %s",
                              by__config_where(config, "task.quantiles", "task.loss"), wrong);
}

/* ---- the end of a model ---- */

void by__nn_series_end(by__nn_build *b, by_value x, const by__nn_window_scales *scales)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t count = by__nn_series_outputs(c);
    by__nn_window_scales all;
    if (by__nn_series_kind_of(c) == BY__NN_SERIES_POINT) {
        x = by_transpose(g, by_reshape(g, x, BY_SHAPE(batch, c->channels, c->outputs)), 1, 2);
        b->model.output = scales == NULL ? x : by__nn_series_restore(b, x, scales);
        return;
    }
    if (scales != NULL) {
        by_shape shape = BY_SHAPE(batch, 1, 1, c->channels);
        all.mean = by_reshape(g, scales->mean, shape);
        all.deviation = by_reshape(g, scales->deviation, shape);
    }
    x = by_transpose(g, by_reshape(g, x, BY_SHAPE(batch, c->channels, count, c->outputs)), 1, 3);
    b->model.output = scales == NULL ? x : by__nn_series_restore(b, x, &all);
}

/* ---- config.json ---- */

void by__nn_series_write_forecast(json_t *out, const by_model_config *config)
{
    bool point = by__nn_series_kind_of(config) == BY__NN_SERIES_POINT;
    (void)json_object_set_new(out, "loss", json_string(point ? "mse" : "quantile"));
    if (!point) {
        json_t *levels = json_array();
        for (size_t i = 0; i < (size_t)by__nn_series_outputs(config); i++) {
            (void)json_array_append_new(levels, json_string(by__nn_series_level_name(config, i)));
        }
        (void)json_object_set_new(out, "quantiles", levels);
    }
}

static void free_list(by_string_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (by_string_list){0};
}

static by_status read_levels(by__nn_series_forecast *forecast, const char *name, const json_t *in,
                             by_error *error)
{
    const json_t *levels = json_object_get(in, "quantiles");
    size_t count = json_array_size(levels);
    by_string_list list = {0};
    BY_TRY(by__alloc((void **)&list.items, count + 1, sizeof *list.items, "config", error));
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(levels, i));
        list.items[i] = by__strdup(text == NULL ? "" : text);
        if (list.items[i] == NULL) {
            free_list(&list);
            return by_error_set(error, BY_EMEMORY, "out of memory: config");
        }
        list.count++;
    }
    const char *wrong = wrong_levels(&list);
    if (wrong != NULL) {
        free_list(&list);
        return by_error_set(error, BY_EFORMAT, "%s: the texts in \"quantiles\" %s", name, wrong);
    }
    free_list(&forecast->quantiles);
    forecast->quantiles = list;
    return BY_OK;
}

by_status by__nn_series_read_forecast(by_model_config *config, const char *name, const json_t *in,
                                      by_error *error)
{
    by__nn_series_forecast *forecast = forecast_of(config);
    const char *loss = json_string_value(json_object_get(in, "loss"));
    if (loss == NULL || strcmp(loss, "mse") == 0) {
        /* Points: which loss of them belongs to the run. */
        return by__nn_series_kind_of(config) == BY__NN_SERIES_POINT
                   ? BY_OK
                   : by__nn_set_string(&forecast->loss, "mse", error);
    }
    if (strcmp(loss, "quantile") != 0) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"loss\" is \"%s\"; only \"mse\" and \"quantile\" are supported",
                            name, loss);
    }
    BY_TRY(read_levels(forecast, name, in, error));
    return by__nn_set_string(&forecast->loss, loss, error);
}
