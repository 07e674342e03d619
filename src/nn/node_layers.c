/* Layers of models of the nodes of a graph. If a batch only names the nodes whose outputs are
 * wanted, features and edges are constant inputs, uploaded once. Otherwise a batch has samples of
 * their surroundings, and each layer puts out the nodes that the next one still needs. */
#include <math.h>

#include "nn/nn.h"

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

int64_t by__nn_node_batch(const by__nn_build *b, const by__nn_node_sizes *sizes)
{
    return is_sampled(sizes) ? b->request->batch : 1;
}

int64_t by__nn_node_count(const by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    int64_t hop = hop_of(b, sizes, layer);
    return hop >= 0            ? by__nn_size_at(&sizes->hop_nodes, hop)
           : is_sampled(sizes) ? sizes->sample_nodes
                               : sizes->nodes;
}

/* The nodes that a layer reads are those that the one in front puts out. */
static by_value node_input(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name,
                           int64_t columns)
{
    if (is_sampled(sizes)) {
        return by__nn_input(b, name, BY_F32,
                            BY_SHAPE(b->request->batch, sizes->sample_nodes, columns));
    }
    by_value all = by_graph_find(b->graph, name);
    return all != BY_NONE ? all
                          : by_graph_constant_input(b->graph, name, BY_F32,
                                                    BY_SHAPE(1, sizes->nodes, columns));
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

/* An input of rows of edges: "edges.0.offsets" of a sample, "edges.offsets" of the whole graph. */
static by_value row_input(by__nn_build *b, bool sampled, const char *rows, const char *part,
                          int64_t extent)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.%s", rows, part);
    by_value found = by_graph_find(b->graph, name);
    if (found != BY_NONE) {
        return found;
    }
    return sampled ? by_graph_input(b->graph, name, BY_I32, BY_SHAPE(b->request->batch, extent))
                   : by_graph_constant_input(b->graph, name, BY_I32, BY_SHAPE(1, extent));
}

by_edges by__nn_edges(by__nn_build *b, const by__nn_node_sizes *sizes, int layer)
{
    bool sampled = is_sampled(sizes);
    int64_t hop = hop_of(b, sizes, layer);
    int64_t rows = by__nn_node_count(b, sizes, layer);
    int64_t columns = by__nn_node_count(b, sizes, layer - 1);
    int64_t edges = hop >= 0  ? by__nn_size_at(&sizes->hop_edges, hop)
                    : sampled ? sizes->sample_edges
                              : sizes->edges;
    char name[32] = "edges";
    if (sampled) {
        (void)snprintf(name, sizeof name, "edges.%d", hop < 0 ? 0 : (int)hop);
    }
    return (by_edges){.offsets = row_input(b, sampled, name, "offsets", rows + 1),
                      .sources = row_input(b, sampled, name, "sources", edges),
                      .back_offsets = row_input(b, sampled, name, "back_offsets", columns + 1),
                      .back_sources = row_input(b, sampled, name, "back_sources", edges),
                      .back_edges = row_input(b, sampled, name, "back_edges", edges)};
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

int64_t by__nn_node_width(const by_model_config *c, int64_t layer)
{
    return layer == 0 ? c->channels : layer == c->layers ? c->outputs : c->width;
}

void by__nn_node_layers(by__nn_build *b, const by__nn_node_sizes *sizes, by__nn_node_layer *layer)
{
    by_value x = by__nn_node_features(b, sizes);
    for (int i = 0; i < b->config->layers; i++) {
        if (i == b->config->layers - 1 && b->request->mode != BY_MODEL_TRAIN) {
            int64_t columns = by__nn_node_width(b->config, i);
            by_model_register(&b->model, b->graph, "features",
                              by__nn_node_rows(b, sizes, x, columns));
        }
        by_graph_set_block(b->graph, i);
        x = layer(b, by__nn_drop(b, x), i);
        if (i < b->config->layers - 1) {
            x = by_unary(b->graph, x, BY_FN_RELU);
        }
    }
    by_graph_set_block(b->graph, -1);
    b->model.output = by__nn_node_rows(b, sizes, x, b->config->outputs);
}

/* ---- config.json ---- */

void by__nn_node_write_config(json_t *out, const by_model_config *c, const by__nn_node_sizes *sizes)
{
    (void)json_object_set_new(out, "in_channels", json_integer(c->channels));
    (void)json_object_set_new(out, "hidden_channels", json_integer(c->width));
    (void)json_object_set_new(out, "num_layers", json_integer(c->layers));
    (void)json_object_set_new(out, "out_channels", json_integer(c->outputs));
    (void)json_object_set_new(out, "dropout", json_real(c->dropout));
    (void)json_object_set_new(out, "num_nodes", json_integer(sizes->nodes));
    (void)json_object_set_new(out, "num_edges", json_integer(sizes->edges));
    if (is_sampled(sizes)) {
        (void)json_object_set_new(out, "sample_nodes", json_integer(sizes->sample_nodes));
        (void)json_object_set_new(out, "sample_edges", json_integer(sizes->sample_edges));
        (void)json_object_set_new(out, "sample_targets", json_integer(sizes->sample_targets));
        (void)json_object_set_new(out, "hop_nodes", by__nn_sizes_json(&sizes->hop_nodes));
        (void)json_object_set_new(out, "hop_edges", by__nn_sizes_json(&sizes->hop_edges));
    }
}

by_status by__nn_node_read_config(by_model_config *c, by__nn_node_sizes *sizes, const char *name,
                                  const json_t *in, by_error *error)
{
    BY_TRY(by__nn_json_integer(&c->channels, name, in, "in_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->width, name, in, "hidden_channels", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->layers, name, in, "num_layers", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&c->outputs, name, in, "out_channels", BY__REQUIRED, error));
    const json_t *dropout = json_object_get(in, "dropout");
    if (json_is_number(dropout) && json_number_value(dropout) == 0.0) {
        c->dropout = 0.0;
    } else {
        BY_TRY(by__nn_json_number(&c->dropout, name, in, "dropout", 0.0, error));
    }
    BY_TRY(by__nn_json_integer(&sizes->nodes, name, in, "num_nodes", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&sizes->edges, name, in, "num_edges", BY__REQUIRED, error));
    BY_TRY(by__nn_json_integer(&sizes->sample_nodes, name, in, "sample_nodes", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->sample_edges, name, in, "sample_edges", 0, error));
    BY_TRY(by__nn_json_integer(&sizes->sample_targets, name, in, "sample_targets", 1, error));
    BY_TRY(by__nn_json_sizes(&sizes->hop_nodes, name, in, "hop_nodes", error));
    return by__nn_json_sizes(&sizes->hop_edges, name, in, "hop_edges", error);
}

const char *by__nn_node_task(const by_model_config *config)
{
    BY_UNUSED(config);
    return "nodes";
}
