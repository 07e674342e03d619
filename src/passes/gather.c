/* Parameters split over ranks (ZeRO stage 3, Rajbhandari et al. 2020; FSDP, Zhao et al. 2023).
 *
 * A trained matrix is gathered before its first use. The gathered matrix is an activation: the
 * memory pass frees it after its last use, and the overlap pass starts the gathering early. The
 * backward pass gathers again what the forward pass has freed, and so does any other place that
 * uses the parameter: a table that both embeds tokens and gives the logits is not kept through all
 * blocks. */
#include <stdlib.h>

#include "passes/passes.h"

typedef struct gather_pass {
    by_graph *graph;
    const by_gather_options *options;
    size_t old_nodes;
    int *place; /* of each node: nodes with equal places share gathered copies */
} gather_pass;

enum { PHASES = BY__UPDATE + 1 };

/* Returns a parameter of the graph that lists the split ones, or NULL. */
static const by__graph_value *listed(const gather_pass *g, by_value parameter, by_value *number)
{
    const by_graph *list = g->options->parameters == NULL ? g->graph : g->options->parameters;
    *number = by_graph_find(list, g->graph->values[parameter].name);
    bool found = *number != BY_NONE && list->values[*number].role == BY_ROLE_PARAMETER;
    return found ? &list->values[*number] : NULL;
}

static bool is_divided(const gather_pass *g, by_value v)
{
    by_value number;
    const by__graph_value *value = &g->graph->values[v];
    if (value->role != BY_ROLE_PARAMETER || value->frozen || value->shape.rank < 2) {
        return false;
    }
    const by__graph_value *in_list = listed(g, v, &number);
    return in_list == NULL || !in_list->frozen;
}

/* Sets places: one for each block and phase (with `keep` one for each block), and outside of blocks
 * one each for the nodes before, between and after blocks. */
static void find_places(gather_pass *g)
{
    const by_graph *graph = g->graph;
    int outside = 0; /* counts places outside of blocks, which are odd */
    bool inside = false;
    for (size_t n = 0; n < g->old_nodes; n++) {
        const by__graph_node *node = &graph->nodes[n];
        int phase = g->options->keep ? 0 : (int)node->phase;
        outside += inside && node->block < 0;
        inside = node->block >= 0;
        g->place[n] =
            inside ? 2 * (node->block * PHASES + phase) : 2 * (outside * PHASES + phase) + 1;
    }
}

/* Finds a parameter's number in options->parameters. */
static by_status number_of(const gather_pass *g, by_value parameter, int64_t *out, by_error *error)
{
    const by_graph *list = g->options->parameters == NULL ? g->graph : g->options->parameters;
    by_value found;
    *out = 0;
    if (listed(g, parameter, &found) == NULL) {
        return by_error_set(error, BY_EARG, "gather: there is no parameter '%s' to number",
                            g->graph->values[parameter].name);
    }
    for (by_value v = 0; v < found; v++) {
        *out += list->values[v].role == BY_ROLE_PARAMETER;
    }
    return BY_OK;
}

/* Makes all nodes of a place that read a parameter read one gathered copy. */
static by_status gather_for(gather_pass *g, by_value parameter, size_t first, by_error *error)
{
    by_graph *graph = g->graph;
    int64_t number;
    BY_TRY(number_of(g, parameter, &number, error));
    graph->phase = graph->nodes[first].phase;
    by_graph_set_block(graph, graph->nodes[first].block);
    by_value whole = by__op_build_gather_parameter(graph, parameter, number, g->options->mesh,
                                                   g->options->ranks);
    BY_TRY(by_graph_check(graph, error));
    for (size_t n = first; n < g->old_nodes; n++) {
        by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && g->place[n] == g->place[first]; i++) {
            node->in[i] = node->in[i] == parameter ? whole : node->in[i];
        }
    }
    return BY_OK;
}

static by_status gather_parameters(gather_pass *g, by_error *error)
{
    size_t values = g->graph->value_count;
    BY_TRY(by__alloc((void **)&g->place, g->old_nodes, sizeof *g->place, "gather", error));
    find_places(g);
    for (size_t v = 0; v < values; v++) {
        for (size_t n = 0; n < g->old_nodes && is_divided(g, (by_value)v); n++) {
            if (by__node_reads(&g->graph->nodes[n], (by_value)v)) {
                BY_TRY(gather_for(g, (by_value)v, n, error));
            }
        }
    }
    return by__graph_sort(g->graph, error);
}

by_status by_pass_gather(by_graph *graph, const by_gather_options *options, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (options->ranks <= 1) {
        return BY_OK;
    }
    if (options->mesh == 0) {
        return by_error_set(error, BY_EARG, "gather: %d ranks over no axis of the mesh",
                            options->ranks);
    }
    by__graph_phase phase = graph->phase;
    gather_pass g = {.graph = graph, .options = options, .old_nodes = graph->node_count};
    by_status status = gather_parameters(&g, error);
    graph->phase = phase;
    by_graph_set_block(graph, -1);
    free(g.place);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_gather(graph, &options->gather, error);
}

const by__pass by__pass_gather = {.name = "gather",
                                  .summary = "parameters in parts, gathered for their use",
                                  .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS,
                                  .apply = apply};
