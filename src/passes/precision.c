#include <stdlib.h>

#include "passes/passes.h"

typedef struct precision {
    by_graph *graph;
    by_dtype compute;
    bool *was_f32;    /* values that were f32 before the pass */
    bool *kept;       /* values that an op needs in f32 */
    by_value *narrow; /* of each value: its cast to the compute dtype, made once */
    by_value *wide;   /* of each value: the cast of that back to f32 */
    by_value *inner;  /* of a narrowed output: the value that its node makes */
} precision;

/* Returns true for tensors worth narrowing, those with two axes or more. Vectors (norm weights,
 * biases, statistics) are small, and their sums need the precision. */
static bool is_wide(const by__graph_value *value)
{
    return value->dtype == BY_F32 && value->shape.rank >= 2;
}

static by_value cast_of(by_graph *graph, by_value value, by_dtype dtype, by_value *made)
{
    if (made[value] == BY_NONE) {
        made[value] = by_cast(graph, value, dtype);
    }
    return made[value];
}

/* Converts operand i of node n to the dtype that the op needs. */
static void convert_operand(precision *p, size_t n, int i)
{
    by_graph *graph = p->graph;
    const by__op_row *row = by__op_row_of(graph->nodes[n].op);
    by_value value = graph->nodes[n].in[i];
    if (by__mask_has(row->keeps_f32, i)) {
        if (p->was_f32[value] && graph->values[value].dtype != BY_F32) {
            value = cast_of(graph, value, BY_F32, p->wide);
        }
    } else if (p->inner[value] != BY_NONE) {
        value = p->inner[value];
    } else if (is_wide(&graph->values[value])) {
        value = cast_of(graph, value, p->compute, p->narrow);
    }
    graph->nodes[n].in[i] = value;
}

/* Makes node n compute result `i` in a narrower dtype. The output that the caller reads by name
 * becomes a cast of it to the original dtype. Later nodes read the narrow result, except as
 * operands that are kept in f32. */
static by_status keep_output(precision *p, size_t n, int i, by_dtype narrow, by_error *error)
{
    by_graph *graph = p->graph;
    by_value output = graph->nodes[n].out[i];
    by__graph_type type = {narrow, graph->values[output].shape};
    by_value inner = by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL, type);
    by_value wide = by_cast(graph, inner, graph->values[output].dtype);
    BY_TRY(by_graph_check(graph, error));
    int cast = graph->values[wide].producer;
    p->inner[output] = inner;
    graph->nodes[cast].in[0] = inner;
    graph->nodes[cast].out[0] = output;
    graph->nodes[cast].block = graph->nodes[n].block;
    graph->nodes[n].out[i] = inner;
    graph->values[inner].producer = (int)n;
    graph->values[output].producer = cast;
    graph->values[wide].producer = -1;
    return BY_OK;
}

/* Infers the types of the outputs from the operands again. */
static by_status infer_again(precision *p, size_t n, by_error *error)
{
    by_graph *graph = p->graph;
    by__graph_node *node = &graph->nodes[n];
    by__graph_type *in = NULL;
    by__graph_type out[BY_MAX_OUTPUTS];
    bool is_output = node->output_count > 0 && node->out[0] != BY_NONE &&
                     graph->values[node->out[0]].role == BY_ROLE_OUTPUT;
    const by__op_attr *a = by__op_row_of(node->op)->attrs;
    for (; a != NULL && a->label != NULL && !is_output; a++) {
        if ((a->traits & BY__ATTR_COMPUTE) != 0) {
            *(by_dtype *)by__attr_field(&node->attrs, a) = p->compute;
        }
    }
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count, sizeof *in, "types", error));
    by__op_node_types(graph, node, in);
    by__op_signature s = {node->op, &node->attrs, in, node->input_count};
    by_status status = by__op_infer(&s, out, error);
    free(in);
    for (int i = 0; i < graph->nodes[n].output_count && status == BY_OK; i++) {
        by_value value = graph->nodes[n].out[i];
        if (value == BY_NONE || graph->values[value].dtype == out[i].dtype) {
            continue;
        }
        if (graph->values[value].role == BY_ROLE_OUTPUT) {
            status = keep_output(p, n, i, out[i].dtype, error);
        } else {
            graph->values[value].dtype = out[i].dtype;
        }
    }
    return status;
}

/* Narrows parameters and states from the start, except those that an op needs in f32. */
static void narrow_storage(precision *p)
{
    by_graph *graph = p->graph;
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (node->in[i] != BY_NONE && by__mask_has(by__op_row_of(node->op)->keeps_f32, i)) {
                p->kept[node->in[i]] = true;
            }
        }
    }
    for (size_t v = 0; v < graph->value_count; v++) {
        by__graph_value *value = &graph->values[v];
        bool stored = value->role == BY_ROLE_PARAMETER || value->role == BY_ROLE_STATE;
        p->was_f32[v] = value->dtype == BY_F32;
        p->narrow[v] = BY_NONE;
        p->wide[v] = BY_NONE;
        p->inner[v] = BY_NONE;
        if (stored && is_wide(value) && !p->kept[v]) {
            value->dtype = p->compute;
        }
    }
}

static by_status convert(precision *p, by_error *error)
{
    size_t values = p->graph->value_count;
    size_t nodes = p->graph->node_count;
    BY_TRY(by__alloc((void **)&p->was_f32, values, sizeof *p->was_f32, "precision", error));
    BY_TRY(by__alloc((void **)&p->kept, values, sizeof *p->kept, "precision", error));
    BY_TRY(by__alloc((void **)&p->narrow, values, sizeof *p->narrow, "precision", error));
    BY_TRY(by__alloc((void **)&p->wide, values, sizeof *p->wide, "precision", error));
    BY_TRY(by__alloc((void **)&p->inner, values, sizeof *p->inner, "precision", error));
    narrow_storage(p);
    for (size_t n = 0; n < nodes; n++) {
        for (int i = 0; i < p->graph->nodes[n].input_count; i++) {
            by_value value = p->graph->nodes[n].in[i];
            /* Values that the pass made already have the right dtype. */
            if (value != BY_NONE && (size_t)value < values) {
                convert_operand(p, n, i);
            }
        }
        BY_TRY(by_graph_check(p->graph, error));
        BY_TRY(infer_again(p, n, error));
    }
    return BY_OK;
}

by_status by_pass_precision(by_graph *graph, by_dtype compute, by_error *error)
{
    BY_TRY(by_graph_check(graph, error));
    if (compute == BY_F32) {
        return BY_OK;
    }
    if (!by_dtype_is_float(compute)) {
        return by_error_set(error, BY_EARG, "precision: cannot compute in %s; f32, bf16 or f16",
                            by_dtype_name(compute));
    }
    precision p = {.graph = graph, .compute = compute};
    by_status status = convert(&p, error);
    free(p.was_f32);
    free(p.kept);
    free(p.narrow);
    free(p.wide);
    free(p.inner);
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
