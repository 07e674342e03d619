/* Layers of models of the nodes of a graph. The features of all nodes are a constant input,
 * uploaded once, and so are all edges, if a batch only names the nodes whose outputs are wanted.
 * Otherwise a batch has samples of their surroundings. */
#include <math.h>

#include "nn/nn.h"

/* Rows of a constant [1, nodes, columns]: all, or those of the samples of a batch. */
static by_value node_input(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name,
                           int64_t columns)
{
    by_graph *g = b->graph;
    by_value all = by_graph_find(g, name);
    if (all == BY_NONE) {
        all = by_graph_constant_input(g, name, BY_F32, BY_SHAPE(1, sizes->nodes, columns));
    }
    if (sizes->sample_nodes == 0) {
        return all;
    }
    by_value ids =
        by__nn_input(b, "sample.ids", BY_I32, BY_SHAPE(b->request->batch, sizes->sample_nodes));
    return by_embedding(g, ids, by_reshape(g, all, BY_SHAPE(sizes->nodes, columns)));
}

by_value by__nn_node_features(by__nn_build *b, const by__nn_node_sizes *sizes)
{
    return node_input(b, sizes, "nodes.x", b->config->channels);
}

by_value by__nn_node_scale(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name)
{
    return node_input(b, sizes, name, 1);
}

static by_value edge_input(by__nn_build *b, const by__nn_node_sizes *sizes, const char *name,
                           int64_t extent)
{
    by_value found = by_graph_find(b->graph, name);
    if (found != BY_NONE) {
        return found;
    }
    return sizes->sample_nodes > 0
               ? by_graph_input(b->graph, name, BY_I32, BY_SHAPE(b->request->batch, extent))
               : by_graph_constant_input(b->graph, name, BY_I32, BY_SHAPE(1, extent));
}

by_edges by__nn_edges(by__nn_build *b, const by__nn_node_sizes *sizes)
{
    bool sampled = sizes->sample_nodes > 0;
    int64_t offsets = (sampled ? sizes->sample_nodes : sizes->nodes) + 1;
    int64_t edges = sampled ? sizes->sample_edges : sizes->edges;
    return (by_edges){.offsets = edge_input(b, sizes, "edges.offsets", offsets),
                      .sources = edge_input(b, sizes, "edges.sources", edges),
                      .back_offsets = edge_input(b, sizes, "edges.back_offsets", offsets),
                      .back_sources = edge_input(b, sizes, "edges.back_sources", edges),
                      .back_edges = edge_input(b, sizes, "edges.back_edges", edges)};
}

/* The first node of a sample is its target. */
by_value by__nn_node_rows(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                          int64_t columns)
{
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    if (sizes->sample_nodes > 0) {
        return by_reshape(g, by_slice(g, x, 1, 0, 1), BY_SHAPE(batch, columns));
    }
    by_value ids = by__nn_input(b, "ids", BY_I32, BY_SHAPE(batch));
    return by_embedding(g, ids, by_reshape(g, x, BY_SHAPE(sizes->nodes, columns)));
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
    if (sizes->sample_nodes > 0) {
        (void)json_object_set_new(out, "sample_nodes", json_integer(sizes->sample_nodes));
        (void)json_object_set_new(out, "sample_edges", json_integer(sizes->sample_edges));
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
    return by__nn_json_integer(&sizes->sample_edges, name, in, "sample_edges", 0, error);
}

const char *by__nn_node_task(const by_model_config *config)
{
    BY_UNUSED(config);
    return "nodes";
}
