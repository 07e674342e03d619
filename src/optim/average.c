/* The exponential moving average of the weights (Polyak & Juditsky 1992), whatever the optimizer: a
 * state in f32 that follows each update.
 *     ema = ema + (1 - d) (p - ema)        d = decay, with warm-up min(decay, (1 + t) / (10 + t))
 * of update t from 0 on, and d = 0 for the first one (TensorFlow's ExponentialMovingAverage,
 * torch.optim.swa_utils.AveragedModel). */
#include "optim/optim.h"

float by__optim_average_weight(const by_optimizer_config *config, int64_t step)
{
    double decay = config->ema;
    double bound = (1.0 + (double)step) / (10.0 + (double)step);
    if (decay == 0.0) {
        return 0.0f;
    }
    decay = config->ema_warmup != 0 && bound < decay ? bound : decay;
    return step == 0 ? 1.0f : (float)(1.0 - decay);
}

static by_value add_named(by_graph *graph, by_role role, const char *prefix,
                          const by_update_unit *unit, by_dtype dtype)
{
    char name[300];
    (void)snprintf(name, sizeof name, "%s%s", prefix, unit->name);
    return by__graph_add_value(graph, role, name, NULL, (by__graph_type){dtype, unit->shape});
}

static void average_unit(by_graph *graph, const by_update_unit *unit, by_value hyper,
                         by_value scale)
{
    by_map map;
    by_value parameter = add_named(graph, BY_ROLE_INPUT, "", unit, unit->format);
    by_value state = add_named(graph, BY_ROLE_STATE, BY_AVERAGE_STATE ".", unit, BY_F32);
    by_map_begin(&map, graph);
    int finite = by_map_step(&map, BY_MAP_FINITE, by_map_scalar(&map, scale, 0), 0, 0);
    int weight = by_map_scalar(&map, hyper, BY_HYPER_AVERAGE);
    int average = by_map_input(&map, state);
    int way = by_map_step(&map, BY_MAP_SUB, by_map_input(&map, parameter), average, 0);
    int next =
        by_map_step(&map, BY_MAP_ADD, average, by_map_step(&map, BY_MAP_MUL, weight, way, 0), 0);
    by_map_update(&map, average, by_map_step(&map, BY_MAP_SELECT, finite, next, average));
    by_map_end(&map, NULL);
}

by_status by_optimizer_average_graph(by_graph *graph, const by_update_unit *units, size_t count,
                                     by_error *error)
{
    by_value hyper = by_graph_input(graph, "hyper", BY_F32, BY_SHAPE(BY_HYPER_COUNT));
    by_value scale = by_graph_input(graph, "scale", BY_F32, BY_SHAPE(1));
    graph->phase = BY__UPDATE;
    for (size_t i = 0; i < count; i++) {
        average_unit(graph, &units[i], hyper, scale);
    }
    return by_graph_check(graph, error);
}

/* A single map, because it reads the values that it replaces. */
static void swap_unit(by_graph *graph, const by_update_unit *unit, bool back)
{
    by_map map;
    by_value parameter = add_named(graph, BY_ROLE_PARAMETER, "", unit, unit->format);
    by_value kept = add_named(graph, BY_ROLE_STATE, "kept.", unit, BY_F32);
    by_map_begin(&map, graph);
    int own = by_map_input(&map, parameter);
    int spare = by_map_input(&map, kept);
    if (back) {
        by_map_update(&map, own, spare);
    } else {
        by_value state = add_named(graph, BY_ROLE_INPUT, BY_AVERAGE_STATE ".", unit, BY_F32);
        by_map_update(&map, spare, own);
        by_map_update(&map, own, by_map_input(&map, state));
    }
    by_map_end(&map, NULL);
}

by_status by_optimizer_swap_graph(by_graph *graph, const by_update_unit *units, size_t count,
                                  bool back, by_error *error)
{
    graph->phase = BY__UPDATE;
    for (size_t i = 0; i < count; i++) {
        swap_unit(graph, &units[i], back);
    }
    return by_graph_check(graph, error);
}
