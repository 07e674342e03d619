/* Edges of several kinds between the nodes of one graph: relations, numbered from 0.
 *
 * Row v of the sparse matrix has an entry for each edge that ends in v. Its column is the node that
 * the edge comes from and its relation, source * relations + relation, so a matrix whose rows are
 * nodes with a block of columns for each relation can be read as one with a row for each of these
 * pairs, and a sum over all relations is one product. */
#ifndef BY_DATA_NODES_NODE_RELATIONS_H
#define BY_DATA_NODES_NODE_RELATIONS_H

#include "data/nodes/node_set.h"

typedef struct by__nodes_relations {
    int64_t relations; /* 0: there are none */
    int64_t nodes;
    int64_t edges;
    int32_t *offsets;      /* [nodes + 1] */
    int32_t *sources;      /* [edges] source * relations + relation */
    float *weights;        /* [edges] 1 / edges of the relation that end in the row */
    int32_t *back_offsets; /* [nodes * relations + 1] */
    int32_t *back_sources; /* [edges] rows */
    int32_t *back_edges;   /* [edges] */
    uint64_t bytes;
} by__nodes_relations;

/* Sorts `count` edges, pairs of the node that an edge comes from and the one that it ends in, with
 * the relation of each. An edge of a relation that is there twice counts once. symmetric: edges
 * lead back, too, by relations of their own: that of an edge plus the number of all. among: edges
 * that this set does not have are left out; NULL: none are. BY_EFORMAT: a
 * relation is below 0, or there are too many edges or pairs. `name` is for errors. */
by_status by__nodes_relations_make(by__nodes_relations *out, const char *name, int64_t nodes,
                                   const int32_t (*pairs)[2], const int32_t *types, uint64_t count,
                                   bool symmetric, const by__nodes_set *among, by_error *error);
/* Reads a text of edges, two numbers of nodes a line, and a file of one array with the relation of
 * each of them, of the nodes of `among`: all edges, or with `within` those that it has. BY_EFORMAT:
 * they do not have the same length, or a file is damaged. */
by_status by__nodes_relations_open(by__nodes_relations *out, const char *graph, const char *types,
                                   const by__nodes_set *among, bool within, bool symmetric,
                                   by_error *error);
/* Replaces the hash of a graph, 32 hex digits, by that of the graph with these relations. */
by_status by__nodes_relations_hash(const by__nodes_relations *relations, char hash[33],
                                   by_error *error);
void by__nodes_relations_free(by__nodes_relations *relations);

#endif
