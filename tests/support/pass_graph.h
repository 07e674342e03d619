/* Small graphs for the tests of passes, and questions about them. */
#ifndef BY_TESTS_PASS_GRAPH_H
#define BY_TESTS_PASS_GRAPH_H

#include "banyan/config.h"
#include "graph/graph.h"

/* The config of a small GPT-2 with dropout, and settings of a test; the caller closes it. */
by_config *pass_config(const char *const *settings, size_t count);
/* The training graph of a config behind a pass; the caller closes it. */
by_graph *pass_graph(const by_config *config, const char *stage);
/* Nodes of an op. */
int pass_count_ops(const by_graph *graph, by_op op);
by_dtype pass_dtype(const by_graph *graph, by_value value);
/* A parameter without an initial value. */
by_value pass_parameter(by_graph *graph, const char *name, by_shape shape);

#endif
