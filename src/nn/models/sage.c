/* GraphSAGE (Hamilton et al. 2017): a layer is W_l times the mean, or the largest entries, of the
 * nodes that edges come from, plus W_r times the node itself. A mean of narrow rows is cheaper than
 * one of wide rows, so where W_l makes rows narrower it comes first, unless fewer rows are left
 * behind the mean. Parameters are those of PyTorch Geometric's GraphSAGE. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

typedef struct sage_keys {
    by__nn_node_sizes sizes;
    char *aggregate;
} sage_keys;

static const by__config_key keys[] = {
    {"model", "aggregate", BY__KEY_TEXT, BY__OWN(sage_keys, aggregate), "mean",
     .choices = "mean|max", .help = "what is made of the nodes that edges come from"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_sage;

static sage_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_sage.kind);
}

static bool takes_largest(const by_model_config *c)
{
    return strcmp(own_keys(c)->aggregate, "max") == 0;
}

static by_value mean(by__nn_build *b, by_value x, int i)
{
    const by__nn_node_sizes *sizes = &own_keys(b->config)->sizes;
    return by_mul(b->graph, by__nn_node_sum(b, sizes, x, i),
                  by__nn_node_scale(b, sizes, "nodes.inverse_degree", i + 1));
}

static by_value add_layer(by__nn_build *b, by_value x, int i)
{
    by_graph *g = b->graph;
    const by__nn_node_sizes *sizes = &own_keys(b->config)->sizes;
    int64_t in = by__nn_node_width(b->config, sizes, i);
    int64_t out = by__nn_node_width(b->config, sizes, i + 1);
    bool all = by__nn_node_count(b, sizes, i) == by__nn_node_count(b, sizes, i - 1);
    by_shape shape = BY_SHAPE(out, in);
    by_init init = {BY_INIT_NORMAL, 1.0f / sqrtf(3.0f * (float)in)};
    by_value weights[2];
    weights[0] = by__nn_weight(b, "out in", shape, init, "convs.%d.lin_l.weight", i);
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(out), (by_init){0}, "convs.%d.lin_l.bias", i);
    weights[1] = by__nn_weight(b, "out in", shape, init, "convs.%d.lin_r.weight", i);
    if (takes_largest(b->config) || (x != BY_NONE && (in <= out || !all))) {
        by_edges edges = by__nn_edges(b, sizes, i);
        by_value of_edges = takes_largest(b->config) ? by_sparse_max(g, x, &edges) : mean(b, x, i);
        return by_add(g, by_linear(g, of_edges, weights[0], bias, true),
                      by_linear(g, by__nn_node_own(b, sizes, x, i), weights[1], BY_NONE, true));
    }
    by_value both = by__nn_node_product(b, sizes, x, by_concat(g, weights, 2, 0), 2 * out);
    by_value of_edges = mean(b, by_slice(g, both, -1, 0, out), i);
    return by_add(g, by_add(g, of_edges, by_slice(g, both, -1, out, out)), bias);
}

static void body(by__nn_build *b)
{
    const by__nn_node_stack stack = {add_layer, BY_FN_RELU, takes_largest(b->config)};
    by__nn_node_layers(b, &own_keys(b->config)->sizes, &stack);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_node_write_config(out, c, &own_keys(c)->sizes, BY_FN_RELU);
    (void)json_object_set_new(out, "aggr", json_string(takes_largest(c) ? "max" : "mean"));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    sage_keys *own = own_keys(c);
    const char *aggregate = json_string_value(json_object_get(in, "aggr"));
    bool largest = aggregate != NULL && strcmp(aggregate, "max") == 0;
    BY_TRY(by__nn_node_read_config(c, &own->sizes, name, in, BY_FN_RELU, error));
    return by__nn_set_string(&own->aggregate, largest ? "max" : "mean", error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const sage_keys *k = own;
    BY_TRY(by__nn_node_resolve(config, &((sage_keys *)own)->sizes, error));
    if (strcmp(k->aggregate, "max") == 0) {
        BY_TRY(by__nn_node_refuse_weights(config, &k->sizes, error));
    }
    return k->sizes.edge_dropout == 0.0 || strcmp(k->aggregate, "max") != 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.aggregate max has no sum that model.edge_dropout could "
                              "leave edges out of; take mean",
                              by__config_where(config, "model.edge_dropout", "model.aggregate"));
}

const by__nn_family by__nn_family_sage = {
    .kind = {.name = "sage",
             .help = "GraphSAGE on the nodes of a graph (Hamilton et al. 2017).",
             .keys = {&by__nn_node_keys, &by__nn_activation_keys, &by__nn_norm_keys, &key_list},
             .size = sizeof(sage_keys),
             .resolve = resolve},
    .reads = "nodes",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .usual_task = by__nn_node_task,
    .published = (const by__nn_published[]){{"banyan_sage", "GraphSAGE", false}, {0}},
};
