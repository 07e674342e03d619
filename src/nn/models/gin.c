/* Graph isomorphism networks (Xu et al. 2019): a layer is two linear layers, with norm and
 * activation between them, of 1 + eps times a node plus the sum of the nodes that edges come from.
 * The first of them and the sum may change places, and do so where it makes rows narrower. Where
 * edges have features, the sum is of relu(node + W features) (GINE, Hu et al. 2020). Parameters are
 * those of PyTorch Geometric's GIN, or of its layers GINEConv, which keep eps whether it is trained
 * or not. */
#include <math.h>

#include "nn/nn.h"

typedef struct gin_keys {
    by__nn_node_sizes sizes;
    int64_t train_eps;
} gin_keys;

static const by__config_key keys[] = {
    {"model", "train_eps", BY__KEY_SWITCH, BY__OWN(gin_keys, train_eps), "false",
     .help = "train eps, by which a node counts for more than one that an edge comes from; false: "
             "it stays 0, or what model.from has"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_gin;

static gin_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_gin.kind);
}

/* Part `part` of the linear layers of layer i: its weight [out, in], and its bias. */
static by_value weight(by__nn_build *b, int i, int part, int64_t in, int64_t out, by_value *bias)
{
    by_init init = {BY_INIT_NORMAL, 1.0f / sqrtf(3.0f * (float)in)};
    *bias =
        by__nn_weight(b, "out", BY_SHAPE(out), (by_init){0}, "convs.%d.nn.lins.%d.bias", i, part);
    return by__nn_weight(b, "out in", BY_SHAPE(out, in), init, "convs.%d.nn.lins.%d.weight", i,
                         part);
}

/* (1 + eps) x plus the sum over edges, of rows of `columns`. */
static by_value gather(by__nn_build *b, by_value x, int64_t columns, int i)
{
    by_graph *g = b->graph;
    const by__nn_node_sizes *sizes = &own_keys(b->config)->sizes;
    char prefix[48];
    by_value eps = by__nn_weight(b, "one", BY_SHAPE(1), (by_init){0}, "convs.%d.eps", i);
    if (own_keys(b->config)->train_eps != 1) {
        by_graph_freeze(g, eps);
    }
    (void)snprintf(prefix, sizeof prefix, "convs.%d.lin", i);
    by_value sum = sizes->edge_features > 0 ? by__nn_node_edge_sum(b, sizes, x, columns, i, prefix)
                                            : by__nn_node_sum(b, sizes, x, i);
    x = by__nn_node_own(b, sizes, x, i);
    return by_add(g, by_add(g, x, by_mul(g, x, eps)), sum);
}

static by_value add_layer(by__nn_build *b, by_value x, int i)
{
    by_graph *g = b->graph;
    const by__nn_node_sizes *sizes = &own_keys(b->config)->sizes;
    int64_t in = by__nn_node_width(b->config, sizes, i);
    int64_t out = by__nn_node_width(b->config, sizes, i + 1);
    by_value biases[2];
    char prefix[64];
    by_value w = weight(b, i, 0, in, out, &biases[0]);
    if (x == BY_NONE || (in > out && sizes->edge_features == 0)) {
        x = gather(b, by__nn_node_product(b, sizes, x, w, out), out, i);
    } else {
        x = by__nn_node_product(b, sizes, gather(b, x, in, i), w, out);
    }
    (void)snprintf(prefix, sizeof prefix, "convs.%d.nn.norms.0", i);
    x = by__nn_node_norm(b, by_add(g, x, biases[0]), out, prefix);
    x = by__nn_activate(b, x, BY_FN_RELU);
    w = weight(b, i, 1, out, out, &biases[1]);
    return by_linear(g, x, w, biases[1], true);
}

static void body(by__nn_build *b)
{
    static const by__nn_node_stack stack = {add_layer, BY_FN_RELU, false};
    by__nn_node_layers(b, &own_keys(b->config)->sizes, &stack);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_node_write_config(out, c, &own_keys(c)->sizes, BY_FN_RELU);
    (void)json_object_set_new(out, "train_eps", json_boolean(own_keys(c)->train_eps == 1));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    gin_keys *own = own_keys(c);
    BY_TRY(by__nn_node_read_config(c, &own->sizes, name, in, BY_FN_RELU, error));
    return by__nn_json_switch(&own->train_eps, name, in, "train_eps", false, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    return by__nn_node_resolve(config, &((gin_keys *)own)->sizes, error);
}

const by__nn_family by__nn_family_gin = {
    .kind = {.name = "gin",
             .help = "GIN on the nodes of a graph (Xu et al. 2019).",
             .keys = {&by__nn_node_keys, &by__nn_activation_keys, &by__nn_norm_keys,
                      &by__nn_edge_feature_keys, &key_list},
             .size = sizeof(gin_keys),
             .resolve = resolve},
    .reads = "nodes",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .usual_task = by__nn_node_task,
    .published = (const by__nn_published[]){{"banyan_gin", "GIN", false}, {0}},
};
