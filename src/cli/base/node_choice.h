/* Which nodes of which graph a command reads: flags of commands that use models of graphs. */
#ifndef BY_CLI_BASE_NODE_CHOICE_H
#define BY_CLI_BASE_NODE_CHOICE_H

#include "base/cli.h"

/* Zeros before use; cli_node_choice_free frees it. */
typedef struct cli_node_choice {
    const char *list;     /* of --nodes, "17,2041"; NULL: all, or those of a file */
    const char *graph;    /* of --graph; NULL: that of the run */
    const char *features; /* of --features; NULL: with --graph those of that file */
    uint64_t *chosen;     /* the numbers of `list` */
} cli_node_choice;

#define CLI_NODES_HELP         "of a graph: these nodes, by number; without it, all"
#define CLI_GRAPH_HELP         "another graph than that of the run: npz, or edges with --features"
#define CLI_NODE_FEATURES_HELP "npy file with a row of features for each node of --graph"

/* Returns whether a model of this config reads a graph. */
bool cli_reads_graph(const by_config *config);
/* Puts another graph into the config, and the nodes into the request. Returns BY_ECONFIG if the
 * model reads no graph and there is such a choice, or no file; BY_EARG if the list has what is no
 * number. */
by_status cli_choose_nodes(by_config *config, by_task_request *request, cli_node_choice *choice,
                           by_error *error);
void cli_node_choice_free(cli_node_choice *choice);

#endif
