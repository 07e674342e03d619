/* N-BEATS (Oreshkin et al. 2020): each block, an MLP, explains a part of the window, which the next
 * one no longer reads, and adds a part of the forecast; the same for all channels. Of the paper's
 * kinds these are the generic ones, which learn what the parts look like. */

#include "nn/series_frame.h"

typedef struct nbeats_keys {
    by__nn_window_keys window;
    int64_t blocks;
} nbeats_keys;

static const by__config_key keys[] = {
    {"model", "blocks", BY__KEY_INT, BY__OWN(nbeats_keys, blocks), "3", 1, 1000,
     .help = "blocks, each of model.layers layers"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_nbeats;

static nbeats_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_nbeats.kind);
}

/* The parts of the window x and of its forecast that a block explains: [rows, context + P
 * outputs]. */
static by_value block(by__nn_build *b, by_value x, int64_t index)
{
    const by_model_config *c = b->config;
    char name[80];
    int64_t width = c->context;
    for (int layer = 0; layer < c->layers; layer++) {
        (void)snprintf(name, sizeof name, "blocks.%lld.layers.%d", (long long)index, layer);
        x = by__nn_encoder_linear(b, x, width, c->width, "mlp embed", "mlp",
                                  by__nn_init_fan(2.0, width), name);
        x = by__nn_drop(b, by_unary(b->graph, x, BY_FN_RELU));
        width = c->width;
    }
    (void)snprintf(name, sizeof name, "blocks.%lld.basis_parameters", (long long)index);
    return by__nn_encoder_linear(b, x, width, c->context + by__nn_series_outputs(c) * c->outputs,
                                 "class embed", "class", by__nn_init_fan(1.0 / 3.0, width), name);
}

static void body(by__nn_build *b)
{
    const by_model_config *c = b->config;
    const nbeats_keys *n = own_keys(c);
    by_graph *g = b->graph;
    by__nn_window_scales scales;
    by_value forecast = BY_NONE;
    by_value x = by__nn_series_channels(b, by__nn_series_read(b, &n->window, &scales));
    for (int64_t i = 0; i < n->blocks; i++) {
        by_graph_set_block(g, (int)i);
        by_value both = block(b, x, i);
        by_value part = by_slice(g, both, 1, c->context, by__nn_series_outputs(c) * c->outputs);
        forecast = forecast == BY_NONE ? part : by_add(g, forecast, part);
        x = by_sub(g, x, by_slice(g, both, 1, 0, c->context));
    }
    by_graph_set_block(g, -1);
    by__nn_series_deliver(b, forecast, &n->window, &scales);
}

static void write_config(json_t *out, const by_model_config *c)
{
    const nbeats_keys *n = own_keys(c);
    by__nn_series_write_config(out, c, &n->window);
    (void)json_object_set_new(out, "num_blocks", json_integer(n->blocks));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    nbeats_keys *n = own_keys(c);
    BY_TRY(by__nn_series_read_config(c, &n->window, name, in, error));
    return by__nn_json_integer(&n->blocks, name, in, "num_blocks", BY__REQUIRED, error);
}

const by__nn_family by__nn_family_nbeats = {
    .kind = {.name = "nbeats",
             .help = "N-BEATS on windows of series: blocks that explain what those before left, "
                     "the same for all channels.",
             .keys = {&by__nn_series_keys, &by__nn_series_forecast_keys, &by__nn_window_key_list,
                      &key_list},
             .size = sizeof(nbeats_keys),
             .resolve = by__nn_series_window_resolve},
    .reads = "series",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .published = (const by__nn_published[]){{"banyan_nbeats", "NBeats", false}, {0}},
};
