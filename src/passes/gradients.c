#include <stdlib.h>

#include "passes/passes.h"

typedef struct backward_pass {
    by_graph *graph;
    by_value *gradient; /* of each forward value; BY_NONE: none so far */
    bool *needed;       /* values that depend on a trained parameter */
} backward_pass;

void by__pass_gradients_needed(const by_graph *graph, bool frozen_too, bool *needed)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        needed[v] =
            value->role == BY_ROLE_PARAMETER && (frozen_too || !value->frozen) && !value->statistic;
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        bool any = false;
        for (int i = 0; i < node->input_count; i++) {
            any = any || (node->in[i] != BY_NONE && needed[node->in[i]]);
        }
        for (int i = 0; i < node->output_count; i++) {
            if (node->out[i] != BY_NONE) {
                needed[node->out[i]] = any && by_dtype_is_float(graph->values[node->out[i]].dtype);
            }
        }
    }
}

/* Adds the contribution of `op` to the gradient of its operand `value`, in the dtype of the value's
 * gradients. */
static by_status accumulate(backward_pass *b, by_op op, by_value value, by_value contribution,
                            by_error *error)
{
    char have[128];
    char want[128];
    by_graph *graph = b->graph;
    if (!b->needed[value]) {
        return BY_OK;
    }
    BY_TRY(by_graph_check(graph, error));
    by_shape shape = graph->values[value].shape;
    by_dtype dtype = by__op_gradient_dtype(graph, value);
    if (contribution == BY_NONE) {
        return by_error_set(error, BY_EARG, "gradients: %s has no gradient for its operand %s",
                            by_op_name(op), by_shape_print(&shape, want));
    }
    if (!by_shape_equal(&graph->values[contribution].shape, &shape)) {
        return by_error_set(
            error, BY_EARG,
            "gradients: %s gives a gradient %s for its operand %s; flatten the operand "
            "to two axes",
            by_op_name(op), by_shape_print(&graph->values[contribution].shape, have),
            by_shape_print(&shape, want));
    }
    if (graph->values[contribution].dtype != dtype) {
        contribution = by_cast(graph, contribution, dtype);
    }
    by_value sum = b->gradient[value];
    b->gradient[value] = sum == BY_NONE ? contribution : by_add(graph, sum, contribution);
    return by_graph_check(graph, error);
}

/* Works on copies of the node and its operands, because adding nodes may move the arrays. */
static by_status differentiate_node(backward_pass *b, size_t n, by_error *error)
{
    by__graph_node node = b->graph->nodes[n];
    const by__op_row *row = by__op_row_of(node.op);
    by_value dout[BY_MAX_OUTPUTS];
    by_value *din;
    bool flows = false;
    uint32_t through = row->differentiable == 0 ? 1u << 0 : row->differentiable;
    int blocked = -1; /* an output with a gradient that the op cannot differentiate */
    for (int i = 0; i < node.output_count; i++) {
        dout[i] = node.out[i] == BY_NONE ? BY_NONE : b->gradient[node.out[i]];
        flows = flows || dout[i] != BY_NONE;
        blocked = dout[i] != BY_NONE && !by__mask_has(through, i) ? i : blocked;
    }
    if (!flows) {
        return BY_OK;
    }
    if (row->gradient == NULL) {
        return by_error_set(error, BY_EARG, "gradients: %s has no gradient", by_op_name(node.op));
    }
    if (blocked >= 0) {
        return by_error_set(error, BY_EARG, "gradients: %s has no gradient through its output %d",
                            by_op_name(node.op), blocked);
    }
    size_t capacity =
        (size_t)node.input_count > BY_MAX_OUTPUTS ? (size_t)node.input_count : BY_MAX_OUTPUTS;
    BY_TRY(by__alloc((void **)&din, capacity, sizeof *din, "gradients", error));
    for (int i = 0; i < node.input_count; i++) {
        din[i] = BY_NONE;
    }
    by_graph_set_block(b->graph, node.block);
    row->gradient(b->graph, &node, dout, din);
    by_status status = by_graph_check(b->graph, error);
    for (int i = 0; i < node.input_count && status == BY_OK; i++) {
        if (node.in[i] != BY_NONE && !by__mask_has(row->keeps, i)) {
            status = accumulate(b, node.op, node.in[i], din[i], error);
        }
    }
    free(din);
    return status;
}

static by_status name_gradient(by_graph *graph, by_value v, by_value gradient, by_error *error)
{
    by_string text = {0};
    char *name;
    by_string_format(&text, "grad.%s", graph->values[v].name);
    BY_TRY(by__string_release(&text, &name, error));
    by_graph_output(graph, gradient, name);
    free(name);
    BY_TRY(by_graph_check(graph, error));
    graph->values[gradient].role = BY_ROLE_GRADIENT;
    return BY_OK;
}

/* Names the gradient of parameter v. If another value has the same gradient (a shared dy), it is
 * copied by a cast to f32, so that each parameter has its own buffer. */
static by_status publish(backward_pass *b, by_value v, by_error *error)
{
    by_graph *graph = b->graph;
    by_value gradient = b->gradient[v];
    if (gradient == BY_NONE) {
        return by_error_set(error, BY_EARG, "gradients: the loss does not depend on parameter '%s'",
                            graph->values[v].name);
    }
    const by__graph_value *have = &graph->values[gradient];
    if (have->role != BY_ROLE_ACTIVATION || have->dtype != BY_F32 || have->producer < 0) {
        gradient = by_cast(graph, gradient, BY_F32);
    }
    return name_gradient(graph, v, gradient, error);
}

/* Publishes the increment of a statistic as its gradient. A copy of it belongs to the backward
 * pass, which writes gradients. */
static by_status publish_increment(by_graph *graph, by_value v, by_error *error)
{
    char *name;
    by_string text = {0};
    by_string_format(&text, "increment.%s", graph->values[v].name);
    BY_TRY(by__string_release(&text, &name, error));
    by_value increment = by_graph_find(graph, name);
    free(name);
    if (increment == BY_NONE) {
        return graph->values[v].frozen
                   ? BY_OK
                   : by_error_set(error, BY_EARG, "gradients: nothing updates the statistic '%s'",
                                  graph->values[v].name);
    }
    graph->values[increment].role = BY_ROLE_ACTIVATION;
    if (graph->values[v].frozen) {
        return BY_OK;
    }
    by_graph_set_block(graph, graph->nodes[graph->values[increment].producer].block);
    return name_gradient(graph, v, by_cast(graph, increment, BY_F32), error);
}

static by_status differentiate(backward_pass *b, by_value loss, by_value seed, size_t values,
                               by_error *error)
{
    by_graph *graph = b->graph;
    graph->phase = BY__BACKWARD;
    b->gradient[loss] = seed;
    for (size_t n = graph->node_count; n-- > 0;) {
        BY_TRY(differentiate_node(b, n, error));
    }
    by_graph_set_block(graph, -1);
    for (size_t v = 0; v < values; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role == BY_ROLE_PARAMETER && value->statistic) {
            BY_TRY(publish_increment(graph, (by_value)v, error));
        } else if (value->role == BY_ROLE_PARAMETER && !value->frozen) {
            BY_TRY(publish(b, (by_value)v, error));
        }
    }
    by_graph_set_block(graph, -1);
    return by__pass_graph_prune(graph, error);
}

by_status by_pass_gradients(by_graph *graph, by_value loss, by_value seed, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (!by__graph_has(graph, loss) || !by__graph_has(graph, seed) ||
        by_shape_count(&graph->values[loss].shape) != 1 ||
        !by_shape_equal(&graph->values[loss].shape, &graph->values[seed].shape) ||
        graph->values[loss].dtype != BY_F32 || graph->values[seed].dtype != BY_F32) {
        return by_error_set(error, BY_EARG,
                            "gradients: loss and seed must be single f32 values of one shape");
    }
    size_t values = graph->value_count;
    backward_pass b = {.graph = graph};
    by_status status =
        by__alloc((void **)&b.gradient, values, sizeof *b.gradient, "gradients", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&b.needed, values, sizeof *b.needed, "gradients", error);
    }
    if (status == BY_OK) {
        for (size_t v = 0; v < values; v++) {
            b.gradient[v] = BY_NONE;
        }
        by__pass_gradients_needed(graph, false, b.needed);
        status = differentiate(&b, loss, seed, values, error);
    }
    free(b.gradient);
    free(b.needed);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    by_value seed = by_graph_input(graph, "loss_scale", BY_F32, BY_SHAPE(1));
    return by_pass_gradients(graph, options->loss, seed, error);
}

const by__pass by__pass_gradients = {.name = "gradients",
                                     .summary = "backward pass, \"grad.NAME\" for each parameter",
                                     .purposes = BY_PURPOSE_TRAIN,
                                     .apply = apply};
