/* Which files a graph is packed from. */
#ifndef BY_DATA_NODES_PACK_PACK_INPUTS_H
#define BY_DATA_NODES_PACK_PACK_INPUTS_H

#include "banyan/graph_pack.h"
#include "base/base.h"

typedef struct by__nodes_inputs {
    char **edges; /* texts and Parquet files */
    size_t edge_count;
    char *archive;  /* npz file, instead; NULL */
    char *counts;   /* text of the number of nodes; NULL */
    char *named;    /* text of nodes with names of columns; NULL */
    char *rows;     /* text of features without names; NULL */
    char *classes;  /* text of a class a line; NULL */
    char *features; /* npy; NULL */
    char *labels;   /* npy; NULL */
    char *weights;  /* text of a weight a line, of the edges; NULL: they are beside them */
    char *lists[3]; /* nodes to train on, to validate and to test on; NULL */
} by__nodes_inputs;

/* Finds the files. BY_EARG: they do not go together; BY_EIO: one is not there. Free it in any
 * case. */
by_status by__nodes_inputs_find(by__nodes_inputs *out, const by_graph_pack_options *options,
                                by_error *error);
void by__nodes_inputs_free(by__nodes_inputs *inputs);
/* Calls `each` for every file, in a fixed order. */
by_status by__nodes_inputs_each(const by__nodes_inputs *inputs,
                                by_status (*each)(void *context, const char *path, by_error *error),
                                void *context, by_error *error);

#endif
