#include "export/onnx_graphs.h"

#include <stdlib.h>
#include <string.h>

#include "nn/nn.h"

bool by__export_onnx_graphs_reads(const by_model_config *config)
{
    return strcmp(by_model_reads(config), "nodes") == 0;
}

/* The inputs of the ONNX graph, by number. */
enum { FEATURES, OFFSETS, SOURCES, NODES, INPUTS };

static int column(by__op_onnx *o, int x)
{
    return by__op_onnx_reshape(o, x, (const int64_t[]){1, -1, 1}, 3);
}

/* 1 / degree, or 1 / sqrt(degree); 0 for a node in which no edge ends. */
static int of_degrees(by__op_onnx *o, bool root)
{
    const int64_t bounds[3] = {0, 1, INT64_MAX};
    int list[3];
    for (int i = 0; i < 3; i++) {
        list[i] = by__op_onnx_list(o, &bounds[i], 1);
    }
    const int late[4] = {OFFSETS, list[1], list[2], list[0]};
    int ends = o->node(o, "Slice", late, 4, 1);
    int last = by__op_onnx_list(o, (const int64_t[]){-1}, 1);
    const int early[4] = {OFFSETS, list[0], last, list[0]};
    int degree = by__op_onnx_node2(o, "Sub", ends, o->node(o, "Slice", early, 4, 1));
    int none = by__op_onnx_node2(o, "Equal", degree, list[0]);
    degree = by__op_onnx_node1(o, "Cast", degree);
    o->set_int(o, "to", BY__ONNX_FLOAT);
    degree = root ? by__op_onnx_node1(o, "Sqrt", degree) : degree;
    int inverse = by__op_onnx_node1(o, "Reciprocal", degree);
    inverse = by__op_onnx_node3(o, "Where", none, by__op_onnx_float(o, 0.0f), inverse);
    return column(o, inverse);
}

/* The value that an input of the model is; -1: none, which only gradients read. */
static int value_of(by__op_onnx *o, const by__graph_value *v)
{
    if (strcmp(v->name, "nodes.x") == 0) {
        return by__op_onnx_reshape(o, FEATURES, (const int64_t[]){1, -1, v->shape.dim[2]}, 3);
    }
    if (strcmp(v->name, "nodes.inverse_root") == 0) {
        return of_degrees(o, true);
    }
    if (strcmp(v->name, "nodes.inverse_degree") == 0) {
        return of_degrees(o, false);
    }
    return strcmp(v->name, "edges.offsets") == 0   ? OFFSETS
           : strcmp(v->name, "edges.sources") == 0 ? SOURCES
           : strcmp(v->name, "ids") == 0           ? NODES
                                                   : -1;
}

by_status by__export_onnx_graphs_inputs(by__export_onnx_writer *w, const by_graph *graph,
                                        char **names, by_error *error)
{
    const char *in[INPUTS] = {"features", "offsets", "sources", "nodes"};
    by_value x = by_graph_find(graph, "nodes.x");
    if (x == BY_NONE) {
        return by_error_set(error, BY_EFORMAT, "the model has no features of nodes");
    }
    if (by_graph_find(graph, "relations.offsets") != BY_NONE) {
        return by_error_set(error, BY_EFORMAT, "models of relations are not written as ONNX");
    }
    const by__export_onnx_axis axes[2] = {{0, "nodes"}, {graph->values[x].shape.dim[2], NULL}};
    const by__export_onnx_axis lists[INPUTS] = {
        [OFFSETS] = {0, "nodes_and_one"}, [SOURCES] = {0, "edges"}, [NODES] = {0, "targets"}};
    by__export_onnx_writer_port(w, 11, in[FEATURES], BY__ONNX_FLOAT, axes, 2);
    for (int i = OFFSETS; i < INPUTS; i++) {
        by__export_onnx_writer_port(w, 11, in[i], BY__ONNX_INT64, &lists[i], 1);
    }
    for (size_t i = 0; i < graph->value_count; i++) {
        const by__graph_value *v = &graph->values[i];
        if (v->role != BY_ROLE_INPUT) {
            continue;
        }
        by__export_onnx_writer_node(w, in, INPUTS, NULL);
        int value = value_of(&w->rows, v);
        by__export_onnx_writer_end(w);
        if (value < 0) {
            continue;
        }
        free(names[i]);
        names[i] = by__strdup(value < INPUTS ? in[value] : by__export_onnx_writer_name(w, value));
        if (names[i] == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: names");
        }
    }
    return BY_OK;
}
