#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* The nodes of one block (layer), in ascending order. */
typedef struct block_nodes {
    int block;
    const size_t *nodes;
    size_t count;
    size_t first_backward; /* the first of them in the backward pass; SIZE_MAX without one */
    size_t copies;         /* of its forward nodes, which stand at the end one after another */
} block_nodes;

typedef struct recompute {
    by_graph *graph;
    bool *wanted;    /* forward values of a block that its backward pass needs again */
    by_value *again; /* their recomputed copies */
    size_t *nodes;   /* all nodes by block */
    block_nodes *blocks;
    size_t block_count;
    size_t old_nodes;
} recompute;

static int by_first_backward(const void *a, const void *b)
{
    const block_nodes *x = a;
    const block_nodes *y = b;
    return x->first_backward < y->first_backward ? -1 : x->first_backward > y->first_backward;
}

/* A node and its block, for sorting. */
typedef struct numbered {
    int block;
    size_t node;
} numbered;

static int by_block(const void *a, const void *b)
{
    const numbered *x = a;
    const numbered *y = b;
    if (x->block != y->block) {
        return x->block < y->block ? -1 : 1;
    }
    return x->node < y->node ? -1 : 1;
}

/* Lists the nodes of each block that the backward pass reaches, in the order in which it does. */
static by_status list_blocks(recompute *r, by_error *error)
{
    numbered *sorted;
    size_t nodes = r->old_nodes;
    BY_TRY(by__alloc((void **)&r->nodes, nodes, sizeof *r->nodes, "recompute", error));
    BY_TRY(by__alloc((void **)&r->blocks, nodes, sizeof *r->blocks, "recompute", error));
    BY_TRY(by__alloc((void **)&sorted, nodes, sizeof *sorted, "recompute", error));
    for (size_t n = 0; n < nodes; n++) {
        sorted[n] = (numbered){r->graph->nodes[n].block, n};
    }
    qsort(sorted, nodes, sizeof *sorted, by_block);
    for (size_t k = 0; k < nodes;) {
        block_nodes found = {sorted[k].block, &r->nodes[k], 0, SIZE_MAX, 0};
        for (; k < nodes && sorted[k].block == found.block; k++, found.count++) {
            r->nodes[k] = sorted[k].node;
            bool backward = r->graph->nodes[sorted[k].node].phase == BY__BACKWARD;
            if (backward && found.first_backward == SIZE_MAX) {
                found.first_backward = sorted[k].node;
            }
        }
        if (found.block >= 0 && found.first_backward != SIZE_MAX) {
            r->blocks[r->block_count++] = found;
        }
    }
    free(sorted);
    qsort(r->blocks, r->block_count, sizeof *r->blocks, by_first_backward);
    return BY_OK;
}

/* True for an activation of the block's forward pass that may be made again. */
static bool in_forward_block(const by_graph *graph, by_value value, int block)
{
    int producer = value == BY_NONE ? -1 : graph->values[value].producer;
    return producer >= 0 && graph->nodes[producer].phase == BY__FORWARD &&
           graph->nodes[producer].block == block &&
           graph->values[value].role == BY_ROLE_ACTIVATION &&
           !by__node_has_effects(&graph->nodes[producer]);
}

/* Marks values of the block that its backward nodes read, and what those are made from inside the
 * block. */
static void mark_wanted(const recompute *r, const block_nodes *b)
{
    for (size_t k = b->count; k-- > 0;) {
        const by__node *node = &r->graph->nodes[b->nodes[k]];
        bool reader = node->phase == BY__BACKWARD;
        for (int i = 0; i < node->output_count; i++) {
            reader = reader || (node->out[i] != BY_NONE && r->wanted[node->out[i]]);
        }
        for (int i = 0; i < node->input_count && reader; i++) {
            if (in_forward_block(r->graph, node->in[i], b->block)) {
                r->wanted[node->in[i]] = true;
            }
        }
    }
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
static by_status recompute_block(recompute *r, block_nodes *b, by_error *error)
{
    by_graph *graph = r->graph;
    size_t before = graph->node_count;
    mark_wanted(r, b);
    by_graph_set_block(graph, b->block);
    for (size_t k = 0; k < b->count; k++) {
        const by__node *node = &graph->nodes[b->nodes[k]];
        bool wanted = false;
        for (int i = 0; i < node->output_count; i++) {
            wanted = wanted || (node->out[i] != BY_NONE && r->wanted[node->out[i]]);
        }
        if (wanted && node->phase == BY__FORWARD) {
            BY_TRY(copy_node(r, b->nodes[k], error));
        }
    }
    b->copies = graph->node_count - before;
    for (size_t k = 0; k < b->count; k++) {
        by__node *node = &graph->nodes[b->nodes[k]];
        for (int i = 0; i < node->input_count && node->phase == BY__BACKWARD; i++) {
            if (node->in[i] != BY_NONE && r->again[node->in[i]] != BY_NONE) {
                node->in[i] = r->again[node->in[i]];
            }
        }
    }
    /* Copies stand for the values inside their block only. */
    for (size_t k = 0; k < b->count; k++) {
        const by__node *node = &graph->nodes[b->nodes[k]];
        for (int i = 0; i < node->output_count; i++) {
            if (node->out[i] != BY_NONE) {
                r->again[node->out[i]] = BY_NONE;
            }
        }
    }
    return BY_OK;
}

/* Moves the copies of each block, which stand at the end, to just before the block's first backward
 * node: earlier and they would live as long as what they replace. */
static by_status place_copies(const recompute *r, by_error *error)
{
    by_graph *graph = r->graph;
    by__node *ordered;
    size_t kept = 0;
    size_t next = r->old_nodes;
    const block_nodes *b = r->blocks;
    const block_nodes *end = r->blocks + r->block_count;
    BY_TRY(by__alloc((void **)&ordered, graph->node_count, sizeof *ordered, "order", error));
    for (size_t n = 0; n < r->old_nodes; n++) {
        if (b < end && b->first_backward == n) {
            for (size_t copy = 0; copy < b->copies; copy++) {
                ordered[kept++] = graph->nodes[next++];
            }
            b++;
        }
        ordered[kept++] = graph->nodes[n];
    }
    if (kept > 0) {
        memcpy(graph->nodes, ordered, kept * sizeof *ordered);
    }
    free(ordered);
    by__graph_compact(graph);
    return BY_OK;
}

by_status by_pass_recompute(by_graph *graph, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    /* Copies only name values that exist now, so the maps need no room for the new ones. */
    size_t values = graph->value_count;
    recompute r = {.graph = graph, .old_nodes = graph->node_count};
    by_status status = by__alloc((void **)&r.wanted, values, sizeof *r.wanted, "recompute", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&r.again, values, sizeof *r.again, "recompute", error);
    }
    if (status == BY_OK) {
        status = list_blocks(&r, error);
    }
    for (size_t v = 0; v < values && status == BY_OK; v++) {
        r.again[v] = BY_NONE;
    }
    graph->phase = BY__BACKWARD;
    /* The backward pass begins with the last block of the forward pass, which is left alone. */
    for (size_t k = 1; k < r.block_count && status == BY_OK; k++) {
        status = recompute_block(&r, &r.blocks[k], error);
    }
    by_graph_set_block(graph, -1);
    if (status == BY_OK) {
        status = place_copies(&r, error);
    }
    free(r.wanted);
    free(r.again);
    free(r.nodes);
    free(r.blocks);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return options->recompute ? by_pass_recompute(graph, error) : BY_OK;
}

const by__pass by__pass_recompute = {.name = "recompute",
                                     .summary = "whole blocks again, if asked for",
                                     .purposes = BY_PURPOSE_TRAIN,
                                     .apply = apply};
