/* Layers that read features of the edges of small graphs. */
#include <math.h>

#include "nn/nn.h"

static const by__config_key keys[] = {
    {"model", "edge_features", BY__KEY_INT, BY__OWN(by__nn_node_sizes, edge_features), "0", 0,
     BY__MI20, .help = "features of an edge; task.kind graphs sets it to what the data has",
     .later = true},
};
const by__config_key_list by__nn_edge_feature_keys = BY__KEY_LIST(keys);

bool by__nn_node_reads_edge_features(const by_model_config *config)
{
    const by__config_kind *kind = by__config_kind_named(config->own, config->kind);
    for (size_t i = 0; kind != NULL && i < BY_ARRAY_LENGTH(kind->keys); i++) {
        if (kind->keys[i] == &by__nn_edge_feature_keys) {
            return true;
        }
    }
    return false;
}

/* Two sparse products: one with a matrix whose rows are edges brings nodes to the edges that leave
 * them, one with a matrix whose columns are edges adds up those that end in a node. */
by_value by__nn_node_edge_sum(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                              int64_t columns, int layer, const char *prefix)
{
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t features = sizes->edge_features;
    by_init init = {BY_INIT_NORMAL, 1.0f / sqrtf(3.0f * (float)features)};
    by_value each = by__nn_input(b, "edges.each", BY_I32, BY_SHAPE(batch, sizes->edges + 1));
    by_value own = by__nn_input(b, "edges.own", BY_I32, BY_SHAPE(batch, sizes->edges));
    by_value targets = by__nn_input(b, "edges.targets", BY_I32, BY_SHAPE(batch, sizes->edges));
    by_value e = by__nn_input(b, "edges.x", BY_F32, BY_SHAPE(batch, sizes->edges, features));
    by_value w = by__nn_weight(b, "out in", BY_SHAPE(columns, features), init, "%s.weight", prefix);
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(columns), (by_init){0}, "%s.bias", prefix);
    const by_edges nodes = by__nn_edges(b, sizes, layer);
    const by_edges from = {.offsets = each,
                           .sources = nodes.sources,
                           .back_offsets = nodes.back_offsets,
                           .back_sources = nodes.back_edges,
                           .back_edges = nodes.back_edges};
    const by_edges into = {.offsets = nodes.offsets,
                           .sources = own,
                           .back_offsets = each,
                           .back_sources = targets,
                           .back_edges = own};
    x = by_sparse_matmul(g, x, BY_NONE, &from);
    x = by_unary(g, by_add(g, by_linear(g, e, w, bias, true), x), BY_FN_RELU);
    return by_sparse_matmul(g, x, by__nn_node_edge_factors(b, sizes, layer, true), &into);
}
