#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

static by_status clone_value(by_graph *graph, const by__graph_value *source, by_error *error)
{
    by__graph_value value = *source;
    value.name = source->name == NULL ? NULL : by__strdup(source->name);
    value.axes = source->axes == NULL ? NULL : by__strdup(source->axes);
    bool whole = (value.name != NULL) == (source->name != NULL) &&
                 (value.axes != NULL) == (source->axes != NULL);
    by_status status =
        whole ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: the copy of a graph");
    if (status == BY_OK && value.name != NULL) {
        status = by__name_table_add(&graph->names, value.name, (int32_t)graph->value_count, error);
    }
    if (status != BY_OK) {
        free(value.name);
        free(value.axes);
        return status;
    }
    graph->values[graph->value_count++] = value;
    return BY_OK;
}

static by_status clone_node(by_graph *graph, const by__graph_node *source, by_error *error)
{
    by__graph_node node = *source;
    size_t count = (size_t)source->input_count;
    BY_TRY(by__alloc((void **)&node.in, count + 1, sizeof *node.in, "operands", error));
    if (count > 0) {
        memcpy(node.in, source->in, count * sizeof *node.in);
    }
    graph->nodes[graph->node_count++] = node;
    return BY_OK;
}

by_status by__graph_clone(by_graph **out, const by_graph *source, by_error *error)
{
    by_graph *graph;
    BY_TRY(by__graph_open(&graph, source->rows, error));
    by_status status = by__reserve((void **)&graph->values, &graph->value_capacity,
                                   source->value_count, sizeof *graph->values, error);
    if (status == BY_OK) {
        status = by__reserve((void **)&graph->nodes, &graph->node_capacity, source->node_count,
                             sizeof *graph->nodes, error);
    }
    for (size_t v = 0; v < source->value_count && status == BY_OK; v++) {
        status = clone_value(graph, &source->values[v], error);
    }
    for (size_t n = 0; n < source->node_count && status == BY_OK; n++) {
        status = clone_node(graph, &source->nodes[n], error);
    }
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    graph->block = source->block;
    graph->phase = source->phase;
    *out = graph;
    return BY_OK;
}
