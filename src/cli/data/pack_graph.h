/* `banyan pack --graph`. */
#ifndef CLI_DATA_PACK_GRAPH_H
#define CLI_DATA_PACK_GRAPH_H

#include "banyan/graph_pack.h"
#include "base/cli.h"

typedef struct cli_graph_pack {
    bool wanted;
    by_graph_pack_options options;
    const char *loops;
    const char *duplicates;
    const char *memory;
} cli_graph_pack;

/* The flags of a cli_graph_pack `g`. */
#define CLI_GRAPH_PACK_FLAGS(g)                                                                    \
    {"graph", CLI_SWITCH, &(g).wanted, NULL, "pack the edges and nodes of a graph"},               \
        {"nodes", CLI_INPUT, &(g).options.nodes, "FILE",                                           \
         "text of nodes with a line of names: id, label, split (train, valid, test), each if it "  \
         "is there, and features"},                                                                \
        {"features", CLI_INPUT, &(g).options.features, "FILE", "npy file of features instead"},    \
        {"labels", CLI_INPUT, &(g).options.labels, "FILE", "npy file of classes, -1 for none"},    \
        {"train-list", CLI_INPUT, &(g).options.lists[0], "FILE",                                   \
         "nodes to train on: npy, or a number a line"},                                            \
        {"valid-list", CLI_INPUT, &(g).options.lists[1], "FILE", "nodes to validate on"},          \
        {"test-list", CLI_INPUT, &(g).options.lists[2], "FILE", "nodes to test on"},               \
        {"split", CLI_STRING, &(g).options.split, "NAME",                                          \
         "split of a benchmark that has several"},                                                 \
        {"columns", CLI_STRING, &(g).options.columns, "A,B[,W]",                                   \
         "columns of a Parquet file that edges come from and end in (default: the first two of "   \
         "integers), and of weights (the first other one of numbers)"},                            \
        {"weights", CLI_SWITCH, &(g).options.weights, NULL,                                        \
         "edges have weights, from 0 on: the third number of a line, a column, adj_data of an "    \
         "npz file, or raw/edge_weight.csv.gz"},                                                   \
        {"store", CLI_STRING, &(g).options.store, "TYPE",                                          \
         "features as f32, f16, or u8: 256 steps of each column (default f32)"},                   \
        {"directed", CLI_SWITCH, &(g).options.directed, NULL,                                      \
         "edges lead in one direction (default: in both)"},                                        \
        {"self-loops", CLI_STRING, &(g).loops, "WHAT",                                             \
         "edges from a node to itself: drop, add one to each node, keep, or fail (default drop)"}, \
        {"duplicates", CLI_STRING, &(g).duplicates, "WHAT",                                        \
         "edges that are there twice: merge or fail (default merge)"},                             \
    {                                                                                              \
        "memory", CLI_STRING, &(g).memory, "SIZE",                                                 \
            "most memory for edges that are sorted at once (default 1GiB)"                         \
    }

/* Packs; the options have what flags of their own said. */
int cli_pack_graph(cli_graph_pack *g, bool json);

#endif
