/* Nodes as samples: which ones, their classes and, if the whole graph is not read, their
 * surroundings. */
#ifndef BY_DATA_NODES_NODE_SOURCE_H
#define BY_DATA_NODES_NODE_SOURCE_H

#include "data/nodes/node_sample.h"

/* Opens a source of nodes, `targets` T a sample; if the whole graph is read and T is 1, the next
 * three arrays have no axis:
 *   "ids"     i32 [T] of padding -1, or 0 if the whole graph is read
 *   "labels"  i32 [T] -1: none, or padding
 *   "weight"  f32 [T] 1, 0 for padding
 * and if the graph is sampled, those of their surroundings (node_around.h).
 * shuffle: to train on, endless epochs; else one pass. set and ids must outlive it. BY_ECONFIG: a
 * sample has more targets than there are nodes to train on. */
by_status by__nodes_source_open(by_source **out, const by__nodes_set *set, const uint64_t *ids,
                                uint64_t count, bool shuffle, const by__nodes_sampling *sampling,
                                by_error *error);

#endif
