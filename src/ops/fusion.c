/* Fuses an addition into the node that makes one of its operands, or into those of both. */
#include <stdlib.h>

#include "ops/ops.h"

/* Returns the node that makes `value` if that node can absorb an addition, and the value is a plain
 * activation with no other reader; else NULL. */
static by__graph_node *absorber(by_graph *graph, const int *uses, by_value value)
{
    const by__graph_value *v = &graph->values[value];
    by__graph_node *node = v->producer < 0 ? NULL : &graph->nodes[v->producer];
    if (node == NULL || node->dead || node->out[0] != value || v->role != BY_ROLE_ACTIVATION ||
        uses[value] != 1) {
        return NULL;
    }
    int slot = by__op_row_in(graph, node->op)->addend;
    bool is_free = slot > 0 && (node->input_count <= slot || node->in[slot] == BY_NONE);
    return is_free ? node : NULL;
}

/* Replaces the addition `sum` by `node` with `addend` as an additional operand. The old node is
 * dropped. */
static by_status absorb(by_graph *graph, by__graph_node *sum, by__graph_node *node, by_value addend,
                        by_error *error)
{
    by_value *in;
    int slot = by__op_row_in(graph, node->op)->addend;
    by_value result = sum->out[0];
    BY_TRY(by__alloc((void **)&in, (size_t)slot + 1, sizeof *in, "operands", error));
    for (int i = 0; i <= slot; i++) {
        in[i] = i < node->input_count ? node->in[i] : BY_NONE;
    }
    in[slot] = addend;
    by__graph_node merged = *node;
    merged.in = in;
    merged.input_count = slot + 1;
    merged.out[0] = result;
    node->dead = true;
    node->output_count = 0; /* the merged node makes its other outputs */
    free(sum->in);
    *sum = merged;
    graph->values[result].producer = (int)(sum - graph->nodes);
    for (int i = 1; i < merged.output_count; i++) {
        if (merged.out[i] != BY_NONE) {
            graph->values[merged.out[i]].producer = (int)(sum - graph->nodes);
        }
    }
    return BY_OK;
}

/* Returns the PAD that makes `value`, if nothing else reads that; else NULL. */
static by__graph_node *padding(by_graph *graph, const int *uses, by_value value)
{
    const by__graph_value *v = &graph->values[value];
    by__graph_node *node = v->producer < 0 ? NULL : &graph->nodes[v->producer];
    bool is_own = v->role == BY_ROLE_ACTIVATION && uses[value] == 1;
    return node != NULL && !node->dead && node->op == BY_OP_PAD && is_own ? node : NULL;
}

/* Whether `first` has what is in front of `second` along an axis, and they fill all of it. */
static bool are_adjacent(const by_graph *graph, const by__graph_node *first,
                         const by__graph_node *second)
{
    int64_t axis = first->attrs.axis;
    int64_t middle = graph->values[first->in[0]].shape.dim[axis];
    return second->attrs.axis == axis && first->attrs.begin == 0 && second->attrs.begin == middle &&
           middle + graph->values[second->in[0]].shape.dim[axis] == second->attrs.rows;
}

/* The gradients of two parts of a tensor, each with zeros where the other is, are joined instead of
 * added. Returns false if `sum` is no such addition. */
static bool join(by_graph *graph, by__graph_node *sum, const int *uses)
{
    by__graph_node *parts[2] = {padding(graph, uses, sum->in[0]), padding(graph, uses, sum->in[1])};
    if (parts[0] == NULL || parts[1] == NULL) {
        return false;
    }
    int front = are_adjacent(graph, parts[0], parts[1]) ? 0 : 1;
    if (front == 1 && !are_adjacent(graph, parts[1], parts[0])) {
        return false;
    }
    sum->op = BY_OP_CONCAT;
    sum->attrs = (by_attrs){.axis = parts[0]->attrs.axis};
    sum->in[0] = parts[front]->in[0];
    sum->in[1] = parts[1 - front]->in[0];
    parts[0]->dead = parts[1]->dead = true;
    return true;
}

by_status by__op_fuse_addition(by_graph *graph, size_t n, const int *uses, by_error *error)
{
    by__graph_node *sum = &graph->nodes[n];
    const by__graph_value *a = &graph->values[sum->in[0]];
    const by__graph_value *b = &graph->values[sum->in[1]];
    if (a->dtype != b->dtype || !by_shape_equal(&a->shape, &b->shape) || sum->in[0] == sum->in[1]) {
        return BY_OK;
    }
    if (join(graph, sum, uses)) {
        return BY_OK;
    }
    by__graph_node *first = absorber(graph, uses, sum->in[0]);
    by__graph_node *second = absorber(graph, uses, sum->in[1]);
    /* If both can, take the op that comes first in the table, where matrix products are. */
    if (second != NULL && (first == NULL || second->op <= first->op)) {
        return absorb(graph, sum, second, sum->in[0], error);
    }
    return first == NULL ? BY_OK : absorb(graph, sum, first, sum->in[1], error);
}
