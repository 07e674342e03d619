/* Maps as ONNX nodes, one or two for each step. */
#include "ops/ops.h"

/* Operators of ONNX that are steps by themselves. */
static const char *const types[BY_MAP_KINDS] = {
    [BY_MAP_ADD] = "Add",   [BY_MAP_SUB] = "Sub",   [BY_MAP_MUL] = "Mul", [BY_MAP_DIV] = "Div",
    [BY_MAP_MIN] = "Min",   [BY_MAP_MAX] = "Max",   [BY_MAP_ABS] = "Abs", [BY_MAP_NEGATE] = "Neg",
    [BY_MAP_SIGN] = "Sign", [BY_MAP_SQRT] = "Sqrt",
};

/* Adds the nodes of a step; *out: its value. Returns false if ONNX has none. */
static bool add_step(int *out, const by_map_instruction *step, const int *value, by__op_onnx *onnx)
{
    int a = value[step->operand[0]];
    int b = value[step->operand[1]];
    switch (step->kind) {
    case BY_MAP_CONSTANT:
        *out = by__op_onnx_float(onnx, step->constant);
        return true;
    case BY_MAP_SQUARE:
        *out = by__op_onnx_node2(onnx, "Mul", a, a);
        return true;
    case BY_MAP_RSQRT:
        *out = by__op_onnx_node2(onnx, "Div", by__op_onnx_float(onnx, 1.0f),
                                 by__op_onnx_node1(onnx, "Sqrt", a));
        return true;
    case BY_MAP_ADD:
    case BY_MAP_SUB:
    case BY_MAP_MUL:
    case BY_MAP_DIV:
    case BY_MAP_MIN:
    case BY_MAP_MAX:
        *out = by__op_onnx_node2(onnx, types[step->kind], a, b);
        return true;
    case BY_MAP_ABS:
    case BY_MAP_NEGATE:
    case BY_MAP_SIGN:
    case BY_MAP_SQRT:
        *out = by__op_onnx_node1(onnx, types[step->kind], a);
        return true;
    default:
        return false;
    }
}

by_status by__op_onnx_map(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                          by_error *error)
{
    const by_map_program *map = s->attrs->map;
    int value[BY_MAP_MAX_INPUTS + BY_MAP_MAX_STEPS] = {0};
    BY_UNUSED(out);
    for (int i = 0; i < map->inputs; i++) {
        value[i] = i;
    }
    for (int k = 0; k < map->steps; k++) {
        if (!add_step(&value[BY_MAP_MAX_INPUTS + k], &map->step[k], value, onnx)) {
            return by__op_refuse(s, error, "ONNX has no operator for one of its steps");
        }
    }
    for (int i = 0; i < map->results; i++) {
        onnx->result(onnx, i, value[map->result[i].value]);
    }
    return BY_OK;
}
