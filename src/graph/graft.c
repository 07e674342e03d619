#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

/* Returns the value of `graph` that takes the place of an external value of the grafted graph. */
static by_value graft_value(by_graph *graph, const by__graph_value *value, const char *prefix)
{
    char name[512];
    by__graph_type type = {value->dtype, value->shape};
    if (value->role == BY_ROLE_INPUT) {
        by_value found = by_graph_find(graph, value->name);
        if (found == BY_NONE) {
            found = by_graph_input(graph, value->name, value->dtype, value->shape);
            by__graph_set_axes(graph, found, value->axes == NULL ? "" : value->axes);
            if (found != BY_NONE) {
                graph->values[found].constant = value->constant;
            }
        }
        return found;
    }
    int length = snprintf(name, sizeof name, "%s%s", prefix, value->name);
    if (length < 0 || (size_t)length >= sizeof name) {
        by__graph_fail(graph, BY_EARG, "the name of '%.200s' is too long", value->name);
        return BY_NONE;
    }
    by_value made = by__graph_add_value(graph, BY_ROLE_STATE, name, value->axes, type);
    if (made != BY_NONE) {
        graph->values[made].frozen = true;
        graph->values[made].inputs_first = value->inputs_first;
        graph->values[made].lr_scale = value->lr_scale;
    }
    return made;
}

static by_status graft_node(by_graph *graph, const by_graph *source, const by__graph_node *node,
                            by_value *map, by_error *error)
{
    by_value *in;
    by__graph_type out[BY_MAX_OUTPUTS];
    if (node->attrs.map != NULL) {
        return by_error_set(error, BY_ESTATE, "graft: node %d is a map, which is made by passes",
                            (int)(node - source->nodes));
    }
    BY_TRY(by__alloc((void **)&in, (size_t)node->input_count + 1, sizeof *in, "operands", error));
    for (int i = 0; i < node->input_count; i++) {
        in[i] = node->in[i] == BY_NONE ? BY_NONE : map[node->in[i]];
    }
    for (int i = 0; i < node->output_count; i++) {
        out[i] = (by__graph_type){BY_F32, {.rank = -1}};
        if (node->out[i] != BY_NONE) {
            const by__graph_value *value = &source->values[node->out[i]];
            out[i] = (by__graph_type){value->dtype, value->shape};
        }
    }
    int made = by__graph_append(graph, node->op, &node->attrs, in, node->input_count, out,
                                node->output_count);
    free(in);
    for (int i = 0; i < node->output_count && made >= 0; i++) {
        if (node->out[i] != BY_NONE) {
            map[node->out[i]] = graph->nodes[made].out[i];
        }
    }
    return by_graph_check(graph, error);
}

by_status by__graph_graft(by_graph *graph, const by_graph *source, const char *prefix,
                          by_value *map, by_error *error)
{
    by_graph_set_block(graph, -1);
    for (size_t v = 0; v < source->value_count; v++) {
        map[v] = by__role_is_external(source->values[v].role) && source->values[v].producer < 0
                     ? graft_value(graph, &source->values[v], prefix)
                     : BY_NONE;
    }
    for (size_t n = 0; n < source->node_count; n++) {
        BY_TRY(graft_node(graph, source, &source->nodes[n], map, error));
    }
    return by_graph_check(graph, error);
}
