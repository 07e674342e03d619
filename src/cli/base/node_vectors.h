/* Vectors of the nodes of a graph, for the command that also makes those of texts
 * (evaluate/embed_nodes.c). */
#ifndef BY_CLI_BASE_NODE_VECTORS_H
#define BY_CLI_BASE_NODE_VECTORS_H

#include "base/node_choice.h"

typedef struct cli_node_vectors {
    cli_node_choice nodes;
    const char *out; /* npy file, f32 [nodes, width]; NULL: JSON lines on standard output */
    bool json;       /* what was written is told as JSON */
} cli_node_vectors;

/* Writes the vectors of nodes; for cli_with_pretrained, user: a cli_node_vectors. */
by_status cli_embed_nodes(void *user, const by_pretrained *model, const char *run, by_error *error);

#endif
