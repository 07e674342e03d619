#include <stdlib.h>

#include "passes/passes.h"

typedef struct remat {
    by_graph *graph;
    size_t least;    /* minimum bytes of a value that is worth recomputing */
    by_value *again; /* of each value: the copy that the backward pass reads */
    size_t *place;   /* of each copied node, in order: the node that it goes before */
    int *reads;      /* of each value: how often the backward pass reads it */
    size_t old_nodes;
    size_t old_values;
} remat;

static bool is_cheap(const by__graph_node *node)
{
    return by__op_row_of(node->op)->cheap && !by__op_node_has_effects(node);
}

/* Returns true if a value is cheap to recompute from operands that the backward pass keeps
 * anyway. */
static bool is_worth_it(const remat *r, by_value value)
{
    const by__graph_value *v = &r->graph->values[value];
    const by__graph_node *node = v->producer < 0 ? NULL : &r->graph->nodes[v->producer];
    return node != NULL && node->phase == BY__FORWARD && is_cheap(node) && node->out[0] == value &&
           v->role == BY_ROLE_ACTIVATION && by__graph_value_bytes(v) >= r->least;
}

/* Returns true if the backward pass reads all of the node's operands for other reasons. */
static bool has_operands_kept(const remat *r, const by__graph_node *node)
{
    for (int i = 0; i < node->input_count; i++) {
        by_value value = node->in[i];
        if (value != BY_NONE && !by__role_is_external(r->graph->values[value].role) &&
            r->reads[value] == 0) {
            return false;
        }
    }
    return true;
}

/* Copies the node of a value, to be placed before node `reader`. */
static by_status copy(remat *r, by_value value, size_t reader, by_error *error)
{
    by_graph *graph = r->graph;
    const by__graph_node source = graph->nodes[graph->values[value].producer];
    by_value outs[BY_MAX_OUTPUTS];
    by_graph_set_block(graph, source.block);
    (void)by__op_add_node(graph, source.op, &source.attrs, source.in, source.input_count, outs);
    BY_TRY(by_graph_check(graph, error));
    r->place[graph->node_count - 1 - r->old_nodes] = reader;
    r->again[value] = outs[0];
    return BY_OK;
}

static void count_reads(const remat *r)
{
    for (size_t n = 0; n < r->old_nodes; n++) {
        const by__graph_node *reader = &r->graph->nodes[n];
        for (int i = 0; i < reader->input_count && reader->phase == BY__BACKWARD; i++) {
            if (reader->in[i] != BY_NONE) {
                r->reads[reader->in[i]]++;
            }
        }
    }
}

static by_status copy_all(remat *r, by_error *error)
{
    by_graph *graph = r->graph;
    for (size_t n = 0; n < r->old_nodes; n++) {
        for (int i = 0; graph->nodes[n].phase == BY__BACKWARD && i < graph->nodes[n].input_count;
             i++) {
            by_value value = graph->nodes[n].in[i];
            if (value == BY_NONE || (size_t)value >= r->old_values || !is_worth_it(r, value)) {
                continue;
            }
            const by__graph_node *source = &graph->nodes[graph->values[value].producer];
            if (r->again[value] == BY_NONE && has_operands_kept(r, source)) {
                BY_TRY(copy(r, value, n, error));
            }
            if (r->again[value] != BY_NONE) {
                graph->nodes[n].in[i] = r->again[value];
                r->reads[value]--;
            }
        }
    }
    return BY_OK;
}

by_status by_pass_rematerialize(by_graph *graph, size_t least_bytes, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    remat r = {.graph = graph,
               .least = least_bytes,
               .old_nodes = graph->node_count,
               .old_values = graph->value_count};
    by_status status = by__alloc((void **)&r.again, r.old_values, sizeof *r.again, "copies", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r.place, r.old_values, sizeof *r.place, "copies", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&r.reads, r.old_values, sizeof *r.reads, "copies", error);
    }
    for (size_t v = 0; v < r.old_values && status == BY_OK; v++) {
        r.again[v] = BY_NONE;
    }
    if (status == BY_OK) {
        count_reads(&r);
        graph->phase = BY__BACKWARD;
        status = copy_all(&r, error);
        by_graph_set_block(graph, -1);
    }
    if (status == BY_OK) {
        status = by__pass_graph_place(graph, r.place, r.old_nodes, error);
    }
    free(r.again);
    free(r.place);
    free(r.reads);
    return status;
}

/* Smaller results stay in a cache, so recomputing them costs more than keeping them. */
#define MIN_BYTES ((size_t)4 << 20)

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by_pass_rematerialize(graph, MIN_BYTES, error);
}

const by__pass by__pass_rematerialize = {.name = "rematerialize",
                                         .summary = "large activations and norms again",
                                         .purposes = BY_PURPOSE_TRAIN,
                                         .apply = apply};
