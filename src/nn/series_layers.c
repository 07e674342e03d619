/* Layers of models of series. */
#include "banyan/map.h"
#include "nn/nn.h"

void by__nn_series_resolve(by_model_config *config)
{
    int64_t quarter = config->context / 4;
    config->outputs = config->outputs != -1 ? config->outputs : quarter > 1 ? quarter : 1;
}

by_value by__nn_series(by__nn_build *b)
{
    const by_model_config *c = b->config;
    return by__nn_input(b, "series", BY_F32, BY_SHAPE(b->request->batch, c->context, c->channels));
}

/* The square root of the variance plus epsilon, and its inverse. */
static void deviation_of(by__nn_build *b, by_value variance, by_value out[BY_MAX_OUTPUTS])
{
    by_map map;
    by_map_begin(&map, b->graph);
    int v = by_map_step(&map, BY_MAP_ADD, by_map_input(&map, variance),
                        by_map_constant(&map, 1e-5f), 0);
    by_map_result(&map, by_map_step(&map, BY_MAP_SQRT, v, 0, 0), BY_F32);
    by_map_result(&map, by_map_step(&map, BY_MAP_RSQRT, v, 0, 0), BY_F32);
    by_map_end(&map, out);
}

/* 1 / gain as gain / (gain^2 + floor^2), which is finite and has a gradient everywhere: the product
 * of both columns of (floor, gain) divided by their root mean square is 2 floor times that. */
static by_value inverse_of(by__nn_build *b, by_value gain)
{
    static const float floor = 1e-4f;
    by_graph *g = b->graph;
    by_shape column = BY_SHAPE(b->config->channels, 1);
    by_value pair[2] = {by_fill(g, BY_F32, column, floor), by_reshape(g, gain, column)};
    by_value ones = by_fill(g, BY_F32, BY_SHAPE(2), 1.0f);
    by_value both = by_rms_norm(g, by_concat(g, pair, 2, 1), ones, 0.0f);
    by_value product = by_mul(g, by_slice(g, both, 1, 0, 1), by_slice(g, both, 1, 1, 1));
    product = by_mul(g, product, by_fill(g, BY_F32, column, 0.5f / floor));
    return by_reshape(g, product, BY_SHAPE(b->config->channels));
}

/* Gain and shift of x, and scales that undo them: y -> (y - shift) / gain deviation + mean. */
static by_value add_affine(by__nn_build *b, by_value x, by__nn_window_scales *scales)
{
    by_graph *g = b->graph;
    by_shape shape = BY_SHAPE(b->config->channels);
    by_value gain = by__nn_weight(b, "channel", shape, (by_init){.kind = BY_INIT_ONE}, "%s",
                                  "revin_layer.affine_weight");
    by_value shift =
        by__nn_weight(b, "channel", shape, (by_init){0}, "%s", "revin_layer.affine_bias");
    scales->deviation = by_mul(g, scales->deviation, inverse_of(b, gain));
    scales->mean = by_sub(g, scales->mean, by_mul(g, scales->deviation, shift));
    return by_add(g, by_mul(g, x, gain), shift);
}

by_value by__nn_series_standardize(by__nn_build *b, by_value x, bool affine,
                                   by__nn_window_scales *scales)
{
    static const int rows[1] = {1};
    by_value deviation[BY_MAX_OUTPUTS];
    by_graph *g = b->graph;
    scales->mean = by_mean(g, x, rows, 1, true);
    x = by_sub(g, x, scales->mean);
    deviation_of(b, by_mean(g, by_mul(g, x, x), rows, 1, true), deviation);
    scales->deviation = deviation[0];
    x = by_mul(g, x, deviation[1]);
    return affine ? add_affine(b, x, scales) : x;
}

by_value by__nn_series_restore(by__nn_build *b, by_value x, const by__nn_window_scales *scales)
{
    return by_add(b->graph, by_mul(b->graph, x, scales->deviation), scales->mean);
}
