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

by_value by__nn_series_standardize(by__nn_build *b, by_value x, by__nn_window_scales *scales)
{
    static const int rows[1] = {1};
    by_value deviation[BY_MAX_OUTPUTS];
    by_graph *g = b->graph;
    scales->mean = by_mean(g, x, rows, 1, true);
    x = by_sub(g, x, scales->mean);
    deviation_of(b, by_mean(g, by_mul(g, x, x), rows, 1, true), deviation);
    scales->deviation = deviation[0];
    return by_mul(g, x, deviation[1]);
}

by_value by__nn_series_restore(by__nn_build *b, by_value x, const by__nn_window_scales *scales)
{
    return by_add(b->graph, by_mul(b->graph, x, scales->deviation), scales->mean);
}
