#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

static by_status check_operand(const by_graph *graph, size_t n, int i, const bool *defined,
                               by_error *error)
{
    const by__node *node = &graph->nodes[n];
    by_value value = node->in[i];
    if (value == BY_NONE) {
        return BY_OK;
    }
    if (!by__graph_has(graph, value)) {
        return by_error_set(error, BY_ESTATE, "graph: node %zu (%s) reads value %d, which does not exist",
                            n, by_op_name(node->op), (int)value);
    }
    if (!defined[value]) {
        return by_error_set(error, BY_ESTATE, "graph: node %zu (%s) reads %%%d before it is made", n,
                            by_op_name(node->op), (int)value);
    }
    if ((by__op_row_of(node->op)->mutates >> i & 1u) != 0 && graph->values[value].producer >= 0) {
        return by_error_set(error, BY_ESTATE,
                            "graph: node %zu (%s) updates %%%d in place, which is not from outside", n,
                            by_op_name(node->op), (int)value);
    }
    return BY_OK;
}

static by_status check_outputs(const by_graph *graph, size_t n, bool *defined, by_error *error)
{
    const by__node *node = &graph->nodes[n];
    by__type out[BY_MAX_OUTPUTS];
    by__type *in;
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__node_types(graph, node, in);
    by__signature s = {node->op, &node->attrs, in, node->input_count};
    by_status status = by__op_infer(&s, out, error);
    free(in);
    BY_TRY(status);
    for (int i = 0; i < node->output_count; i++) {
        by_value value = node->out[i];
        if (value == BY_NONE) {
            continue;
        }
        const by__value *v = &graph->values[value];
        by__type have = {v->dtype, v->shape};
        if (by__absent(&out[i]) || !by__type_equal(&have, &out[i]) || defined[value] ||
            v->producer != (int)n) {
            return by_error_set(error, BY_ESTATE,
                                "graph: output %d of node %zu (%s) is %%%d, which has another type, "
                                "another producer or is made twice",
                                i, n, by_op_name(node->op), (int)value);
        }
        defined[value] = true;
    }
    return BY_OK;
}

by_status by_graph_verify(const by_graph *graph, by_error *error)
{
    bool *defined;
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(by__alloc((void **)&defined, graph->value_count, sizeof *defined, "verify", error));
    by_status status = BY_OK;
    for (size_t v = 0; v < graph->value_count; v++) {
        defined[v] = graph->values[v].producer < 0 && by__role_is_external(graph->values[v].role);
    }
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        for (int i = 0; i < graph->nodes[n].input_count && status == BY_OK; i++) {
            status = check_operand(graph, n, i, defined, error);
        }
        if (status == BY_OK) {
            status = check_outputs(graph, n, defined, error);
        }
    }
    free(defined);
    return status;
}
