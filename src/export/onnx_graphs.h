/* Inputs and outputs of ONNX models for the nodes of a graph: features, and edges as a sparse
 * matrix in rows, of any number of nodes and edges. What models derive from degrees becomes
 * nodes. */
#ifndef BY_EXPORT_ONNX_GRAPHS_H
#define BY_EXPORT_ONNX_GRAPHS_H

#include "export/export.h"
#include "export/onnx_writer.h"

/* Returns whether a model of this config reads a graph. */
bool by__export_onnx_graphs_reads(const by_model_config *config);
/* Adds the inputs "features" f32 [nodes, channels], "offsets" i64 [nodes + 1], "sources" i64
 * [edges] and "nodes" i64 [targets], and sets names[v] of each of the graph's inputs; the names are
 * allocated. */
by_status by__export_onnx_graphs_inputs(by__export_onnx_writer *writer, const by_graph *graph,
                                        char **names, by_error *error);

#endif
