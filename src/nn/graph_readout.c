/* What a model of graphs puts out, of what its last layer makes of nodes: their rows, scores of
 * links between them, or a row for each graph. */
#include <string.h>

#include "nn/nn.h"

int64_t by__nn_node_room(const by__nn_node_sizes *sizes)
{
    return sizes->candidates > sizes->held_out_candidates ? sizes->candidates
                                                          : sizes->held_out_candidates;
}

/* Scores of links from the first node of a sample to each of the others: the product of both
 * vectors, summed, or put into a perceptron of two layers. */
static by_value score_links(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x,
                            int64_t candidates)
{
    by_graph *g = b->graph;
    int64_t batch = b->request->batch;
    int64_t columns = b->config->outputs;
    int64_t width = b->config->width;
    int64_t room = by__nn_node_room(sizes);
    by_value rows;
    if (sizes->sample_nodes > 0) { /* they are the first nodes of the sample */
        rows = by_slice(g, x, 1, 0, candidates + 1);
    } else {
        by_value ids = by__nn_input(b, "ids", BY_I32, BY_SHAPE(batch, room + 1));
        ids = room == candidates ? ids : by_slice(g, ids, 1, 0, candidates + 1);
        rows = by_embedding(g, ids, by_reshape(g, x, BY_SHAPE(sizes->nodes, columns)));
    }
    by_value products = by_mul(g, by_slice(g, rows, 1, 1, candidates), by_slice(g, rows, 1, 0, 1));
    if (strcmp(sizes->decoder, "dot") == 0) {
        return by__op_sum_axes(g, products, 1u << 2, false, true);
    }
    by_value w = by__nn_weight(b, "out in", BY_SHAPE(width, columns),
                               by__nn_init_glorot(columns, width), "decoder.lins.0.weight");
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(width), (by_init){0}, "decoder.lins.0.bias");
    by_value hidden = by_unary(g, by_linear(g, products, w, bias, true), BY_FN_RELU);
    w = by__nn_weight(b, "out in", BY_SHAPE(1, width), by__nn_init_glorot(width, 1),
                      "decoder.lins.1.weight");
    bias = by__nn_weight(b, "out", BY_SHAPE(1), (by_init){0}, "decoder.lins.1.bias");
    return by_reshape(g, by_linear(g, hidden, w, bias, true), BY_SHAPE(batch, candidates));
}

static by_value list_input(by__nn_build *b, const char *name, int64_t extent)
{
    return by__nn_input(b, name, BY_I32, BY_SHAPE(b->request->batch, extent));
}

/* Sums, means or maxima over the nodes of each graph, [B, graphs, columns]: a sparse product whose
 * entries are nodes. */
static by_value read_graphs(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x)
{
    by_graph *g = b->graph;
    const by_edges nodes = {.offsets = list_input(b, "graphs.offsets", sizes->graphs + 1),
                            .sources = list_input(b, "graphs.sources", sizes->nodes),
                            .back_offsets = list_input(b, "graphs.back_offsets", sizes->nodes + 1),
                            .back_sources = list_input(b, "graphs.back_sources", sizes->nodes),
                            .back_edges = list_input(b, "graphs.back_edges", sizes->nodes)};
    if (strcmp(sizes->readout, "max") == 0) {
        return by_sparse_max(g, x, &nodes);
    }
    by_value sums = by_sparse_matmul(g, x, BY_NONE, &nodes);
    if (strcmp(sizes->readout, "sum") == 0) {
        return sums;
    }
    by_value scale = by__nn_input(b, "graphs.inverse_size", BY_F32,
                                  BY_SHAPE(b->request->batch, sizes->graphs, 1));
    return by_mul(g, sums, scale);
}

/* A linear layer of what is read out of a graph, and of the graph's own features behind it. */
static by_value classify_graphs(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x)
{
    const by_model_config *c = b->config;
    by_value read = read_graphs(b, sizes, x);
    if (b->request->mode != BY_MODEL_TRAIN) {
        by_model_register(&b->model, b->graph, "features", read);
    }
    int64_t width = c->width + sizes->graph_features;
    by_value w = by__nn_weight(b, "out in", BY_SHAPE(c->outputs, width),
                               by__nn_init_glorot(width, c->outputs), "lin.weight");
    by_value bias = by__nn_weight(b, "out", BY_SHAPE(c->outputs), (by_init){0}, "lin.bias");
    by_value parts[2] = {by__nn_drop(b, read), BY_NONE};
    if (sizes->graph_features > 0) {
        parts[1] = by__nn_input(b, "graphs.x", BY_F32,
                                BY_SHAPE(b->request->batch, sizes->graphs, sizes->graph_features));
        parts[0] = by_concat(b->graph, parts, 2, 2);
    }
    return by_linear(b->graph, parts[0], w, bias, true);
}

by_value by__nn_node_read_out(by__nn_build *b, const by__nn_node_sizes *sizes, by_value x)
{
    int64_t candidates =
        b->request->mode == BY_MODEL_TRAIN ? sizes->candidates : sizes->held_out_candidates;
    return sizes->own_graphs > 0 && sizes->graphs > 0 ? classify_graphs(b, sizes, x)
           : sizes->own_graphs > 0                    ? x
           : candidates > 0                           ? score_links(b, sizes, x, candidates)
                            : by__nn_node_rows(b, sizes, x, b->config->outputs);
}
