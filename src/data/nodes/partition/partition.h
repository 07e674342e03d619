/* Cuts the nodes of a graph into parts of about the same size with few edges between them, by the
 * multilevel scheme of METIS (Karypis and Kumar 1998): nodes are merged until few are left, these
 * are bisected again and again, and with each level of merged nodes that is taken apart, nodes at
 * the border of a part move where they have more edges. What is merged are clusters and not pairs
 * (Meyerhenke, Sanders and Schulz 2014): a pair is of two parts as often as an edge is, but a
 * cluster has the edges of all its nodes to go by.
 *
 * Everything is done in one order, so the parts are a function of the graph, their number and the
 * seed. */
#ifndef BY_DATA_NODES_PARTITION_PARTITION_H
#define BY_DATA_NODES_PARTITION_PARTITION_H

#include "base/base.h"

/* Most that a part is larger than the mean. */
#define BY__NODES_IMBALANCE 1.03

/* Writes the part of each node, from 0 to parts - 1: none is empty, and none has more than
 * ceil(BY__NODES_IMBALANCE * nodes / parts). Edges are rows of a sparse matrix; which way they
 * lead does not matter, nor do edges from a node to itself. 1 <= parts <= nodes. */
by_status by__nodes_partition(int32_t *out, const int64_t *offsets, const int32_t *sources,
                              int64_t nodes, int64_t parts, uint64_t seed, by_error *error);

/* ---- levels (coarsen.c) ---- */

/* A graph without loops whose edges are in both of its nodes' rows. */
typedef struct by__nodes_level {
    int64_t nodes;
    const int64_t *offsets; /* [nodes + 1] */
    const int32_t *ends;    /* [edges] */
    const int32_t *weights; /* [edges] edges of the finest graph; NULL: each is one */
    const int32_t *sizes;   /* [nodes] nodes of the finest graph; NULL: each is one */
    int32_t *coarse;        /* [nodes] number in the next level; NULL: this is the last one */
    void *owned[4];         /* offsets, ends, weights, sizes */
} by__nodes_level;

static inline int32_t by__nodes_level_weight(const by__nodes_level *l, int64_t edge)
{
    return l->weights == NULL ? 1 : l->weights[edge];
}
static inline int32_t by__nodes_level_size(const by__nodes_level *l, int64_t node)
{
    return l->sizes == NULL ? 1 : l->sizes[node];
}

/* Makes the finest level: rows as they are, if they have each edge in both rows and no loop. */
by_status by__nodes_level_first(by__nodes_level *out, const int64_t *offsets,
                                const int32_t *sources, int64_t nodes, by_error *error);
/* Merges nodes into those of the next level: the clusters of by__nodes_cluster. */
by_status by__nodes_level_coarsen(by__nodes_level *out, by__nodes_level *fine, int64_t most,
                                  uint64_t seed, by_error *error);
void by__nodes_level_free(by__nodes_level *level);

/* ---- edges of a node, by label (edge_counts.c) ---- */

/* Where the edges of the node that was counted last lead: {0} may be freed. */
typedef struct by__nodes_edge_counts {
    int64_t *edges; /* [labels] to each label; 0 where none leads */
    int32_t *met;   /* [labels] those that are not 0 */
    int64_t met_count;
} by__nodes_edge_counts;

by_status by__nodes_edge_counts_open(by__nodes_edge_counts *out, int64_t labels, by_error *error);
void by__nodes_edge_counts_free(by__nodes_edge_counts *counts);
/* Forgets the node before, and counts the edges of node v by the labels of their ends. */
void by__nodes_edge_counts_of(by__nodes_edge_counts *counts, const by__nodes_level *level,
                              const int32_t *labels, int64_t v);

/* ---- clusters (propagate.c) ---- */

/* Writes the cluster of each node, from 0 on, and their number: of at most `most` nodes of the
 * finest graph, by label propagation. Each node in turn goes to the cluster to which most of its
 * edges lead, of those with room; of those left alone, nodes with such a cluster in common come
 * together (Meyerhenke, Sanders and Schulz 2014). */
by_status by__nodes_cluster(int32_t *out, int64_t *count, const by__nodes_level *level,
                            int64_t most, uint64_t seed, by_error *error);

/* ---- the first partition (bisect.c) ---- */

/* Writes parts of a small graph by recursive bisection. A half grows from a random node by the
 * neighbour that adds the fewest edges to the cut; then nodes move between both halves, each once,
 * in the order of what this gains, and the best of these states is kept (Fiduccia and Mattheyses
 * 1982). */
by_status by__nodes_bisect(int32_t *out, const by__nodes_level *level, int64_t parts, uint64_t seed,
                           by_error *error);

/* ---- moves at borders (refine.c) ---- */

/* Moves nodes at the border of a part to that where they have the most edges, if it has room,
 * until none moves. Parts have at most `most` nodes of the finest graph, as far as nodes can be
 * moved. */
by_status by__nodes_refine(int32_t *part_of, const by__nodes_level *level, int64_t parts,
                           int64_t most, uint64_t seed, by_error *error);

#endif
