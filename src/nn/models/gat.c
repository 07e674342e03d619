/* Graph attention networks (Velickovic et al. 2018): a layer is W x summed over the edges that end
 * in a node, each weighed by attention, in several heads. Heads are concatenated, and averaged in
 * the last layer; dropout is also that of the weights of edges. Parameters are those of PyTorch
 * Geometric's GAT. */
#include "nn/nn.h"

typedef struct gat_keys {
    by__nn_node_sizes sizes;
    int64_t output_heads;
    double slope;
} gat_keys;

static const by__config_key keys[] = {
    {"model", "heads", BY__KEY_INT, BY__FIELD(model.heads), "4", 1, 65536,
     .help = "heads of all layers but the last; divides width"},
    {"model", "output_heads", BY__KEY_INT, BY__OWN(gat_keys, output_heads), "1", 1, 1024,
     .help = "heads of the last layer, which are averaged"},
    {"model", "slope", BY__KEY_REAL, BY__OWN(gat_keys, slope), "0.2", 0, 1,
     .help = "slope of the leaky ReLU of scores below 0"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_gat;

static gat_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_gat.kind);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    const by_model_config *c = &config->model;
    BY_TRY(by__nn_node_resolve(config, &((gat_keys *)own)->sizes, error));
    BY_TRY(by__nn_node_refuse_weights(config, &((gat_keys *)own)->sizes, error));
    return c->layers == 1 || c->width % c->heads == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.heads %lld does not divide model.width "
                              "%lld",
                              by__config_where(config, "model.heads", "model.width"),
                              (long long)c->heads, (long long)c->width);
}

/* The product of each head of x [B, N, heads, width] with its own weights: [B, N, heads]. */
static by_value scores(by__nn_build *b, by_value x, int64_t heads, int64_t width, const char *name,
                       int i)
{
    by_value w = by__nn_weight(b, "one heads out", BY_SHAPE(1, heads, width),
                               by__nn_init_glorot(heads, width), "convs.%d.%s", i, name);
    by_value products = by_mul(b->graph, x, by_reshape(b->graph, w, BY_SHAPE(1, 1, heads, width)));
    return by__op_sum_axes(b->graph, products, 1u << 3, false, true);
}

static by_value add_layer(by__nn_build *b, by_value x, int i)
{
    const by_model_config *c = b->config;
    by_graph *g = b->graph;
    bool last = i == c->layers - 1;
    int64_t heads = last ? own_keys(c)->output_heads : c->heads;
    const by__nn_node_sizes *sizes = &own_keys(c)->sizes;
    int64_t in = by__nn_node_width(c, sizes, i);
    int64_t out = by__nn_node_width(c, sizes, i + 1);
    int64_t width = last ? out : out / heads;
    by_edges edges = by__nn_edges(b, sizes, i);
    by_value w = by__nn_weight(b, "out in", BY_SHAPE(heads * width, in),
                               by__nn_init_glorot(in, heads * width), "convs.%d.lin.weight", i);
    x = by__nn_node_product(b, sizes, x, w, heads * width);
    int64_t batch = by__nn_node_batch(b, sizes);
    by_value split = by_reshape(g, x, BY_SHAPE(batch, -1, heads, width));
    by_value source = scores(b, split, heads, width, "att_src", i);
    by_value own = by__nn_node_own(b, sizes, x, i);
    own = own == x ? split : by_reshape(g, own, BY_SHAPE(batch, -1, heads, width));
    by_value target = scores(b, own, heads, width, "att_dst", i);
    by_value weights = by_edge_attention(g, source, target, &edges, (float)own_keys(c)->slope);
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(out), (by_init){0}, "convs.%d.bias", i);
    by_value factors = by__nn_node_edge_factors(b, sizes, i, false);
    weights = by__nn_drop(b, factors == BY_NONE ? weights : by_mul(g, weights, factors));
    x = by_sparse_matmul(g, x, weights, &edges);
    if (last && heads > 1) {
        static const int axis[1] = {2};
        x = by_mean(g, by_reshape(g, x, BY_SHAPE(batch, -1, heads, width)), axis, 1, false);
    }
    return by_add(g, x, bias);
}

static void body(by__nn_build *b)
{
    static const by__nn_node_stack stack = {add_layer, BY_FN_ELU, false};
    by__nn_node_layers(b, &own_keys(b->config)->sizes, &stack);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_node_write_config(out, c, &own_keys(c)->sizes, BY_FN_ELU);
    (void)json_object_set_new(out, "heads", json_integer(c->heads));
    (void)json_object_set_new(out, "output_heads", json_integer(own_keys(c)->output_heads));
    (void)json_object_set_new(out, "negative_slope", json_real(own_keys(c)->slope));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    gat_keys *own = own_keys(c);
    BY_TRY(by__nn_node_read_config(c, &own->sizes, name, in, BY_FN_ELU, error));
    BY_TRY(by__nn_json_integer(&c->heads, name, in, "heads", 1, error));
    BY_TRY(by__nn_json_integer(&own->output_heads, name, in, "output_heads", 1, error));
    return by__nn_json_number(&own->slope, name, in, "negative_slope", 0.2, error);
}

const by__nn_family by__nn_family_gat = {
    .kind = {.name = "gat",
             .help = "GAT on the nodes of a graph (Velickovic et al. 2018).",
             .keys = {&by__nn_node_keys, &by__nn_activation_keys, &by__nn_norm_keys, &key_list},
             .size = sizeof(gat_keys),
             .resolve = resolve},
    .reads = "nodes",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .usual_task = by__nn_node_task,
    .published = (const by__nn_published[]){{"banyan_gat", "GAT", false}, {0}},
};
