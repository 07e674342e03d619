/* Texts of nodes, a line each: features, classes, and which part of a split a node is in. */
#ifndef BY_DATA_NODES_PACK_NODE_TABLE_H
#define BY_DATA_NODES_PACK_NODE_TABLE_H

#include "banyan/graph_pack.h"
#include "data/nodes/pack/feature_writer.h"

/* What is packed of the nodes. */
typedef struct by__nodes_columns {
    uint64_t nodes;
    int32_t *labels; /* [nodes] -1: none; NULL: there are none */
    size_t label_capacity;
    uint64_t *held[3]; /* nodes to train on, to validate and to test on; NULL: none */
    size_t held_capacity[3];
    uint64_t held_count[3];
} by__nodes_columns;

void by__nodes_columns_free(by__nodes_columns *columns);

/* What the columns of a text are. */
typedef enum by__nodes_table_kind {
    BY__NODES_TABLE_NAMED = 0, /* what the names in its first line say */
    BY__NODES_TABLE_FEATURES,  /* features, without names */
    BY__NODES_TABLE_LABELS     /* one class, without a name */
} by__nodes_table_kind;

/* Reads a text, writes its features, and sets manifest->nodes. Other texts read into the same
 * columns must have as many lines. BY_EFORMAT names the line and what is wrong. */
by_status by__nodes_table_read(by__nodes_columns *out, by__nodes_manifest *manifest,
                               const char *path, by__nodes_table_kind kind,
                               by__nodes_feature_type type, const by_graph_pack_options *options,
                               const char *directory, by_error *error);

#endif
