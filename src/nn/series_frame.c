#include "nn/series_frame.h"

#include <math.h>

static const by__config_key window[] = {
    {"model", "standardize", BY__KEY_SWITCH, BY__OWN(by__nn_window_keys, standardize), "true",
     .help = "standardize each channel over the window that is read"},
};
const by__config_key_list by__nn_window_key_list = BY__KEY_LIST(window);

static const by__config_key known[] = {
    {"model", "known", BY__KEY_INT, BY__OWN(by__nn_window_keys, known), "0", 0, BY__MI20,
     .later = true,
     .help = "numbers that are known of each row ahead of time; taken from the data "
             "(data.time_features, data.known)"},
};
const by__config_key_list by__nn_known_key_list = BY__KEY_LIST(known);

int64_t *by__nn_series_known_of(by_model_config *config)
{
    const by__config_kind *kind = by__config_kind_named(config->own, config->kind);
    for (size_t i = 0; kind != NULL && i < BY_ARRAY_LENGTH(kind->keys); i++) {
        if (kind->keys[i] == &by__nn_known_key_list) {
            return &((by__nn_window_keys *)by__config_kind_own(config->own, kind))->known;
        }
    }
    return NULL;
}

by_value by__nn_series_known(by__nn_build *b, const by__nn_window_keys *keys, int64_t begin,
                             int64_t rows)
{
    const by_model_config *c = b->config;
    by_shape shape = BY_SHAPE(b->request->batch, c->context + c->outputs, keys->known);
    return by_slice(b->graph, by__nn_input(b, "known", BY_F32, shape), 1, begin, rows);
}

by_value by__nn_series_with_known(by__nn_build *b, by_value x, const by__nn_window_keys *keys)
{
    if (keys->known == 0) {
        return x;
    }
    by_value parts[2] = {x, by__nn_series_known(b, keys, 0, b->config->context)};
    return by_concat(b->graph, parts, 2, 2);
}

by_status by__nn_series_window_resolve(by_config *config, void *own, by_error *error)
{
    by__nn_window_keys *keys = own;
    BY_TRY(by__nn_series_choose_head(config, &keys->forecast, error));
    BY_TRY(by__nn_series_check_affine(config, &keys->forecast, keys->standardize != 0, error));
    return by__nn_series_forecast_resolve(config, &keys->forecast, error);
}

by_value by__nn_series_read(by__nn_build *b, const by__nn_window_keys *keys,
                            by__nn_window_scales *scales)
{
    by_value x = by__nn_series(b);
    return keys->standardize != 0
               ? by__nn_series_standardize(b, x, keys->forecast.affine != 0, scales)
               : x;
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

by_value by__nn_series_head(by__nn_build *b, by_value x, int64_t width,
                            const by__nn_window_keys *keys, const char *prefix)
{
    const by_model_config *c = b->config;
    int64_t numbers = c->channels * by__nn_series_outputs(c) * c->outputs;
    if (keys->known > 0) {
        by_value ahead = by__nn_series_known(b, keys, c->context, c->outputs);
        ahead = by_reshape(b->graph, ahead, BY_SHAPE(b->request->batch, c->outputs * keys->known));
        by_value parts[2] = {x, ahead};
        x = by_concat(b->graph, parts, 2, 1);
        width += c->outputs * keys->known;
    }
    return by__nn_encoder_linear(b, x, width, numbers, "class embed", "class",
                                 by__nn_init_fan(1.0 / 3.0, width), prefix);
}

void by__nn_series_finish(by__nn_build *b, by_value x, int64_t width,
                          const by__nn_window_keys *keys, const char *prefix,
                          const by__nn_window_scales *scales)
{
    if (!by__nn_series_is_whole(b->config)) {
        by__nn_series_deliver(b, by__nn_series_head(b, x, width, keys, prefix), keys, scales);
        return;
    }
    by_model_register(&b->model, b->graph, "features", x);
    b->model.output =
        by__nn_encoder_linear(b, by__nn_drop(b, x), width, b->config->outputs, "class embed",
                              "class", by__nn_init_fan(1.0 / 3.0, width), prefix);
}

by_init by__nn_init_fan(double gain, int64_t in)
{
    return (by_init){BY_INIT_NORMAL, (float)sqrt(gain / (double)in)};
}

void by__nn_series_write_config(json_t *out, const by_model_config *c,
                                const by__nn_window_keys *keys)
{
    (void)json_object_set_new(out, "context_length", json_integer(c->context));
    (void)json_object_set_new(out, "num_input_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "num_hidden_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "hidden_size", json_integer(c->width));
    (void)json_object_set_new(out, "dropout", json_real(c->dropout));
    by__nn_series_write_standardize(out, &keys->forecast, keys->standardize != 0);
    if (keys->known > 0) {
        (void)json_object_set_new(out, "num_known_inputs", json_integer(keys->known));
    }
    by__nn_series_write_forecast(out, c);
}

by_status by__nn_series_read_config(by_model_config *c, by__nn_window_keys *keys, const char *name,
                                    const json_t *in, by_error *error)
{
    BY_TRY(by__nn_json_integer(&c->context, name, in, "context_length", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "num_input_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_hidden_layers", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_size", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&keys->known, name, in, "num_known_inputs", 0, error));
    BY_TRY(by__nn_series_read_forecast(c, name, in, BY__REQUIRED, error));
    return by__nn_series_read_standardize(&keys->standardize, &keys->forecast, name, in, true,
                                          error);
}
