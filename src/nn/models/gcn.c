/* Graph convolutional networks (Kipf and Welling 2017): a layer is W x summed over the edges that
 * end in a node, each weighed by 1 / sqrt(the degrees of its ends). This is a product of weights of
 * nodes, so rows are scaled before and after the sum. Parameters are those of PyTorch Geometric's
 * GCN. */
#include <string.h>

#include "nn/nn.h"

typedef struct gcn_keys {
    by__nn_node_sizes sizes;
    char *degrees;
} gcn_keys;

static const by__config_key keys[] = {
    {"model", "degrees", BY__KEY_TEXT, BY__OWN(gcn_keys, degrees), "both",
     .choices = "both|target|none", .later = true,
     .help = "what a sum over edges is divided by: for each edge the root of the degrees of both "
             "its ends, the degree of the node where it ends (a mean), or none"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_gcn;

static gcn_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_gcn.kind);
}

static by_value add_layer(by__nn_build *b, by_value x, int i)
{
    by_graph *g = b->graph;
    const by__nn_node_sizes *sizes = &own_keys(b->config)->sizes;
    int64_t in = by__nn_node_width(b->config, sizes, i);
    int64_t out = by__nn_node_width(b->config, sizes, i + 1);
    const char *degrees = own_keys(b->config)->degrees;
    by_value w = by__nn_weight(b, "out in", BY_SHAPE(out, in), by__nn_init_glorot(in, out),
                               "convs.%d.lin.weight", i);
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(out), (by_init){0}, "convs.%d.bias", i);
    x = by__nn_node_product(b, sizes, x, w, out);
    if (strcmp(degrees, "both") == 0) {
        by_value from = by__nn_node_scale(b, sizes, "nodes.inverse_root", i);
        x = by__nn_node_sum(b, sizes, by_mul(g, x, from), i);
        x = by_mul(g, x, by__nn_node_scale_into(b, sizes, i));
    } else {
        x = by__nn_node_sum(b, sizes, x, i);
    }
    if (strcmp(degrees, "target") == 0) {
        x = by_mul(g, x, by__nn_node_scale(b, sizes, "nodes.inverse_degree", i + 1));
    }
    return by_add(g, x, bias);
}

static void body(by__nn_build *b)
{
    static const by__nn_node_stack stack = {add_layer, BY_FN_RELU, false};
    by__nn_node_layers(b, &own_keys(b->config)->sizes, &stack);
}

static void write_config(json_t *out, const by_model_config *c)
{
    by__nn_node_write_config(out, c, &own_keys(c)->sizes, BY_FN_RELU);
    (void)json_object_set_new(out, "degrees", json_string(own_keys(c)->degrees));
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    gcn_keys *own = own_keys(c);
    const char *degrees = json_string_value(json_object_get(in, "degrees"));
    BY_TRY(by__nn_node_read_config(c, &own->sizes, name, in, BY_FN_RELU, error));
    return by__nn_set_string(&own->degrees, degrees == NULL ? "both" : degrees, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    return by__nn_node_resolve(config, &((gcn_keys *)own)->sizes, error);
}

const by__nn_family by__nn_family_gcn = {
    .kind = {.name = "gcn",
             .help = "GCN on the nodes of a graph (Kipf and Welling 2017).",
             .keys = {&by__nn_node_keys, &by__nn_activation_keys, &by__nn_norm_keys, &key_list},
             .size = sizeof(gcn_keys),
             .resolve = resolve},
    .reads = "nodes",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .usual_task = by__nn_node_task,
    .published = (const by__nn_published[]){{"banyan_gcn", "GCN", false}, {0}},
};
