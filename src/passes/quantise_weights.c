/* Quantisation-aware training: makes products read their weights rounded as codes would be. */
#include <stdlib.h>

#include "passes/passes.h"

/* Returns true if operand 1 of node n is the weight of a layer inside a block, and how it is
 * stored. */
static bool is_layer(bool *out_in, const by_graph *graph, const by__node *node)
{
    const by__op_row *row = by__op_row_of(node->op);
    if (row->transposed == NULL || node->attrs.trans_a || node->block < 0) {
        return false;
    }
    const by__value *weight = &graph->values[node->in[row->weight]];
    *out_in = *(const bool *)by__attr_value(&node->attrs, row->transposed);
    return weight->role == BY_ROLE_PARAMETER && weight->shape.rank == 2 && !weight->frozen;
}

/* Returns the fake-quantised version of a weight, made once. */
static by_value quantised(by_graph *graph, by_value weight, bool out_in,
                          const by_fake_quantize_options *options, by_value *made)
{
    const by_shape *shape = &graph->values[weight].shape;
    const by_packing packing = {.kind = options->kind,
                                .dtype = BY_F32,
                                .n = shape->dim[out_in ? 0 : 1],
                                .k = shape->dim[out_in ? 1 : 0],
                                .group = options->kind == BY_PACKING_INT4 ? options->group : 0};
    if (made[weight] == BY_NONE) {
        made[weight] = by_fake_quantize(graph, weight, &packing, out_in);
    }
    return made[weight];
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
    for (size_t n = 0; n < nodes; n++) {
        bool out_in;
        if (is_layer(&out_in, graph, &graph->nodes[n])) {
            int weight = by__op_row_of(graph->nodes[n].op)->weight;
            by_graph_set_block(graph, graph->nodes[n].block);
            by_value y = quantised(graph, graph->nodes[n].in[weight], out_in, options, made);
            graph->nodes[n].in[weight] = y; /* adding nodes may have moved the array */
        }
    }
    by_graph_set_block(graph, -1);
    free(made);
    BY_TRY(by_graph_check(graph, error));
    return by__graph_sort(graph, error);
}
