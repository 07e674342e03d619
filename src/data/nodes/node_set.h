/* Nodes of one graph, with features, classes, and the edges that end in each.
 *
 * Edges are a sparse matrix in rows (CSR), a row for each node that they end in. An edge is there
 * once, and the edges of a row are in the order of the nodes that they come from, whatever their
 * order in the file was. */
#ifndef BY_DATA_NODES_NODE_SET_H
#define BY_DATA_NODES_NODE_SET_H

#include "banyan/data.h"
#include "base/base.h"
#include "data/nodes/packed_arrays.h"

typedef struct by__nodes_options {
    const char *graph;    /* npz file, text of two numbers a line, or packed directory */
    const char *features; /* file of one array; "": those of the npz file */
    const char *labels;   /* file of one array, or text; "": those of the npz file, or none */
    bool symmetric;       /* edges lead in both directions */
    bool self_loops;      /* each node has an edge to itself; false: none has */
    bool normalize;       /* the magnitudes of a node's features add up to 1 */
    bool weighted;        /* edges have weights: the third number of a line, or "edge_weight" or
                             "adj_data" of the npz file; a packed graph has those it has */
    bool edge_features;   /* of small graphs: features of edges are read */
    bool graph_features;  /* and those of graphs */
} by__nodes_options;

/* Which nodes are trained on, and which are held out. */
typedef struct by__nodes_split {
    uint64_t *train;
    uint64_t *valid;
    uint64_t *test;
    uint64_t train_count;
    uint64_t valid_count;
    uint64_t test_count;
} by__nodes_split;

/* What models read of a whole graph, as i32 and f32. */
typedef struct by__nodes_whole {
    const float *x;        /* [nodes, features] */
    float *inverse_root;   /* [nodes] 1 / sqrt(degree), or 0 */
    float *inverse_degree; /* [nodes] 1 / degree, or 0 */
    int32_t *offsets;      /* [nodes + 1] */
    int32_t *back_offsets; /* [nodes + 1] the transpose: */
    int32_t *back_sources; /* [edges] where an edge ends */
    int32_t *back_edges;   /* [edges] its number */
} by__nodes_whole;

/* Features that are not f32 in memory: rows of a file that is mapped. */
typedef struct by__nodes_stored {
    const void *rows; /* [nodes, features]; NULL: set->x has them */
    by__nodes_feature_type type;
    const float *scales; /* [2, features], of u8: offset and step */
    bool normalize;      /* as by__nodes_options says */
} by__nodes_stored;

#define BY__NODES_OWNED 24

typedef struct by__nodes_set {
    char *name; /* the graph's file */
    int64_t nodes;
    int64_t features;
    int64_t edges;
    int64_t classes;        /* 0: there are no labels */
    const float *x;         /* [nodes, features]; NULL: `stored` has them */
    const int32_t *labels;  /* [nodes] -1: none; NULL: there are none */
    const int64_t *offsets; /* [nodes + 1] row of edges that end in each node */
    const int32_t *sources; /* [edges] where they come from */
    const float *weights;   /* [edges] finite, at least 0; NULL: each is 1 */
    int64_t edge_features;  /* 0: none are read */
    const float *edge_x;    /* [edges, edge_features]; NULL: there are none */
    const float *degrees;   /* [nodes] with weights: their sum over the edges that end in a node */
    by__nodes_whole whole;  /* NULL until by__nodes_set_whole */
    by__nodes_stored stored;
    /* Samples have the numbers of their nodes, and features are written later: other ranks read
     * them. */
    bool partitioned;
    by__nodes_split split; /* of a packed graph that has one */
    uint64_t bytes;        /* of memory, without maps */
    char hash[33];         /* of nodes, features, edges and labels */
    by__map maps[BY__NODES_ARRAYS];
    void *owned[BY__NODES_OWNED];
    size_t owned_count;
} by__nodes_set;

/* Reads a graph, or maps a packed one, whose files are verified once. BY_EFORMAT: a file is
 * damaged, or has a node that there is not; BY_ECONFIG: there are no features, or a packed graph
 * was packed with other options. */
by_status by__nodes_set_open(by__nodes_set **out, const by__nodes_options *options,
                             by_error *error);
void by__nodes_set_close(by__nodes_set **set);
/* Frees what a set owns, but not the set. */
void by__nodes_set_clear(by__nodes_set *set);
/* Allocates zeroed memory that the set owns. */
by_status by__nodes_set_alloc(by__nodes_set *set, void **out, size_t count, size_t size,
                              by_error *error);
/* Gives the set memory to free, and counts its bytes. */
void by__nodes_set_own(by__nodes_set *set, void *memory, uint64_t bytes);
/* Writes the features of a node, and its number of edges. */
void by__nodes_set_row(const by__nodes_set *set, int64_t node, float *out);
static inline int64_t by__nodes_set_degree(const by__nodes_set *set, int64_t node)
{
    return set->offsets[node + 1] - set->offsets[node];
}
/* Rows of features, edges and offsets are where no cache has them: those of nodes that will be read
 * soon are asked for ahead. */
void by__nodes_set_fetch_row(const by__nodes_set *set, int64_t node);
static inline void by__nodes_set_fetch_degree(const by__nodes_set *set, int64_t node)
{
    __builtin_prefetch(&set->offsets[node]);
}
/* Waits for the degree, unless that was asked for. */
static inline void by__nodes_set_fetch_edges(const by__nodes_set *set, int64_t node)
{
    __builtin_prefetch(&set->sources[set->offsets[node]]);
}
/* The edge that leads from one node to another; -1: there is none. */
static inline int64_t by__nodes_set_edge(const by__nodes_set *set, int32_t from, int32_t to)
{
    int64_t low = set->offsets[to];
    int64_t end = set->offsets[to + 1];
    for (int64_t high = end; low < high;) {
        int64_t middle = low + (high - low) / 2;
        if (set->sources[middle] < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < end && set->sources[low] == from ? low : -1;
}
/* The weight of an edge, and the sum of those of the edges that end in a node. */
static inline float by__nodes_set_weight(const by__nodes_set *set, int64_t edge)
{
    return set->weights == NULL ? 1.0f : set->weights[edge];
}
static inline double by__nodes_set_weights(const by__nodes_set *set, int64_t node)
{
    return set->degrees == NULL ? (double)by__nodes_set_degree(set, node)
                                : (double)set->degrees[node];
}
/* What models scale a node by whose edges have weights of this sum, in PyTorch Geometric's words
 * its degree; 0 for 0. */
float by__nodes_inverse_root(double degree);
float by__nodes_inverse_degree(double degree);
/* Sets set->degrees, if edges have weights. */
by_status by__nodes_set_add_degrees(by__nodes_set *set, by_error *error);
/* Makes set->whole. BY_EFORMAT: there are more than 2^31 - 1 edges. (node_whole.c) */
by_status by__nodes_set_whole(by__nodes_set *set, by_error *error);

/* BY_EFORMAT if one of the features, [rows, columns], of nodes from `first` on is no finite
 * number. */
by_status by__nodes_check_features(const float *x, uint64_t first, uint64_t rows, uint64_t columns,
                                   const char *file, by_error *error);
/* Maps a packed graph into an empty set. (packed_graph.c) */
by_status by__nodes_packed_open(by__nodes_set *set, const by__nodes_options *options,
                                by_error *error);

/* Makes rows of `count` edges between set->nodes nodes: pairs of the node
 * that an edge comes from and the one that it ends in. (node_edges.c) */
by_status by__nodes_set_edges(by__nodes_set *set, const int32_t (*pairs)[2], uint64_t count,
                              const by__nodes_options *options, by_error *error);
/* The same with a weight of each pair, unless NULL. An edge that is there twice has the larger one.
 * Loops that are added have weight 1, or that of one that is there. */
by_status by__nodes_set_weighted_edges(by__nodes_set *set, const int32_t (*pairs)[2],
                                       const float *weights, uint64_t count,
                                       const by__nodes_options *options, by_error *error);
/* BY_EFORMAT if a weight is below 0 or not finite. */
by_status by__nodes_check_weights(const float *weights, uint64_t count, const char *file,
                                  by_error *error);
/* What a line of a list of edges is. */
typedef enum by__nodes_edge_line {
    BY__EDGE_NONE = 0, /* empty, or begins with '#' */
    BY__EDGE_PAIR,
    BY__EDGE_NAMES, /* begins with a letter: names of columns, where it is the first line */
    BY__EDGE_WRONG  /* no two numbers, or above INT32_MAX - 1 */
} by__nodes_edge_line;
/* Reads the two numbers of a line of bytes [begin, end) of a text and, unless NULL, a weight behind
 * them, without which a line is wrong; further columns are left out. (edge_list.c) */
by__nodes_edge_line by__nodes_edge_list_line(const char *text, size_t begin, size_t end,
                                             int32_t pair[2], float *weight);
/* Reads pairs of numbers of nodes: a text with one a line, separated by a comma, spaces or a tab;
 * lines that begin with '#', and a first one that is no pair, are left out. *pairs and, unless
 * NULL, *weights, the number behind each pair, are freed with free(). BY_EFORMAT names the line
 * that is none, or that has a number above INT32_MAX - 1. (edge_list.c) */
by_status by__nodes_edge_list_parse(int32_t (**pairs)[2], float **weights, uint64_t *count,
                                    const char *name, const char *text, size_t size,
                                    by_error *error);

/* Draws nodes that have labels, in an order that seed determines: `per_class` of each class to
 * train on (0: all that are left), then so many to validate and to test. BY_ECONFIG: there are not
 * enough. */
by_status by__nodes_split_draw(by__nodes_split *out, const by__nodes_set *set, uint64_t per_class,
                               uint64_t valid, uint64_t test, uint64_t seed, by_error *error);
void by__nodes_split_free(by__nodes_split *split);

#endif
