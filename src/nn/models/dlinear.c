/* DLinear (Zeng et al. 2023): a moving average is the trend of a window, the rest its season, and
 * the forecast is the sum of a linear function of each, the same for all channels. Parameters are
 * named as in the authors' program. */
#include <math.h>

#include "nn/series.h"

typedef struct dlinear_keys {
    by__nn_series_forecast forecast;
    int64_t kernel;
    int64_t standardize;
} dlinear_keys;

static const by__config_key keys[] = {
    {"model", "kernel", BY__KEY_INT, BY__OWN(dlinear_keys, kernel), "25", 1, 65535,
     .help = "rows of the moving average, an odd number"},
    {"model", "standardize", BY__KEY_SWITCH, BY__OWN(dlinear_keys, standardize), "false",
     .help = "standardize each channel over the window that is read"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_dlinear;

static dlinear_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_dlinear.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const dlinear_keys *d = own;
    BY_TRY(by__nn_series_forecast_resolve(config, &d->forecast, error));
    BY_TRY(by__nn_series_check_affine(config, &d->forecast, d->standardize != 0, error));
    return d->kernel % 2 == 1 && d->kernel <= 2 * config->model.context
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.kernel %lld must be odd, so that the average is centered, "
                              "and at most twice model.context",
                              by__config_where(config, "model.kernel", "model.kind"),
                              (long long)d->kernel);
}

/* The moving average over the rows of x [B, T, C]; the first and last row repeat beyond the
 * ends. */
static by_value trend_of(by__nn_build *b, by_value x)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t side = own_keys(c)->kernel / 2;
    by_shape ends = BY_SHAPE(batch, side, c->channels);
    by_window window = {.size = {own_keys(c)->kernel, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    if (side == 0) {
        return x;
    }
    by_value parts[3] = {by_expand(g, by_slice(g, x, 1, 0, 1), ends), x,
                         by_expand(g, by_slice(g, x, 1, c->context - 1, 1), ends)};
    by_value padded = by_reshape(g, by_concat(g, parts, 3, 1),
                                 BY_SHAPE(batch, c->context + 2 * side, 1, c->channels));
    return by_reshape(g, by_average_pool(g, padded, &window, true),
                      BY_SHAPE(batch, c->context, c->channels));
}

/* [B, C, T] to [B, C, P outputs]. */
static by_value linear(by__nn_build *b, by_value x, const char *prefix)
{
    const by_model_config *c = b->config;
    by_init init = {BY_INIT_NORMAL, 1.0f / sqrtf(3.0f * (float)c->context)};
    return by__nn_encoder_linear(b, x, c->context, by__nn_series_outputs(c) * c->outputs,
                                 "class embed", "class", init, prefix);
}

static void body(by__nn_build *b)
{
    by_graph *g = b->graph;
    const dlinear_keys *d = own_keys(b->config);
    bool standardize = d->standardize != 0;
    by__nn_window_scales scales;
    by_value x = by__nn_series(b);
    x = standardize ? by__nn_series_standardize(b, x, d->forecast.affine != 0, &scales) : x;
    by_value trend = trend_of(b, x);
    by_value season = by_transpose(g, by_sub(g, x, trend), 1, 2);
    x = by_add(g, linear(b, season, "Linear_Seasonal"),
               linear(b, by_transpose(g, trend, 1, 2), "Linear_Trend"));
    by__nn_series_end(b, x, standardize ? &scales : NULL);
}

static void write_config(json_t *out, const by_model_config *c)
{
    (void)json_object_set_new(out, "context_length", json_integer(c->context));
    (void)json_object_set_new(out, "num_input_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "moving_average", json_integer(own_keys(c)->kernel));
    by__nn_series_write_standardize(out, &own_keys(c)->forecast, own_keys(c)->standardize != 0);
    by__nn_series_write_forecast(out, c);
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    dlinear_keys *d = own_keys(c);
    BY_TRY(by__nn_json_integer(&c->context, name, in, "context_length", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_input_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_series_read_forecast(c, name, in, BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&d->kernel, name, in, "moving_average", 25, error));
    return by__nn_series_read_standardize(&d->standardize, &d->forecast, name, in, false, error);
}

const by__nn_family by__nn_family_dlinear = {
    .kind = {.name = "dlinear",
             .help = "DLinear on windows of series: linear functions of trend and season.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &key_list},
             .size = sizeof(dlinear_keys),
             .resolve = resolve},
    .reads = "series",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"banyan_dlinear", "DLinear", false}, {0}},
};
