/* Graph convolutional networks (Kipf and Welling 2017): a layer is W x summed over the edges that
 * end in a node, each weighed by 1 / sqrt(the degrees of its ends). The weights of edges are a
 * product of those of nodes, so rows are scaled before and after the sum. Parameters are those of
 * PyTorch Geometric's GCN. */
#include "nn/nn.h"

extern const by__nn_family by__nn_family_gcn;

static by__nn_node_sizes *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_gcn.kind);
}

static by_value add_layer(by__nn_build *b, by_value x, int i)
{
    by_graph *g = b->graph;
    int64_t in = by__nn_node_width(b->config, i);
    int64_t out = by__nn_node_width(b->config, i + 1);
    by_edges edges = by__nn_edges(b, own_keys(b->config), i);
    by_value from = by__nn_node_scale(b, own_keys(b->config), "nodes.inverse_root", i);
    by_value to = by__nn_node_scale_into(b, own_keys(b->config), i);
    by_value w = by__nn_weight(b, "out in", BY_SHAPE(out, in), by__nn_init_glorot(in, out),
                               "convs.%d.lin.weight", i);
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(out), (by_init){0}, "convs.%d.bias", i);
    x = by_mul(g, by_linear(g, x, w, BY_NONE, true), from);
    x = by_mul(g, by_sparse_matmul(g, x, BY_NONE, &edges), to);
    return by_add(g, x, bias);
}

static void body(by__nn_build *b)
{
    by__nn_node_layers(b, own_keys(b->config), add_layer);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_node_write_config(out, c, own_keys(c));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    return by__nn_node_read_config(c, own_keys(c), name, in, error);
}

const by__nn_family by__nn_family_gcn = {
    .kind = {.name = "gcn",
             .help = "GCN on the nodes of a graph (Kipf and Welling 2017).",
             .keys = {&by__nn_node_keys},
             .size = sizeof(by__nn_node_sizes)},
    .reads = "nodes",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .usual_task = by__nn_node_task,
    .published = (const by__nn_published[]){{"banyan_gcn", "GCN", false}, {0}},
};
