/* Nodes and constants that rows use to write ONNX. */
#include "ops/ops.h"

int by__op_onnx_node1(by__op_onnx *onnx, const char *type, int a)
{
    return onnx->node(onnx, type, &a, 1, 1);
}

int by__op_onnx_node2(by__op_onnx *onnx, const char *type, int a, int b)
{
    const int in[2] = {a, b};
    return onnx->node(onnx, type, in, 2, 1);
}

int by__op_onnx_node3(by__op_onnx *onnx, const char *type, int a, int b, int c)
{
    const int in[3] = {a, b, c};
    return onnx->node(onnx, type, in, 3, 1);
}

int by__op_onnx_list(by__op_onnx *onnx, const int64_t *values, int count)
{
    return onnx->ints(onnx, values, &BY_SHAPE(count));
}

int by__op_onnx_float(by__op_onnx *onnx, float value)
{
    return onnx->floats(onnx, &value, &(by_shape){0});
}

int by__op_onnx_int(by__op_onnx *onnx, int64_t value)
{
    return onnx->ints(onnx, &value, &(by_shape){0});
}

int by__op_onnx_reshape(by__op_onnx *onnx, int x, const int64_t *shape, int rank)
{
    return by__op_onnx_node2(onnx, "Reshape", x, by__op_onnx_list(onnx, shape, rank));
}

int by__op_onnx_transpose(by__op_onnx *onnx, int x, const int64_t *order, int rank)
{
    int y = by__op_onnx_node1(onnx, "Transpose", x);
    onnx->set_ints(onnx, "perm", order, rank);
    return y;
}

int by__op_onnx_extent(by__op_onnx *onnx, int x, int64_t axis)
{
    int shape = by__op_onnx_node1(onnx, "Shape", x);
    return by__op_onnx_node2(onnx, "Gather", shape, by__op_onnx_int(onnx, axis));
}

int by__op_onnx_split(by__op_onnx *onnx, int x, int64_t axis, const int64_t *sizes, int count)
{
    const int in[2] = {x, by__op_onnx_list(onnx, sizes, count)};
    int first = onnx->node(onnx, "Split", in, 2, count);
    onnx->set_int(onnx, "axis", axis);
    return first;
}
