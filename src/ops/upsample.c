/* Channels-last images [B, H, W, C] in another size, by the nearest entry or by bilinear
 * interpolation. */
#include <math.h>
#include <stdlib.h>

#include "ops/ops.h"

/* The largest extent: places between entries are exact to more than single precision. */
#define MOST_EXTENT (1 << 24)

static bool sized(const by_shape *shape)
{
    return shape->rank == 4 && shape->dim[1] >= 1 && shape->dim[1] <= MOST_EXTENT &&
           shape->dim[2] >= 1 && shape->dim[2] <= MOST_EXTENT;
}

/* Both ops: operand and result differ in height and width alone. */
static by_status infer(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape *from = &s->in[0].shape;
    const by_shape *to = &s->attrs->shape;
    if (!by__op_is_act(s->in[0].dtype) || !sized(from) || !sized(to) ||
        from->dim[0] != to->dim[0] || from->dim[3] != to->dim[3]) {
        return by__op_refuse(s, error,
                             "operand and result must be [batch, height, width, channels] of f32, "
                             "bf16 or f16 and differ in height and width alone");
    }
    out[0] = (by__graph_type){s->in[0].dtype, *to};
    return BY_OK;
}

static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    by_attrs attrs = node->attrs;
    attrs.shape = graph->values[node->in[0]].shape;
    din[0] = by__op_add_node(graph, BY_OP_UPSAMPLE_GRAD, &attrs, dout, 1, NULL);
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by_shape *y = s->op == BY_OP_UPSAMPLE ? &out[0].shape : &s->in[0].shape;
    cost->flops = (s->attrs->linear ? 8.0 : 1.0) * (double)by_shape_count(y);
}

/* The entries of one axis that entry i of `to` is between, of `from`, and the share of the
 * second. */
static void axis_places(int64_t from, int64_t to, bool linear, int64_t i, int64_t at[2],
                        float *second)
{
    double place = ((double)i + 0.5) * (double)from / (double)to - 0.5;
    place = place < 0.0 ? 0.0 : place;
    at[0] = linear ? (int64_t)place : i * from / to;
    at[0] = at[0] > from - 1 ? from - 1 : at[0];
    at[1] = at[0] < from - 1 ? at[0] + 1 : at[0];
    *second = linear && at[1] > at[0] ? (float)(place - (double)at[0]) : 0.0f;
}

/* Takes entries along an axis, and mixes neighbours in constant shares. */
static by_status onnx_axis(by__op_onnx *onnx, int *x, const by_shape *from, const by_shape *to,
                           int axis, bool linear, by_error *error)
{
    int64_t *at;
    float *share;
    int64_t extent = to->dim[axis];
    by_shape column = {.rank = 4 - axis, .dim = {extent, 1, 1}};
    BY_TRY(by__alloc((void **)&at, (size_t)extent * 2, sizeof *at, "indices", error));
    by_status status = by__alloc((void **)&share, (size_t)extent, sizeof *share, "shares", error);
    if (status == BY_OK) {
        for (int64_t i = 0; i < extent; i++) {
            int64_t both[2];
            axis_places(from->dim[axis], extent, linear, i, both, &share[i]);
            at[i] = both[0];
            at[extent + i] = both[1];
        }
        int y = by__op_onnx_node2(onnx, "Gather", *x, by__op_onnx_list(onnx, at, (int)extent));
        onnx->set_int(onnx, "axis", axis);
        if (linear) {
            int next = by__op_onnx_node2(onnx, "Gather", *x,
                                         by__op_onnx_list(onnx, at + extent, (int)extent));
            onnx->set_int(onnx, "axis", axis);
            int way = by__op_onnx_node2(onnx, "Sub", next, y);
            way = by__op_onnx_node2(onnx, "Mul", way, onnx->floats(onnx, share, &column));
            y = by__op_onnx_node2(onnx, "Add", y, way);
        }
        *x = y;
        free(share);
    }
    free(at);
    return status;
}

static by_status onnx(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                      by_error *error)
{
    int x = 0;
    for (int axis = 1; axis <= 2; axis++) {
        BY_TRY(onnx_axis(onnx, &x, &s->in[0].shape, &out[0].shape, axis, s->attrs->linear, error));
    }
    onnx->result(onnx, 0, x);
    return BY_OK;
}

#define ATTRS                                                                                      \
    BY__ATTRS(BY__ATTR_AS("bilinear", linear, FLAG, 0),                                            \
              BY__ATTR_AS("shape", shape, SHAPE, BY__ATTR_IN_TYPE))

const by__op_row by__op_upsample = {.min_inputs = 1,
                                    .max_inputs = 1,
                                    .outputs = 1,
                                    .attrs = ATTRS,
                                    .infer = infer,
                                    .gradient = gradient,
                                    .onnx = onnx,
                                    .cheap = true,
                                    .cost = cost};
const by__op_row by__op_upsample_grad = {
    .min_inputs = 1, .max_inputs = 1, .outputs = 1, .attrs = ATTRS, .infer = infer, .cost = cost};

by_value by_upsample(by_graph *graph, by_value x, int64_t height, int64_t width, bool bilinear)
{
    by_attrs attrs = {.linear = bilinear};
    if (by__graph_has(graph, x)) {
        attrs.shape = graph->values[x].shape;
        attrs.shape.dim[1] = height;
        attrs.shape.dim[2] = width;
    }
    return by__op_add_node(graph, BY_OP_UPSAMPLE, &attrs, &x, 1, NULL);
}
