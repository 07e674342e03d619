#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

typedef struct fuse {
    by_graph *graph;
    int *uses;
} fuse;

/* The node that makes `value` if it is a live node of kind `op`, the value is a plain activation
 * and nobody else reads it; NULL otherwise. */
static by__node *sole_producer(const fuse *f, by_value value, by_op op)
{
    const by__value *v = &f->graph->values[value];
    by__node *node = v->producer < 0 ? NULL : &f->graph->nodes[v->producer];
    bool ok = node != NULL && !node->dead && node->op == op && node->out[0] == value &&
              v->role == BY_ROLE_ACTIVATION && f->uses[value] == 1;
    return ok ? node : NULL;
}

/* Puts `node` with one more operand (at index `slot`) in the place of the ADD `sum`, whose result
 * it then makes; the node's old place is dropped. */
static by_status absorb(fuse *f, by__node *sum, by__node *node, int slot, by_value addend,
                        by_error *error)
{
    by_value *in;
    by_value result = sum->out[0];
    BY_TRY(by__alloc((void **)&in, (size_t)slot + 1, sizeof *in, "operands", error));
    for (int i = 0; i <= slot; i++) {
        in[i] = i < node->input_count ? node->in[i] : BY_NONE;
    }
    in[slot] = addend;
    by__node merged = *node;
    merged.in = in;
    merged.input_count = slot + 1;
    merged.out[0] = result;
    node->dead = true;
    node->output_count = 0; /* its other outputs are made by the merged node */
    free(sum->in);
    *sum = merged;
    f->graph->values[result].producer = (int)(sum - f->graph->nodes);
    for (int i = 1; i < merged.output_count; i++) {
        if (merged.out[i] != BY_NONE) {
            f->graph->values[merged.out[i]].producer = (int)(sum - f->graph->nodes);
        }
    }
    return BY_OK;
}

/* One way to take an addition into the node that makes one of its operands. */
typedef struct absorption {
    by_op op;
    int slot; /* operand that is added to the node's result */
} absorption;

static const absorption absorptions[] = {
    {BY_OP_MATMUL, 3},
    {BY_OP_LAYER_NORM_GRAD, 5},
    {BY_OP_RMS_NORM_GRAD, 4},
    {BY_OP_EMBEDDING_GRAD, 2},
};

static by_status fuse_add(fuse *f, by__node *sum, by_error *error)
{
    const by__value *a = &f->graph->values[sum->in[0]];
    const by__value *b = &f->graph->values[sum->in[1]];
    if (a->dtype != b->dtype || !by_shape_equal(&a->shape, &b->shape) || sum->in[0] == sum->in[1]) {
        return BY_OK;
    }
    for (size_t k = 0; k < BY_ARRAY_LENGTH(absorptions); k++) {
        for (int side = 1; side >= 0; side--) {
            by__node *node = sole_producer(f, sum->in[side], absorptions[k].op);
            int slot = absorptions[k].slot;
            bool free_slot =
                node != NULL && (node->input_count <= slot || node->in[slot] == BY_NONE);
            if (free_slot) {
                return absorb(f, sum, node, slot, sum->in[1 - side], error);
            }
        }
    }
    return BY_OK;
}

/* loss, lse = linear_cross_entropy(x, w, t) and dx, dw = its gradient: one node in the gradient's
 * place. The loss must not be read by another node, which could stand before that place. */
static by_status fuse_head(fuse *f, by__node *gradient, by_error *error)
{
    by_graph *graph = f->graph;
    int producer = graph->values[gradient->in[3]].producer;
    by__node *forward = producer < 0 ? NULL : &graph->nodes[producer];
    by_value *in;
    if (forward == NULL || forward->op != BY_OP_LINEAR_CROSS_ENTROPY ||
        f->uses[forward->out[0]] != 0 || f->uses[forward->out[1]] != 1) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&in, 4, sizeof *in, "operands", error));
    memcpy(in, forward->in, 3 * sizeof *in);
    in[3] = gradient->in[4];
    free(gradient->in);
    gradient->op = BY_OP_LINEAR_CROSS_ENTROPY_TRAIN;
    gradient->in = in;
    gradient->input_count = 4;
    gradient->out[2] = gradient->out[1];
    gradient->out[1] = gradient->out[0];
    gradient->out[0] = forward->out[0];
    gradient->output_count = 3;
    graph->values[forward->out[0]].producer = (int)(gradient - graph->nodes);
    forward->dead = true;
    forward->output_count = 0;
    return BY_OK;
}

by_status by_pass_fuse(by_graph *graph, by_error *error)
{
    fuse f = {.graph = graph};
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(by__graph_prune(graph, error));
    BY_TRY(by__graph_uses(graph, &f.uses, error));
    by_status status = BY_OK;
    for (size_t n = 0; n < graph->node_count && status == BY_OK; n++) {
        by__node *node = &graph->nodes[n];
        if (node->op == BY_OP_ADD) {
            status = fuse_add(&f, node, error);
        } else if (node->op == BY_OP_LINEAR_CROSS_ENTROPY_GRAD) {
            status = fuse_head(&f, node, error);
        }
    }
    free(f.uses);
    BY_TRY(status);
    by__graph_compact(graph);
    return by__graph_sort(graph, error);
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by_pass_fuse(graph, error);
}

const by__pass by__pass_fuse = {
    .name = "fuse",
    .summary = "additions into products and norms, head and loss into one",
    .purposes = BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS | BY_PURPOSE_UPDATE | BY_PURPOSE_INFER,
    .apply = apply};
