/* Surroundings of nodes as arrays of a sample: what sources of nodes and of links have of them. */
#ifndef BY_DATA_NODES_NODE_AROUND_H
#define BY_DATA_NODES_NODE_AROUND_H

#include "data/nodes/node_sample.h"

#define BY__NODES_AROUND_ARRAYS (5 + 6 * BY__NODES_HOPS)

/* Lists the arrays of a by__nodes_sample with N nodes, and returns their number:
 *   "nodes.x"                                     f32 [N, features]
 *   "nodes.inverse_root"                          f32 [N, 1] 1 / sqrt(degree in the whole graph):
 *                                                 the sum of the weights of edges
 *   "nodes.inverse_root_into"                     f32 [N, 1] the same, times this degree divided by
 *                                                 that in the sample: of a node that edges end in
 *   "nodes.inverse_degree"                        f32 [N, 1] 1 / degree in the sample
 *   "edges.H.offsets", "edges.H.sources", "edges.H.back_offsets", "edges.H.back_sources",
 *   "edges.H.back_edges"                          i32, hop H of the by__nodes_sample
 *   "edges.H.weights"                             f32 [edges, 1], if edges have weights
 *   "nodes.ids"                                   i32 [N] nodes, -1 behind the last one, if the set
 *                                                 is partitioned: "nodes.x" is not written then */
size_t by__nodes_around_arrays(by_array out[BY__NODES_AROUND_ARRAYS],
                               char names[BY__NODES_AROUND_ARRAYS][32], const by__nodes_set *set,
                               const by__nodes_sampling *sampling);
/* Bytes of scratch memory for by__nodes_around_fill. */
size_t by__nodes_around_scratch(const by__nodes_sampling *sampling);
/* Fills them with the surroundings of `count` targets, of which target i is node i; a function of
 * the arguments alone. apart: as by__nodes_sample has it, and such an edge counts for no degree. */
void by__nodes_around_fill(void *const *rows, const by__nodes_set *set,
                           const by__nodes_sampling *sampling, const int32_t *targets,
                           int64_t count, const int32_t *apart, uint64_t seed, uint64_t index,
                           void *scratch);

#endif
