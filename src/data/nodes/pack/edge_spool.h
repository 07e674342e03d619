/* Edges that are packed: read from all inputs into one file without a name, in their order, and
 * sorted from there. */
#ifndef BY_DATA_NODES_PACK_EDGE_SPOOL_H
#define BY_DATA_NODES_PACK_EDGE_SPOOL_H

#include "banyan/graph_pack.h"
#include "base/base.h"

typedef struct by__nodes_spool {
    int file;
    int weight_file;       /* -1: edges have no weights */
    const char *directory; /* of the file, for messages */
    uint64_t count;        /* edges */
    uint64_t loops;        /* edges from a node to itself among them */
    uint64_t skipped;      /* lines left out */
    uint64_t noted;        /* of these, reported */
    uint64_t lines;        /* that are edges or damaged */
    int32_t largest;       /* number of a node; -1: none */
    int64_t nodes;         /* numbers are below this; 0: they may be any */
    by__map map;           /* of the file, when it is complete */
    by__map weights;       /* f32 of each edge; empty: they have none */
} by__nodes_spool;

/* Opens a spool in a directory; closed in any case. */
by_status by__nodes_spool_open(by__nodes_spool *out, const char *directory, bool weighted,
                               by_error *error);
void by__nodes_spool_close(by__nodes_spool *spool);
/* Adds edges of a text or a Parquet file; weighted: with weights beside them. BY_EFORMAT names the
 * first line that is damaged or has a node that there is not, unless the options say that these are
 * left out. */
by_status by__nodes_spool_read(by__nodes_spool *spool, const char *path, bool weighted,
                               const by_graph_pack_options *options, by_error *error);
/* Adds the weights of all edges so far, whose files have none: a text with one a line. BY_EFORMAT:
 * it has not as many, or one is below 0 or not finite. */
by_status by__nodes_spool_read_weights(by__nodes_spool *spool, const char *path, by_error *error);
/* Checks how much was left out, and maps the edges: spool->map has pairs of i32. */
by_status by__nodes_spool_finish(by__nodes_spool *spool, const by_graph_pack_options *options,
                                 by_error *error);
/* Tells where an edge is there for the second time, in a BY_EFORMAT; either_way: also one that
 * leads back. */
by_status by__nodes_spool_refuse_twice(const by__nodes_spool *spool, const int32_t pair[2],
                                       bool either_way, const char *const *paths, size_t count,
                                       by_error *error);

#endif
