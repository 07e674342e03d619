/* Measures activations. The pass comes after those that change what is computed, so it sees the
 * final values and does not influence the choices of other passes. */
#include <stdlib.h>

#include "passes/passes.h"

typedef struct observer {
    by_graph *graph;
    size_t old_nodes;
    by_value *last; /* of each block: the value to measure; BY_NONE: none */
    int blocks;
    size_t *place; /* of each measurement: the node that it goes before */
    size_t count;
} observer;

static bool can_be_measured(const by_graph *graph, by_value value)
{
    const by__graph_value *v = value == BY_NONE ? NULL : &graph->values[value];
    return v != NULL && v->producer >= 0 && v->role == BY_ROLE_ACTIVATION &&
           by__op_is_act(v->dtype) && v->shape.rank >= 2 &&
           graph->nodes[v->producer].phase == BY__FORWARD;
}

/* Prefers larger values, and the later one of equal size. */
static bool is_better(const by_graph *graph, by_value value, by_value than)
{
    if (than == BY_NONE) {
        return true;
    }
    int64_t mine = by_shape_count(&graph->values[value].shape);
    int64_t best = by_shape_count(&graph->values[than].shape);
    return mine > best ||
           (mine == best && graph->values[value].producer > graph->values[than].producer);
}

/* Finds the values of a block that nodes after it, or outside of all blocks, read in the forward
 * pass. */
static void find_outputs(const observer *o)
{
    const by_graph *graph = o->graph;
    for (size_t n = 0; n < o->old_nodes; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && node->phase == BY__FORWARD; i++) {
            if (!can_be_measured(graph, node->in[i])) {
                continue;
            }
            int block = graph->nodes[graph->values[node->in[i]].producer].block;
            if (block >= 0 && block != node->block &&
                is_better(graph, node->in[i], o->last[block])) {
                o->last[block] = node->in[i];
            }
        }
    }
}

/* Adds a measurement right after the node that makes the value. */
static by_status measure(observer *o, by_value value, const char *name, by_error *error)
{
    by_graph *graph = o->graph;
    size_t producer = (size_t)graph->values[value].producer;
    size_t at = o->count++;
    by_graph_set_block(graph, graph->nodes[producer].block);
    by_graph_output(graph, by__op_build_measure(graph, value, BY_NONE), name);
    BY_TRY(by_graph_check(graph, error));
    by__graph_node added = graph->nodes[graph->node_count - 1];
    for (; at > 0 && o->place[at - 1] > producer + 1; at--) {
        o->place[at] = o->place[at - 1];
        graph->nodes[o->old_nodes + at] = graph->nodes[o->old_nodes + at - 1];
    }
    o->place[at] = producer + 1;
    graph->nodes[o->old_nodes + at] = added;
    return BY_OK;
}

static by_status measure_all(observer *o, const by_observe_options *options, by_error *error)
{
    const struct {
        by_value value;
        const char *name;
    } more[] = {{options->hidden, "activation.hidden"}, {options->output, "activation.output"}};
    if (options->blocks) {
        find_outputs(o);
    }
    for (int b = 0; b < o->blocks; b++) {
        char name[48];
        (void)snprintf(name, sizeof name, "activation.block.%d", b);
        BY_TRY(o->last[b] == BY_NONE ? BY_OK : measure(o, o->last[b], name, error));
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(more); i++) {
        BY_TRY(can_be_measured(o->graph, more[i].value)
                   ? measure(o, more[i].value, more[i].name, error)
                   : BY_OK);
    }
    return by__pass_graph_place(o->graph, o->place, o->old_nodes, error);
}

by_status by_pass_observe(by_graph *graph, const by_observe_options *options, by_error *error)
{
    by__graph_phase phase = graph->phase;
    observer o = {.graph = graph, .old_nodes = graph->node_count};
    BY_TRY(by_graph_check(graph, error));
    for (size_t n = 0; n < graph->node_count; n++) {
        o.blocks = graph->nodes[n].block >= o.blocks ? graph->nodes[n].block + 1 : o.blocks;
    }
    size_t most = (size_t)o.blocks + 2;
    BY_TRY(by__alloc((void **)&o.last, most, sizeof *o.last, "observe", error));
    by_status status = by__alloc((void **)&o.place, most, sizeof *o.place, "observe", error);
    for (size_t b = 0; b < most; b++) {
        o.last[b] = BY_NONE;
    }
    if (status == BY_OK) {
        graph->phase = BY__FORWARD;
        status = measure_all(&o, options, error);
        graph->phase = phase;
        by_graph_set_block(graph, -1);
    }
    free(o.last);
    free(o.place);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    const by_observe_options *o = &options->observe;
    return o->blocks ? by_pass_observe(graph, o, error) : BY_OK;
}

const by__pass by__pass_observe = {.name = "observe",
                                   .summary = "measurements of activations, if asked for",
                                   .purposes = BY_PURPOSE_TRAIN,
                                   .apply = apply};
