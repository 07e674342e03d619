#include <stdlib.h>

#include "passes/passes.h"

void by__pass_graph_replace(by_graph *graph, by_value made, by_value value)
{
    int producer = graph->values[made].producer;
    by__graph_node *node = &graph->nodes[producer];
    for (int i = 0; i < node->output_count; i++) {
        if (node->out[i] == made) {
            node->out[i] = value;
        }
    }
    graph->values[value].producer = producer;
    graph->values[value].shape = graph->values[made].shape;
    graph->values[made].producer = -1;
}

by_status by__pass_graph_prune(by_graph *graph, by_error *error)
{
    bool *used;
    BY_TRY(by__alloc((void **)&used, graph->value_count, sizeof *used, "prune", error));
    /* Readers come after producers, so a single backward walk sees every reader first. */
    for (size_t n = graph->node_count; n-- > 0;) {
        by__graph_node *node = &graph->nodes[n];
        bool keep = by__op_node_has_effects(node);
        for (int i = 0; i < node->output_count; i++) {
            by_value value = node->out[i];
            keep = keep || (value != BY_NONE &&
                            (used[value] || by__role_is_external(graph->values[value].role)));
        }
        node->dead = node->dead || !keep;
        for (int i = 0; i < node->input_count && !node->dead; i++) {
            if (node->in[i] != BY_NONE) {
                used[node->in[i]] = true;
            }
        }
    }
    free(used);
    by__graph_compact(graph);
    return BY_OK;
}
