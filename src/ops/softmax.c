/* Softmax and its logarithm over the last axis. */
#include "ops/ops.h"

static by_status infer_softmax(const by__op_signature *s, by__graph_type *out, by_error *error)
{
    if (!by__op_is_act(s->in[0].dtype) || s->in[0].shape.rank < 1) {
        return by__op_refuse(s, error, "the operand must be f32, bf16 or f16 and have an axis");
    }
    if (s->input_count == 2 && !by__op_type_equal(&s->in[0], &s->in[1])) {
        return by__op_refuse(s, error, "y and dy must agree");
    }
    out[0] = s->in[0];
    return BY_OK;
}

static void gradient_softmax(by_graph *graph, const by__graph_node *node, const by_value *dout,
                             by_value *din)
{
    by_value in[2] = {node->out[0], dout[0]};
    din[0] = by__op_add_node(graph, BY_OP_SOFTMAX_GRAD, &node->attrs, in, 2, NULL);
}

static void cost_softmax(const by__op_signature *s, const by__graph_type *out, by__op_cost *cost)
{
    BY_UNUSED(s);
    cost->flops = 12.0 * (double)by_shape_count(&out[0].shape);
}

static bool shard_softmax(const by__op_signature *s, const by__graph_type *out, by__op_sharding *sh)
{
    int last = s->in[0].shape.rank - 1;
    return sh->in[0].axis != last && by__op_shard_elements(s, out, sh);
}

#define LOGARITHM BY__ATTRS(BY__ATTR_AS("log", logarithm, FLAG, 0))
const by__op_row by__op_softmax = {.attrs = LOGARITHM,
                                   .cheap = true,
                                   .min_inputs = 1,
                                   .max_inputs = 1,
                                   .outputs = 1,
                                   .infer = infer_softmax,
                                   .gradient = gradient_softmax,
                                   .shard = shard_softmax,
                                   .cost = cost_softmax,
                                   .overlay = {1u << 0}};
const by__op_row by__op_softmax_grad = {.attrs = LOGARITHM,
                                        .min_inputs = 2,
                                        .max_inputs = 2,
                                        .outputs = 1,
                                        .infer = infer_softmax,
                                        .shard = shard_softmax,
                                        .cost = cost_softmax,
                                        .overlay = {1u << 0 | 1u << 1}};

by_value by_softmax(by_graph *graph, by_value x)
{
    return by__op_add_node(graph, BY_OP_SOFTMAX, &(by_attrs){0}, &x, 1, NULL);
}

by_value by_log_softmax(by_graph *graph, by_value x)
{
    by_attrs attrs = {.logarithm = true};
    return by__op_add_node(graph, BY_OP_SOFTMAX, &attrs, &x, 1, NULL);
}
