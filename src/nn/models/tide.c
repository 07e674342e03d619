/* TiDE (Das et al. 2023): residual blocks encode a window and what is known of its rows and of
 * those that are forecast, decode a vector for each row of the forecast, and make a number of each
 * vector and of what is known of its row; a linear function of the window is added. The same for
 * all channels. */
#include <string.h>

#include "nn/series_frame.h"

typedef struct tide_keys {
    by__nn_window_keys window;
    int64_t decoder_layers;
    int64_t decoder_width;
    int64_t temporal_width;
    int64_t norm;
} tide_keys;

static const by__config_key keys[] = {
    {"model", "decoder_layers", BY__KEY_INT, BY__OWN(tide_keys, decoder_layers), "2", 1, 1000,
     .help = "residual blocks of the decoder; model.layers are those of the encoder"},
    {"model", "decoder_width", BY__KEY_INT, BY__OWN(tide_keys, decoder_width), "16", 1, BY__MI20,
     .help = "numbers that the decoder makes for each row of the forecast"},
    {"model", "temporal_width", BY__KEY_INT, BY__OWN(tide_keys, temporal_width), "32", 1, BY__MI20,
     .help = "hidden width of the block that makes a forecast of these"},
    {"model", "norm", BY__KEY_SWITCH, BY__OWN(tide_keys, norm), "true",
     .help = "norm behind each block of encoder and decoder"},
    {"model", "norm_eps", BY__KEY_REAL, BY__FIELD(model.norm_eps), "1e-5", 0, 1, BY__ABOVE_MIN,
     .help = "epsilon of the norm"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_tide;

static tide_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_tide.kind);
}

/* Numbers that a block makes of what is known of a row. */
#define FEATURES 2

typedef struct tide_sizes {
    int64_t in;
    int64_t hidden;
    int64_t out;
    bool norm;
} tide_sizes;

/* An MLP with one hidden layer plus a linear function of x [rows, in]. */
static by_value block(by__nn_build *b, by_value x, const tide_sizes *s, const char *prefix)
{
    by_graph *g = b->graph;
    char name[64];
    (void)snprintf(name, sizeof name, "%s.fc1", prefix);
    by_value y = by__nn_encoder_linear(b, x, s->in, s->hidden, "mlp embed", "mlp",
                                       by__nn_init_fan(2.0, s->in), name);
    (void)snprintf(name, sizeof name, "%s.fc2", prefix);
    y = by__nn_encoder_linear(b, by_unary(g, y, BY_FN_RELU), s->hidden, s->out, "embed mlp",
                              "embed", by__nn_init_fan(1.0, s->hidden), name);
    (void)snprintf(name, sizeof name, "%s.fc3", prefix);
    x = by__nn_encoder_linear(b, x, s->in, s->out, "embed channel", "embed",
                              by__nn_init_fan(1.0, s->in), name);
    x = by_add(g, by__nn_drop(b, y), x);
    (void)snprintf(name, sizeof name, "%s.ln", prefix);
    return s->norm ? by__nn_norm(b, x,
                                 &(by__nn_norm_place){.prefix = name,
                                                      .axes = "embed",
                                                      .width = s->out,
                                                      .eps = b->config->norm_eps,
                                                      .usual = "layer"})
                   : x;
}

/* What is known of the rows, [rows, context + outputs, FEATURES] for each channel, from a block
 * that all rows share. */
static by_value project_known(by__nn_build *b, const tide_keys *t)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    int64_t time = c->context + c->outputs;
    by_shape each = BY_SHAPE(b->request->batch, c->channels, time, FEATURES);
    tide_sizes sizes = {t->window.known, c->width, FEATURES, t->norm != 0};
    by_value x = by__nn_series_known(b, &t->window, 0, time);
    x = by_reshape(g, x, BY_SHAPE(b->request->batch * time, t->window.known));
    x = by_reshape(g, block(b, x, &sizes, "feature_encoder"),
                   BY_SHAPE(b->request->batch, 1, time, FEATURES));
    return by_reshape(g, by_expand(g, x, each),
                      BY_SHAPE(b->request->batch * c->channels, time, FEATURES));
}

/* Encoder and decoder: x [rows, in] to [rows, outputs decoder_width]. */
static by_value transform(by__nn_build *b, by_value x, int64_t in)
{
    const by_model_config *c = b->config;
    const tide_keys *t = own_keys(c);
    char name[48];
    tide_sizes sizes = {in, c->width, c->width, t->norm != 0};
    for (int64_t i = 0; i < c->layers + t->decoder_layers; i++) {
        bool encodes = i < c->layers;
        by_graph_set_block(b->graph, (int)i);
        (void)snprintf(name, sizeof name, "%s.%lld", encodes ? "encoders" : "decoders",
                       (long long)(encodes ? i : i - c->layers));
        sizes.out =
            i + 1 < c->layers + t->decoder_layers ? c->width : t->decoder_width * c->outputs;
        x = block(b, x, &sizes, name);
        sizes.in = c->width;
    }
    by_graph_set_block(b->graph, -1);
    return x;
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const tide_keys *t = own_keys(c);
    by_graph *g = b->graph;
    int64_t rows = b->request->batch * c->channels;
    int64_t time = c->context + c->outputs;
    bool knows = t->window.known > 0;
    by__nn_window_scales scales;
    by_value window = by__nn_series_channels(b, by__nn_series_read(b, &t->window, &scales));
    by_value known = knows ? project_known(b, t) : BY_NONE;
    by_value x = window;
    if (knows) {
        by_value parts[2] = {x, by_reshape(g, known, BY_SHAPE(rows, time * FEATURES))};
        x = by_concat(g, parts, 2, 1);
    }
    x = transform(b, x, c->context + (knows ? time * FEATURES : 0));
    x = by_reshape(g, x, BY_SHAPE(rows * c->outputs, t->decoder_width));
    if (knows) {
        by_value ahead = by_slice(g, known, 1, c->context, c->outputs);
        by_value parts[2] = {by_reshape(g, ahead, BY_SHAPE(rows * c->outputs, FEATURES)), x};
        x = by_concat(g, parts, 2, 1);
    }
    int64_t numbers = by__nn_series_outputs(c);
    tide_sizes sizes = {t->decoder_width + (knows ? FEATURES : 0), t->temporal_width, numbers,
                        false};
    x = block(b, x, &sizes, "temporalDecoder");
    if (numbers > 1) { /* the rows of the first number, then those of the next one */
        x = by_transpose(g, by_reshape(g, x, BY_SHAPE(rows, c->outputs, numbers)), 1, 2);
    }
    x = by_reshape(g, x, BY_SHAPE(rows, numbers * c->outputs));
    by_value straight =
        by__nn_encoder_linear(b, window, c->context, numbers * c->outputs, "class embed", "class",
                              by__nn_init_fan(1.0 / 3.0, c->context), "residual_proj");
    by__nn_series_deliver(b, by_add(g, x, straight), &t->window, &scales);
}

static void write_config(json_t *out, const by_model_config *c)
{
    const tide_keys *t = own_keys(c);
    by__nn_series_write_config(out, c, &t->window);
    (void)json_object_set_new(out, "num_decoder_layers", json_integer(t->decoder_layers));
    (void)json_object_set_new(out, "decoder_output_dim", json_integer(t->decoder_width));
    (void)json_object_set_new(out, "temporal_hidden_size", json_integer(t->temporal_width));
    (void)json_object_set_new(out, "norm_kind",
                              t->norm ? json_string(by__nn_norm_name(c, "layer")) : json_null());
    (void)json_object_set_new(out, "norm_eps", json_real(c->norm_eps));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    tide_keys *t = own_keys(c);
    const char *norm = json_string_value(json_object_get(in, "norm_kind"));
    BY_TRY(by__nn_series_read_config(c, &t->window, name, in, error));
    BY_TRY(by__nn_json_integer(&t->decoder_layers, name, in, "num_decoder_layers", 2, error));
    BY_TRY(by__nn_json_integer(&t->decoder_width, name, in, "decoder_output_dim", BY__REQUIRED,
                               error));
    BY_TRY(by__nn_json_integer(&t->temporal_width, name, in, "temporal_hidden_size", BY__REQUIRED,
                               error));
    BY_TRY(by__nn_json_number(&c->norm_eps, name, in, "norm_eps", 1e-5, error));
    t->norm = norm != NULL;
    return norm == NULL ? BY_OK : by__nn_norm_set(c, norm, name, error);
}

/* "norm_kind" has all norms. */
static bool expresses(const by_model_config *c, const char *section)
{
    BY_UNUSED(c);
    return strcmp(section, "norm") == 0;
}

const by__nn_family by__nn_family_tide = {
    .kind = {.name = "tide",
             .help = "TiDE on windows of series: a dense encoder and decoder, the same for all "
                     "channels.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &by__nn_window_key_list,
                      &by__nn_known_key_list, &key_list, &by__nn_norm_keys},
             .size = sizeof(tide_keys),
             .resolve = by__nn_series_window_resolve},
    .reads = "series",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .expresses = expresses,
    .published = (const by__nn_published[]){{"banyan_tide", "TiDE", false}, {0}},
};
