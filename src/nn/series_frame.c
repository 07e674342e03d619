#include "nn/series_frame.h"

#include <math.h>

static const by__config_key window[] = {
    {"model", "standardize", BY__KEY_SWITCH, BY__OWN(by__nn_window_keys, standardize), "true",
     .help = "standardize each channel over the window that is read"},
};
const by__config_key_list by__nn_window_key_list = BY__KEY_LIST(window);

by_status by__nn_series_window_resolve(by_config *config, void *own, by_error *error)
{
    const by__nn_window_keys *keys = own;
    by__nn_series_resolve(&config->model);
    return by__nn_series_forecast_check(config, &keys->forecast, error);
}

by_value by__nn_series_read(by__nn_build *b, const by__nn_window_keys *keys,
                            by__nn_window_scales *scales)
{
    by_value x = by__nn_series(b);
    return keys->standardize != 0 ? by__nn_series_standardize(b, x, scales) : x;
}

by_value by__nn_series_channels(by__nn_build *b, by_value x)
{
    const by_model_config *c = b->config;
    return by_reshape(b->graph, by_transpose(b->graph, x, 1, 2),
                      BY_SHAPE(b->request->batch * c->channels, c->context));
}

void by__nn_series_deliver(by__nn_build *b, by_value x, const by__nn_window_keys *keys,
                           const by__nn_window_scales *scales)
{
    by__nn_series_end(b, x, keys->standardize != 0 ? scales : NULL);
}

by_value by__nn_series_head(by__nn_build *b, by_value x, int64_t width, const char *prefix)
{
    const by_model_config *c = b->config;
    int64_t numbers = c->channels * by__nn_series_outputs(c) * c->outputs;
    return by__nn_encoder_linear(b, x, width, numbers, "class embed", "class",
                                 by__nn_init_fan(1.0 / 3.0, width), prefix);
}

by_init by__nn_init_fan(double gain, int64_t in)
{
    return (by_init){BY_INIT_NORMAL, (float)sqrt(gain / (double)in)};
}

void by__nn_series_write_config(json_t *out, const by_model_config *c,
                                const by__nn_window_keys *keys)
{
    (void)json_object_set_new(out, "context_length", json_integer(c->context));
    (void)json_object_set_new(out, "prediction_length", json_integer(c->outputs));
    (void)json_object_set_new(out, "num_input_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "hidden_size", json_integer(c->width));
    (void)json_object_set_new(out, "dropout", json_real(c->dropout));
    (void)json_object_set_new(out, "standardize", json_boolean(keys->standardize));
    by__nn_series_write_forecast(out, c);
}

by_status by__nn_series_read_config(by_model_config *c, by__nn_window_keys *keys, const char *name,
                                    const json_t *in, by_error *error)
{
    BY_TRY(by__nn_json_integer(&c->context, name, in, "context_length", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->outputs, name, in, "prediction_length", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_input_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_size", BY__REQUIRED, error));
    BY_TRY(by__nn_series_read_forecast(c, name, in, error));
    return by__nn_json_switch(&keys->standardize, name, in, "standardize", true, error);
}
