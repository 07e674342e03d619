/* Sorts the edges that are packed into rows, within a bound of memory: the nodes are cut into
 * ranges whose edges fit, and each range is filled by a pass over all edges. */
#ifndef BY_DATA_NODES_PACK_EDGE_ROWS_H
#define BY_DATA_NODES_PACK_EDGE_ROWS_H

#include "data/nodes/pack/array_writer.h"
#include "data/nodes/pack/edge_spool.h"

/* Writes offsets and sources of the edges of a spool between manifest->nodes nodes, and sets
 * manifest->edges. *duplicates: edges that were there before. An edge that is there twice is in
 * `twice` if twice_found is set, which only options->refuse_duplicates does; nothing is written
 * then. */
typedef struct by__nodes_rows_result {
    uint64_t duplicates;
    bool twice_found;
    int32_t twice[2];
} by__nodes_rows_result;
by_status by__nodes_rows_write(by__nodes_rows_result *out, by__nodes_manifest *manifest,
                               const by__nodes_spool *spool, const by_graph_pack_options *options,
                               const char *directory, by_error *error);

#endif
