#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

typedef struct recompute {
    by_graph *graph;
    bool *wanted;    /* forward values of the block that its backward pass needs again */
    by_value *again; /* their recomputed copies */
} recompute;

/* The block whose backward pass comes first: the last of the forward pass. */
static int last_block(const by_graph *graph)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        if (graph->nodes[n].phase == BY__BACKWARD && graph->nodes[n].block >= 0) {
            return graph->nodes[n].block;
        }
    }
    return -1;
}

/* True for the first backward node of a block. */
static bool begins_backward(const by_graph *graph, size_t n)
{
    const by__node *node = &graph->nodes[n];
    bool first = node->phase == BY__BACKWARD && node->block >= 0;
    for (size_t i = 0; i < n && first; i++) {
        first = graph->nodes[i].phase != BY__BACKWARD || graph->nodes[i].block != node->block;
    }
    return first;
}

/* True for an activation of the block's forward pass that may be made again. */
static bool in_forward_block(const by_graph *graph, by_value value, int block)
{
    int producer = value == BY_NONE ? -1 : graph->values[value].producer;
    return producer >= 0 && graph->nodes[producer].phase == BY__FORWARD &&
           graph->nodes[producer].block == block &&
           graph->values[value].role == BY_ROLE_ACTIVATION &&
           !by__op_has_effects(by__op_row_of(graph->nodes[producer].op));
}

/* Values of the block that backward nodes read, and what those are made from inside the block. */
static bool mark_wanted(recompute *r, int block)
{
    by_graph *graph = r->graph;
    bool any = false;
    for (size_t n = graph->node_count; n-- > 0;) {
        const by__node *node = &graph->nodes[n];
        bool reader = node->block == block && node->phase == BY__BACKWARD;
        for (int i = 0; i < node->output_count && node->block == block; i++) {
            reader = reader || (node->out[i] != BY_NONE && r->wanted[node->out[i]]);
        }
        for (int i = 0; i < node->input_count && reader; i++) {
            if (in_forward_block(graph, node->in[i], block)) {
                r->wanted[node->in[i]] = true;
                any = true;
            }
        }
    }
    return any;
}

/* Appends a copy of forward node n that reads recomputed operands where there are some. */
static by_status copy_node(recompute *r, size_t n, by_error *error)
{
    by_graph *graph = r->graph;
    by__node source = graph->nodes[n];
    by_value outs[BY_MAX_OUTPUTS];
    by_value *in;
    BY_TRY(by__alloc((void **)&in, (size_t)source.input_count, sizeof *in, "operands", error));
    for (int i = 0; i < source.input_count; i++) {
        bool again = source.in[i] != BY_NONE && r->again[source.in[i]] != BY_NONE;
        in[i] = again ? r->again[source.in[i]] : source.in[i];
    }
    (void)by__op_add_node(graph, source.op, &source.attrs, in, source.input_count, outs);
    free(in);
    BY_TRY(by_graph_check(graph, error));
    for (int i = 0; i < source.output_count; i++) {
        if (source.out[i] != BY_NONE) {
            r->again[source.out[i]] = outs[i];
        }
    }
    return BY_OK;
}

/* Copies the wanted nodes of a block and lets its backward nodes read the copies. */
static by_status recompute_block(recompute *r, int block, size_t nodes, by_error *error)
{
    by_graph *graph = r->graph;
    by_graph_set_block(graph, block);
    for (size_t n = 0; n < nodes; n++) {
        const by__node *node = &graph->nodes[n];
        bool wanted = false;
        for (int i = 0; i < node->output_count; i++) {
            wanted = wanted || (node->out[i] != BY_NONE && r->wanted[node->out[i]]);
        }
        if (wanted && node->phase == BY__FORWARD && node->block == block) {
            BY_TRY(copy_node(r, n, error));
        }
    }
    for (size_t n = 0; n < nodes; n++) {
        by__node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && node->phase == BY__BACKWARD; i++) {
            if (node->block == block && node->in[i] != BY_NONE &&
                r->again[node->in[i]] != BY_NONE) {
                node->in[i] = r->again[node->in[i]];
            }
        }
    }
    return BY_OK;
}

/* Moves the copies of each block, which stand at the end, to just before the block's first backward
 * node: earlier and they would live as long as what they replace. */
static by_status place_copies(by_graph *graph, size_t nodes, by_error *error)
{
    by__node *ordered;
    size_t kept = 0;
    BY_TRY(by__alloc((void **)&ordered, graph->node_count, sizeof *ordered, "order", error));
    bool *placed;
    by_status status =
        by__alloc((void **)&placed, graph->node_count, sizeof *placed, "order", error);
    if (status != BY_OK) {
        free(ordered);
        return status;
    }
    for (size_t n = 0; n < nodes; n++) {
        int block = graph->nodes[n].block;
        for (size_t c = nodes; graph->nodes[n].phase == BY__BACKWARD && c < graph->node_count;
             c++) {
            if (!placed[c] && graph->nodes[c].block == block) {
                placed[c] = true;
                ordered[kept++] = graph->nodes[c];
            }
        }
        ordered[kept++] = graph->nodes[n];
    }
    memcpy(graph->nodes, ordered, kept * sizeof *ordered);
    free(ordered);
    free(placed);
    by__graph_compact(graph);
    return BY_OK;
}

by_status by_pass_recompute(by_graph *graph, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    int last = last_block(graph);
    size_t nodes = graph->node_count;
    /* Copies only name values that exist now, so the maps need no room for the new ones. */
    size_t values = graph->value_count;
    recompute r = {.graph = graph};
    by_status status = by__alloc((void **)&r.wanted, values, sizeof *r.wanted, "recompute", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r.again, values, sizeof *r.again, "recompute", error);
    }
    graph->phase = BY__BACKWARD;
    for (size_t first = 0; first < nodes && status == BY_OK; first++) {
        int block = graph->nodes[first].block;
        if (block == last || !begins_backward(graph, first)) {
            continue;
        }
        /* Maps are per block; the node list up to `nodes` still holds the original graph. */
        memset(r.wanted, 0, values * sizeof *r.wanted);
        for (size_t v = 0; v < values; v++) {
            r.again[v] = BY_NONE;
        }
        size_t count = graph->node_count;
        graph->node_count = nodes;
        bool any = mark_wanted(&r, block);
        graph->node_count = count;
        if (any) {
            status = recompute_block(&r, block, nodes, error);
        }
    }
    free(r.wanted);
    free(r.again);
    by_graph_set_block(graph, -1);
    return status == BY_OK ? place_copies(graph, nodes, error) : status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return options->recompute ? by_pass_recompute(graph, error) : BY_OK;
}

const by__pass by__pass_recompute = {.name = "recompute",
                                     .summary = "whole blocks again, if asked for",
                                     .purposes = BY_PURPOSE_TRAIN,
                                     .apply = apply};
