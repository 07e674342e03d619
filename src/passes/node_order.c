#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* Reads of each value that are still to come, and what is alive now. */
typedef struct liveness {
    const by_graph *graph;
    int *uses;
    size_t alive;
} liveness;

static bool counts(const by_graph *graph, by_value value)
{
    return value != BY_NONE && graph->values[value].role == BY_ROLE_ACTIVATION;
}

/* Bytes that running a node adds, and those that are free after it. */
static size_t born(const liveness *l, const by__node *node)
{
    size_t bytes = 0;
    for (int i = 0; i < node->output_count; i++) {
        if (counts(l->graph, node->out[i])) {
            bytes += by__value_bytes(&l->graph->values[node->out[i]]);
        }
    }
    return bytes;
}

/* How often a node reads a value, counted at the value's first place only (0 at the others). */
static int reads_at(const by__node *node, int i)
{
    int reads = 0;
    for (int k = 0; k < node->input_count; k++) {
        if (node->in[k] == node->in[i]) {
            if (k < i) {
                return 0;
            }
            reads++;
        }
    }
    return reads;
}

static size_t freed(const liveness *l, const by__node *node)
{
    size_t bytes = 0;
    for (int i = 0; i < node->input_count; i++) {
        if (counts(l->graph, node->in[i])) {
            int reads = reads_at(node, i);
            if (reads > 0 && l->uses[node->in[i]] == reads) {
                bytes += by__value_bytes(&l->graph->values[node->in[i]]);
            }
        }
    }
    for (int i = 0; i < node->output_count; i++) {
        if (counts(l->graph, node->out[i]) && l->uses[node->out[i]] == 0) {
            bytes += by__value_bytes(&l->graph->values[node->out[i]]);
        }
    }
    return bytes;
}

/* Runs a node: returns the bytes alive while it runs. */
static size_t step(liveness *l, const by__node *node)
{
    size_t during = l->alive + born(l, node);
    l->alive = during - freed(l, node);
    for (int i = 0; i < node->input_count; i++) {
        if (node->in[i] != BY_NONE) {
            l->uses[node->in[i]]--;
        }
    }
    return during;
}

by_status by__peak_bytes(size_t *out, const by_graph *graph, by_error *error)
{
    liveness l = {.graph = graph};
    size_t peak = 0;
    BY_TRY(by__graph_uses(graph, &l.uses, error));
    for (size_t n = 0; n < graph->node_count; n++) {
        size_t during = step(&l, &graph->nodes[n]);
        peak = during > peak ? during : peak;
    }
    free(l.uses);
    *out = peak;
    return BY_OK;
}

/* Operands of each node that are still to be made. */
static void count_waits(const by_graph *graph, int *waits)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            waits[n] += node->in[i] != BY_NONE && graph->values[node->in[i]].producer >= 0;
        }
    }
}

/* Of the nodes that can run, the one that leaves the least alive; the earliest among equals. */
static size_t choose(const liveness *l, const int *waits, const bool *done)
{
    const by_graph *graph = l->graph;
    size_t best = graph->node_count;
    int64_t best_growth = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (done[n] || waits[n] > 0) {
            continue;
        }
        int64_t growth = (int64_t)born(l, &graph->nodes[n]) - (int64_t)freed(l, &graph->nodes[n]);
        if (best == graph->node_count || growth < best_growth) {
            best = n;
            best_growth = growth;
        }
    }
    return best;
}

static void release_readers(const by_graph *graph, const by__node *made, int *waits)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            for (int o = 0; o < made->output_count; o++) {
                waits[n] -= made->out[o] != BY_NONE && graph->nodes[n].in[i] == made->out[o];
            }
        }
    }
}

/* The greedy order into `order`, its peak into *peak. */
static by_status schedule(const by_graph *graph, size_t *order, size_t *peak, by_error *error)
{
    liveness l = {.graph = graph};
    int *waits = NULL;
    bool *done = NULL;
    *peak = 0;
    by_status status = by__graph_uses(graph, &l.uses, error);
    if (status == BY_OK) {
        status = by__alloc((void **)&waits, graph->node_count, sizeof *waits, "order", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&done, graph->node_count, sizeof *done, "order", error);
    }
    if (status == BY_OK) {
        count_waits(graph, waits);
        for (size_t k = 0; k < graph->node_count; k++) {
            size_t n = choose(&l, waits, done);
            size_t during = step(&l, &graph->nodes[n]);
            *peak = during > *peak ? during : *peak;
            done[n] = true;
            order[k] = n;
            release_readers(graph, &graph->nodes[n], waits);
        }
    }
    free(l.uses);
    free(waits);
    free(done);
    return status;
}

by_status by_pass_order(by_graph *graph, by_error *error)
{
    size_t *order;
    size_t present;
    size_t greedy;
    BY_TRY(by_graph_check(graph, error));
    if (graph->node_count == 0) {
        return BY_OK;
    }
    BY_TRY(by__peak_bytes(&present, graph, error));
    BY_TRY(by__alloc((void **)&order, graph->node_count, sizeof *order, "order", error));
    by_status status = schedule(graph, order, &greedy, error);
    if (status == BY_OK && greedy < present) {
        by__node *nodes;
        status = by__alloc((void **)&nodes, graph->node_count, sizeof *nodes, "order", error);
        if (status == BY_OK) {
            for (size_t k = 0; k < graph->node_count; k++) {
                nodes[k] = graph->nodes[order[k]];
            }
            memcpy(graph->nodes, nodes, graph->node_count * sizeof *nodes);
            free(nodes);
            by__graph_compact(graph);
        }
    }
    free(order);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by_pass_order(graph, error);
}

const by__pass by__pass_order = {.name = "order",
                                 .summary = "a sequence with a low peak of memory",
                                 .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS |
                                             BY_PURPOSE_UPDATE | BY_PURPOSE_INFER,
                                 .apply = apply};
