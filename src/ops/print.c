#include "ops/ops.h"

static const char *const role_names[] = {"activation", "input",    "parameter",
                                         "state",      "gradient", "output"};

static void print_value(by_string *text, const by_graph *graph, by_value value)
{
    if (value == BY_NONE) {
        by__string_append(text, "-");
    } else if (graph->values[value].name != NULL && graph->values[value].producer < 0) {
        by_string_format(text, "%s", graph->values[value].name);
    } else {
        by_string_format(text, "%%%d", (int)value);
    }
}

static void print_type(by_string *text, const by_graph *graph, by_value value)
{
    char shape[128];
    if (value == BY_NONE) {
        by__string_append(text, "-");
    } else {
        by_string_format(text, "%s %s", by_dtype_name(graph->values[value].dtype),
                         by_shape_print(&graph->values[value].shape, shape));
    }
}

by_status by__op_node_signature(const by_graph *graph, size_t node, char **out, by_error *error)
{
    const by__graph_node *n = &graph->nodes[node];
    by_string text = {0};
    by_string_format(&text, "%s(", by_op_name(n->op));
    for (int i = 0; i < n->input_count; i++) {
        by__string_append(&text, i == 0 ? "" : ", ");
        print_type(&text, graph, n->in[i]);
    }
    by__string_append(&text, ")");
    by__op_attrs_print(&text, by__op_row_of(n->op), &n->attrs, true);
    for (int i = 0; i < n->output_count; i++) {
        if (n->out[i] != BY_NONE) {
            by__string_append(&text, i == 0 ? " : " : ", ");
            print_type(&text, graph, n->out[i]);
        }
    }
    return by__string_release(&text, out, error);
}

static void print_node(by_string *text, const by_graph *graph, const by__graph_node *node)
{
    char shape[128];
    for (int i = 0; i < node->output_count; i++) {
        if (node->out[i] != BY_NONE) {
            by_string_format(text, "%s%%%d", i == 0 ? "" : ", ", (int)node->out[i]);
        }
    }
    by_string_format(text, "%s%s(", node->output_count > 0 && node->out[0] != BY_NONE ? " = " : "",
                     by_op_name(node->op));
    for (int i = 0; i < node->input_count; i++) {
        by__string_append(text, i == 0 ? "" : ", ");
        print_value(text, graph, node->in[i]);
    }
    by__string_append(text, ")");
    by__op_attrs_print(text, by__op_row_of(node->op), &node->attrs, false);
    const char *separator = " : ";
    for (int i = 0; i < node->output_count; i++) {
        if (node->out[i] == BY_NONE) {
            continue;
        }
        const by__graph_value *value = &graph->values[node->out[i]];
        by_string_format(text, "%s%s %s", separator, by_dtype_name(value->dtype),
                         by_shape_print(&value->shape, shape));
        if (value->name != NULL) {
            by_string_format(text, " %s '%s'", role_names[value->role], value->name);
        }
        separator = ", ";
    }
    if (node->block >= 0) {
        by_string_format(text, "  # block %d", node->block);
    }
    by__string_append(text, "\n");
}

by_status by_graph_print(const by_graph *graph, char **out, by_error *error)
{
    by_string text = {0};
    char shape[128];
    BY_TRY(by_graph_check(graph, error));
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        if (value->producer < 0 && by__role_is_external(value->role)) {
            by_string_format(&text, "%s %s : %s %s", role_names[value->role],
                             value->name == NULL ? "?" : value->name, by_dtype_name(value->dtype),
                             by_shape_print(&value->shape, shape));
            by_string_format(&text, value->axes != NULL ? "  # %s\n" : "\n", value->axes);
        }
    }
    for (size_t n = 0; n < graph->node_count; n++) {
        print_node(&text, graph, &graph->nodes[n]);
    }
    return by__string_release(&text, out, error);
}
