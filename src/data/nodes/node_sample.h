/* Samples of the surroundings of nodes: of the edges that end in some targets, and of those that
 * end in the nodes that these come from, so many at random (Hamilton et al. 2017).
 *
 * A model with as many layers as there are hops needs less with each layer: the last one only the
 * edges that end in targets. So a sample has the edges once for each layer, as far as it needs
 * them, and the nodes in the order in which they are met: those that layers still need come
 * first. */
#ifndef BY_DATA_NODES_NODE_SAMPLE_H
#define BY_DATA_NODES_NODE_SAMPLE_H

#include "data/nodes/node_set.h"

/* Most hops of a sample. */
#define BY__NODES_HOPS 8

/* How much of the surroundings is taken, and room for it. */
typedef struct by__nodes_sampling {
    int32_t fan_outs[BY__NODES_HOPS]; /* edges of a node that is so many hops away */
    int hops;                         /* 0: the whole graph is read */
    int64_t targets;                  /* of a sample */
    /* All edges are taken, and a sample has room for all nodes: the whole graph is read instead. */
    bool covers;
    int64_t nodes; /* most that a sample has */
    int64_t edges;
    /* Most nodes at most so many hops from a target, and most edges that end in them. */
    int64_t hop_nodes[BY__NODES_HOPS];
    int64_t hop_edges[BY__NODES_HOPS];
} by__nodes_sampling;

/* Sets the room for samples of these hops, fan-outs and targets; fan-outs become at most what a
 * node of the set has. BY_ECONFIG: it is too much. */
by_status by__nodes_sampling_fit(by__nodes_sampling *sampling, const by__nodes_set *set,
                                 by_error *error);

/* Edges in rows, and transposed. */
typedef struct by__nodes_rows {
    int32_t *offsets;      /* [rows + 1] */
    int32_t *sources;      /* [edges] -1 behind the last one */
    int32_t *back_offsets; /* [columns + 1] */
    int32_t *back_sources; /* [edges] -1 behind the last one */
    int32_t *back_edges;   /* [edges] -1 behind the last one */
} by__nodes_rows;

/* Fills what is behind the last edge, up to `room` edges, and the transpose. */
void by__nodes_rows_finish(const by__nodes_rows *r, int64_t rows, int64_t columns, int64_t room);

/* A sample, in memory of the sizes of a by__nodes_sampling. */
typedef struct by__nodes_sample {
    int32_t *ids; /* [nodes] in the set; -1 behind the last one */
    /* Edges that end in the nodes at most so many hops from a target: hop_nodes[h] rows, of the
     * nodes of the next hop. */
    by__nodes_rows hops[BY__NODES_HOPS];
    const int32_t *apart; /* two nodes between which no edges are taken; NULL: there are none */
    float *weights[BY__NODES_HOPS]; /* of these edges, 0 behind the last one; NULL: not wanted */
} by__nodes_sample;

/* The edge that ends in a node and comes from the other one of two nodes; -1: there is none, or the
 * node is none of them. apart may be NULL. */
int64_t by__nodes_apart_edge(const by__nodes_set *set, const int32_t *apart, int32_t node);
/* Bytes of scratch memory for by__nodes_sample_fill. */
size_t by__nodes_sample_scratch(const by__nodes_sampling *sampling);
/* Samples the surroundings of `count` targets, at most sampling->targets, a function of the
 * arguments alone. Target i is node i of the sample. Edges of a node are in the order of the set.
 * key: of the random numbers. */
void by__nodes_sample_fill(const by__nodes_sample *out, const by__nodes_sampling *sampling,
                           const by__nodes_set *set, const int32_t *targets, int64_t count,
                           const uint32_t key[2], uint64_t index, void *scratch);

#endif
