#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

static by_status check_operand(const by_graph *graph, size_t n, int i, const bool *defined,
                               by_error *error)
{
    const by__graph_node *node = &graph->nodes[n];
    by_value value = node->in[i];
    if (value == BY_NONE) {
        return BY_OK; /* the shape rule decides whether it may be absent */
    }
    if (!by__graph_has(graph, value)) {
        return by_error_set(error, BY_ESTATE,
                            "graph: node %zu (%s) reads value %d, which does not exist", n,
                            by_op_name(node->op), (int)value);
    }
    if (!defined[value]) {
        return by_error_set(error, BY_ESTATE, "graph: node %zu (%s) reads %%%d before it is made",
                            n, by_op_name(node->op), (int)value);
    }
    if (by__mask_has(by__op_mutates(node->op, &node->attrs), i) &&
        !by__role_is_external(graph->values[value].role)) {
        return by_error_set(error, BY_ESTATE,
                            "graph: node %zu (%s) updates %%%d in place, which is not external", n,
                            by_op_name(node->op), (int)value);
    }
    return BY_OK;
}

static by_status check_outputs(const by_graph *graph, size_t n, bool *defined, by_error *error)
{
    const by__graph_node *node = &graph->nodes[n];
    by__graph_type out[BY_MAX_OUTPUTS];
    by__graph_type *in;
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__op_node_types(graph, node, in);
    by__op_signature s = {node->op, &node->attrs, in, node->input_count};
    by_status status = by__op_infer(&s, out, error);
    free(in);
    BY_TRY(status);
    for (int i = 0; i < node->output_count; i++) {
        by_value value = node->out[i];
        if (value == BY_NONE) {
            continue;
        }
        if (!by__graph_has(graph, value)) {
            return by_error_set(error, BY_ESTATE,
                                "graph: node %zu (%s) makes value %d, which does not exist", n,
                                by_op_name(node->op), (int)value);
        }
        const by__graph_value *v = &graph->values[value];
        by__graph_type have = {v->dtype, v->shape};
        if (by__absent(&out[i]) || !by__op_type_equal(&have, &out[i]) || defined[value] ||
            v->producer != (int)n) {
            return by_error_set(
                error, BY_ESTATE,
                "graph: output %d of node %zu (%s) is %%%d, which has another type, "
                "another producer or is made twice",
                i, n, by_op_name(node->op), (int)value);
        }
        defined[value] = true;
    }
    return BY_OK;
}

static bool is_leaf(by_role role)
{
    return role == BY_ROLE_INPUT || role == BY_ROLE_PARAMETER || role == BY_ROLE_STATE;
}

/* State of walks over the nodes that feed a node. */
typedef struct feeders {
    size_t *mark; /* of each node: the number of the last walk that reached it */
    size_t *stack;
    size_t walks;
} feeders;

/* Counts how often node n and the nodes that feed it read `value`. */
static int count_reads(feeders *f, const by_graph *graph, size_t n, by_value value)
{
    size_t *stack = f->stack;
    size_t *mark = f->mark;
    size_t height = 0;
    size_t walk = ++f->walks;
    int reads = 0;
    mark[n] = walk;
    stack[height++] = n;
    while (height > 0) {
        const by__graph_node *node = &graph->nodes[stack[--height]];
        for (int i = 0; i < node->input_count; i++) {
            int producer = node->in[i] == BY_NONE ? -1 : graph->values[node->in[i]].producer;
            reads += node->in[i] == value;
            if (producer >= 0 && mark[producer] != walk) {
                mark[producer] = walk;
                stack[height++] = (size_t)producer;
            }
        }
    }
    return reads;
}

static bool reads_once(const by__graph_node *node, by_value value)
{
    int reads = 0;
    for (int i = 0; i < node->input_count; i++) {
        reads += node->in[i] == value;
    }
    return reads == 1;
}

/* A value that is updated in place may be read only by the updating node, once, and by nodes that
 * feed it: these come before the update in every valid order of the nodes. */
static by_status check_updates(const by_graph *graph, const int *uses, feeders *f, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        uint32_t mutates = by__op_mutates(node->op, &node->attrs);
        for (int i = 0; i < node->input_count; i++) {
            by_value value = node->in[i];
            if (!by__mask_has(mutates, i) || uses[value] == 1) {
                continue;
            }
            if (!reads_once(node, value) || count_reads(f, graph, n, value) != uses[value]) {
                return by_error_set(
                    error, BY_ESTATE,
                    "graph: node %zu (%s) updates '%s' in place, which is read elsewhere", n,
                    by_op_name(node->op), graph->values[value].name);
            }
        }
    }
    return BY_OK;
}

/* ---- collectives: results need a wait node, and operands must live until it ---- */

/* Returns the node that makes a value if it is a collective, else NULL. */
static const by__graph_node *collective_of(const by_graph *graph, by_value value)
{
    int producer = value == BY_NONE ? -1 : graph->values[value].producer;
    const by__graph_node *node = producer < 0 ? NULL : &graph->nodes[producer];
    return node != NULL && by__op_row_of(node->op)->communicates ? node : NULL;
}

static by_status check_wait(const by_graph *graph, size_t n, by_error *error)
{
    const by__graph_node *node = &graph->nodes[n];
    const by__graph_node *collective = collective_of(graph, node->in[0]);
    if (collective == NULL) {
        return by_error_set(error, BY_ESTATE,
                            "graph: node %zu (%s) waits for %%%d, which is no collective's result",
                            n, by_op_name(node->op), (int)node->in[0]);
    }
    for (int i = 0; i < collective->input_count; i++) {
        by_value value = collective->in[i];
        if (value != BY_NONE && !by__role_is_external(graph->values[value].role) &&
            !by__node_reads(node, value)) {
            return by_error_set(error, BY_ESTATE,
                                "graph: node %zu (%s) does not keep %%%d, which the %s that it "
                                "waits for reads",
                                n, by_op_name(node->op), (int)value, by_op_name(collective->op));
        }
    }
    return BY_OK;
}

static by_status check_collectives(const by_graph *graph, bool *waited, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        if (row->waits) {
            BY_TRY(check_wait(graph, n, error));
            waited[node->in[0]] = true;
        }
        for (int i = row->waits ? 1 : 0; i < node->input_count; i++) {
            if (collective_of(graph, node->in[i]) != NULL) {
                return by_error_set(error, BY_ESTATE,
                                    "graph: node %zu (%s) reads %%%d, which was not waited for", n,
                                    by_op_name(node->op), (int)node->in[i]);
            }
        }
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (by__op_row_of(node->op)->communicates && !waited[node->out[0]]) {
            return by_error_set(error, BY_ESTATE, "graph: nothing waits for node %zu (%s)", n,
                                by_op_name(node->op));
        }
    }
    return BY_OK;
}

/* Checks values after all nodes were seen: every result was made, and names are unique. */
static by_status check_values(const by_graph *graph, const bool *defined, by__name_table *names,
                              by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (by__role_is_external(value->role) && !defined[v]) {
            return by_error_set(error, BY_ESTATE, "graph: nothing makes '%s'", value->name);
        }
        if (value->name == NULL) {
            continue;
        }
        if (by__name_table_find(names, value->name) >= 0) {
            return by_error_set(error, BY_ESTATE, "graph: two values are named '%s'", value->name);
        }
        BY_TRY(by__name_table_add(names, value->name, (int32_t)v, error));
    }
    return BY_OK;
}

static by_status check_nodes(const by_graph *graph, bool *defined, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        defined[v] = graph->values[v].producer < 0 && is_leaf(graph->values[v].role);
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        if (by__op_row_of(node->op) == NULL ||
            node->output_count > by__op_row_of(node->op)->outputs) {
            return by_error_set(error, BY_ESTATE, "graph: node %zu has no valid operation", n);
        }
        for (int i = 0; i < node->input_count; i++) {
            BY_TRY(check_operand(graph, n, i, defined, error));
        }
        BY_TRY(check_outputs(graph, n, defined, error));
    }
    return BY_OK;
}

by_status by_graph_verify(const by_graph *graph, by_error *error)
{
    bool *defined;
    int *uses = NULL;
    feeders f = {0};
    by__name_table names = {0};
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(by__alloc((void **)&defined, graph->value_count, sizeof *defined, "verify", error));
    by_status status = check_nodes(graph, defined, error);
    if (status == BY_OK) {
        status = check_values(graph, defined, &names, error);
    }
    if (status == BY_OK) {
        status = by__graph_uses(graph, &uses, error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&f.mark, graph->node_count, sizeof *f.mark, "verify", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&f.stack, graph->node_count, sizeof *f.stack, "verify", error);
    }
    if (status == BY_OK) {
        status = check_updates(graph, uses, &f, error);
    }
    if (status == BY_OK) {
        memset(defined, 0, graph->value_count * sizeof *defined);
        status = check_collectives(graph, defined, error);
    }
    by__name_table_free(&names);
    free(f.mark);
    free(f.stack);
    free(uses);
    free(defined);
    return status;
}
