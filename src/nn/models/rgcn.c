/* Relational graph convolutional networks (Schlichtkrull et al. 2018): a layer is the sum over
 * relations of W_r of the mean of the nodes that edges of relation r come from, plus W_0 of the
 * node itself. All W_r x are one product, whose columns of a node are rows of the sum over edges.
 * With fewer bases than relations, each W_r is a mix of them. Parameters are those of PyTorch
 * Geometric's RGCNConv. */
#include <string.h>

#include "nn/nn.h"

typedef struct rgcn_keys {
    by__nn_node_sizes sizes;
    int64_t bases;
} rgcn_keys;

static const by__config_key keys[] = {
    {"model", "bases", BY__KEY_INT, BY__OWN(rgcn_keys, bases), "0", 0, 65536,
     .help = "matrices that the matrix of each relation is a mix of; 0: each has its own"},
};
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__nn_family by__nn_family_rgcn;

static rgcn_keys *own_keys(const by_model_config *c)
{
    return by__config_kind_own(c->own, &by__nn_family_rgcn.kind);
}

/* The matrices of all relations, [relations, in, out]. */
static by_value matrices(by__nn_build *b, int i, int64_t in, int64_t out)
{
    by_graph *g = b->graph;
    int64_t relations = own_keys(b->config)->sizes.relations;
    int64_t bases = own_keys(b->config)->bases;
    int64_t count = bases > 0 ? bases : relations;
    by_value w = by__nn_weight(b, "relation in out", BY_SHAPE(count, in, out),
                               by__nn_init_glorot(in, out), "convs.%d.weight", i);
    if (bases == 0) {
        return w;
    }
    by_value mix = by__nn_weight(b, "relation one", BY_SHAPE(relations, bases),
                                 by__nn_init_glorot(relations, bases), "convs.%d.comp", i);
    w = by_matmul(g, mix, by_reshape(g, w, BY_SHAPE(bases, in * out)), false, false);
    return by_reshape(g, w, BY_SHAPE(relations, in, out));
}

/* As rows of outputs, [rows, in], each of `count` matrices [in, out]. */
static by_value as_rows(by_graph *g, by_value w, int64_t count, int64_t in, int64_t out)
{
    return by_reshape(g, by_transpose(g, w, -2, -1), BY_SHAPE(count * out, in));
}

static by_value add_layer(by__nn_build *b, by_value x, int i)
{
    by_graph *g = b->graph;
    const by__nn_node_sizes *sizes = &own_keys(b->config)->sizes;
    int64_t relations = sizes->relations;
    int64_t in = by__nn_node_width(b->config, sizes, i);
    int64_t out = by__nn_node_width(b->config, sizes, i + 1);
    by_value root = by__nn_weight(b, "in out", BY_SHAPE(in, out), by__nn_init_glorot(in, out),
                                  "convs.%d.root", i);
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(out), (by_init){0}, "convs.%d.bias", i);
    by_value parts[2] = {as_rows(g, matrices(b, i, in, out), relations, in, out),
                         as_rows(g, root, 1, in, out)};
    by_value all =
        by__nn_node_product(b, sizes, x, by_concat(g, parts, 2, 0), (relations + 1) * out);
    by_value rows = by_reshape(g, by_slice(g, all, -1, 0, relations * out),
                               BY_SHAPE(1, sizes->nodes * relations, out));
    by_value sum = by__nn_node_relation_sum(b, sizes, rows);
    return by_add(g, by_add(g, sum, by_slice(g, all, -1, relations * out, out)), bias);
}

static void body(by__nn_build *b)
{
    static const by__nn_node_stack stack = {add_layer, BY_FN_RELU, false};
    by__nn_node_layers(b, &own_keys(b->config)->sizes, &stack);
}

static void write_config(json_t *out, const by_model_config *c)
{
    const rgcn_keys *own = own_keys(c);
    by__nn_node_write_config(out, c, &own->sizes, BY_FN_RELU);
    (void)json_object_set_new(out, "num_relations", json_integer(own->sizes.relations));
    (void)json_object_set_new(out, "num_relation_edges", json_integer(own->sizes.relation_edges));
    if (own->bases > 0) {
        (void)json_object_set_new(out, "num_bases", json_integer(own->bases));
    }
}

static by_status read_config(by_model_config *c, const char *name, const json_t *in,
                             by_error *error)
{
    rgcn_keys *own = own_keys(c);
    BY_TRY(by__nn_node_read_config(c, &own->sizes, name, in, BY_FN_RELU, error));
    BY_TRY(
        by__nn_json_integer(&own->sizes.relations, name, in, "num_relations", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&own->sizes.relation_edges, name, in, "num_relation_edges",
                               BY__REQUIRED, error));
    return by__nn_json_integer(&own->bases, name, in, "num_bases", 0, error);
}

static by_status resolve(by_config *config, void *own, by_error *error)
{
    by__nn_node_sizes *sizes = &((rgcn_keys *)own)->sizes;
    BY_TRY(by__nn_node_resolve(config, sizes, error));
    BY_TRY(by__nn_node_refuse_weights(config, sizes, error));
    if (sizes->sample_nodes > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: model.kind rgcn reads the whole graph: leave out data.fan_outs "
                            "and data.sampling",
                            by__config_where(config, "data.fan_outs", "model.kind"));
    }
    if (sizes->relations != 0) {
        return BY_OK;
    }
    return strcmp(config->task.kind, "graphs") == 0
               ? by_error_set(
                     error, BY_ECONFIG,
                     "%s: model.kind rgcn reads the relations of edges, which task.kind "
                     "%s does not: take gcn, sage, gat or gin, or task.kind nodes or links",
                     by__config_where(config, "model.kind", "task.kind"), config->task.kind)
               : by_error_set(error, BY_ECONFIG,
                              "%s: model.kind rgcn needs relations: set data.relations to a file "
                              "with that of each edge",
                              by__config_where(config, "data.relations", "model.kind"));
}

const by__nn_family by__nn_family_rgcn = {
    .kind = {.name = "rgcn",
             .help = "R-GCN on a graph whose edges have relations (Schlichtkrull et al. 2018).",
             .keys = {&by__nn_node_keys, &by__nn_activation_keys, &by__nn_norm_keys, &key_list},
             .size = sizeof(rgcn_keys),
             .resolve = resolve},
    .reads = "nodes",
    .body = body,
    .write_config = write_config,
    .read_config = read_config,
    .usual_task = by__nn_node_task,
    .published = (const by__nn_published[]){{"banyan_rgcn", "RGCN", false}, {0}},
};
