/* Norms over the micro-batches of several ranks (synchronised batch norm): each takes its mean and
 * variance from the rows of all of them, as if they were one micro-batch. What of it differs is the
 * op's (by__op_row.synchronise); this pass puts it in place. */
#include "passes/passes.h"

/* Gives the node other values in place of its outputs, which something else is to make. */
static by_status move_outputs(by_graph *graph, size_t n, by_error *error)
{
    for (int i = 0; i < graph->nodes[n].output_count; i++) {
        const by__graph_value *value = &graph->values[graph->nodes[n].out[i]];
        by__graph_type type = {value->dtype, value->shape};
        by_value made = by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL, type);
        BY_TRY(by_graph_check(graph, error));
        graph->nodes[n].out[i] = made;
        graph->values[made].producer = (int)n;
    }
    return BY_OK;
}

/* Makes nodes from `first` to before `end` read `value` instead of `made`. With `others`, of these
 * only those of ops that are not synchronised. */
static void redirect(by_graph *graph, size_t first, size_t end, by_value made, by_value value,
                     bool others)
{
    for (size_t n = first; n < end; n++) {
        by__graph_node *node = &graph->nodes[n];
        bool reads = !others || by__op_row_of(node->op)->synchronise == NULL;
        for (int i = 0; i < node->input_count && reads; i++) {
            node->in[i] = node->in[i] == made ? value : node->in[i];
        }
    }
}

static by_status synchronise(by_graph *graph, size_t n, const by_synchronise_options *o,
                             by_error *error)
{
    const by__graph_node before = graph->nodes[n];
    size_t first = graph->node_count;
    by__op_synchronised made;
    BY_TRY(move_outputs(graph, n, error));
    const by__graph_node node = graph->nodes[n];
    by__op_row_of(node.op)->synchronise(graph, &node, o->mesh, o->ranks, &made);
    BY_TRY(by_graph_check(graph, error));
    for (int i = 0; i < before.output_count; i++) {
        by__pass_graph_replace(graph, made.out[i], before.out[i]);
        redirect(graph, first, graph->node_count, made.out[i], before.out[i], false);
        if (made.elsewhere[i] != BY_NONE) {
            redirect(graph, 0, first, before.out[i], made.elsewhere[i], true);
        }
    }
    return BY_OK;
}

by_status by_pass_synchronise(by_graph *graph, const by_synchronise_options *options,
                              by_error *error)
{
    size_t count = graph->node_count;
    by__graph_phase phase = graph->phase;
    by_status status = by_graph_check(graph, error);
    if (options->ranks < 2) {
        return status;
    }
    for (size_t n = 0; n < count && status == BY_OK; n++) {
        if (by__op_row_of(graph->nodes[n].op)->synchronise != NULL) {
            graph->phase = graph->nodes[n].phase;
            by_graph_set_block(graph, graph->nodes[n].block);
            status = synchronise(graph, n, options, error);
        }
    }
    graph->phase = phase;
    by_graph_set_block(graph, -1);
    BY_TRY(status);
    by__graph_compact(graph);
    return by__graph_sort(graph, error);
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_synchronise(graph, &options->synchronise, error);
}

const by__pass by__pass_synchronise = {.name = "synchronise",
                                       .summary =
                                           "statistics of batch norm over the ranks, if asked for",
                                       .purposes = BY_PURPOSE_TRAIN,
                                       .apply = apply};
