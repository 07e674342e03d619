/* Many small graphs, such as molecules, as samples: several of them in a sample, one after another,
 * up to so many nodes and edges. */
#ifndef BY_DATA_NODES_GRAPH_LIST_H
#define BY_DATA_NODES_GRAPH_LIST_H

#include "data/nodes/node_set.h"

typedef struct by__nodes_graph_list {
    by__nodes_set *set; /* of all graphs, one after another */
    int64_t graphs;
    int64_t *begins;  /* [graphs + 1] the first node of each */
    double *values;   /* [graphs] a class or a number; NaN: none */
    int64_t features; /* of a graph as a whole; 0: none are read */
    float *x;         /* [graphs, features], owned by the set */
} by__nodes_graph_list;

/* Reads graphs from an npz file with num_node_list and num_edge_list [graphs], edge_index
 * [2, edges] with numbers of nodes that begin with 0 in each graph, node_feat [nodes, features] and
 * graph_label [graphs]; or from a directory with num-node-list.csv, num-edge-list.csv, edge.csv,
 * node-feat.csv and graph-label.csv, each of which may end in .gz, or with these in a folder "raw"
 * (Hu et al. 2020). Without features each node has the feature 1. options: graph, how edges are
 * read, and whether edge_feat [edges, features] or edge-feat.csv is: an edge back has the features
 * of the edge unless it is listed, too, and edges that are added have 0; and whether graph_feat
 * [graphs, features] or graph-feat.csv is. BY_EFORMAT names the file, the value and the line or
 * number that is wrong. */
by_status by__nodes_graph_list_open(by__nodes_graph_list **out, const by__nodes_options *options,
                                    by_error *error);
/* One graph in memory. */
typedef struct by__nodes_graph {
    const float *x; /* [nodes, features] */
    int64_t nodes;
    int64_t features;
    const int32_t (*pairs)[2]; /* [count] */
    uint64_t count;
    const float *edge_x; /* [count, edge_features]; unused if edge_features is 0 */
    int64_t edge_features;
    const float *graph_x; /* [graph_features]; unused if that is 0 */
    int64_t graph_features;
} by__nodes_graph;
/* Makes a list of one graph, whose features and edges are copied. BY_EARG: an edge has a node that
 * there is not. */
by_status by__nodes_graph_list_make(by__nodes_graph_list **out, const by__nodes_graph *graph,
                                    const by__nodes_options *options, by_error *error);
void by__nodes_graph_list_close(by__nodes_graph_list **list);
/* Parses a table of numbers: rows of `*columns` numbers each, separated by commas; "" and "nan" are
 * NaN. *values is freed with free(). (number_table.c) */
by_status by__nodes_number_table_parse(double **values, uint64_t *rows, uint64_t *columns,
                                       const char *name, const char *text, size_t size,
                                       by_error *error);

/* Room of a sample. */
typedef struct by__nodes_pack_size {
    int64_t nodes;
    int64_t edges;
    int64_t graphs;
} by__nodes_pack_size;

/* Sets the room for packs of `nodes` nodes (0: as many as the largest graph has, but at least 256):
 * for as many edges and graphs as so many nodes usually have. BY_ECONFIG: a graph has more. */
by_status by__nodes_pack_size_fit(by__nodes_pack_size *out, const by__nodes_graph_list *list,
                                  int64_t nodes, by_error *error);

/* Opens a source of packs of some graphs, which are put into them in the order of `ids`:
 *   "nodes.x" f32 [nodes, features], "nodes.inverse_root", "nodes.inverse_degree" f32 [nodes, 1]
 *   "edges.offsets", "edges.back_offsets" i32 [nodes + 1], "edges.sources", "edges.back_sources",
 *   "edges.back_edges" i32 [edges]
 *   "graphs.offsets" [graphs + 1], "graphs.sources", "graphs.back_sources", "graphs.back_edges"
 *   [nodes], "graphs.back_offsets" [nodes + 1] i32: nodes of each graph in the same form
 *   "graphs.inverse_size" f32 [graphs, 1] 1 / its number of nodes
 *   "ids" i32 [graphs] number of a graph, -1: padding; "place" i32 [graphs] among `ids`
 *   "labels" i32 [graphs] class, -1: none; "targets" f32 [graphs] (value - mean) / deviation
 *   "weight" f32 [graphs] 0: padding, or there is no value
 * and, if edges have features, "edges.x" f32 [edges, features], with two matrices that have an edge
 * as each row, with the node that it comes from, or as each column, with that which it ends in:
 *   "edges.each" i32 [edges + 1] entries of the former before each edge, "edges.own" i32 [edges]
 *   the edge itself, "edges.targets" i32 [edges] where it ends, -1: padding
 * and, if graphs have features, "graphs.x" f32 [graphs, features]
 * shuffle: to train on, endless epochs, in which the order of packs changes, but not what is in
 * them; else one pass. list and ids must outlive it. (graph_source.c) */
typedef struct by__nodes_pack_options {
    by__nodes_pack_size size;
    const uint64_t *ids;
    uint64_t count;
    bool shuffle;
    double mean; /* of "targets" */
    double deviation;
    bool owns; /* closing the source closes the list */
} by__nodes_pack_options;
by_status by__nodes_pack_source_open(by_source **out, const by__nodes_graph_list *list,
                                     const by__nodes_pack_options *options, by_error *error);

#endif
