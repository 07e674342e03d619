/* The work of a graph: what each node computes, and what it exchanges with other ranks. */
#include <stdlib.h>

#include "ops/ops.h"
#include "plan/layout/layout.h"

void by__layout_work_free(by__layout_work *work)
{
    free(work->items);
    *work = (by__layout_work){0};
}

/* The dtype that a node computes in: that of its first floating-point operand. */
static by_dtype dtype_of(const by_graph *graph, const by__graph_node *node)
{
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] != BY_NONE && by__op_is_act(graph->values[node->in[i]].dtype)) {
            return graph->values[node->in[i]].dtype;
        }
    }
    return BY_F32;
}

static double bytes_of(const by_graph *graph, by_value value)
{
    return (double)by__graph_value_bytes(&graph->values[value]);
}

static double input_bytes(const by_graph *graph, const by__graph_node *node)
{
    double bytes = 0.0;
    for (int i = 0; i < node->input_count; i++) {
        bytes += node->in[i] == BY_NONE ? 0.0 : bytes_of(graph, node->in[i]);
    }
    return bytes;
}

static by_layout_part part_of_axes(unsigned mesh)
{
    return (mesh >> BY_MESH_TENSOR & 1u) != 0     ? BY_LAYOUT_TENSOR
           : (mesh >> BY_MESH_EXPERT & 1u) != 0   ? BY_LAYOUT_EXPERT
           : (mesh >> BY_MESH_SEQUENCE & 1u) != 0 ? BY_LAYOUT_SEQUENCE
                                                  : BY_LAYOUT_GRADIENTS;
}

static void describe_exchange(by__layout_item *item, const by_graph *graph,
                              const by__graph_node *node, by__op_exchange kind, bool scatters)
{
    double in = input_bytes(graph, node);
    double out = bytes_of(graph, node->out[0]);
    item->kind = BY__LAYOUT_STARTS;
    item->mesh = node->attrs.mesh;
    item->ranks = (double)node->attrs.ranks;
    item->part = part_of_axes(item->mesh);
    item->payload = in;
    switch (kind) {
    case BY__OP_EXCHANGE_SCATTER:
        item->exchange = BY_EXCHANGE_REDUCE_SCATTER;
        break;
    case BY__OP_EXCHANGE_GATHER:
        item->exchange = BY_EXCHANGE_ALL_GATHER;
        item->payload = out;
        break;
    case BY__OP_EXCHANGE_SWAP:
        item->exchange = BY_EXCHANGE_ALL_TO_ALL;
        break;
    case BY__OP_EXCHANGE_SHIFT:
        item->exchange = BY_EXCHANGE_SHIFT;
        break;
    case BY__OP_EXCHANGE_GRADIENTS:
        item->exchange = scatters ? BY_EXCHANGE_REDUCE_SCATTER : BY_EXCHANGE_ALL_REDUCE;
        item->payload = node->attrs.rows > 0 ? 4.0 * (double)node->attrs.rows : in;
        item->part = BY_LAYOUT_GRADIENTS;
        break;
    case BY__OP_EXCHANGE_PARAMETER:
        item->exchange = BY_EXCHANGE_ALL_GATHER;
        item->payload = out;
        item->part = BY_LAYOUT_WEIGHTS;
        break;
    default:
        item->exchange = BY_EXCHANGE_ALL_REDUCE;
        break;
    }
}

static by_status describe(by__layout_item *item, const by_graph *graph, size_t n, bool scatters,
                          by_layout_part part, by_error *error)
{
    const by__graph_node *node = &graph->nodes[n];
    const by__op_row *row = by__op_row_of(node->op);
    by__op_cost cost;
    if (row->communicates) {
        describe_exchange(item, graph, node, row->exchange, scatters);
        return BY_OK;
    }
    BY_TRY(by__op_node_cost(graph, n, &cost, error));
    item->flops = cost.flops;
    item->bytes = cost.bytes_read + cost.bytes_written;
    item->scores = cost.scores;
    item->dtype = dtype_of(graph, node);
    bool attends = row->attention != NULL || cost.scores > 0.0;
    item->part = part != BY_LAYOUT_PARTS ? part
                 : attends               ? BY_LAYOUT_ATTENTION
                 : node->block < 0       ? BY_LAYOUT_ENDS
                 : row->factors != 0     ? BY_LAYOUT_PRODUCTS
                                         : BY_LAYOUT_OTHER;
    return BY_OK;
}

by_status by__layout_graph_work(by__layout_work *out, const by_graph *graph, bool scatters,
                                by_layout_part part, by_error *error)
{
    by__layout_work w = {0};
    size_t *item_of = NULL;
    BY_TRY(by__alloc((void **)&w.items, graph->node_count + 1, sizeof *w.items, "work", error));
    by_status status =
        by__alloc((void **)&item_of, graph->node_count + 1, sizeof *item_of, "work", error);
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        const by__graph_node *node = &graph->nodes[n];
        const by__op_row *row = by__op_row_of(node->op);
        by__layout_item *item = &w.items[w.count];
        item_of[n] = w.count;
        item->block = node->block;
        item->backward = node->phase == BY__BACKWARD;
        if (row->waits) {
            int producer = graph->values[node->in[0]].producer;
            item->kind = BY__LAYOUT_WAITS;
            item->start = producer < 0 ? w.count : item_of[producer];
            w.count++;
        } else if (!row->view) {
            status = describe(item, graph, n, scatters, part, error);
            w.count++;
        }
    }
    free(item_of);
    if (status != BY_OK) {
        by__layout_work_free(&w);
        return status;
    }
    *out = w;
    return BY_OK;
}
