/* The table of all rows, and what other modules ask of a node by its row. */
#include <stdlib.h>

#include "ops/ops.h"

#define ROW(NAME, name) [BY_OP_##NAME] = &by__op_##name,
static const by__op_row *const rows[BY_OP_COUNT] = {BY_OPS(ROW)};

by_status by_graph_open(by_graph **out, by_error *error)
{
    return by__graph_open(out, rows, error);
}

const by__op_row *by__op_row_of(by_op op)
{
    return (unsigned)op < BY_OP_COUNT ? rows[op] : NULL;
}

by_status by__op_infer(const by__op_signature *s, by__graph_type out[BY_MAX_OUTPUTS],
                       by_error *error)
{
    return by__op_row_infer(by__op_row_of(s->op), s, out, error);
}

uint32_t by__op_mutates(by_op op, const by_attrs *attrs)
{
    return by__op_row_mutates(by__op_row_of(op), attrs);
}

bool by__op_carries(const by_graph *graph, by_value v)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        for (int i = 0; i < node->input_count; i++) {
            if (by__mask_has(row->carries, i) && (v == BY_NONE || node->in[i] == v)) {
                return true;
            }
        }
    }
    return false;
}

bool by__op_node_has_effects(const by__graph_node *node)
{
    const by__op_row *row = by__op_row_of(node->op);
    return row->communicates || row->waits || by__op_mutates(node->op, &node->attrs) != 0;
}

/* Types of a node's outputs. */
static void output_types(const by_graph *graph, const by__graph_node *node, by__graph_type *out)
{
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        out[i] = (by__graph_type){.dtype = BY_F32, .shape = {.rank = -1}};
        if (i < node->output_count && node->out[i] != BY_NONE) {
            const by__graph_value *value = &graph->values[node->out[i]];
            out[i] = (by__graph_type){value->dtype, value->shape};
        }
    }
}

by_status by__op_node_cost(const by_graph *graph, size_t n, by__op_cost *out, by_error *error)
{
    const by__graph_node *node = &graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    by__graph_type *in;
    by__graph_type types[BY_MAX_OUTPUTS];
    by__op_cost cost = {0};
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__op_node_types(graph, node, in);
    output_types(graph, node, types);
    uint32_t mutates = by__op_mutates(node->op, &node->attrs);
    for (int i = 0; i < node->input_count; i++) {
        cost.bytes_read += by__op_type_bytes(&in[i]);
        cost.bytes_written += by__mask_has(mutates, i) ? by__op_type_bytes(&in[i]) : 0.0;
    }
    for (int i = 0; i < node->output_count; i++) {
        cost.bytes_written += by__op_type_bytes(&types[i]);
    }
    const by__graph_type *main_type =
        node->output_count > 0 && !by__absent(&types[0]) ? &types[0] : &in[0];
    cost.flops = (double)by_shape_count(&main_type->shape);
    if (row->cost != NULL) {
        by__op_signature s = {node->op, &node->attrs, in, node->input_count};
        row->cost(&s, types, &cost);
    }
    free(in);
    *out = cost;
    return BY_OK;
}

by_status by__op_node_attention(const by_graph *graph, size_t n, by__op_attention_cost *out,
                                by_error *error)
{
    const by__graph_node *node = &graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    by__graph_type *in;
    by__graph_type types[BY_MAX_OUTPUTS];
    *out = (by__op_attention_cost){0};
    if (row->attention == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__op_node_types(graph, node, in);
    output_types(graph, node, types);
    by__op_signature s = {node->op, &node->attrs, in, node->input_count};
    row->attention(&s, types, out);
    free(in);
    return BY_OK;
}

by_status by__op_node_pack(by__op_packed_reader *out, bool *can, const by_graph *graph,
                           const by__graph_node *node, int i, by_error *error)
{
    const by__op_row *row = by__op_row_of(node->op);
    by__graph_type *in;
    *can = false;
    *out = (by__op_packed_reader){0};
    if (row->pack == NULL) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "packing", error));
    by__op_node_types(graph, node, in);
    by__op_signature s = {node->op, &node->attrs, in, node->input_count};
    *can = row->pack(&s, i, out);
    out->share = row->used_share == NULL ? 1.0 : row->used_share(&s, i);
    free(in);
    return BY_OK;
}

by_status by__op_node_weight(by__op_packed_reader *out, int *operand, const by_graph *graph,
                             const by__graph_node *node, by_error *error)
{
    *operand = -1;
    for (int i = 0; i < node->input_count && *operand < 0; i++) {
        bool can = false;
        if (node->in[i] != BY_NONE && graph->values[node->in[i]].role == BY_ROLE_PARAMETER &&
            by__mask_has(by__op_row_of(node->op)->factors, i)) {
            BY_TRY(by__op_node_pack(out, &can, graph, node, i, error));
        }
        *operand = can ? i : -1;
    }
    return BY_OK;
}
