#include <stdlib.h>

#include "passes/passes.h"

/* Tensors that are worth narrowing: everything with two axes or more. Vectors (norm weights,
 * biases, statistics) are small, and their sums want the digits. */
static bool is_wide(const by__value *value)
{
    return value->dtype == BY_F32 && value->shape.rank >= 2;
}

/* The cast of a value from outside (an input of features), made once and shared by its readers. */
static by_value cast_of(by_graph *graph, by_value value, by_dtype compute, by_value *made)
{
    if (made[value] == BY_NONE) {
        made[value] = by_cast(graph, value, compute);
    }
    return made[value];
}

/* Lets node n make its result `i` in a narrower dtype; the output that the caller reads under its
 * name is that result's cast to the dtype it had. */
static by_status keep_output(by_graph *graph, size_t n, int i, by_dtype narrow, by_error *error)
{
    by_value output = graph->nodes[n].out[i];
    by__type type = {narrow, graph->values[output].shape};
    by_value inner = by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL, type);
    by_value wide = by_cast(graph, inner, graph->values[output].dtype);
    BY_TRY(by_graph_check(graph, error));
    int cast = graph->values[wide].producer;
    by__graph_replace(graph, n + 1, output, inner);
    graph->nodes[cast].in[0] = inner;
    graph->nodes[cast].out[0] = output;
    graph->nodes[cast].block = graph->nodes[n].block;
    graph->nodes[n].out[i] = inner;
    graph->values[inner].producer = (int)n;
    graph->values[output].producer = cast;
    graph->values[wide].producer = -1;
    return BY_OK;
}

/* Sets the outputs' types anew from the operands'. */
static by_status infer_again(by_graph *graph, size_t n, by_dtype compute, by_error *error)
{
    by__node *node = &graph->nodes[n];
    by__type *in = NULL;
    by__type out[BY_MAX_OUTPUTS];
    bool is_output = node->output_count > 0 && node->out[0] != BY_NONE &&
                     graph->values[node->out[0]].role == BY_ROLE_OUTPUT;
    if (node->op == BY_OP_MATMUL && !is_output) {
        node->attrs.dtype = compute;
    }
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__node_types(graph, node, in);
    by__signature s = {node->op, &node->attrs, in, node->input_count};
    by_status status = by__op_infer(&s, out, error);
    free(in);
    for (int i = 0; i < graph->nodes[n].output_count && status == BY_OK; i++) {
        by_value value = graph->nodes[n].out[i];
        if (value == BY_NONE || graph->values[value].dtype == out[i].dtype) {
            continue;
        }
        if (graph->values[value].role == BY_ROLE_OUTPUT) {
            status = keep_output(graph, n, i, out[i].dtype, error);
        } else {
            graph->values[value].dtype = out[i].dtype;
        }
    }
    return status;
}

by_status by_pass_precision(by_graph *graph, by_dtype compute, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (compute == BY_F32) {
        return BY_OK;
    }
    if (compute != BY_BF16) {
        return by_error_set(error, BY_EARG, "precision: cannot compute in %s; f32 or bf16",
                            by_dtype_name(compute));
    }
    by_value *made;
    size_t values = graph->value_count;
    size_t nodes = graph->node_count;
    BY_TRY(by__alloc((void **)&made, values, sizeof *made, "casts", error));
    for (size_t v = 0; v < values; v++) {
        by__value *value = &graph->values[v];
        made[v] = BY_NONE;
        if ((value->role == BY_ROLE_PARAMETER || value->role == BY_ROLE_STATE) && is_wide(value)) {
            value->dtype = compute;
        }
    }
    by_status status = BY_OK;
    for (size_t n = 0; n < nodes && status == BY_OK; n++) {
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            by_value value = graph->nodes[n].in[i];
            if (value != BY_NONE && graph->values[value].role == BY_ROLE_INPUT &&
                is_wide(&graph->values[value])) {
                by_value narrow = cast_of(graph, value, compute, made);
                graph->nodes[n].in[i] = narrow;
            }
        }
        status = by_graph_check(graph, error);
        if (status == BY_OK) {
            status = infer_again(graph, n, compute, error);
        }
    }
    free(made);
    return status == BY_OK ? by__graph_sort(graph, error) : status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_precision(graph, options->compute, error);
}

const by__pass by__pass_precision = {.name = "precision",
                                     .summary = "casts, and narrower copies of matrices",
                                     .purposes =
                                         BY_PURPOSE_TRAIN | BY_PURPOSE_LOSS | BY_PURPOSE_INFER,
                                     .apply = apply};
