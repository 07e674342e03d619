/* Nodes as samples: which one, its class and, if the whole graph is not read, its surroundings. */
#ifndef BY_DATA_NODES_NODE_SOURCE_H
#define BY_DATA_NODES_NODE_SOURCE_H

#include "data/nodes/node_sample.h"

/* Opens a source of nodes, one a sample:
 *   "ids"     i32 []
 *   "labels"  i32 []  -1: none, or padding
 *   "weight"  f32 []  1, 0 for padding
 * and with `sampling`, of a by__nodes_sample:
 *   "sample.ids" [nodes], "edges.offsets", "edges.back_offsets" [nodes + 1], "edges.sources",
 *   "edges.back_sources", "edges.back_edges" [edges]
 * shuffle: to train on, endless epochs; else one pass. set and ids must outlive it. */
by_status by__nodes_source_open(by_source **out, const by__nodes_set *set, const uint64_t *ids,
                                uint64_t count, bool shuffle, const by__nodes_sampling *sampling,
                                by_error *error);

#endif
