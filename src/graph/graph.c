#include "graph/graph.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/packing/packing.h"

by_status by__graph_open(by_graph **out, const struct by__op_row *const *rows, by_error *error)
{
    by_graph *graph;
    BY_TRY(by__alloc((void **)&graph, 1, sizeof *graph, "graph", error));
    graph->rows = rows;
    graph->block = -1;
    *out = graph;
    return BY_OK;
}

void by_graph_close(by_graph **graph)
{
    if (graph == NULL || *graph == NULL) {
        return;
    }
    for (size_t i = 0; i < (*graph)->value_count; i++) {
        free((*graph)->values[i].name);
        free((*graph)->values[i].axes);
    }
    for (size_t i = 0; i < (*graph)->node_count; i++) {
        free((*graph)->nodes[i].in);
    }
    free((*graph)->values);
    for (size_t i = 0; i < (*graph)->owned_count; i++) {
        free((*graph)->owned[i]);
    }
    free((*graph)->owned);
    free((*graph)->nodes);
    by__name_table_free(&(*graph)->names);
    free(*graph);
    *graph = NULL;
}

void by__graph_fail(by_graph *graph, by_status status, const char *format, ...)
{
    if (graph->error.status == BY_OK) {
        va_list args;
        va_start(args, format);
        graph->error.status = status;
        (void)vsnprintf(graph->error.message, sizeof graph->error.message, format, args);
        va_end(args);
    }
}

by_status by__graph_own(by_graph *graph, void **out, size_t bytes)
{
    BY_TRY(by__reserve((void **)&graph->owned, &graph->owned_capacity, graph->owned_count + 1,
                       sizeof *graph->owned, &graph->error));
    BY_TRY(by__alloc(out, 1, bytes, "attribute", &graph->error));
    graph->owned[graph->owned_count++] = *out;
    return BY_OK;
}

int64_t by__graph_value_elements(const by__graph_value *value)
{
    return value->packing.kind != BY_PACKING_NONE
               ? by__packed_matrices(&value->packing) * value->packing.n * value->packing.k
               : by_shape_count(value->part_count > 0 ? &value->whole : &value->shape);
}

size_t by__graph_value_bytes(const by__graph_value *value)
{
    return (size_t)by_shape_count(&value->shape) * by_dtype_size(value->dtype);
}

/* Returns true if extents are positive and the size in bytes does not overflow, even rounded up. */
static bool type_is_valid(const by__graph_type *type)
{
    size_t bytes = by_dtype_size(type->dtype);
    if (type->shape.rank < 0 || type->shape.rank > BY_MAX_RANK || bytes == 0) {
        return false;
    }
    for (int i = 0; i < type->shape.rank; i++) {
        if (type->shape.dim[i] < 1 || !by__size_mul(bytes, (size_t)type->shape.dim[i], &bytes)) {
            return false;
        }
    }
    return bytes < (size_t)1 << 56;
}

by_value by__graph_add_value(by_graph *graph, by_role role, const char *name, const char *axes,
                             by__graph_type type)
{
    char text[128];
    by__graph_value value = {.dtype = type.dtype,
                             .shape = type.shape,
                             .role = role,
                             .producer = -1,
                             .block = graph->block};
    if (graph->error.status != BY_OK) {
        return BY_NONE;
    }
    if (!type_is_valid(&type)) {
        by__graph_fail(graph, BY_EARG, "value %s: %s %s is not a valid tensor type",
                       name == NULL ? "" : name, by_dtype_name(type.dtype),
                       by_shape_print(&type.shape, text));
        return BY_NONE;
    }
    if (by__role_is_external(role) && (name == NULL || name[0] == '\0')) {
        by__graph_fail(graph, BY_EARG, "graph: an external value needs a name (%s %s)",
                       by_dtype_name(type.dtype), by_shape_print(&type.shape, text));
        return BY_NONE;
    }
    if (name != NULL && by_graph_find(graph, name) != BY_NONE) {
        by__graph_fail(graph, BY_EARG, "graph: two values are named '%s'", name);
        return BY_NONE;
    }
    if (by__reserve((void **)&graph->values, &graph->value_capacity, graph->value_count + 1,
                    sizeof *graph->values, &graph->error) != BY_OK) {
        return BY_NONE;
    }
    value.name = name == NULL ? NULL : by__strdup(name);
    value.axes = axes == NULL ? NULL : by__strdup(axes);
    if ((name != NULL && value.name == NULL) || (axes != NULL && value.axes == NULL)) {
        free(value.name);
        free(value.axes);
        by__graph_fail(graph, BY_EMEMORY, "out of memory: value name");
        return BY_NONE;
    }
    if (name != NULL && by__name_table_add(&graph->names, value.name, (int32_t)graph->value_count,
                                           &graph->error) != BY_OK) {
        free(value.name);
        free(value.axes);
        return BY_NONE;
    }
    graph->values[graph->value_count] = value;
    return (by_value)graph->value_count++;
}

void by__graph_set_axes(by_graph *graph, by_value value, const char *axes)
{
    if (graph->error.status != BY_OK || value == BY_NONE) {
        return;
    }
    char *copy = by__strdup(axes);
    if (copy == NULL) {
        by__graph_fail(graph, BY_EMEMORY, "out of memory: the names of axes");
        return;
    }
    free(graph->values[value].axes);
    graph->values[value].axes = copy;
}

by_value by_graph_input(by_graph *graph, const char *name, by_dtype dtype, by_shape shape)
{
    return by__graph_add_value(graph, BY_ROLE_INPUT, name, NULL, (by__graph_type){dtype, shape});
}

by_value by_graph_constant_input(by_graph *graph, const char *name, by_dtype dtype, by_shape shape)
{
    by_value value = by_graph_input(graph, name, dtype, shape);
    if (value != BY_NONE) {
        graph->values[value].constant = true;
    }
    return value;
}

by_value by_graph_parameter(by_graph *graph, const char *name, const char *axes, by_shape shape,
                            by_init init)
{
    by_value value =
        by__graph_add_value(graph, BY_ROLE_PARAMETER, name, axes, (by__graph_type){BY_F32, shape});
    if (value != BY_NONE) {
        graph->values[value].init = init;
    }
    return value;
}

by_value by_graph_statistic(by_graph *graph, const char *name, const char *axes, by_shape shape,
                            by_init init)
{
    if (graph->error.status == BY_OK && shape.rank != 1) {
        by__graph_fail(graph, BY_EARG, "statistic %s: its shape must have one axis", name);
        return BY_NONE;
    }
    by_value value = by_graph_parameter(graph, name, axes, shape, init);
    if (value != BY_NONE) {
        graph->values[value].statistic = true;
    }
    return value;
}

void by_graph_increment(by_graph *graph, by_value statistic, by_value increment)
{
    char *name;
    by_string text = {0};
    if (graph->error.status != BY_OK) {
        return;
    }
    if (!by__graph_has(graph, statistic) || !graph->values[statistic].statistic ||
        !by__graph_has(graph, increment) || graph->values[increment].dtype != BY_F32 ||
        !by_shape_equal(&graph->values[increment].shape, &graph->values[statistic].shape)) {
        by__graph_fail(graph, BY_EARG,
                       "increment: wanted are a statistic and an f32 value of its shape");
        return;
    }
    by_string_format(&text, "increment.%s", graph->values[statistic].name);
    if (by__string_release(&text, &name, &graph->error) == BY_OK) {
        by_graph_output(graph, increment, name);
        free(name);
    }
}

by_value by_graph_state(by_graph *graph, const char *name, by_dtype dtype, by_shape shape)
{
    return by__graph_add_value(graph, BY_ROLE_STATE, name, NULL, (by__graph_type){dtype, shape});
}

void by_graph_freeze(by_graph *graph, by_value parameter)
{
    if (graph->error.status != BY_OK) {
        return;
    }
    if (!by__graph_has(graph, parameter) || graph->values[parameter].role != BY_ROLE_PARAMETER) {
        by__graph_fail(graph, BY_EARG, "freeze: value %d is not a parameter", (int)parameter);
        return;
    }
    graph->values[parameter].frozen = true;
}

void by_graph_output(by_graph *graph, by_value value, const char *name)
{
    if (graph->error.status != BY_OK) {
        return;
    }
    if (name == NULL || name[0] == '\0') {
        by__graph_fail(graph, BY_EARG, "graph: an output needs a name");
        return;
    }
    if (!by__graph_has(graph, value) || graph->values[value].producer < 0) {
        by__graph_fail(graph, BY_EARG, "output '%s' is not the result of an operation", name);
        return;
    }
    if (graph->values[value].role != BY_ROLE_ACTIVATION) {
        by__graph_fail(graph, BY_EARG, "output '%s' is already the output '%s'", name,
                       graph->values[value].name);
        return;
    }
    if (by_graph_find(graph, name) != BY_NONE) {
        by__graph_fail(graph, BY_EARG, "graph: two values are named '%s'", name);
        return;
    }
    char *copy = by__strdup(name);
    if (copy == NULL) {
        by__graph_fail(graph, BY_EMEMORY, "out of memory: value name");
        return;
    }
    if (by__name_table_add(&graph->names, copy, value, &graph->error) != BY_OK) {
        free(copy);
        return;
    }
    graph->values[value].name = copy; /* activations have none */
    graph->values[value].role = BY_ROLE_OUTPUT;
}

void by_graph_set_block(by_graph *graph, int block)
{
    graph->block = block;
}

int by__graph_append(by_graph *graph, by_op op, const by_attrs *attrs, const by_value *in,
                     int input_count, const by__graph_type *types, int output_count)
{
    by__graph_node node = {.op = op,
                           .attrs = *attrs,
                           .input_count = input_count,
                           .output_count = output_count,
                           .phase = graph->phase,
                           .block = graph->block};
    if (graph->error.status != BY_OK ||
        by__reserve((void **)&graph->nodes, &graph->node_capacity, graph->node_count + 1,
                    sizeof *graph->nodes, &graph->error) != BY_OK ||
        by__alloc((void **)&node.in, (size_t)input_count, sizeof *node.in, "node inputs",
                  &graph->error) != BY_OK) {
        return -1;
    }
    for (int i = 0; i < input_count; i++) {
        node.in[i] = in[i];
    }
    for (int i = 0; i < output_count; i++) {
        node.out[i] = BY_NONE;
        if (types[i].shape.rank >= 0) {
            node.out[i] = by__graph_add_value(graph, BY_ROLE_ACTIVATION, NULL, NULL, types[i]);
            if (node.out[i] == BY_NONE) {
                free(node.in);
                return -1;
            }
            graph->values[node.out[i]].producer = (int)graph->node_count;
        }
    }
    graph->nodes[graph->node_count] = node;
    return (int)graph->node_count++;
}

by_status by_graph_check(const by_graph *graph, by_error *error)
{
    if (graph->error.status != BY_OK && error != NULL) {
        *error = graph->error;
    }
    return graph->error.status;
}

int by_graph_value_count(const by_graph *graph)
{
    return (int)graph->value_count;
}

int by_graph_node_count(const by_graph *graph)
{
    return (int)graph->node_count;
}

by_status by_graph_value(const by_graph *graph, by_value value, by_value_info *out, by_error *error)
{
    if (!by__graph_has(graph, value)) {
        return by_error_set(error, BY_EARG, "the graph has no value %d (it has %zu)", (int)value,
                            graph->value_count);
    }
    const by__graph_value *v = &graph->values[value];
    *out = (by_value_info){.name = v->name == NULL ? "" : v->name,
                           .axes = v->axes == NULL ? "" : v->axes,
                           .dtype = v->dtype,
                           .shape = v->shape,
                           .role = v->role,
                           .init = v->init,
                           .frozen = v->frozen,
                           .statistic = v->statistic,
                           .producer = v->producer,
                           .transposed = v->transposed,
                           .block = v->block};
    return BY_OK;
}

by_value by_graph_find(const by_graph *graph, const char *name)
{
    return by__name_table_find(&graph->names, name);
}

by_status by__graph_uses(const by_graph *graph, int **uses, by_error *error)
{
    BY_TRY(by__alloc((void **)uses, graph->value_count, sizeof **uses, "use counts", error));
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count && !node->dead; i++) {
            if (node->in[i] != BY_NONE) {
                (*uses)[node->in[i]]++;
            }
        }
    }
    return BY_OK;
}

void by__graph_readers(const by_graph *graph, size_t *first, size_t *reader, int *waits)
{
    size_t reads = 0;
    for (size_t n = 0; n < graph->node_count; n++) {
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            if (graph->nodes[n].in[i] != BY_NONE) {
                first[graph->nodes[n].in[i]]++;
            }
        }
    }
    for (size_t v = 0; v <= graph->value_count; v++) {
        reads += first[v];
        first[v] = reads; /* the end of v's list, which is filled backwards */
    }
    for (size_t n = graph->node_count; n-- > 0;) {
        for (int i = 0; i < graph->nodes[n].input_count; i++) {
            by_value value = graph->nodes[n].in[i];
            if (value != BY_NONE) {
                reader[--first[value]] = n;
                waits[n] += graph->values[value].producer >= 0;
            }
        }
    }
}

void by__graph_compact(by_graph *graph)
{
    size_t kept = 0;
    for (size_t v = 0; v < graph->value_count; v++) {
        graph->values[v].producer = -1;
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        by__graph_node node = graph->nodes[n];
        if (node.dead) {
            free(node.in);
            continue;
        }
        for (int i = 0; i < node.output_count; i++) {
            if (node.out[i] != BY_NONE) {
                graph->values[node.out[i]].producer = (int)kept;
            }
        }
        graph->nodes[kept++] = node;
    }
    graph->node_count = kept;
}

/* Places node n after the producers of its operands. Depth-first with an explicit stack, so that a
 * deep graph cannot overflow the C stack. `state`: 0 new, 1 open, 2 placed. */
static by_status place(by_graph *graph, int root, unsigned char *state, int *stack, int *order,
                       size_t *placed, by_error *error)
{
    size_t depth = 0;
    stack[depth++] = root;
    while (depth > 0) {
        int n = stack[depth - 1];
        const by__graph_node *node = &graph->nodes[n];
        int next = -1;
        state[n] = 1;
        for (int i = 0; i < node->input_count && next < 0; i++) {
            int producer = node->in[i] == BY_NONE ? -1 : graph->values[node->in[i]].producer;
            if (producer >= 0 && state[producer] != 2) {
                next = producer;
            }
        }
        if (next < 0) {
            state[n] = 2;
            order[(*placed)++] = n;
            depth--;
        } else if (state[next] == 1) {
            return by_error_set(error, BY_ESTATE, "graph: node %d (%s) depends on itself", next,
                                by_op_name(graph->nodes[next].op));
        } else {
            stack[depth++] = next;
        }
    }
    return BY_OK;
}

by_status by__graph_sort(by_graph *graph, by_error *error)
{
    size_t count = graph->node_count;
    unsigned char *state = NULL;
    int *stack = NULL;
    int *order = NULL;
    by__graph_node *sorted = NULL;
    size_t placed = 0;
    by_status status = by__alloc((void **)&state, count, 1, "sort", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&stack, count, sizeof *stack, "sort", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&order, count, sizeof *order, "sort", error);
    }
    if (status == BY_OK) {
        status = by__alloc((void **)&sorted, count, sizeof *sorted, "sort", error);
    }
    for (size_t n = 0; n < count && status == BY_OK; n++) {
        if (state[n] == 0) {
            status = place(graph, (int)n, state, stack, order, &placed, error);
        }
    }
    if (status == BY_OK) {
        for (size_t n = 0; n < count; n++) {
            sorted[n] = graph->nodes[order[n]];
        }
        if (count > 0) {
            memcpy(graph->nodes, sorted, count * sizeof *sorted);
        }
        by__graph_compact(graph);
    }
    free(state);
    free(stack);
    free(order);
    free(sorted);
    return status;
}
