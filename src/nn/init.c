#include <math.h>
#include <string.h>

#include "nn/nn.h"

/* Elements of one Philox stream position; work is cut here, so the values do not depend on threads. */
#define BLOCK 4096

/* Pairs of normal values from pairs of uniform ones (Box and Muller 1958). u1 is in (0, 1]. */
static void fill_normal(float *out, int64_t count, float std, const uint32_t key[2], int64_t block)
{
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t bits[4];
        uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)block, (uint32_t)(block >> 32), 0};
        float value[4];
        by__philox(bits, key, counter);
        for (int pair = 0; pair < 2; pair++) {
            float u1 = 1.0f - by__unit_float(bits[2 * pair]);
            float angle = 6.28318530717958647692f * by__unit_float(bits[2 * pair + 1]);
            float radius = std * sqrtf(-2.0f * logf(u1));
            value[2 * pair] = radius * cosf(angle);
            value[2 * pair + 1] = radius * sinf(angle);
        }
        int64_t n = count - i < 4 ? count - i : 4;
        memcpy(out + i, value, (size_t)n * sizeof *out);
    }
}

by_status by_parameter_init(float *data, const by_graph *graph, by_value parameter, uint64_t seed,
                            by_error *error)
{
    if (!by__graph_has(graph, parameter) ||
        graph->values[parameter].role != BY_ROLE_PARAMETER) {
        return by_error_set(error, BY_EARG, "value %d is not a parameter", (int)parameter);
    }
    const by__value *value = &graph->values[parameter];
    int64_t count = by_shape_count(&value->shape);
    if (value->init.kind != BY_INIT_NORMAL) {
        float constant = value->init.kind == BY_INIT_ONE ? 1.0f : 0.0f;
        for (int64_t i = 0; i < count; i++) {
            data[i] = constant;
        }
        return BY_OK;
    }
    uint32_t key[2];
    float std = value->init.std;
    int64_t blocks = (count + BLOCK - 1) / BLOCK;
    by__philox_key(key, seed, by__hash64(value->name, strlen(value->name)));
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = block * BLOCK;
        fill_normal(data + first, count - first < BLOCK ? count - first : BLOCK, std, key, block);
    }
    return BY_OK;
}
