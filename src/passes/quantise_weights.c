/* Quantisation-aware training: makes products read their weights rounded as codes would be. */
#include <stdlib.h>

#include "passes/passes.h"

/* Returns the fake-quantised version of a weight, made once. */
static by_value quantised(by_graph *graph, by_value weight, const by__op_packed_reader *reader,
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

/* Makes node n read its weight quantised, if it is that of a layer inside a block. */
static by_status change_node(by_graph *graph, size_t n, const by_fake_quantize_options *options,
                             by_value *made, by_error *error)
{
    int operand;
    by__op_packed_reader reader;
    const by__graph_node *node = &graph->nodes[n];
    BY_TRY(by__op_node_weight(&reader, &operand, graph, node, error));
    if (operand >= 0 && node->block >= 0 && !graph->values[node->in[operand]].frozen) {
        by_graph_set_block(graph, node->block);
        by_value y = quantised(graph, node->in[operand], &reader, options, made);
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
