/* Names of operations and of functions of one number, for messages of every module. */
#include "banyan/op.h"

#define OP_NAME(NAME, name) [BY_OP_##NAME] = #name,
static const char *const op_names[BY_OP_COUNT] = {BY_OPS(OP_NAME)};

const char *by_op_name(by_op op)
{
    return (unsigned)op < BY_OP_COUNT ? op_names[op] : "?";
}

static const char *const function_names[BY_FN_COUNT] = {
    [BY_FN_GELU] = "gelu",         [BY_FN_SILU] = "silu",       [BY_FN_RELU] = "relu",
    [BY_FN_TANH] = "tanh",         [BY_FN_SIGMOID] = "sigmoid", [BY_FN_NEGATE] = "negate",
    [BY_FN_GELU_ERF] = "gelu_erf",
};

const char *by_function_name(by_function function)
{
    return (unsigned)function < BY_FN_COUNT ? function_names[function] : "?";
}
