/* Fuses element-wise nodes into one map (banyan/map.h), which reads and writes memory once.
 *
 * A tree of nodes whose inner results are f32, of one shape and read only once becomes a map. Steps
 * of a map compute and round in f32 as the nodes do, so no bit changes. Only the root may be bf16;
 * the map rounds it as the node would. */
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

/* Maximum number of nodes in a map; with the scalars that they read they fit into its steps. */
#define MAX_NODES (BY_MAP_MAX_STEPS / 2)

typedef struct fusion {
    by_graph *graph;
    const int *uses;
    by_map map;
    const by_shape *shape; /* of all tensors */
    int waiting;           /* operands not looked at yet; each may become an input */
    size_t taken[MAX_NODES];
    int count;
} fusion;

static bool is_scalar(const by_graph *graph, by_value value, const by_shape *shape)
{
    const by__graph_value *v = &graph->values[value];
    return v->dtype == BY_F32 && by_shape_count(&v->shape) == 1 && by_shape_count(shape) != 1;
}

/* Returns true if a map can do the node's work on tensors of `shape` with the same bits: its
 * operands have the shape or, except for the first, are single numbers. In bf16 only casts qualify,
 * because the bf16 kernels of functions are less exact. */
static bool is_step(const by_graph *graph, const by__graph_node *node, const by_shape *shape)
{
    const by__op_row *row = by__op_row_of(node->op);
    if (row->step == NULL || node->dead) {
        return false;
    }
    const by__graph_value *out = &graph->values[node->out[0]];
    bool is_cast = node->op == BY_OP_CAST;
    bool fits = by_shape_equal(&out->shape, shape) &&
                (out->dtype == BY_F32 || (is_cast && by__op_is_act(out->dtype)));
    for (int i = 0; i < node->input_count && fits; i++) {
        const by__graph_value *in = &graph->values[node->in[i]];
        fits =
            (in->dtype == BY_F32 || (is_cast && by__op_is_act(in->dtype))) &&
            (by_shape_equal(&in->shape, shape) || (i > 0 && is_scalar(graph, node->in[i], shape)));
    }
    return fits;
}

/* Returns the node that makes `value` if the map can absorb it: nothing else reads the value, and
 * there is room for the node's own operands. */
static const by__graph_node *step_of(const fusion *f, by_value value)
{
    const by__graph_value *v = &f->graph->values[value];
    if (v->producer < 0 || v->role != BY_ROLE_ACTIVATION || v->dtype != BY_F32 ||
        f->uses[value] != 1 || f->count == MAX_NODES) {
        return NULL;
    }
    const by__graph_node *node = &f->graph->nodes[v->producer];
    int inputs = f->map.program.inputs + f->waiting + node->input_count;
    return inputs <= BY_MAP_MAX_INPUTS && is_step(f->graph, node, f->shape) ? node : NULL;
}

static int add_step(fusion *f, const by__graph_node *node);

/* Returns the number of a value in the map: of the step that makes it, or of an input. */
static int add_value(fusion *f, by_value value)
{
    const by__graph_node *node = step_of(f, value);
    f->waiting--;
    if (node != NULL) {
        return add_step(f, node);
    }
    return is_scalar(f->graph, value, f->shape) ? by_map_scalar(&f->map, value, 0)
                                                : by_map_input(&f->map, value);
}

static int add_step(fusion *f, const by__graph_node *node)
{
    int operand[BY_MAP_MAX_INPUTS] = {0};
    f->taken[f->count++] = (size_t)(node - f->graph->nodes);
    f->waiting += node->input_count;
    for (int i = 0; i < node->input_count; i++) {
        operand[i] = add_value(f, node->in[i]);
    }
    return by__op_row_of(node->op)->step(&f->map, node, operand);
}

/* Replaces the root by the map and drops the other nodes. */
static by_status replace(fusion *f, by__graph_node *root, by_error *error)
{
    by_value *in;
    by_attrs attrs;
    BY_TRY(by__op_map_finish(&f->map, &attrs, error));
    size_t inputs = (size_t)f->map.program.inputs;
    BY_TRY(by__alloc((void **)&in, inputs, sizeof *in, "operands", error));
    memcpy(in, f->map.in, inputs * sizeof *in);
    for (int i = 1; i < f->count; i++) {
        f->graph->nodes[f->taken[i]].dead = true;
    }
    free(root->in);
    root->op = BY_OP_MAP;
    root->attrs = attrs;
    root->in = in;
    root->input_count = f->map.program.inputs;
    return BY_OK;
}

by_status by__op_fuse_map(by_graph *graph, size_t n, const int *uses, by_error *error)
{
    by__graph_node *root = &graph->nodes[n];
    if (root->output_count != 1) {
        return BY_OK;
    }
    const by__graph_value *out = &graph->values[root->out[0]];
    if (!is_step(graph, root, &out->shape)) {
        return BY_OK;
    }
    fusion f = {.graph = graph, .uses = uses, .shape = &out->shape};
    by_map_begin(&f.map, graph);
    by_map_result(&f.map, add_step(&f, root), out->dtype);
    return f.count > 1 ? replace(&f, root, error) : BY_OK;
}
