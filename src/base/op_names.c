/* What every module knows of operations: their names, those of functions of one number, and how
 * many operands a step of a map has. */
#include "banyan/op.h"

#define OP_NAME(NAME, name) [BY_OP_##NAME] = #name,
static const char *const op_names[BY_OP_COUNT] = {BY_OPS(OP_NAME)};

const char *by_op_name(by_op op)
{
    return (unsigned)op < BY_OP_COUNT ? op_names[op] : "?";
}

static const char *const function_names[BY_FN_COUNT] = {
    [BY_FN_GELU] = "gelu",         [BY_FN_SILU] = "silu",         [BY_FN_RELU] = "relu",
    [BY_FN_TANH] = "tanh",         [BY_FN_SIGMOID] = "sigmoid",   [BY_FN_NEGATE] = "negate",
    [BY_FN_GELU_ERF] = "gelu_erf", [BY_FN_SOFTPLUS] = "softplus", [BY_FN_ELU] = "elu",
    [BY_FN_LOG_ABS] = "log_abs",
};

const char *by_function_name(by_function function)
{
    return (unsigned)function < BY_FN_COUNT ? function_names[function] : "?";
}

int by_map_operands(by_map_kind kind)
{
    switch (kind) {
    case BY_MAP_CONSTANT:
    case BY_MAP_SCALAR:
        return 0;
    case BY_MAP_SELECT:
        return 3;
    case BY_MAP_ADD:
    case BY_MAP_SUB:
    case BY_MAP_MUL:
    case BY_MAP_DIV:
    case BY_MAP_MIN:
    case BY_MAP_MAX:
    case BY_MAP_LESS:
        return 2;
    default:
        return 1;
    }
}
