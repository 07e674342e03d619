/* Inputs and outputs of ONNX models for the nodes of a graph, pairs of them or small graphs:
 * features, and edges as a sparse matrix in rows, of any number of nodes and edges. What models
 * derive from degrees becomes nodes. */
#ifndef BY_EXPORT_ONNX_GRAPHS_H
#define BY_EXPORT_ONNX_GRAPHS_H

#include "export/export.h"
#include "export/onnx_writer.h"

/* Returns whether a model of this config reads a graph. */
bool by__export_onnx_graphs_reads(const by_model_config *config);
/* Makes a config that of the model which is exported: it reads a whole graph, and scores one pair
 * of nodes a row. Returns the batch that it is built with, `batch` or, of small graphs, 1. */
int64_t by__export_onnx_graphs_choose(by_model_config *config, int64_t batch);
/* Adds the inputs "features" f32 [nodes, channels], "offsets" i64 [nodes + 1], "sources" i64
 * [edges] and "nodes" i64 [targets], "pairs" i64 [targets, 2] or "graphs" i64 [graphs + 1], and
 * sets names[v] of each of the graph's inputs; the names are allocated. */
by_status by__export_onnx_graphs_inputs(by__export_onnx_writer *writer,
                                        const by_model_config *config, const by_graph *graph,
                                        char **names, by_error *error);
/* Adds the output, of the value of this name and shape: "logits" f32 [targets or graphs, classes],
 * "scores" f32 [targets] of pairs, "values" f64 [graphs, 1] of numbers in their units, or
 * model.output of the config. */
void by__export_onnx_graphs_output(by__export_onnx_writer *writer, const by_config *config,
                                   const char *value, const by_shape *shape);

#endif
