/* Pooling of channels-last images [B, H, W, C]: the largest entry, or the mean, of each window. */
#include "ops/ops.h"

/* The largest windows: what bf16 counts exactly would be 256, f32 2^24. */
#define MOST_SIDE 4096

/* Extents of the result along both sides; false: there is none. */
static bool sides(const by_attrs *a, const by_shape *x, int64_t out[2])
{
    const by_window *w = &a->sliding;
    if (x->rank != 4) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        int64_t extent = x->dim[1 + i];
        if (w->size[i] < 1 || w->size[i] > MOST_SIDE || w->stride[i] < 1 || w->dilation[i] != 1 ||
            w->before[i] < 0 || w->before[i] >= w->size[i] || w->after[i] < 0 ||
            w->after[i] >= w->size[i] || extent + w->before[i] + w->after[i] < w->size[i]) {
            return false;
        }
        out[i] = (extent + w->before[i] + w->after[i] - w->size[i]) / w->stride[i] + 1;
    }
    return true;
}

static by_status refuse_window(const by__op_signature *s, by_error *error)
{
    return by__op_refuse(s, error,
                         "the operand must be [batch, height, width, channels], and each window, "
                         "without dilation, contain a part of it");
}

static by_status infer_pool(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    int64_t side[2];
    if (!by__op_is_act(s->in[0].dtype)) {
        return by__op_refuse(s, error, "the operand must be f32, bf16 or f16");
    }
    if (!sides(s->attrs, &s->in[0].shape, side)) {
        return refuse_window(s, error);
    }
    out[0] = s->in[0];
    out[0].shape.dim[1] = side[0];
    out[0].shape.dim[2] = side[1];
    return BY_OK;
}

static by_status infer_gradient(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    int64_t side[2];
    const by__graph_type *dy = &s->in[1];
    by__graph_type x = {dy->dtype, s->attrs->shape};
    if (!by__op_is_act(dy->dtype) || !sides(s->attrs, &x.shape, side)) {
        return refuse_window(s, error);
    }
    by__graph_type y = x;
    y.shape.dim[1] = side[0];
    y.shape.dim[2] = side[1];
    if (!by__op_type_equal(&y, dy) || by__absent(&s->in[0]) != s->attrs->mean ||
        (!by__absent(&s->in[0]) && !by__op_type_equal(&s->in[0], &x))) {
        return by__op_refuse(s, error, "x and dy must be the operand and a gradient of the result");
    }
    out[0] = x;
    return BY_OK;
}

static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    by_attrs attrs = node->attrs;
    by_value in[2] = {attrs.mean ? BY_NONE : node->in[0], dout[0]};
    attrs.shape = graph->values[node->in[0]].shape;
    din[0] = by__op_add_node(graph, BY_OP_POOL_GRAD, &attrs, in, 2, NULL);
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    const by__graph_type *y = s->op == BY_OP_POOL ? &out[0] : &s->in[1];
    cost->flops = (double)by_shape_count(&y->shape) * (double)s->attrs->sliding.size[0] *
                  (double)s->attrs->sliding.size[1];
}

static by_status onnx_pool(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                           by_error *error)
{
    static const int64_t first[4] = {0, 3, 1, 2};
    static const int64_t last[4] = {0, 2, 3, 1};
    const by_window *w = &s->attrs->sliding;
    const int64_t pads[4] = {w->before[0], w->before[1], w->after[0], w->after[1]};
    BY_UNUSED(out);
    BY_UNUSED(error);
    int x = by__op_onnx_transpose(onnx, 0, first, 4);
    int y = by__op_onnx_node1(onnx, s->attrs->mean ? "AveragePool" : "MaxPool", x);
    onnx->set_ints(onnx, "kernel_shape", w->size, 2);
    onnx->set_ints(onnx, "strides", w->stride, 2);
    onnx->set_ints(onnx, "pads", pads, 4);
    if (s->attrs->mean) {
        onnx->set_int(onnx, "count_include_pad", s->attrs->keep ? 1 : 0);
    }
    onnx->result(onnx, 0, by__op_onnx_transpose(onnx, y, last, 4));
    return BY_OK;
}

const by__op_row by__op_pool = {.min_inputs = 1,
                                .max_inputs = 1,
                                .outputs = 1,
                                .attrs = BY__ATTRS(BY__ATTR_AS("window", sliding, WINDOW, 0),
                                                   BY__ATTR_AS("mean", mean, FLAG, 0),
                                                   BY__ATTR_AS("padded", keep, FLAG, 0)),
                                .infer = infer_pool,
                                .gradient = gradient,
                                .cost = cost,
                                .onnx = onnx_pool};
const by__op_row by__op_pool_grad = {
    .min_inputs = 2,
    .max_inputs = 2,
    .outputs = 1,
    .optional = 1u << 0,
    .attrs = BY__ATTRS(BY__ATTR_AS("window", sliding, WINDOW, 0),
                       BY__ATTR_AS("mean", mean, FLAG, 0), BY__ATTR_AS("padded", keep, FLAG, 0),
                       BY__ATTR_AS("shape", shape, SHAPE, BY__ATTR_IN_TYPE)),
    .infer = infer_gradient,
    .cost = cost};

by_value by_max_pool(by_graph *graph, by_value x, const by_window *window)
{
    by_attrs attrs = {.sliding = *window};
    return by__op_add_node(graph, BY_OP_POOL, &attrs, &x, 1, NULL);
}

by_value by_average_pool(by_graph *graph, by_value x, const by_window *window, bool padded)
{
    by_attrs attrs = {.sliding = *window, .mean = true, .keep = padded};
    return by__op_add_node(graph, BY_OP_POOL, &attrs, &x, 1, NULL);
}
