#include <stdlib.h>

#include "ops/ops.h"

int64_t by__op_last_dim(const by_shape *shape)
{
    return shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
}

int64_t by__op_rows(const by_shape *shape)
{
    return by_shape_count(shape) / by__op_last_dim(shape);
}

bool by__op_is_act(by_dtype dtype)
{
    return by_dtype_is_float(dtype);
}

bool by__op_is_scalar(const by__graph_type *type)
{
    return type->dtype == BY_F32 && by_shape_count(&type->shape) == 1;
}

bool by__op_type_equal(const by__graph_type *a, const by__graph_type *b)
{
    return a->dtype == b->dtype && by_shape_equal(&a->shape, &b->shape);
}

double by__op_type_bytes(const by__graph_type *type)
{
    return by__absent(type)
               ? 0.0
               : (double)by_shape_count(&type->shape) * (double)by_dtype_size(type->dtype);
}

by_status by__op_refuse(const by__op_signature *s, by_error *error, const char *why)
{
    by_string text = {0};
    char *operands = NULL;
    for (int i = 0; i < s->input_count && i < 6; i++) {
        char shape[128];
        by__string_append(&text, i == 0 ? "" : ", ");
        if (by__absent(&s->in[i])) {
            by__string_append(&text, "-");
        } else {
            by_string_format(&text, "%s %s", by_dtype_name(s->in[i].dtype),
                             by_shape_print(&s->in[i].shape, shape));
        }
    }
    BY_TRY(by__string_release(&text, &operands, error));
    by_status status =
        by_error_set(error, BY_EARG, "%s: %s; operands: %s", by_op_name(s->op), why, operands);
    free(operands);
    return status;
}

by_status by__op_row_infer(const by__op_row *row, const by__op_signature *s,
                           by__graph_type out[BY_MAX_OUTPUTS], by_error *error)
{
    if (row == NULL) {
        return by_error_set(error, BY_EARG, "no operation has number %d", (int)s->op);
    }
    if (s->input_count < row->min_inputs ||
        (row->max_inputs >= 0 && s->input_count > row->max_inputs)) {
        return by__op_refuse(s, error, "wrong number of operands");
    }
    for (int i = 0; i < s->input_count; i++) {
        if (by__absent(&s->in[i]) && !by__mask_has(row->optional, i)) {
            return by__op_refuse(s, error, "an operand is missing");
        }
    }
    for (int i = 0; i < BY_MAX_OUTPUTS; i++) {
        out[i].shape.rank = -1;
    }
    BY_TRY(by__op_attrs_check(row, s, error));
    return row->infer(s, out, error);
}

void by__op_node_types(const by_graph *graph, const by__graph_node *node, by__graph_type *in)
{
    for (int i = 0; i < node->input_count; i++) {
        in[i].dtype = BY_F32;
        in[i].shape.rank = -1;
        if (node->in[i] != BY_NONE) {
            in[i].dtype = graph->values[node->in[i]].dtype;
            in[i].shape = graph->values[node->in[i]].shape;
        }
    }
}

by_value by__op_add_node(by_graph *graph, by_op op, const by_attrs *attrs, const by_value *in,
                         int input_count, by_value outs[BY_MAX_OUTPUTS])
{
    by__graph_type *types = NULL;
    by__graph_type out[BY_MAX_OUTPUTS];
    by__graph_node probe = {.in = (by_value *)(uintptr_t)in, .input_count = input_count};
    by_value result = BY_NONE;
    if (graph->error.status != BY_OK) {
        return BY_NONE;
    }
    for (int i = 0; i < input_count; i++) {
        if (in[i] != BY_NONE && !by__graph_has(graph, in[i])) {
            by__graph_fail(graph, BY_EARG, "%s: operand %d is not a value of this graph",
                           by_op_name(op), i);
            return BY_NONE;
        }
    }
    if (by__alloc((void **)&types, (size_t)input_count, sizeof *types, "types", &graph->error) !=
        BY_OK) {
        return BY_NONE;
    }
    by__op_node_types(graph, &probe, types);
    const by__op_row *row = by__op_row_in(graph, op);
    by_attrs own = row == NULL ? *attrs : by__op_attrs_of(row, attrs);
    by__op_signature s = {op, &own, types, input_count};
    if (by__op_row_infer(row, &s, out, &graph->error) == BY_OK && row != NULL) {
        int node = by__graph_append(graph, op, &own, in, input_count, out, row->outputs);
        if (node >= 0) {
            result = graph->nodes[node].out[0];
            for (int i = 0; i < BY_MAX_OUTPUTS && outs != NULL; i++) {
                outs[i] = i < graph->nodes[node].output_count ? graph->nodes[node].out[i] : BY_NONE;
            }
        }
    }
    free(types);
    return result;
}

/* Weights are made from parameters in one or two steps; the bound keeps the walk short in any
 * graph. */
#define MAX_MOVES 3

/* Returns true for a parameter, or a value that consists of the elements of parameters, moved in at
 * most `steps` steps. */
static bool is_of_parameters(const by_graph *graph, by_value value, int steps)
{
    const by__graph_value *v = &graph->values[value];
    if (v->role == BY_ROLE_PARAMETER) {
        return true;
    }
    const by__graph_node *node = v->producer < 0 ? NULL : &graph->nodes[v->producer];
    bool all = node != NULL && steps > 0 && by__op_row_in(graph, node->op)->moves;
    for (int i = 0; all && i < node->input_count; i++) {
        all = is_of_parameters(graph, node->in[i], steps - 1);
    }
    return all;
}

by_dtype by__op_gradient_dtype(const by_graph *graph, by_value value)
{
    return is_of_parameters(graph, value, MAX_MOVES) ? BY_F32 : graph->values[value].dtype;
}
