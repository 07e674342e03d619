/* Layers of models of the nodes of a graph. If a batch only names the nodes whose outputs are
 * wanted, features and edges are constant inputs, uploaded once. Otherwise a batch has samples of
 * their surroundings, and each layer puts out the nodes that the next one still needs. */
#include <math.h>
#include <string.h>

#include "nn/nn.h"

#define NORM_EPS 1e-5

static by_value drop(by__nn_build *b, by_value x, double p)
{
    return b->request->mode != BY_MODEL_TRAIN || p == 0.0
               ? x
               : by_dropout(b->graph, x, b->model.rng, (float)p, b->streams++);
}

static bool is_sampled(const by__nn_node_sizes *sizes)
{
    return sizes->sample_nodes > 0;
}

/* The hop whose nodes layer `layer` puts out; -1: it puts out all. */
static int64_t hop_of(const by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    int64_t hop = b->config->layers - 1 - layer;
    return is_sampled(sizes) && hop < (int64_t)sizes->hop_nodes.count ? hop : -1;
}

/* A batch has nodes and edges. */
static bool in_batch(const by__nn_node_sizes *sizes)
{
    return is_sampled(sizes) || sizes->own_graphs > 0;
}

int64_t by__nn_node_batch(const by__nn_build *b, const by__nn_node_sizes *sizes)
{
    return in_batch(sizes) ? b->request->batch : 1;
}

int64_t by__nn_node_count(const by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    int64_t hop = hop_of(b, sizes, layer);
    return hop >= 0            ? by__nn_size_at(&sizes->hop_nodes, hop)
           : is_sampled(sizes) ? sizes->sample_nodes
                               : sizes->nodes;
}

static by_value constant_input(by__nn_build *b, const char *name, by_dtype dtype, by_shape shape)
{
    by_value found = by_graph_find(b->graph, name);
    return found != BY_NONE ? found : by_graph_constant_input(b->graph, name, dtype, shape);
}

/* The nodes that a layer reads are those that the one in front puts out. */
static by_value node_input(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name,
                           int64_t columns)
{
    if (in_batch(sizes)) {
        return by__nn_input(b, name, BY_F32,
                            BY_SHAPE(b->request->batch, by__nn_node_count(b, sizes, -1), columns));
    }
    return constant_input(b, name, BY_F32, BY_SHAPE(1, sizes->nodes, columns));
}

static by_value first_nodes(by__nn_build *b, by_value x, int64_t have, int64_t want)
{
    return want == have ? x : by_slice(b->graph, x, 1, 0, want);
}

by_value by__nn_node_features(by__nn_build *b, const by__nn_node_sizes *sizes)
{
    return node_input(b, sizes, "nodes.x", b->config->channels);
}

by_value by__nn_node_scale(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name,
                           int layer)
{
    int64_t all = by__nn_node_count(b, sizes, -1);
    return first_nodes(b, node_input(b, sizes, name, 1), all,
                       by__nn_node_count(b, sizes, layer - 1));
}

by_value by__nn_node_scale_into(by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    return by__nn_node_scale(
        b, sizes, is_sampled(sizes) ? "nodes.inverse_root_into" : "nodes.inverse_root", layer + 1);
}

by_value by__nn_node_own(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x, int layer)
{
    return first_nodes(b, x, by__nn_node_count(b, sizes, layer - 1),
                       by__nn_node_count(b, sizes, layer));
}

static int64_t edges_of(const by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    int64_t hop = hop_of(b, sizes, layer);
    return hop >= 0            ? by__nn_size_at(&sizes->hop_edges, hop)
           : is_sampled(sizes) ? sizes->sample_edges
                               : sizes->edges;
}

/* An input of rows of edges: "edges.0.offsets" of a sample, "edges.offsets" of the whole graph. */
static by_value row_input(by__nn_build *b, bool batched, const char *rows, const char *part,
                          int64_t extent)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", rows, part);
    by_value found = by_graph_find(b->graph, name);
    if (found != BY_NONE) {
        return found;
    }
    return batched ? by_graph_input(b->graph, name, BY_I32, BY_SHAPE(b->request->batch, extent))
                   : by_graph_constant_input(b->graph, name, BY_I32, BY_SHAPE(1, extent));
}

by_edges by__nn_edges(by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    bool sampled = is_sampled(sizes);
    int64_t hop = hop_of(b, sizes, layer);
    int64_t rows = by__nn_node_count(b, sizes, layer);
    int64_t columns = by__nn_node_count(b, sizes, layer - 1);
    int64_t edges = edges_of(b, sizes, layer);
    char name[32] = "edges";
    if (sampled) {
        (void)snprintf(name, sizeof name, "edges.%d", hop < 0 ? 0 : (int)hop);
    }
    bool batched = in_batch(sizes);
    return (by_edges){.offsets = row_input(b, batched, name, "offsets", rows + 1),
                      .sources = row_input(b, batched, name, "sources", edges),
                      .back_offsets = row_input(b, batched, name, "back_offsets", columns + 1),
                      .back_sources = row_input(b, batched, name, "back_sources", edges),
                      .back_edges = row_input(b, batched, name, "back_edges", edges)};
}

/* Targets are the first nodes of a sample, and named by a batch that reads the whole graph. */
by_value by__nn_node_rows(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                          int64_t columns)
{
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t targets = sizes->sample_targets > 1 ? sizes->sample_targets : 1;
    if (is_sampled(sizes)) {
        x = first_nodes(b, x, g->values[x].shape.dim[1], targets);
    } else {
        by_value ids = by__nn_input(b, "ids", BY_I32,
                                    targets > 1 ? BY_SHAPE(batch, targets) : BY_SHAPE(batch));
        x = by_embedding(g, ids, by_reshape(g, x, BY_SHAPE(sizes->nodes, columns)));
    }
    return targets > 1 ? x : by_reshape(g, x, BY_SHAPE(batch, columns));
}

by_init by__nn_init_glorot(int64_t in, int64_t out)
{
    return (by_init){BY_INIT_NORMAL, sqrtf(2.0f / (float)(in + out))};
}

int64_t by__nn_node_width(const by_model_config *c, const by__nn_node_sizes *sizes, int64_t layer)
{
    bool reads_out = sizes->own_graphs > 0 && sizes->graphs > 0;
    return layer == 0 ? c->channels : layer == c->layers && !reads_out ? c->outputs : c->width;
}

/* Features that are 0 add nothing to a product and stay 0 in dropout: both are for the others. */
static by_value sparse_product(by__nn_build *b, const by__nn_node_sizes *sizes, by_value w,
                               int64_t out)
{
    by_graph *g = b->graph;
    int64_t in = b->config->channels;
    by_shape entries = BY_SHAPE(1, sizes->feature_entries);
    by_shape rows = BY_SHAPE(1, sizes->nodes + 1);
    by_shape columns = BY_SHAPE(1, in + 1);
    const by_edges matrix = {
        .offsets = constant_input(b, "features.offsets", BY_I32, rows),
        .sources = constant_input(b, "features.columns", BY_I32, entries),
        .back_offsets = constant_input(b, "features.back_offsets", BY_I32, columns),
        .back_sources = constant_input(b, "features.back_rows", BY_I32, entries),
        .back_edges = constant_input(b, "features.back_entries", BY_I32, entries)};
    by_value values =
        constant_input(b, "features.values", BY_F32, BY_SHAPE(1, sizes->feature_entries, 1));
    by_value table = by_reshape(g, by_transpose(g, w, 0, 1), BY_SHAPE(1, in, out));
    return by_sparse_matmul(g, table, drop(b, values, sizes->input_dropout), &matrix);
}

by_value by__nn_node_product(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                             by_value w, int64_t out)
{
    return x == BY_NONE ? sparse_product(b, sizes, w, out)
                        : by_linear(b->graph, x, w, BY_NONE, true);
}

by_value by__nn_node_edge_factors(by__nn_build *b, const by__nn_node_sizes *sizes, int layer,
                                  bool weighted)
{
    by_shape shape = BY_SHAPE(by__nn_node_batch(b, sizes), edges_of(b, sizes, layer), 1);
    by_value w = BY_NONE;
    if (weighted && sizes->edge_weights == 1 && !in_batch(sizes)) {
        w = constant_input(b, "edges.weights", BY_F32, shape);
    } else if (weighted && sizes->sample_weights == 1 && is_sampled(sizes)) {
        char name[32];
        int64_t hop = hop_of(b, sizes, layer);
        (void)snprintf(name, sizeof name, "edges.%d.weights", hop < 0 ? 0 : (int)hop);
        w = by__nn_input(b, name, BY_F32, shape);
    }
    if (b->request->mode != BY_MODEL_TRAIN || sizes->edge_dropout == 0.0) {
        return w;
    }
    return drop(b, w != BY_NONE ? w : by_fill(b->graph, BY_F32, shape, 1.0f), sizes->edge_dropout);
}

by_value by__nn_node_sum(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x, int layer)
{
    by_edges edges = by__nn_edges(b, sizes, layer);
    return by_sparse_matmul(b->graph, x, by__nn_node_edge_factors(b, sizes, layer, true), &edges);
}

by_value by__nn_node_relation_sum(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x)
{
    by_shape edges = BY_SHAPE(1, sizes->relation_edges);
    by_shape rows = BY_SHAPE(1, sizes->nodes + 1);
    by_shape pairs = BY_SHAPE(1, sizes->nodes * sizes->relations + 1);
    const by_edges matrix = {
        .offsets = constant_input(b, "relations.offsets", BY_I32, rows),
        .sources = constant_input(b, "relations.sources", BY_I32, edges),
        .back_offsets = constant_input(b, "relations.back_offsets", BY_I32, pairs),
        .back_sources = constant_input(b, "relations.back_sources", BY_I32, edges),
        .back_edges = constant_input(b, "relations.back_edges", BY_I32, edges)};
    by_value weights =
        constant_input(b, "relations.weights", BY_F32, BY_SHAPE(1, sizes->relation_edges, 1));
    return by_sparse_matmul(b->graph, x, drop(b, weights, sizes->edge_dropout), &matrix);
}

by_value by__nn_node_norm(by__nn_build *b, by_value x, int64_t width, const char *prefix)
{
    const char *kind = by__nn_norm_name(b->config, "");
    char name[128];
    const by__nn_norm_place place = {
        .prefix = name, .axes = "out", .width = width, .eps = NORM_EPS};
    (void)snprintf(name, sizeof name, "%s%s", prefix, strcmp(kind, "batch") == 0 ? ".module" : "");
    return kind[0] == '\0' ? x : by__nn_norm(b, x, &place);
}

static bool adds_input(const by__nn_build *b, const by__nn_node_sizes *sizes, int i)
{
    return sizes->residual == 1 &&
           by__nn_node_width(b->config, sizes, i) == by__nn_node_width(b->config, sizes, i + 1);
}

void by__nn_node_layers(by__nn_build *b, const by__nn_node_sizes *sizes,
                        const by__nn_node_stack *stack)
{
    const by_model_config *c = b->config;
    bool sparse =
        sizes->feature_entries > 0 && !in_batch(sizes) && !stack->dense && !adds_input(b, sizes, 0);
    by_value x = sparse ? BY_NONE : by__nn_node_features(b, sizes);
    char norm[32];
    for (int i = 0; i < c->layers; i++) {
        if (i == c->layers - 1 && b->request->mode != BY_MODEL_TRAIN && sizes->own_graphs == 0 &&
            sizes->held_out_candidates == 0) {
            by_value read = x == BY_NONE ? by__nn_node_features(b, sizes) : x;
            by_model_register(&b->model, b->graph, "features",
                              by__nn_node_rows(b, sizes, read, by__nn_node_width(c, sizes, i)));
        }
        by_graph_set_block(b->graph, i);
        double p = i == 0 ? sizes->input_dropout : c->dropout;
        by_value y = stack->layer(b, x == BY_NONE ? x : drop(b, x, p), i);
        if (i < c->layers - 1) {
            (void)snprintf(norm, sizeof norm, "norms.%d", i);
            y = by__nn_node_norm(b, y, by__nn_node_width(c, sizes, i + 1), norm);
            y = by__nn_activate(b, y, stack->activation);
        }
        x = adds_input(b, sizes, i) ? by_add(b->graph, y, by__nn_node_own(b, sizes, x, i)) : y;
    }
    by_graph_set_block(b->graph, -1);
    b->model.output = by__nn_node_read_out(b, sizes, x);
}

by_status by__nn_node_resolve(by_config *config, by__nn_node_sizes *sizes, by_error *error)
{
    bool batch = strcmp(by__nn_norm_name(&config->model, ""), "batch") == 0;
    if (sizes->input_dropout == -1.0) {
        sizes->input_dropout = config->model.dropout;
    }
    return sizes->sample_nodes > 0 && batch
               ? by_error_set(error, BY_ECONFIG,
                              "%s: norm.kind batch would count the empty rows of samples of a "
                              "graph; take layer or rms",
                              by__config_where(config, "norm.kind", "data.fan_outs"))
               : BY_OK;
}

by_status by__nn_node_refuse_weights(const by_config *config, const by__nn_node_sizes *sizes,
                                     by_error *error)
{
    return sizes->edge_weights != 1 && sizes->sample_weights != 1
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s: this model of kind %s reads no weights of edges: leave out "
                              "data.edge_weights (or pack the graph without --weights) and, with "
                              "data.sampling walks, set data.walk_coverage=0; gcn, gin, and sage "
                              "with aggregate mean read them",
                              by__config_where(config, "data.edge_weights", "model.kind"),
                              config->model.kind);
}

/* ---- config.json ---- */

void by__nn_node_write_config(json_t *out, const by_model_config *c, const by__nn_node_sizes *sizes,
                              by_function activation)
{
    by__nn_activation_write(out, "act", c, activation);
    (void)json_object_set_new(out, "input_dropout", json_real(sizes->input_dropout));
    (void)json_object_set_new(out, "edge_dropout", json_real(sizes->edge_dropout));
    (void)json_object_set_new(out, "residual", json_boolean(sizes->residual == 1));
    (void)json_object_set_new(out, "edge_weights", json_boolean(sizes->edge_weights == 1));
    if (sizes->feature_entries > 0) {
        (void)json_object_set_new(out, "feature_entries", json_integer(sizes->feature_entries));
    }
    (void)json_object_set_new(out, "in_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "hidden_channels", json_integer(c->width));
    (void)json_object_set_new(out, "num_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "out_channels", json_integer(c->outputs));
    (void)json_object_set_new(out, "dropout", json_real(c->dropout));
    (void)json_object_set_new(out, "num_nodes", json_integer(sizes->nodes));
    (void)json_object_set_new(out, "num_edges", json_integer(sizes->edges));
    if (sizes->edge_features > 0) {
        (void)json_object_set_new(out, "edge_dim", json_integer(sizes->edge_features));
    }
    if (sizes->own_graphs > 0) {
        (void)json_object_set_new(out, "num_graphs", json_integer(sizes->graphs));
        (void)json_object_set_new(out, "readout", json_string(sizes->readout));
    }
    if (sizes->graph_features > 0) {
        (void)json_object_set_new(out, "graph_dim", json_integer(sizes->graph_features));
    }
    if (sizes->candidates > 0) {
        (void)json_object_set_new(out, "candidates", json_integer(sizes->candidates));
        (void)json_object_set_new(out, "held_out_candidates",
                                  json_integer(sizes->held_out_candidates));
        (void)json_object_set_new(out, "decoder", json_string(sizes->decoder));
    }
    if (is_sampled(sizes)) {
        (void)json_object_set_new(out, "sample_nodes", json_integer(sizes->sample_nodes));
        (void)json_object_set_new(out, "sample_edges", json_integer(sizes->sample_edges));
        (void)json_object_set_new(out, "sample_targets", json_integer(sizes->sample_targets));
        (void)json_object_set_new(out, "sample_weights", json_boolean(sizes->sample_weights == 1));
        (void)json_object_set_new(out, "hop_nodes", by__nn_sizes_json(&sizes->hop_nodes));
        (void)json_object_set_new(out, "hop_edges", by__nn_sizes_json(&sizes->hop_edges));
    }
}

/* A probability of dropout, from 0 on. */
static by_status read_dropout(double *out, const char *name, const json_t *in, const char *key,
                              double fallback, by_error *error)
{
    const json_t *value = json_object_get(in, key);
    double p = json_is_number(value) ? json_number_value(value) : value == NULL ? fallback : -1.0;
    *out = p;
    return p >= 0.0 && p < 1.0
               ? BY_OK
               : by_error_set(error, BY_EFORMAT, "%s: \"%s\" is not a number from 0 to below 1",
                              name, key);
}

static by_status read_word(char **out, const json_t *in, const char *key, const char *fallback,
                           by_error *error)
{
    const char *word = json_string_value(json_object_get(in, key));
    return by__nn_set_string(out, word == NULL ? fallback : word, error);
}

static by_status read_readout(by__nn_node_sizes *sizes, const char *name, const json_t *in,
                              by_error *error)
{
    sizes->own_graphs = json_object_get(in, "num_graphs") != NULL;
    BY_TRY(by__nn_json_integer(&sizes->graphs, name, in, "num_graphs", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->edge_features, name, in, "edge_dim", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->graph_features, name, in, "graph_dim", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->candidates, name, in, "candidates", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->held_out_candidates, name, in, "held_out_candidates", 0,
                               error));
    BY_TRY(read_word(&sizes->readout, in, "readout", "mean", error));
    return read_word(&sizes->decoder, in, "decoder", "dot", error);
}

by_status by__nn_node_read_config(by_model_config *c, by__nn_node_sizes *sizes, const char *name,
                                  const json_t *in, by_function activation, by_error *error)
{
    BY_TRY(by__nn_activation_read(c, name, in, "act", activation, error));
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "in_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_layers", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->outputs, name, in, "out_channels", BY__REQUIRED, error));
    BY_TRY(read_dropout(&c->dropout, name, in, "dropout", 0.0, error));
    /* A state dict of another program has none: they are those of the data. */
    BY_TRY(by__nn_json_integer(&sizes->nodes, name, in, "num_nodes", 1, error));
    BY_TRY(by__nn_json_integer(&sizes->edges, name, in, "num_edges", 1, error));
    BY_TRY(read_readout(sizes, name, in, error));
    BY_TRY(by__nn_json_integer(&sizes->sample_nodes, name, in, "sample_nodes", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->sample_edges, name, in, "sample_edges", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->sample_targets, name, in, "sample_targets", 1, error));
    BY_TRY(by__nn_json_switch(&sizes->sample_weights, name, in, "sample_weights", false, error));
    BY_TRY(by__nn_json_sizes(&sizes->hop_nodes, name, in, "hop_nodes", error));
    BY_TRY(by__nn_json_sizes(&sizes->hop_edges, name, in, "hop_edges", error));
    BY_TRY(by__nn_json_integer(&sizes->feature_entries, name, in, "feature_entries", 0, error));
    BY_TRY(read_dropout(&sizes->input_dropout, name, in, "input_dropout", c->dropout, error));
    BY_TRY(read_dropout(&sizes->edge_dropout, name, in, "edge_dropout", 0.0, error));
    BY_TRY(by__nn_json_switch(&sizes->residual, name, in, "residual", false, error));
    return by__nn_json_switch(&sizes->edge_weights, name, in, "edge_weights", false, error);
}

const char *by__nn_node_task(const by_model_config *config)
{
    BY_UNUSED(config);
    return "nodes";
}
