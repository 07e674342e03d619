/* Sums and means over any set of axes, and the broadcasting that their gradients need. */
#include "ops/ops.h"

bool by__op_broadcasts(const by_shape *from, const by_shape *to)
{
    if (from->rank > to->rank) {
        return false;
    }
    for (int i = 1; i <= from->rank; i++) {
        int64_t extent = from->dim[from->rank - i];
        if (extent != 1 && extent != to->dim[to->rank - i]) {
            return false;
        }
    }
    return true;
}

static by_status infer_sum(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by__graph_type *x = &s->in[0];
    if (!by__op_is_act(x->dtype)) {
        return by__op_refuse(s, error, "the operand must be f32, bf16 or f16");
    }
    if (s->attrs->axes >> x->shape.rank != 0) {
        return by__op_refuse(s, error, "there is no such axis");
    }
    out[0] = (by__graph_type){s->attrs->wide ? BY_F32 : x->dtype, {.rank = 0}};
    for (int i = 0; i < x->shape.rank; i++) {
        bool summed = (s->attrs->axes >> i & 1u) != 0;
        if (!summed || s->attrs->keep) {
            out[0].shape.dim[out[0].shape.rank++] = summed ? 1 : x->shape.dim[i];
        }
    }
    return BY_OK;
}

/* Each term gets the gradient of the sum, divided by the number of terms for a mean. */
static void gradient_sum(by_graph *graph, const by__graph_node *node, const by_value *dout,
                         by_value *din)
{
    by_shape x = graph->values[node->in[0]].shape;
    by_shape kept = x;
    int64_t terms = 1;
    for (int i = 0; i < x.rank; i++) {
        if ((node->attrs.axes >> i & 1u) != 0) {
            terms *= x.dim[i];
            kept.dim[i] = 1;
        }
    }
    by_value dy = dout[0];
    if (node->attrs.mean) {
        dy = by_scale(graph, dy, by_fill(graph, BY_F32, BY_SHAPE(1), 1.0f / (float)terms));
    }
    din[0] = by_expand(graph, by_reshape(graph, dy, kept), x);
}

static void cost_sum(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(out);
    cost->flops = (double)by_shape_count(&s->in[0].shape);
}

/* A sum over the split axis is an addend; a mean over it cannot be split. */
static bool shard_sum(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    by__graph_split x = sh->in[0];
    int axis = 0;
    BY_UNUSED(out);
    if (x.axis < 0) {
        return false;
    }
    if ((s->attrs->axes >> x.axis & 1u) != 0) {
        sh->out[0] = by__op_partial();
        return !s->attrs->mean;
    }
    for (int i = 0; i < x.axis; i++) {
        axis += s->attrs->keep || (s->attrs->axes >> i & 1u) == 0;
    }
    sh->out[0] = (by__graph_split){axis, x.sections};
    return true;
}

static by_status onnx_sum(const by__op_signature *s, const by__graph_type *out, by__op_onnx *onnx,
                          by_error *error)
{
    int64_t axes[BY_MAX_RANK];
    int count = 0;
    BY_UNUSED(out);
    BY_UNUSED(error);
    for (int i = 0; i < s->in[0].shape.rank; i++) {
        if ((s->attrs->axes >> i & 1u) != 0) {
            axes[count++] = i;
        }
    }
    if (count == 0) {
        onnx->result(onnx, 0, by__op_onnx_node1(onnx, "Identity", 0));
        return BY_OK;
    }
    int list = by__op_onnx_list(onnx, axes, count);
    int y = by__op_onnx_node2(onnx, s->attrs->mean ? "ReduceMean" : "ReduceSum", 0, list);
    onnx->set_int(onnx, "keepdims", s->attrs->keep ? 1 : 0);
    onnx->result(onnx, 0, y);
    return BY_OK;
}

const by__op_row by__op_sum = {
    .attrs = BY__ATTRS(BY__ATTR_AS("mean", mean, FLAG, 0), BY__ATTR(axes, AXES),
                       BY__ATTR_AS("keep", keep, FLAG, BY__ATTR_IN_TYPE),
                       BY__ATTR_AS("wide", wide, FLAG, BY__ATTR_IN_TYPE)),
    .min_inputs = 1,
    .max_inputs = 1,
    .outputs = 1,
    .infer = infer_sum,
    .gradient = gradient_sum,
    .shard = shard_sum,
    .onnx = onnx_sum,
    .cost = cost_sum};

by_value by__op_sum_axes(by_graph *graph, by_value x, uint32_t axes, bool keep, bool wide)
{
    by_attrs attrs = {.axes = axes, .keep = keep, .wide = wide};
    return by__op_add_node(graph, BY_OP_SUM, &attrs, &x, 1, NULL);
}

by_value by__op_reduce_to(by_graph *graph, by_value gradient, by_value operand)
{
    if (graph->error.status != BY_OK) {
        return BY_NONE;
    }
    by_shape from = graph->values[gradient].shape;
    by_shape to = graph->values[operand].shape;
    if (by_shape_equal(&from, &to)) {
        return gradient;
    }
    int lead = from.rank - to.rank;
    bool suffix = lead > 0 && to.rank > 0;
    for (int i = 0; i < to.rank; i++) {
        suffix = suffix && to.dim[i] == from.dim[lead + i];
    }
    if (suffix) {
        return by__op_build_sum_rows(graph, gradient, lead);
    }
    uint32_t axes = 0;
    for (int i = 0; i < from.rank; i++) {
        int at = i - lead;
        axes |= at < 0 || to.dim[at] != from.dim[i] ? 1u << i : 0u;
    }
    by_value sum = by__op_sum_axes(graph, gradient, axes, true, true);
    return lead == 0 ? sum : by_reshape(graph, sum, to);
}

static by_value add_sum(by_graph *graph, by_value x, const int *axes, int count, bool keep,
                        bool mean)
{
    by_attrs attrs = {.keep = keep, .mean = mean};
    int rank = graph->error.status == BY_OK && by__graph_has(graph, x) ? graph->values[x].shape.rank
                                                                       : BY_MAX_RANK;
    for (int i = 0; i < count; i++) {
        int axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 0 || axis >= rank) {
            by__graph_fail(graph, BY_EARG, "sum: there is no axis %d among %d", axes[i], rank);
            return BY_NONE;
        }
        attrs.axes |= 1u << axis;
    }
    return by__op_add_node(graph, BY_OP_SUM, &attrs, &x, 1, NULL);
}

by_value by_sum(by_graph *graph, by_value x, const int *axes, int count, bool keep)
{
    return add_sum(graph, x, axes, count, keep, false);
}

by_value by_mean(by_graph *graph, by_value x, const int *axes, int count, bool keep)
{
    return add_sum(graph, x, axes, count, keep, true);
}
