/* Quantisation-aware training: makes products read their weights rounded as codes would be. */
#include <stdlib.h>

#include "passes/passes.h"

/* Finds the operand of a node that is the weight of a layer inside a block, and the node that would
 * read it packed. *operand is -1 if there is none. */
static by_status find_weight(int *operand, by__packed_reader *reader, const by_graph *graph,
                             const by__node *node, by_error *error)
{
    const by__op_row *row = by__op_row_of(node->op);
    by__type *in;
    *operand = -1;
    if (row->pack == NULL || node->block < 0) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "weights", error));
    by__node_types(graph, node, in);
    by__signature s = {node->op, &node->attrs, in, node->input_count};
    for (int i = 0; i < node->input_count && *operand < 0; i++) {
        const by__value *value = node->in[i] == BY_NONE ? NULL : &graph->values[node->in[i]];
        bool is_weight = value != NULL && value->role == BY_ROLE_PARAMETER && !value->frozen &&
                         by__mask_has(row->factors, i);
        *reader = (by__packed_reader){0};
        *operand = is_weight && row->pack(&s, i, reader) ? i : -1;
    }
    free(in);
    return BY_OK;
}

/* Returns the fake-quantised version of a weight, made once. */
static by_value quantised(by_graph *graph, by_value weight, const by__packed_reader *reader,
                          const by_fake_quantize_options *options, by_value *made)
{
    by_packing packing = reader->attrs.packing;
    packing.kind = options->kind;
    packing.dtype = BY_F32;
    packing.group = options->kind == BY_PACKING_INT4 ? options->group : 0;
    if (made[weight] == BY_NONE) {
        made[weight] = by_fake_quantize(graph, weight, &packing, reader->out_in);
    }
    return made[weight];
}

/* Makes node n read its weight quantised. */
static by_status change_node(by_graph *graph, size_t n, const by_fake_quantize_options *options,
                             by_value *made, by_error *error)
{
    int operand;
    by__packed_reader reader;
    BY_TRY(find_weight(&operand, &reader, graph, &graph->nodes[n], error));
    if (operand >= 0) {
        by_graph_set_block(graph, graph->nodes[n].block);
        by_value y = quantised(graph, graph->nodes[n].in[operand], &reader, options, made);
        graph->nodes[n].in[operand] = y; /* adding nodes may have moved the array */
    }
    return BY_OK;
}

by_status by_pass_fake_quantize(by_graph *graph, const by_fake_quantize_options *options,
                                by_error *error)
{
    by_value *made;
    size_t nodes = graph->node_count;
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(by__alloc((void **)&made, graph->value_count, sizeof *made, "weights", error));
    for (size_t v = 0; v < graph->value_count; v++) {
        made[v] = BY_NONE;
    }
    by_status status = BY_OK;
    for (size_t n = 0; n < nodes && status == BY_OK; n++) {
        status = change_node(graph, n, options, made, error);
    }
    by_graph_set_block(graph, -1);
    free(made);
    BY_TRY(status);
    BY_TRY(by_graph_check(graph, error));
    return by__graph_sort(graph, error);
}
