#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"

/* Returns the flag that marks the operand, a weight of a product, as stored transposed, or NULL if
 * the operand is no such weight. */
static bool *transposed_flag(by__graph_node *node, int input)
{
    const by__op_row *row = by__op_row_of(node->op);
    bool is_weight = row->transposed != NULL && input == row->weight;
    return is_weight ? by__attr_field(&node->attrs, row->transposed) : NULL;
}

/* Returns true if the operand is a weight stored [k, n]. */
static bool may_transpose(by__graph_node *node, int input)
{
    const bool *flag = transposed_flag(node, input);
    return flag != NULL && !*flag;
}

/* Swaps the axis names "in out" to "out in". */
static void swap_axes(char *axes)
{
    char *space = strchr(axes, ' ');
    if (space == NULL) {
        return;
    }
    size_t first = (size_t)(space - axes);
    size_t second = strlen(space + 1);
    char swapped[256];
    if (first + second + 2 > sizeof swapped) {
        return;
    }
    memcpy(swapped, space + 1, second);
    swapped[second] = ' ';
    memcpy(swapped + second + 1, axes, first);
    memcpy(axes, swapped, first + second + 1);
}

static void transpose(by__graph_value *value)
{
    int64_t rows = value->shape.dim[0];
    value->shape.dim[0] = value->shape.dim[1];
    value->shape.dim[1] = rows;
    value->transposed = !value->transposed;
    if (value->axes != NULL) {
        swap_axes(value->axes);
    }
}

by_status by_pass_layout(by_graph *graph, by_error *error)
{
    bool *transposed;
    BY_TRY(by_graph_check(graph, error));
    BY_TRY(
        by__alloc((void **)&transposed, graph->value_count, sizeof *transposed, "layout", error));
    for (size_t n = 0; n < graph->node_count; n++) {
        by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] == BY_NONE) {
                continue;
            }
            const by__graph_value *value = &graph->values[node->in[i]];
            transposed[node->in[i]] = value->role == BY_ROLE_PARAMETER && value->shape.rank == 2;
        }
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] != BY_NONE && !may_transpose(node, i)) {
                transposed[node->in[i]] = false;
            }
        }
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] != BY_NONE && transposed[node->in[i]]) {
                *transposed_flag(node, i) = true;
            }
        }
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        if (transposed[v]) {
            transpose(&graph->values[v]);
        }
    }
    free(transposed);
    return BY_OK;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    BY_UNUSED(options);
    return by_pass_layout(graph, error);
}

const by__pass by__pass_layout = {.name = "layout",
                                  .summary = "weights as rows of what they make",
                                  .purposes = BY_PURPOSE_INFER,
                                  .apply = apply};
