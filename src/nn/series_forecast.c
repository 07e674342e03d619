#include "nn/series.h"

#include <stdlib.h>
#include <string.h>

static const by__config_key keys[] = {
    {"task", "loss", BY__KEY_TEXT, BY__OWN(by__nn_series_forecast, loss), "mse",
     .choices = "mse|mae|smooth_l1|quantile|gaussian|negative_binomial",
     .help = "what is forecast: points, by squared, absolute or smooth L1 error (Huber 1964, beta "
             "1) of the standardized values; quantiles, by the pinball loss; or a normal "
             "distribution, or a negative binomial one of counts, by the negative log-likelihood"},
    {"task", "quantiles", BY__KEY_TEXTS, BY__OWN(by__nn_series_forecast, quantiles),
     "[0.1, 0.5, 0.9]", .later = true,
     .help = "levels of loss quantile, or of the quantiles of a distribution that are told, "
             "ascending between 0 and 1"},
    {"model", "affine", BY__KEY_SWITCH, BY__OWN(by__nn_series_forecast, affine), "false",
     .later = true,
     .help =
         "learn a gain and a shift of each channel of a standardized window, which are undone in "
         "the forecast (RevIN, Kim et al. 2022)"},
};
const by__config_key_list by__nn_series_forecast_keys = BY__KEY_LIST(keys);

static const by__config_key head_keys[] = {
    {"model", "head", BY__KEY_TEXT, BY__OWN(by__nn_series_forecast, head), "forecast",
     .choices = "forecast|window", .later = true,
     .help = "what the model ends in, which follows from task.kind: the rows behind a window "
             "(forecast), or outputs for it as a whole (classify, regress)"},
};
const by__config_key_list by__nn_series_head_keys = BY__KEY_LIST(head_keys);

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

/* The loss of each kind but points in configs and in config.json. */
static const char *const kind_losses[] = {[BY__NN_SERIES_QUANTILES] = "quantile",
                                          [BY__NN_SERIES_NORMAL] = "gaussian",
                                          [BY__NN_SERIES_NEGATIVE_BINOMIAL] = "negative_binomial"};

by__nn_series_kind by__nn_series_kind_of(const by_model_config *config)
{
    const char *loss = by__nn_series_loss(config);
    for (size_t i = BY__NN_SERIES_QUANTILES; i < BY_ARRAY_LENGTH(kind_losses); i++) {
        if (strcmp(loss, kind_losses[i]) == 0) {
            return (by__nn_series_kind)i;
        }
    }
    return BY__NN_SERIES_POINT;
}

int64_t by__nn_series_outputs(const by_model_config *config)
{
    by__nn_series_kind kind = by__nn_series_kind_of(config);
    return kind == BY__NN_SERIES_POINT       ? 1
           : kind == BY__NN_SERIES_QUANTILES ? (int64_t)forecast_of(config)->quantiles.count
                                             : 2;
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

by_status by__nn_series_choose_head(const by_config *config, by__nn_series_forecast *forecast,
                                    by_error *error)
{
    const char *task = config->task.kind;
    const char *head = strcmp(task, "forecast") == 0                                   ? "forecast"
                       : strcmp(task, "classify") == 0 || strcmp(task, "regress") == 0 ? "window"
                                                                                       : NULL;
    return head == NULL ? BY_OK : by__nn_set_string(&forecast->head, head, error);
}

bool by__nn_series_is_whole(const by_model_config *config)
{
    const by__nn_series_forecast *forecast = forecast_of(config);
    return forecast != NULL && forecast->head != NULL && strcmp(forecast->head, "window") == 0;
}

by_status by__nn_series_forecast_resolve(by_config *config, const by__nn_series_forecast *forecast,
                                         by_error *error)
{
    const char *wrong = wrong_levels(&forecast->quantiles);
    if (!by__nn_series_is_whole(&config->model)) {
        by__nn_series_resolve(&config->model);
    }
    return wrong == NULL
               ? BY_OK
               : by_error_set(error, BY_ECONFIG, "%s: task.quantiles %s",
                              by__config_where(config, "task.quantiles", "task.loss"), wrong);
}

/* ---- the end of a model ---- */

/* A learned gain may be negative. */
static by_value magnitude(by__nn_build *b, by_value x)
{
    by_graph *g = b->graph;
    return forecast_of(b->config)->affine == 0
               ? x
               : by_add(g, by_unary(g, x, BY_FN_RELU),
                        by_unary(g, by_unary(g, x, BY_FN_NEGATE), BY_FN_RELU));
}

/* The parameters of distributions, [B, outputs, 2, C], of what the network says of them. scales: of
 * [B, 1, 1, C]. */
static by_value end_distribution(by__nn_build *b, by_value x, const by__nn_window_scales *scales)
{
    by_graph *g = b->graph;
    bool counts = by__nn_series_kind_of(b->config) == BY__NN_SERIES_NEGATIVE_BINOMIAL;
    by_value parts[2] = {by_slice(g, x, 2, 0, 1),
                         by_unary(g, by_slice(g, x, 2, 1, 1), BY_FN_SOFTPLUS)};
    if (scales != NULL) {
        parts[0] = by__nn_series_restore(b, parts[0], scales);
        parts[1] = counts ? parts[1] : by_mul(g, parts[1], magnitude(b, scales->deviation));
    }
    parts[0] = counts ? by_unary(g, parts[0], BY_FN_SOFTPLUS) : parts[0];
    return by_concat(g, parts, 2, 2);
}

void by__nn_series_end(by__nn_build *b, by_value x, const by__nn_window_scales *scales)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t count = by__nn_series_outputs(c);
    by__nn_window_scales all;
    by__nn_series_kind kind = by__nn_series_kind_of(c);
    if (kind == BY__NN_SERIES_POINT) {
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
    const by__nn_window_scales *of_rows = scales == NULL ? NULL : &all;
    b->model.output = kind != BY__NN_SERIES_QUANTILES ? end_distribution(b, x, of_rows)
                      : scales == NULL                ? x
                                                      : by__nn_series_restore(b, x, of_rows);
}

/* ---- standardization ---- */

by_status by__nn_series_check_affine(const by_config *config,
                                     const by__nn_series_forecast *forecast, bool standardize,
                                     by_error *error)
{
    return standardize || forecast->affine == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.affine is of windows that are standardized: set "
                              "model.standardize=true",
                              by__config_where(config, "model.affine", "model.standardize"));
}

void by__nn_series_write_standardize(json_t *out, const by__nn_series_forecast *forecast,
                                     bool standardize)
{
    (void)json_object_set_new(out, "standardize", json_boolean(standardize));
    if (forecast->affine != 0) {
        (void)json_object_set_new(out, "affine", json_true());
    }
}

by_status by__nn_series_read_standardize(int64_t *standardize, by__nn_series_forecast *forecast,
                                         const char *name, const json_t *in, bool usual,
                                         by_error *error)
{
    BY_TRY(by__nn_json_switch(&forecast->affine, name, in, "affine", false, error));
    return by__nn_json_switch(standardize, name, in, "standardize", usual, error);
}

/* ---- config.json ---- */

void by__nn_series_write_forecast(json_t *out, const by_model_config *config)
{
    by__nn_series_kind kind = by__nn_series_kind_of(config);
    bool point = kind == BY__NN_SERIES_POINT;
    if (by__nn_series_is_whole(config)) {
        (void)json_object_set_new(out, "head", json_string("window"));
        by__nn_json_write_labels(out, config->outputs);
        return;
    }
    (void)json_object_set_new(out, "prediction_length", json_integer(config->outputs));
    (void)json_object_set_new(out, "loss", json_string(point ? "mse" : kind_losses[kind]));
    if (!point) {
        json_t *levels = json_array();
        for (size_t i = 0; i < by__nn_series_levels(config); i++) {
            (void)json_array_append_new(levels, json_string(by__nn_series_level_name(config, i)));
        }
        (void)json_object_set_new(out, "quantiles", levels);
    }
}

void by__nn_free_texts(by_string_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (by_string_list){0};
}

by_status by__nn_json_texts(by_string_list *out, const char *name, const json_t *in,
                            by_error *error)
{
    size_t count = json_array_size(in);
    *out = (by_string_list){0};
    BY_TRY(by__alloc((void **)&out->items, count + 1, sizeof *out->items, name, error));
    for (size_t i = 0; i < count; i++) {
        const char *text = json_string_value(json_array_get(in, i));
        out->items[i] = by__strdup(text == NULL ? "" : text);
        if (out->items[i] == NULL) {
            by__nn_free_texts(out);
            return by_error_set(error, BY_EMEMORY, "out of memory: %s", name);
        }
        out->count++;
    }
    return BY_OK;
}

static by_status read_levels(by__nn_series_forecast *forecast, const char *name, const json_t *in,
                             by_error *error)
{
    by_string_list list;
    BY_TRY(by__nn_json_texts(&list, name, json_object_get(in, "quantiles"), error));
    const char *wrong = wrong_levels(&list);
    if (wrong != NULL) {
        by__nn_free_texts(&list);
        return by_error_set(error, BY_EFORMAT, "%s: the texts in \"quantiles\" %s", name, wrong);
    }
    by__nn_free_texts(&forecast->quantiles);
    forecast->quantiles = list;
    return BY_OK;
}

by_status by__nn_series_read_forecast(by_model_config *config, const char *name, const json_t *in,
                                      int64_t rows, by_error *error)
{
    by__nn_series_forecast *forecast = forecast_of(config);
    const char *loss = json_string_value(json_object_get(in, "loss"));
    const char *head = json_string_value(json_object_get(in, "head"));
    bool whole = head != NULL && strcmp(head, "window") == 0;
    if (forecast->head == NULL && whole) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"head\" is \"window\"; models of this kind "
                            "forecast",
                            name);
    }
    if (forecast->head != NULL) {
        BY_TRY(by__nn_set_string(&forecast->head, whole ? "window" : "forecast", error));
    }
    if (whole) {
        config->outputs = by__nn_json_labels(in);
        return BY_OK;
    }
    BY_TRY(by__nn_json_integer(&config->outputs, name, in, "prediction_length", rows, error));
    if (loss == NULL || strcmp(loss, "mse") == 0) {
        /* Points: which loss of them belongs to the run. */
        return by__nn_series_kind_of(config) == BY__NN_SERIES_POINT
                   ? BY_OK
                   : by__nn_set_string(&forecast->loss, "mse", error);
    }
    bool known = false;
    for (size_t i = BY__NN_SERIES_QUANTILES; i < BY_ARRAY_LENGTH(kind_losses); i++) {
        known = known || strcmp(loss, kind_losses[i]) == 0;
    }
    if (!known) {
        return by_error_set(error, BY_EFORMAT,
                            "%s: \"loss\" is \"%s\"; \"mse\", \"quantile\", \"gaussian\" and "
                            "\"negative_binomial\" are supported",
                            name, loss);
    }
    BY_TRY(read_levels(forecast, name, in, error));
    return by__nn_set_string(&forecast->loss, loss, error);
}
