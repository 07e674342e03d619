/* Nodes of one graph in memory, with features, classes, and the edges that end in each.
 *
 * Edges are a sparse matrix in rows (CSR), a row for each node that they end in, with its
 * transpose. An edge is there once, and the edges of a row are in the order of the nodes that they
 * come from, whatever their order in the file was. */
#ifndef BY_DATA_NODES_NODE_SET_H
#define BY_DATA_NODES_NODE_SET_H

#include "banyan/data.h"
#include "base/base.h"

typedef struct by__nodes_options {
    const char *graph;    /* npz file, or text of two numbers a line */
    const char *features; /* file of one array; "": those of the npz file */
    const char *labels;   /* file of one array, or text; "": those of the npz file, or none */
    bool symmetric;       /* edges lead in both directions */
    bool self_loops;      /* each node has an edge to itself; false: none has */
    bool normalize;       /* the magnitudes of a node's features add up to 1 */
} by__nodes_options;

typedef struct by__nodes_set {
    char *name; /* the graph's file */
    int64_t nodes;
    int64_t features;
    int64_t edges;
    int64_t classes; /* 0: there are no labels */
    float *x;        /* [nodes, features] */
    int32_t *labels; /* [nodes] -1: none; NULL: there are none */
    int32_t *offsets;
    int32_t *sources;
    int32_t *back_offsets;
    int32_t *back_sources;
    int32_t *back_edges;
    float *inverse_root;   /* [nodes] 1 / sqrt(number of edges that end in it), or 0 */
    float *inverse_degree; /* [nodes] 1 / that number, or 0 */
    uint64_t bytes;
    char hash[33]; /* of all of this */
} by__nodes_set;

/* Reads a graph. BY_EFORMAT: a file is damaged, or has a node that there is not; BY_ECONFIG: there
 * are no features. */
by_status by__nodes_set_open(by__nodes_set **out, const by__nodes_options *options,
                             by_error *error);
void by__nodes_set_close(by__nodes_set **set);

/* Makes rows, transpose and degrees of `count` edges between set->nodes nodes: pairs of the node
 * that an edge comes from and the one that it ends in. (node_edges.c) */
by_status by__nodes_set_edges(by__nodes_set *set, const int32_t (*pairs)[2], uint64_t count,
                              const by__nodes_options *options, by_error *error);
/* Reads pairs of numbers of nodes: a text with one a line, separated by a comma, spaces or a tab;
 * lines that begin with '#', and a first one that is no pair, are left out. *pairs is freed with
 * free(). BY_EFORMAT names the line that is none, or that has a number above INT32_MAX - 1.
 * (edge_list.c) */
by_status by__nodes_edge_list_parse(int32_t (**pairs)[2], uint64_t *count, const char *name,
                                    const char *text, size_t size, by_error *error);

/* Which nodes are trained on, and which are held out. */
typedef struct by__nodes_split {
    uint64_t *train;
    uint64_t *valid;
    uint64_t *test;
    uint64_t train_count;
    uint64_t valid_count;
    uint64_t test_count;
} by__nodes_split;

/* Draws nodes that have labels, in an order that seed determines: `per_class` of each class to
 * train on (0: all that are left), then so many to validate and to test. BY_ECONFIG: there are not
 * enough. */
by_status by__nodes_split_draw(by__nodes_split *out, const by__nodes_set *set, uint64_t per_class,
                               uint64_t valid, uint64_t test, uint64_t seed, by_error *error);
void by__nodes_split_free(by__nodes_split *split);

#endif
