/* Initial values of parameters, from counter-based random numbers. */
#include <math.h>
#include <string.h>

#include "device/device.h"
#include "nn/nn.h"

/* Values first, first + 1, ... of a sequence of uniform values between -bound and bound: 24 bits of
 * Philox each, four per block. `first` must be a multiple of four. */
static void fill_uniform(float *data, int64_t first, int64_t count, float bound,
                         const uint32_t key[2])
{
    uint32_t bits[4] = {0};
    for (int64_t i = 0; i < count; i++) {
        uint64_t block = (uint64_t)(first + i) / 4;
        if (i % 4 == 0) {
            by__philox(bits, key, (uint32_t[4]){(uint32_t)block, (uint32_t)(block >> 32)});
        }
        float unit = (float)(bits[i % 4] >> 8) * 0x1p-24f; /* 0 <= unit < 1 */
        data[i] = (2.0f * unit - 1.0f) * bound;
    }
}

/* Values first, first + 1, ... of the rows of a basis of functions of t. */
static void fill_basis(float *data, int64_t first, int64_t count, const by__graph_value *value)
{
    int64_t columns = value->shape.dim[value->shape.rank - 1];
    for (int64_t i = 0; i < count; i++) {
        int64_t line = (first + i) / columns;
        double row = (double)line;
        double t = (double)((first + i) % columns);
        double angle = 2.0 * M_PI * fmod(row * t / (double)value->init.std, 1.0);
        data[i] = (float)(value->init.kind == BY_INIT_POWERS    ? pow(t / (double)columns, row)
                          : value->init.kind == BY_INIT_COSINES ? cos(angle)
                                                                : sin(angle));
    }
}

by_status by__nn_parameter_init_part(float *data, const by_graph *graph, by_value parameter,
                                     uint64_t seed, int64_t first, int64_t count, by_error *error)
{
    const by__graph_value *value = &graph->values[parameter];
    bool is_random = value->init.kind == BY_INIT_NORMAL || value->init.kind == BY_INIT_UNIFORM;
    if (value->init.kind >= BY_INIT_POWERS) {
        fill_basis(data, first, count, value);
        return BY_OK;
    }
    if (!is_random) {
        float constant = value->init.kind == BY_INIT_ONE        ? 1.0f
                         : value->init.kind == BY_INIT_CONSTANT ? value->init.std
                                                                : 0.0f;
        for (int64_t i = 0; i < count; i++) {
            data[i] = constant;
        }
        return BY_OK;
    }
    uint32_t key[2];
    by__philox_key(key, seed, by__hash64(value->name, strlen(value->name)));
    if (value->init.kind == BY_INIT_UNIFORM) {
        fill_uniform(data, first, count, value->init.std, key);
        return BY_OK;
    }
    return by__cpu_fill_normal_tensor(data, first, count, value->init.std, key, error);
}

by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter, uint64_t seed,
                            by_error *error)
{
    if (!by__graph_has(graph, parameter) || graph->values[parameter].role != BY_ROLE_PARAMETER) {
        return by_error_set(error, BY_EARG, "value %d is not a parameter", (int)parameter);
    }
    int64_t count = by__graph_value_elements(&graph->values[parameter]);
    return by__nn_parameter_init_part(data, graph, parameter, seed, 0, count, error);
}
