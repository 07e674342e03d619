#include <stdlib.h>
#include <string.h>

#include "base/packing/packing.h"
#include "passes/passes.h"

/* The packing that all readers of a parameter can use. */
typedef struct wish {
    by_packing packing; /* kind NONE: no product reads the parameter */
    bool out_in;
    bool refused; /* a reader cannot use the packing, or needs a different one */
} wish;

/* Finds the node that would read operand i of node n, a parameter, packed as `how` says. */
static by_status ask(const by_graph *graph, size_t n, int i, const by_packing *how, bool *can,
                     by__op_packed_reader *out, by_error *error)
{
    BY_TRY(by__op_node_pack(out, can, graph, &graph->nodes[n], i, error));
    out->attrs.packing.kind = how->kind;
    out->attrs.packing.group = how->group;
    return BY_OK;
}

static by_status collect(wish *wishes, const by_graph *graph, const by_packing_options *options,
                         by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            const by__graph_value *value =
                node->in[i] == BY_NONE ? NULL : &graph->values[node->in[i]];
            if (value == NULL || value->role != BY_ROLE_PARAMETER) {
                continue;
            }
            by__op_packed_reader reader;
            bool can;
            wish *w = &wishes[node->in[i]];
            by_packing how = {.kind = options->kind, .group = options->group};
            if (options->choose != NULL) {
                options->choose(options->user, value->name, &how.kind, &how.group);
            }
            BY_TRY(ask(graph, n, i, &how, &can, &reader, error));
            bool multiplies = by__mask_has(by__op_row_of(node->op)->factors, i);
            if (!can || by__packing_wrong(&reader.attrs.packing) != NULL) {
                w->refused = true;
            } else if (multiplies && w->packing.kind == BY_PACKING_NONE) {
                w->packing = reader.attrs.packing;
                w->out_in = reader.out_in;
            }
        }
    }
    return BY_OK;
}

/* Refuses parameters whose readers disagree; look-ups take the packing that products need. */
static by_status compare(wish *wishes, const by_graph *graph, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        const by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            wish *w = node->in[i] == BY_NONE ? NULL : &wishes[node->in[i]];
            if (w == NULL || w->refused || w->packing.kind == BY_PACKING_NONE) {
                continue;
            }
            by__op_packed_reader reader;
            bool can;
            BY_TRY(ask(graph, n, i, &w->packing, &can, &reader, error));
            w->refused = !can || reader.out_in != w->out_in ||
                         memcmp(&reader.attrs.packing, &w->packing, sizeof w->packing) != 0;
        }
    }
    return BY_OK;
}

static bool is_packed(const wish *w)
{
    return !w->refused && w->packing.kind != BY_PACKING_NONE;
}

static by_status change_readers(by_graph *graph, const wish *wishes, by_error *error)
{
    for (size_t n = 0; n < graph->node_count; n++) {
        by__graph_node *node = &graph->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            const wish *w = node->in[i] == BY_NONE ? NULL : &wishes[node->in[i]];
            if (w == NULL || !is_packed(w)) {
                continue;
            }
            by__op_packed_reader reader;
            bool can;
            BY_TRY(ask(graph, n, i, &w->packing, &can, &reader, error));
            node->op = reader.op;
            node->attrs = reader.attrs;
            break; /* only one operand of a product is a weight */
        }
    }
    return BY_OK;
}

/* Copies the packings of the same parameters in another graph. */
static by_status follow(wish *wishes, const by_graph *graph, const by_graph *like, by_error *error)
{
    for (size_t v = 0; v < graph->value_count; v++) {
        const by__graph_value *value = &graph->values[v];
        bool is_parameter = value->role == BY_ROLE_PARAMETER;
        by_value other = is_parameter ? by_graph_find(like, value->name) : BY_NONE;
        if (other != BY_NONE) {
            wishes[v].packing = like->values[other].packing;
            wishes[v].out_in = like->values[other].out_in;
        }
    }
    BY_TRY(compare(wishes, graph, error));
    for (size_t v = 0; v < graph->value_count; v++) {
        if (wishes[v].refused) {
            return by_error_set(error, BY_EARG,
                                "'%s' is packed in another program, and cannot be in this one",
                                graph->values[v].name);
        }
    }
    return BY_OK;
}

static by_status pack(by_graph *graph, wish *wishes, const by_packing_options *options,
                      by_error *error)
{
    if (options->like != NULL) {
        BY_TRY(follow(wishes, graph, options->like, error));
    } else {
        BY_TRY(collect(wishes, graph, options, error));
        BY_TRY(compare(wishes, graph, error));
    }
    BY_TRY(change_readers(graph, wishes, error));
    for (size_t v = 0; v < graph->value_count; v++) {
        by__graph_value *value = &graph->values[v];
        if (is_packed(&wishes[v])) {
            value->packing = wishes[v].packing;
            value->out_in = wishes[v].out_in;
            value->shape = by__packed_shape(&value->packing);
            value->dtype = BY_U8;
        }
    }
    return BY_OK;
}

by_status by_pass_pack(by_graph *graph, const by_packing_options *options, by_error *error)
{
    wish *wishes;
    BY_TRY(by_graph_check(graph, error));
    if (options->kind == BY_PACKING_NONE) {
        return BY_OK;
    }
    BY_TRY(by__alloc((void **)&wishes, graph->value_count, sizeof *wishes, "packing", error));
    by_status status = pack(graph, wishes, options, error);
    free(wishes);
    return status;
}

static by_status apply(by_graph *graph, const by_pass_options *options, by_error *error)
{
    return by_pass_pack(graph, &options->pack, error);
}

const by__pass by__pass_pack = {.name = "pack",
                                .summary = "weights as panels that products stream",
                                .purposes = BY_PURPOSE_INFER,
                                .apply = apply};
