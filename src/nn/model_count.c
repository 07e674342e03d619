/* Numbers of parameters of a model: all, those in products of an example, and those trained. */
#include <stdlib.h>

#include "nn/nn.h"

/* For each value, computes the fraction of it that products of one example multiply. */
static by_status share_in_products(double *share, const by_graph *graph, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        by__graph_type *in;
        if (row->factors == 0) {
            continue;
        }
        BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "count", error));
        by__op_node_types(graph, node, in);
        for (int i = 0; i < node->input_count; i++) {
            const by__graph_value *value =
                node->in[i] == BY_NONE ? NULL : &graph->values[node->in[i]];
            if (value != NULL && value->part_count > 0) {
                in[i].shape = value->whole;
            }
        }
        by__op_signature s = {node->op, &node->attrs, in, node->input_count};
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] != BY_NONE && by__mask_has(row->factors, i)) {
                share[node->in[i]] = row->used_share == NULL ? 1.0 : row->used_share(&s, i);
            }
        }
        free(in);
    }
    /* A weight may be reshaped, or assembled from several, before it is multiplied. */
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__graph_node *node = &graph->nodes[n];
        double moved = by__op_row_of(node->op)->moves ? share[node->out[0]] : 0.0;
        for (int i = 0; i < node->input_count && moved > 0.0; i++) {
            share[node->in[i]] = moved;
        }
    }
    return BY_OK;
}

by_status by__nn_model_count(by__nn_parameter_count *out, const by_graph *graph, by_error *error)
{
    double *share;
    by__nn_parameter_count n = {0};
    BY_TRY(by__alloc((void **)&share, graph->value_count, sizeof *share, "count", error));
    by_status status = share_in_products(share, graph, error);
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->role == BY_ROLE_PARAMETER) {
            int64_t count = by__graph_value_elements(value);
            n.all += count;
            n.in_products +=
                value->shape.rank < 2 ? count : (int64_t)((double)count * share[v] + 0.5);
            n.trained += value->frozen ? 0 : count;
        }
    }
    free(share);
    BY_TRY(status);
    *out = n;
    return BY_OK;
}

by_status by_model_count(const by_graph *graph, int64_t *parameters, int64_t *in_products,
                         by_error *error)
{
    by__nn_parameter_count count;
    BY_TRY(by__nn_model_count(&count, graph, error));
    *parameters = count.all;
    *in_products = count.in_products;
    return BY_OK;
}
