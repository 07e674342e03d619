/* Makes the backward pass recompute values of the forward pass instead of keeping them.
 *
 * A backward node that reads a dropped value reads a copy instead, made just before it by copies of
 * the nodes that lead to it from kept values. Copies serve the backward nodes of one block only;
 * the next block makes its own, otherwise they would stay alive from the first block to the last.
 * Only values passed between blocks are recomputed once for all blocks, because their whole chain
 * would have to run again each time.
 *
 * Bits do not change, because a copy is the same node with the same operands. But fusion must also
 * treat the copy like the original: an addition fused into the product that makes its operand
 * rounds once instead of twice, and it is fused only if nothing else reads the product. So a
 * product that is followed by an addition and has other readers is pinned: it is kept, and
 * therefore still has those readers. */
#include <stdlib.h>
#include <string.h>

#include "passes/recompute.h"

/* ---- facts about values ---- */

static bool is_forward(const by_graph *graph, by_value value)
{
    int producer = value == BY_NONE ? -1 : graph->values[value].producer;
    return producer >= 0 && graph->nodes[producer].phase == BY__FORWARD &&
           graph->values[value].role == BY_ROLE_ACTIVATION;
}

static int block_of(const by_graph *graph, by_value value)
{
    return graph->nodes[graph->values[value].producer].block;
}

/* Returns true if the node that makes the value can absorb an addition. */
static bool is_absorber(const by_graph *graph, by_value value)
{
    const by__graph_node *node = &graph->nodes[graph->values[value].producer];
    return by__op_row_of(node->op)->addend > 0 && node->out[0] == value;
}

static void note_read(by__pass_forward_values *f, const by_graph *graph, const by__graph_node *node,
                      by_value value, const int *uses)
{
    bool other = node->block != block_of(graph, value);
    if (node->phase == BY__FORWARD) {
        f->crosses[value] = f->crosses[value] || other;
        f->pinned[value] =
            f->pinned[value] ||
            (uses[value] > 1 && by__op_row_of(node->op)->fuse != NULL && is_absorber(graph, value));
    } else {
        f->read[value] = true;
        f->foreign[value] = f->foreign[value] || other;
    }
}

by_status by__pass_forward_values_open(by__pass_forward_values *out, const by_graph *graph,
                                       by_error *error)
{
    by__pass_forward_values f = {0};
    int *uses = NULL;
    bool **arrays[] = {&f.may, &f.read, &f.crosses, &f.foreign, &f.pinned};
    by_status status = by__graph_uses(graph, &uses, error);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(arrays) && status == BY_OK; i++) {
        status = by__alloc((void **)arrays[i], graph->value_count + 1, 1, "recompute", error);
    }
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (is_forward(graph, node->in[i])) {
                note_read(&f, graph, node, node->in[i], uses);
            }
        }
    }
    for (size_t v = 0; v < graph->value_count && status == BY_OK; v++) {
        if (is_forward(graph, (by_value)v)) {
            const by__graph_node *node = &graph->nodes[graph->values[v].producer];
            f.may[v] = node->block >= 0 && !by__op_node_has_effects(node) && !f.pinned[v];
            f.crosses[v] = f.crosses[v] || node->block < 0;
        }
    }
    free(uses);
    if (status != BY_OK) {
        by__pass_forward_values_close(&f);
        return status;
    }
    *out = f;
    return BY_OK;
}

void by__pass_forward_values_close(by__pass_forward_values *values)
{
    free(values->may);
    free(values->read);
    free(values->crosses);
    free(values->foreign);
    free(values->pinned);
    *values = (by__pass_forward_values){0};
}

/* ---- copies ---- */

typedef struct node_list {
    size_t *items;
    size_t count;
    size_t capacity;
} node_list;

typedef struct recompute {
    by_graph *graph;
    const by__pass_forward_values *values;
    const bool *dropped;
    by_value *again;   /* of each value: its current copy */
    size_t *visited;   /* of each node: 1 + the last backward node that it was visited for */
    node_list passing; /* values whose copies serve only the current block */
    node_list chain;   /* nodes to copy */
    node_list places;  /* of each copy, in order: the node that it goes before */
    size_t old_nodes;
} recompute;

static by_status push(node_list *l, size_t item, by_error *error)
{
    BY_TRY(by__reserve((void **)&l->items, &l->capacity, l->count + 1, sizeof *l->items, error));
    l->items[l->count++] = item;
    return BY_OK;
}

/* Returns true if the value is recomputed: it is dropped, or would not be kept without this
 * reader. */
static bool is_made_again(const recompute *r, by_value value)
{
    const by__pass_forward_values *f = r->values;
    return is_forward(r->graph, value) && !f->pinned[value] &&
           !by__op_node_has_effects(&r->graph->nodes[r->graph->values[value].producer]) &&
           (f->read[value] ? f->may[value] && r->dropped[value] : true);
}

static by_status recompute_for(recompute *r, by_value value, size_t reader, by_error *error)
{
    size_t producer = (size_t)r->graph->values[value].producer;
    if (r->again[value] != BY_NONE || r->visited[producer] == reader + 1) {
        return BY_OK;
    }
    r->visited[producer] = reader + 1;
    return push(&r->chain, producer, error);
}

static int by_number(const void *a, const void *b)
{
    const size_t *x = a;
    const size_t *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Appends a copy of forward node n, to be placed before node `reader`. */
static by_status copy_node(recompute *r, size_t n, size_t reader, by_error *error)
{
    by_graph *graph = r->graph;
    const by__graph_node source = graph->nodes[n];
    by_value outs[BY_MAX_OUTPUTS];
    by_value *in;
    BY_TRY(by__alloc((void **)&in, (size_t)source.input_count + 1, sizeof *in, "operands", error));
    for (int i = 0; i < source.input_count; i++) {
        bool again = is_forward(graph, source.in[i]) && is_made_again(r, source.in[i]);
        in[i] = again ? r->again[source.in[i]] : source.in[i];
    }
    by_graph_set_block(graph, graph->nodes[reader].block);
    (void)by__op_add_node(graph, source.op, &source.attrs, in, source.input_count, outs);
    free(in);
    BY_TRY(by_graph_check(graph, error));
    for (int i = 0; i < source.output_count; i++) {
        if (source.out[i] == BY_NONE) {
            continue;
        }
        r->again[source.out[i]] = outs[i];
        graph->values[outs[i]].dtype = graph->values[source.out[i]].dtype;
        if (!r->values->crosses[source.out[i]]) {
            BY_TRY(push(&r->passing, (size_t)source.out[i], error));
        }
    }
    return push(&r->places, reader, error);
}

/* Makes the copy of a dropped value before node `reader`, with copies of everything that it depends
 * on and that is missing. */
static by_status make_again(recompute *r, by_value value, size_t reader, by_error *error)
{
    r->chain.count = 0;
    BY_TRY(recompute_for(r, value, reader, error));
    for (size_t k = 0; k < r->chain.count; k++) {
        const by__graph_node *node = &r->graph->nodes[r->chain.items[k]];
        for (int i = 0; i < node->input_count; i++) {
            if (is_made_again(r, node->in[i])) {
                BY_TRY(recompute_for(r, node->in[i], reader, error));
            }
        }
    }
    if (r->chain.count > 1) {
        qsort(r->chain.items, r->chain.count, sizeof *r->chain.items, by_number);
    }
    for (size_t k = 0; k < r->chain.count; k++) {
        BY_TRY(copy_node(r, r->chain.items[k], reader, error));
    }
    return BY_OK;
}

static void reset_block(recompute *r)
{
    for (size_t k = 0; k < r->passing.count; k++) {
        r->again[r->passing.items[k]] = BY_NONE;
    }
    r->passing.count = 0;
}

static by_status make_all(recompute *r, by_error *error)
{
    int block = -1;
    for (size_t n = 0; n < r->old_nodes; n++) {
        if (r->graph->nodes[n].phase != BY__BACKWARD) {
            continue;
        }
        if (r->graph->nodes[n].block >= 0 && r->graph->nodes[n].block != block) {
            block = r->graph->nodes[n].block;
            reset_block(r);
        }
        for (int i = 0; i < r->graph->nodes[n].input_count; i++) {
            by_value value = r->graph->nodes[n].in[i];
            if (is_made_again(r, value)) {
                BY_TRY(make_again(r, value, n, error));
                r->graph->nodes[n].in[i] = r->again[value];
            }
        }
    }
    return BY_OK;
}

by_status by__pass_graph_place(by_graph *graph, const size_t *place, size_t old_nodes,
                               by_error *error)
{
    by__graph_node *ordered;
    size_t kept = 0;
    size_t next = old_nodes;
    BY_TRY(by__alloc((void **)&ordered, graph->node_count + 1, sizeof *ordered, "order", error));
    for (size_t n = 0; n < old_nodes; n++) {
        for (; next < graph->node_count && place[next - old_nodes] == n; next++) {
            ordered[kept++] = graph->nodes[next];
        }
        ordered[kept++] = graph->nodes[n];
    }
    for (; next < graph->node_count; next++) {
        ordered[kept++] = graph->nodes[next];
    }
    if (kept > 0) {
        memcpy(graph->nodes, ordered, kept * sizeof *ordered);
    }
    free(ordered);
    by__graph_compact(graph);
    return BY_OK;
}

by_status by__pass_recompute_dropped(by_graph *graph, const by__pass_forward_values *values,
                                     const bool *dropped, by_error *error)
{
    /* Copies refer only to values that exist now, so the maps need no room for new ones. */
    size_t count = graph->value_count;
    by__graph_phase phase = graph->phase;
    recompute r = {
        .graph = graph, .values = values, .dropped = dropped, .old_nodes = graph->node_count};
    by_status status = by__alloc((void **)&r.again, count + 1, sizeof *r.again, "recompute", error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&r.visited, r.old_nodes + 1, sizeof *r.visited, "recompute", error);
    }
    for (size_t v = 0; v < count && status == BY_OK; v++) {
        r.again[v] = BY_NONE;
    }
    if (status == BY_OK) {
        graph->phase = BY__BACKWARD;
        status = make_all(&r, error);
        graph->phase = phase;
        by_graph_set_block(graph, -1);
    }
    if (status == BY_OK) {
        status = by__pass_graph_place(graph, r.places.items, r.old_nodes, error);
    }
    free(r.again);
    free(r.visited);
    free(r.passing.items);
    free(r.chain.items);
    free(r.places.items);
    return status;
}
