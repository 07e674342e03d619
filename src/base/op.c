#include <string.h>

#include "banyan/op.h"
#include "base/base.h"

int64_t by_shape_count(const by_shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        count *= shape->dim[i];
    }
    return count;
}

const char *by_shape_print(const by_shape *shape, char buffer[128])
{
    size_t used = (size_t)snprintf(buffer, 128, "[");
    for (int i = 0; i < shape->rank && i < BY_MAX_RANK && used < 100; i++) {
        used += (size_t)snprintf(buffer + used, 128 - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)shape->dim[i]);
    }
    (void)snprintf(buffer + used, 128 - used, "]");
    return buffer;
}

bool by_shape_equal(const by_shape *a, const by_shape *b)
{
    if (a->rank != b->rank) {
        return false;
    }
    for (int i = 0; i < a->rank; i++) {
        if (a->dim[i] != b->dim[i]) {
            return false;
        }
    }
    return true;
}

static const char *const op_names[BY_OP_COUNT] = {
    [BY_OP_MATMUL] = "matmul",
    [BY_OP_SUM_ROWS] = "sum_rows",
    [BY_OP_ADD] = "add",
    [BY_OP_SUB] = "sub",
    [BY_OP_MUL] = "mul",
    [BY_OP_SCALE] = "scale",
    [BY_OP_CAST] = "cast",
    [BY_OP_UNARY] = "unary",
    [BY_OP_UNARY_GRAD] = "unary_grad",
    [BY_OP_SWIGLU] = "swiglu",
    [BY_OP_SWIGLU_GRAD] = "swiglu_grad",
    [BY_OP_LAYER_NORM] = "layer_norm",
    [BY_OP_LAYER_NORM_GRAD] = "layer_norm_grad",
    [BY_OP_RMS_NORM] = "rms_norm",
    [BY_OP_RMS_NORM_GRAD] = "rms_norm_grad",
    [BY_OP_EMBEDDING] = "embedding",
    [BY_OP_EMBEDDING_GRAD] = "embedding_grad",
    [BY_OP_POSITION] = "position",
    [BY_OP_POSITION_GRAD] = "position_grad",
    [BY_OP_ROPE] = "rope",
    [BY_OP_ATTENTION] = "attention",
    [BY_OP_ATTENTION_GRAD] = "attention_grad",
    [BY_OP_CACHED_ATTENTION] = "cached_attention",
    [BY_OP_DROPOUT] = "dropout",
    [BY_OP_LINEAR_CROSS_ENTROPY] = "linear_cross_entropy",
    [BY_OP_LINEAR_CROSS_ENTROPY_GRAD] = "linear_cross_entropy_grad",
    [BY_OP_LINEAR_CROSS_ENTROPY_TRAIN] = "linear_cross_entropy_train",
    [BY_OP_SUM_SQUARES] = "sum_squares",
    [BY_OP_CLIP_SCALE] = "clip_scale",
    [BY_OP_ADAMW] = "adamw",
};

static const char *const function_names[BY_FN_COUNT] = {
    [BY_FN_GELU] = "gelu", [BY_FN_SILU] = "silu",       [BY_FN_RELU] = "relu",
    [BY_FN_TANH] = "tanh", [BY_FN_SIGMOID] = "sigmoid",
};

const char *by_op_name(by_op op)
{
    return (unsigned)op < BY_OP_COUNT ? op_names[op] : "?";
}

const char *by_function_name(by_function function)
{
    return (unsigned)function < BY_FN_COUNT ? function_names[function] : "?";
}
