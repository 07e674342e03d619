/* Samples of the surroundings of nodes: of the edges that end in a node, and of those that end in
 * the nodes that these come from, so many at random (Hamilton et al. 2017). */
#ifndef BY_DATA_NODES_NODE_SAMPLE_H
#define BY_DATA_NODES_NODE_SAMPLE_H

#include "data/nodes/node_set.h"

/* Most hops of a sample. */
#define BY__NODES_HOPS 8

/* How much of the surroundings is taken, and room for it. */
typedef struct by__nodes_sampling {
    int32_t fan_outs[BY__NODES_HOPS]; /* edges of a node that is so many hops away */
    int hops;
    int64_t nodes; /* most that a sample has */
    int64_t edges;
} by__nodes_sampling;

/* Sets the room for samples of these fan-outs, none of them more than the edges that a node of the
 * set has. BY_ECONFIG: it is too much. */
by_status by__nodes_sampling_fit(by__nodes_sampling *sampling, const by__nodes_set *set,
                                 by_error *error);

/* A sample, in memory of the sizes of a by__nodes_sampling. Nodes are numbered in the order in
 * which they are met, the first one is that whose surroundings they are. */
typedef struct by__nodes_sample {
    int32_t *ids;          /* [nodes] in the set; 0 behind the last one */
    int32_t *offsets;      /* [nodes + 1] */
    int32_t *sources;      /* [edges] -1 behind the last one */
    int32_t *back_offsets; /* [nodes + 1] */
    int32_t *back_sources; /* [edges] */
    int32_t *back_edges;   /* [edges] */
} by__nodes_sample;

/* Bytes of scratch memory for by__nodes_sample_fill. */
size_t by__nodes_sample_scratch(const by__nodes_sampling *sampling);
/* Samples the surroundings of node `id`, a function of its arguments alone. Edges of a node are in
 * the order of the set; if all are taken, sums over them have the bits that they have in the whole
 * graph. key: of the random numbers. */
void by__nodes_sample_fill(const by__nodes_sample *out, const by__nodes_sampling *sampling,
                           const by__nodes_set *set, int32_t id, const uint32_t key[2],
                           uint64_t index, void *scratch);

#endif
