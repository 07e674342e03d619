#include <math.h>

#include "device/cpu/map_plan.h"
#include "device/cpu/reference.h"

/* One step on the values a, b, c. For + - * / and the square root of f32 operands, computing in
 * double and rounding to f32 gives the correctly rounded result. */
static double apply(const by_map_instruction *step, double a, double b, double c)
{
    switch (step->kind) {
    case BY_MAP_ADD:
        return a + b;
    case BY_MAP_SUB:
        return a - b;
    case BY_MAP_MUL:
        return a * b;
    case BY_MAP_DIV:
        return a / b;
    case BY_MAP_MIN:
        return a < b ? a : b;
    case BY_MAP_MAX:
        return a > b ? a : b;
    case BY_MAP_LESS:
        return a < b ? 1.0 : 0.0;
    case BY_MAP_SELECT:
        return a != 0.0 ? b : c;
    case BY_MAP_NEGATE:
        return -a;
    case BY_MAP_ABS:
        return fabs(a);
    case BY_MAP_SIGN:
        return a > 0.0 ? 1.0 : a < 0.0 ? -1.0 : 0.0;
    case BY_MAP_SQUARE:
        return a * a;
    case BY_MAP_SQRT:
        return sqrt(a);
    case BY_MAP_RSQRT:
        return 1.0 / (double)(float)sqrt(a);
    case BY_MAP_FINITE:
        return isfinite(a) ? 1.0 : 0.0;
    default:
        return by__cpu_reference_function(step->function, a);
    }
}

static void run_steps(const by__device_call *call, float *value)
{
    const by_map_program *map = call->attrs.map;
    for (int k = 0; k < map->steps; k++) {
        const by_map_instruction *step = &map->step[k];
        float *y = &value[BY_MAP_MAX_INPUTS + k];
        if (step->kind == BY_MAP_CONSTANT) {
            *y = step->constant;
        } else if (step->kind == BY_MAP_SCALAR) {
            *y = (float)by__get(&call->in[step->operand[0]], step->operand[1]);
        } else {
            double operand[3] = {0.0, 0.0, 0.0};
            for (int i = 0; i < by_map_operands(step->kind); i++) {
                operand[i] = (double)value[step->operand[i]];
            }
            *y = (float)apply(step, operand[0], operand[1], operand[2]);
        }
    }
}

static void set_update(const by__device_call *call, int u, int64_t e, float value)
{
    const by_map_program *map = call->attrs.map;
    const by__device_tensor *tensor = &call->in[map->update[u].input];
    int word = map->update[u].word - 1;
    if (word < 0 || tensor->dtype != BY_BF16) {
        by__set(tensor, e, (double)value);
        return;
    }
    uint64_t element = (uint64_t)(map->random.first + e);
    float step = (float)by__get(&call->in[map->random.input], map->random.index);
    uint32_t counter[4] = {(uint32_t)element, (uint32_t)(element >> 32), (uint32_t)(int32_t)step,
                           0};
    uint32_t bits[4];
    by__philox(bits, map->random.key, counter);
    ((uint16_t *)tensor->data)[e] =
        by__f32_to_bf16_random(value, bits[word % 4] >> (word / 4 * 16) & 0xffffu);
}

static by_status run_map(const by__device_call *call, const by__device_context *context)
{
    BY_UNUSED(context);
    const by_map_program *map = call->attrs.map;
    float value[BY__MAP_VALUES] = {0};
    for (int64_t e = 0, count = by__cpu_map_count(call); e < count; e++) {
        for (int i = 0; i < map->inputs; i++) {
            bool is_tensor = (map->scalars >> i & 1u) == 0;
            value[i] = is_tensor ? (float)by__get(&call->in[i], e) : 0.0f;
        }
        run_steps(call, value);
        for (int i = 0; i < map->updates; i++) {
            set_update(call, i, e, value[map->update[i].value]);
        }
        for (int i = 0; i < map->results; i++) {
            if (by__present(&call->out[i])) {
                by__set(&call->out[i], e, (double)value[map->result[i].value]);
            }
        }
    }
    return BY_OK;
}

BY__REFERENCE_KERNEL(BY_OP_MAP, map, NULL, run_map);
