#include <string.h>

#include "device/device.h"
#include "nn/nn.h"

by_status by__parameter_init_part(float *data, const by_graph *graph, by_value parameter,
                                  uint64_t seed, int64_t first, int64_t count, by_error *error)
{
    const by__value *value = &graph->values[parameter];
    if (value->init.kind != BY_INIT_NORMAL) {
        float constant = value->init.kind == BY_INIT_ONE ? 1.0f : 0.0f;
        for (int64_t i = 0; i < count; i++) {
            data[i] = constant;
        }
        return BY_OK;
    }
    uint32_t key[2];
    by__philox_key(key, seed, by__hash64(value->name, strlen(value->name)));
    return by__fill_normal(data, first, count, value->init.std, key, error);
}

by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter, uint64_t seed,
                            by_error *error)
{
    if (!by__graph_has(graph, parameter) || graph->values[parameter].role != BY_ROLE_PARAMETER) {
        return by_error_set(error, BY_EARG, "value %d is not a parameter", (int)parameter);
    }
    const by__value *value = &graph->values[parameter];
    int64_t count = by_shape_count(value->part_count > 0 ? &value->whole : &value->shape);
    return by__parameter_init_part(data, graph, parameter, seed, 0, count, error);
}
