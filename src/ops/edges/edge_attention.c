/* Attention of nodes to the nodes that edges come from: a softmax over the edges that end in each
 * node, of scores that are a sum of what source and target say. */
#include "ops/ops.h"

/* s [B, M, H], d [B, N, H], offsets [B, N + 1], sources [B, E]. */
static bool is_scored(const by__op_signature *s)
{
    const by_shape *source = &s->in[0].shape;
    const by_shape *target = &s->in[1].shape;
    const by_shape *offsets = &s->in[2].shape;
    const by_shape *sources = &s->in[3].shape;
    return s->in[0].dtype == BY_F32 && source->rank == 3 && s->in[1].dtype == BY_F32 &&
           target->rank == 3 && target->dim[0] == source->dim[0] &&
           target->dim[2] == source->dim[2] && s->in[2].dtype == BY_I32 && offsets->rank == 2 &&
           offsets->dim[0] == source->dim[0] && offsets->dim[1] == target->dim[1] + 1 &&
           s->in[3].dtype == BY_I32 && sources->rank == 2 && sources->dim[0] == source->dim[0];
}

static by__graph_type type_of_edges(const by__op_signature *s)
{
    const by_shape *source = &s->in[0].shape;
    return (by__graph_type){BY_F32,
                            BY_SHAPE(source->dim[0], s->in[3].shape.dim[1], source->dim[2])};
}

static by_status infer(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    const by_shape *back = &s->in[4].shape;
    if (!is_scored(s) || s->in[4].dtype != BY_I32 || back->rank != 2 ||
        back->dim[0] != s->in[0].shape.dim[0] || back->dim[1] != s->in[0].shape.dim[1] + 1 ||
        s->in[5].dtype != BY_I32 || !by_shape_equal(&s->in[5].shape, &s->in[3].shape)) {
        return by__op_refuse(s, error,
                             "scores must be f32 [batch, nodes, heads], with offsets i32 [batch, "
                             "nodes + 1], sources and edges i32 [batch, edges]");
    }
    out[0] = type_of_edges(s);
    return BY_OK;
}

static void gradient(by_graph *graph, const by__graph_node *node, const by_value *dout,
                     by_value *din)
{
    by_value in[6] = {node->in[0], node->in[1], node->in[2], node->in[3], node->out[0], dout[0]};
    by_value out[BY_MAX_OUTPUTS] = {BY_NONE, BY_NONE, BY_NONE};
    (void)by__op_add_node(graph, BY_OP_EDGE_ATTENTION_GRAD, &node->attrs, in, 6, out);
    by_value back[3] = {out[0], node->in[4], node->in[5]};
    din[0] = by__op_add_node(graph, BY_OP_EDGE_SUM, &(by_attrs){0}, back, 3, NULL);
    din[1] = out[1];
}

static by_status infer_grad(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    by__graph_type edges = is_scored(s) ? type_of_edges(s) : (by__graph_type){0};
    if (!is_scored(s) || !by__op_type_equal(&s->in[4], &edges) ||
        !by__op_type_equal(&s->in[5], &edges)) {
        return by__op_refuse(s, error, "the operands are not those of attention over edges");
    }
    out[0] = edges;
    out[1] = s->in[1];
    return BY_OK;
}

static void cost(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    cost->flops = 8.0 * (double)by_shape_count(&out[0].shape);
}

#define SLOPE BY__ATTR_AS("slope", value, FLOAT, 0)
const by__op_row by__op_edge_attention = {.min_inputs = 6,
                                          .max_inputs = 6,
                                          .outputs = 1,
                                          .attrs = BY__ATTRS(SLOPE),
                                          .infer = infer,
                                          .gradient = gradient,
                                          .cost = cost,
                                          .onnx = by__op_onnx_edge_attention,
                                          .keeps_f32 = 3u};
const by__op_row by__op_edge_attention_grad = {.min_inputs = 6,
                                               .max_inputs = 6,
                                               .outputs = 2,
                                               .attrs = BY__ATTRS(SLOPE),
                                               .infer = infer_grad,
                                               .cost = cost,
                                               .keeps_f32 = 3u | 1u << 4 | 1u << 5};

by_value by_edge_attention(by_graph *graph, by_value source, by_value target, const by_edges *edges,
                           float slope)
{
    by_attrs attrs = {.value = slope};
    by_value in[6] = {source,           target, edges->offsets, edges->sources, edges->back_offsets,
                      edges->back_edges};
    return by__op_add_node(graph, BY_OP_EDGE_ATTENTION, &attrs, in, 6, NULL);
}
