/* Finds the layers of a model: matrices that products multiply by. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compress.h"
#include "nn/nn.h"
#include "ops/ops.h"

char *by__compress_file_name(const by__compress_state *c, const char *name)
{
    char other[512];
    const char *prefix = by_model_name_prefix(&c->config->model);
    if (by_weights_has(c->weights, name)) {
        return by__strdup(name);
    }
    (void)snprintf(other, sizeof other, "%s%s", prefix == NULL ? "" : prefix, name);
    return by_weights_has(c->weights, other) ? by__strdup(other) : NULL;
}

static by__compress_linear *find(const by__compress_state *c, const char *name)
{
    for (size_t i = 0; i < c->linear_count; i++) {
        if (strcmp(c->linears[i].name, name) == 0) {
            return &c->linears[i];
        }
    }
    return NULL;
}

static by_status add(by__compress_state *c, const char *name, const by__op_packed_reader *reader,
                     bool head, by_error *error)
{
    by__compress_linear *l = find(c, name);
    if (l != NULL) {
        l->head = l->head || head;
        return BY_OK;
    }
    BY_TRY(by__reserve((void **)&c->linears, &c->linear_capacity, c->linear_count + 1,
                       sizeof *c->linears, error));
    l = &c->linears[c->linear_count];
    *l = (by__compress_linear){.stacked = reader->attrs.packing.stack > 0, .share = reader->share};
    l->weight = by__compress_file_name(c, name);
    if (l->weight == NULL) { /* the files do not have the matrix by itself */
        return BY_OK;
    }
    by_tensor_view view;
    l->name = by__strdup(name);
    c->linear_count++;
    if (l->name == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: layers");
    }
    BY_TRY(by__weights_describe(c->weights, l->weight, &view, error));
    l->in_out = !reader->out_in;
    l->n = view.shape[l->in_out ? 1 : 0]; /* the model may have more, for padding */
    l->k = view.shape[l->in_out ? 0 : 1];
    if (view.rank != 2 || l->n > reader->attrs.packing.n || l->k != reader->attrs.packing.k) {
        return by_error_set(error, BY_EFORMAT, "%s: tensor '%s' does not have the model's shape",
                            by_weights_path(c->weights), l->weight);
    }
    l->head = head;
    return BY_OK;
}

/* Adds the weight of a node, if the node is a product with a weight. */
static by_status add_linear(by__compress_state *c, const by_graph *graph,
                            const by__graph_node *node, by_error *error)
{
    int operand;
    by__op_packed_reader reader;
    by_value logits = by_graph_find(graph, "logits");
    BY_TRY(by__op_node_weight(&reader, &operand, graph, node, error));
    if (operand < 0) {
        return BY_OK;
    }
    const char *name = graph->values[node->in[operand]].name;
    bool head = logits != BY_NONE && node->out[0] == logits;
    if (reader.attrs.packing.stack == 0) {
        return add(c, name, &reader, head, error);
    }
    for (int64_t i = 0; i < reader.attrs.packing.stack && by__checkpoint_name_is_stacked(name);
         i++) {
        char part[512];
        by__checkpoint_stacked_name(part, sizeof part, name, i);
        BY_TRY(add(c, part, &reader, head, error));
    }
    return BY_OK;
}

by_status by__compress_graph(by_graph **out, const by__compress_state *c, by_error *error)
{
    by_graph *graph;
    by_model model = BY_MODEL_NONE;
    bool tokens = strcmp(by_model_reads(&c->config->model), "tokens") == 0;
    const by_model_request request = {
        .mode = tokens ? BY_MODEL_LOGITS : BY_MODEL_LOSS, .batch = 1, .time = tokens ? 8 : 0};
    BY_TRY(by_graph_open(&graph, error));
    by_status status = by_model_build(&model, graph, &c->config->model, &request, error);
    if (status != BY_OK) {
        by_graph_close(&graph);
        return status;
    }
    *out = graph;
    return BY_OK;
}

by_status by__compress_linears_list(by__compress_state *c, by_error *error)
{
    by_graph *graph;
    by_status status = BY_OK;
    BY_TRY(by__compress_graph(&graph, c, error));
    for (size_t n = 0; status == BY_OK && n < graph->node_count; n++) {
        status = add_linear(c, graph, &graph->nodes[n], error);
    }
    by_graph_close(&graph);
    return status;
}

/* Refuses values that are not finite, because encoding or pruning would hide that the model is
 * damaged. */
static by_status check_finite(const by__compress_state *c, const by__compress_linear *l,
                              const float *weight, by_error *error)
{
    for (int64_t i = 0; i < l->n * l->k; i++) {
        if (!isfinite(weight[i])) {
            return by_error_set(error, BY_ESTATE,
                                "%s: tensor '%s' has the weight %g: the model is damaged, or its "
                                "training diverged; take an earlier checkpoint",
                                by_weights_path(c->weights), l->weight, (double)weight[i]);
        }
    }
    return BY_OK;
}

by_status by__compress_linear_read(const by__compress_state *c, const by__compress_linear *l,
                                   float *out, by_error *error)
{
    by_tensor_view view;
    size_t count = (size_t)(l->n * l->k);
    float *values = out;
    BY_TRY(by__weights_describe(c->weights, l->weight, &view, error));
    by_tensor_slice whole = by_tensor_whole(&view);
    if (l->in_out) {
        BY_TRY(by__alloc((void **)&values, count, sizeof *values, "a layer", error));
    }
    by_status status = by_weights_read_f32(c->weights, l->weight, &whole, values, count, error);
    for (int64_t i = 0; i < l->k && l->in_out && status == BY_OK; i++) {
        for (int64_t j = 0; j < l->n; j++) {
            out[j * l->k + i] = values[i * l->n + j];
        }
    }
    if (l->in_out) {
        free(values);
    }
    return status == BY_OK ? check_finite(c, l, out, error) : status;
}
