/* Predictions of graphs in a worker: of nodes of the graph that the model was trained on, which are
 * all computed when the worker starts, and of a graph that a request brings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/predictor.h"
#include "banyan/train.h"
#include "base/base.h"
#include "nn/nn.h"
#include "serve/protocol/predicted.h"
#include "serve/worker/worker_graph.h"

/* Most nodes and edges of a graph in a request; edges as the model reads them, such as in both
 * directions. */
#define REQUEST_NODES 2048
#define REQUEST_EDGES 32768
/* Most nodes of a request for the model's own graph. */
#define MAX_NODES 4096
/* Most nodes that are computed together when the worker starts. */
#define TOGETHER ((int64_t)1 << 16)

/* What the model says of a node. */
typedef struct node_class {
    int32_t number;
    double probability;
} node_class;

struct by__worker_graphs {
    by_predictor *predictor; /* of graphs in requests; NULL: edges have relations */
    size_t width;            /* features of a node */
    size_t edge_width;       /* of an edge; 0: the model reads none */
    size_t graph_width;      /* of a graph as a whole; the same */
    node_class *classes;     /* [nodes] of the model's own graph; NULL: it has none */
    size_t nodes;
    json_t *labels; /* texts by class */
    bool failed;
};

/* ---- the model's own graph ---- */

static void take_node(void *user, const by_field *fields, size_t count)
{
    by__worker_graphs *g = user;
    node_class said = {.number = -1};
    size_t node = g->nodes;
    const char *label = NULL;
    for (size_t i = 0; i < count; i++) {
        const by_field *f = &fields[i];
        node = strcmp(f->name, "node") == 0 ? (size_t)f->number : node;
        said.number = strcmp(f->name, "class") == 0 ? (int32_t)f->number : said.number;
        said.probability = strcmp(f->name, "probability") == 0 ? f->number : said.probability;
        label = strcmp(f->name, "label") == 0 ? f->text : label;
    }
    if (node >= g->nodes || said.number < 0 || label == NULL) {
        g->failed = true;
        return;
    }
    while (json_array_size(g->labels) <= (size_t)said.number && !g->failed) {
        g->failed = json_array_append_new(g->labels, json_null()) != 0;
    }
    if (json_is_null(json_array_get(g->labels, (size_t)said.number))) {
        g->failed = json_array_set_new(g->labels, (size_t)said.number, json_string(label)) != 0 ||
                    g->failed;
    }
    g->classes[node] = said;
}

static by_status compute_nodes(by__worker_graphs *g, const by_pretrained *pretrained,
                               by_config *config, by_task_data *data, by_error *error)
{
    BY_TRY(by_task_complete(data, config, error));
    g->nodes = (size_t)data->valid_examples;
    config->train.micro_batch =
        data->valid_examples < TOGETHER ? (int64_t)data->valid_examples : TOGETHER;
    config->train.batch = config->train.micro_batch;
    BY_TRY(by__alloc((void **)&g->classes, g->nodes, sizeof *g->classes, "classes", error));
    by_status status =
        by_predict(config, by_pretrained_weights(pretrained), data, take_node, NULL, g, error);
    return status == BY_OK && g->failed
               ? by_error_set(error, BY_EMEMORY, "out of memory: classes of nodes")
               : status;
}

static by_status open_nodes(by__worker_graphs *g, const by_pretrained *pretrained, by_error *error)
{
    by_config *config;
    by_task_data *data = NULL;
    BY_TRY(by_config_copy(&config, by_pretrained_config(pretrained), error));
    config->model.from[0] = '\0';
    const by_task_request what = {.purpose = BY_TASK_PREDICT,
                                  .config = config,
                                  .learned = by_pretrained_directory(pretrained)};
    by_status status = by_task_open(&data, NULL, &what, error);
    if (status == BY_OK) {
        status = compute_nodes(g, pretrained, config, data, error);
    }
    by_task_close(&data);
    by_config_close(&config);
    return status;
}

/* ---- opening ---- */

static by_status open_requests(by__worker_graphs *g, const by_pretrained *pretrained, int threads,
                               by_error *error)
{
    by_config *config;
    char settings[3][64];
    const by_predictor_options options = {.batch = 1, .threads = threads};
    BY_TRY(by_config_copy(&config, by_pretrained_config(pretrained), error));
    (void)snprintf(settings[0], sizeof settings[0], "model.nodes=%d", REQUEST_NODES);
    (void)snprintf(settings[1], sizeof settings[1], "model.edges=%d", REQUEST_EDGES);
    (void)snprintf(settings[2], sizeof settings[2], "model.own_graphs=%d", 1);
    by_status status = BY_OK;
    for (size_t i = 0; i < 3 && status == BY_OK; i++) {
        status = by_config_set(config, settings[i], error);
    }
    if (status == BY_OK) {
        by__nn_node_read_whole(by__nn_node_sizes_of(&config->model));
        status = by_predictor_open(&g->predictor, config, by_pretrained_weights(pretrained),
                                   by_pretrained_directory(pretrained), &options, error);
    }
    by_config_close(&config);
    return status;
}

by_status by__worker_graphs_open(by__worker_graphs **out, const by_pretrained *pretrained,
                                 int threads, by_error *error)
{
    by__worker_graphs *g;
    const by_config *config = by_pretrained_config(pretrained);
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "predictions", error));
    g->width = (size_t)config->model.channels;
    g->edge_width = (size_t)by__nn_node_sizes_of(&config->model)->edge_features;
    g->graph_width = (size_t)by__nn_node_sizes_of(&config->model)->graph_features;
    g->labels = json_array();
    by_status status = g->labels == NULL
                           ? by_error_set(error, BY_EMEMORY, "out of memory: names of classes")
                           : BY_OK;
    if (status == BY_OK && strcmp(config->task.kind, "nodes") == 0) {
        status = open_nodes(g, pretrained, error);
    }
    if (status == BY_OK && by__nn_node_sizes_of(&config->model)->relations <= 0) {
        status = open_requests(g, pretrained, threads, error);
    }
    if (status != BY_OK) {
        by__worker_graphs_close(&g);
        return status;
    }
    *out = g;
    return BY_OK;
}

void by__worker_graphs_close(by__worker_graphs **graphs)
{
    by__worker_graphs *g = *graphs;
    if (g != NULL) {
        by_predictor_close(&g->predictor);
        json_decref(g->labels);
        free(g->classes);
        free(g);
        *graphs = NULL;
    }
}

json_t *by__worker_graphs_info(const by__worker_graphs *g)
{
    json_t *info = json_pack("{sI sI sI}", "features", (json_int_t)g->width, "request_nodes",
                             (json_int_t)REQUEST_NODES, "request_edges", (json_int_t)REQUEST_EDGES);
    if (g->edge_width > 0) {
        (void)json_object_set_new(info, "edge_features", json_integer((json_int_t)g->edge_width));
    }
    if (g->graph_width > 0) {
        (void)json_object_set_new(info, "graph_features", json_integer((json_int_t)g->graph_width));
    }
    if (g->classes != NULL) {
        (void)json_object_set_new(info, "nodes", json_integer((json_int_t)g->nodes));
    }
    return info;
}

/* ---- a request, on the preparer's thread ---- */

/* Of a job: numbers of nodes, or a graph of which these are wanted. */
typedef struct graph_job {
    int64_t *wanted; /* [count]; NULL: all */
    size_t count;
    by_predictor_input *graph; /* NULL: the model's own */
    size_t nodes;              /* of that graph */
    bool failed;
    by__worker_job *job;
} graph_job;

static void close_job(void *user)
{
    graph_job *j = user;
    by_predictor_input_close(&j->graph);
    free(j->wanted);
    free(j);
}

static by_status read_wanted(graph_job *j, const json_t *list, size_t nodes, by_error *error)
{
    j->count = json_array_size(list);
    if (j->count < 1 || j->count > MAX_NODES) {
        return by_error_set(error, BY_EARG, "'nodes' must be a list of 1 to %d numbers", MAX_NODES);
    }
    BY_TRY(by__alloc((void **)&j->wanted, j->count, sizeof *j->wanted, "nodes", error));
    for (size_t i = 0; i < j->count; i++) {
        const json_t *one = json_array_get(list, i);
        j->wanted[i] = json_is_integer(one) ? (int64_t)json_integer_value(one) : -1;
        if (j->wanted[i] < 0 || (uint64_t)j->wanted[i] >= nodes) {
            return by_error_set(error, BY_EARG,
                                "entry %zu of 'nodes' is no number of a node; there are %zu, "
                                "from 0",
                                i, nodes);
        }
    }
    return BY_OK;
}

/* A row of numbers, of `what` number i. */
static by_status read_row(float *out, const json_t *row, const char *what, size_t i,
                          by_error *error)
{
    for (size_t k = 0; k < json_array_size(row); k++) {
        const json_t *number = json_array_get(row, k);
        out[k] = (float)json_number_value(number);
        if (!json_is_number(number) || !isfinite(out[k])) {
            return by_error_set(error, BY_EARG, "feature %zu of %s %zu is no number", k, what, i);
        }
    }
    return BY_OK;
}

/* Rows of `width` numbers, one for each `what`. */
static by_status read_rows(float *out, const json_t *rows, size_t width, const char *what,
                           by_error *error)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_array_size(row) != width) {
            return by_error_set(error, BY_EARG, "%s %zu has %zu features; the model reads %zu",
                                what, i, json_array_size(row), width);
        }
        BY_TRY(read_row(out + i * width, row, what, i, error));
    }
    return BY_OK;
}

static by_status read_features(float **out, size_t *nodes, const json_t *rows, size_t width,
                               by_error *error)
{
    *nodes = json_array_size(rows);
    if (*nodes < 1 || *nodes > REQUEST_NODES) {
        return by_error_set(error, BY_EARG,
                            "'graph.features' must be a list of 1 to %d lists of numbers, one for "
                            "each node",
                            REQUEST_NODES);
    }
    BY_TRY(by__alloc((void **)out, *nodes * width, sizeof **out, "features", error));
    return read_rows(*out, rows, width, "node", error);
}

static by_status read_edge_features(float **out, size_t edges, const json_t *rows, size_t width,
                                    by_error *error)
{
    if (width == 0 ? rows != NULL : json_array_size(rows) != edges) {
        return by_error_set(error, BY_EARG,
                            width == 0 ? "the model reads no 'graph.edge_features'"
                                       : "'graph.edge_features' must be a list of %zu lists of %zu "
                                         "numbers, one for each edge",
                            edges, width);
    }
    BY_TRY(by__alloc((void **)out, edges * width + 1, sizeof **out, "features of edges", error));
    return read_rows(*out, rows, width, "edge", error);
}

static by_status read_graph_features(float **out, const json_t *row, size_t width, by_error *error)
{
    if (width == 0 ? row != NULL : json_array_size(row) != width) {
        return by_error_set(error, BY_EARG,
                            width == 0 ? "the model reads no 'graph.graph_features'"
                                       : "'graph.graph_features' must be a list of %zu numbers",
                            width);
    }
    BY_TRY(by__alloc((void **)out, width + 1, sizeof **out, "features of a graph", error));
    return read_row(*out, row, "graph", 0, error);
}

static by_status read_edges(int32_t (**out)[2], size_t *count, const json_t *list, size_t nodes,
                            by_error *error)
{
    *count = json_array_size(list);
    if ((list != NULL && !json_is_array(list)) || *count > REQUEST_EDGES) {
        return by_error_set(error, BY_EARG, "'graph.edges' must be a list of at most %d pairs",
                            REQUEST_EDGES);
    }
    BY_TRY(by__alloc((void **)out, *count + 1, sizeof **out, "edges", error));
    for (size_t i = 0; i < *count; i++) {
        const json_t *pair = json_array_get(list, i);
        for (size_t k = 0; k < 2; k++) {
            const json_t *end = json_array_get(pair, k);
            json_int_t node = json_is_integer(end) ? json_integer_value(end) : -1;
            if (json_array_size(pair) != 2 || node < 0 || (uint64_t)node >= nodes) {
                return by_error_set(error, BY_EARG,
                                    "edge %zu is not two numbers of nodes; there are %zu, from 0",
                                    i, nodes);
            }
            (*out)[i][k] = (int32_t)node;
        }
    }
    return BY_OK;
}

static by_status read_graph(const by__worker_graphs *g, graph_job *j, const json_t *graph,
                            by_error *error)
{
    float *features = NULL;
    float *edge_features = NULL;
    float *graph_features = NULL;
    int32_t(*edges)[2] = NULL;
    size_t edge_count = 0;
    const char *name;
    json_t *value;
    if (g->predictor == NULL) {
        return by_error_set(error, BY_EARG,
                            "the model knows relations, which 'graph' has none of: ask for 'nodes' "
                            "of its own graph");
    }
    json_object_foreach((json_t *)(uintptr_t)graph, name, value)
    {
        if (strcmp(name, "features") != 0 && strcmp(name, "edges") != 0 &&
            strcmp(name, "edge_features") != 0 && strcmp(name, "graph_features") != 0) {
            return by_error_set(error, BY_EARG,
                                "'graph' has features, edges, edge_features and graph_features, "
                                "and no field '%.64s'",
                                name);
        }
    }
    by_status status =
        read_features(&features, &j->nodes, json_object_get(graph, "features"), g->width, error);
    if (status == BY_OK) {
        status = read_edges(&edges, &edge_count, json_object_get(graph, "edges"), j->nodes, error);
    }
    if (status == BY_OK) {
        status = read_edge_features(&edge_features, edge_count,
                                    json_object_get(graph, "edge_features"), g->edge_width, error);
    }
    if (status == BY_OK) {
        status = read_graph_features(&graph_features, json_object_get(graph, "graph_features"),
                                     g->graph_width, error);
    }
    if (status == BY_OK) {
        const by_task_graph read = {.features = features,
                                    .nodes = j->nodes,
                                    .width = g->width,
                                    .edges = (const int32_t(*)[2])edges,
                                    .edge_count = edge_count,
                                    .edge_features = edge_features,
                                    .edge_width = g->edge_width,
                                    .graph_features = graph_features,
                                    .graph_width = g->graph_width};
        status = by_predictor_graph_open(&j->graph, g->predictor, &read, error);
    }
    free(features);
    free(edge_features);
    free(graph_features);
    free(edges);
    return status;
}

by_status by__worker_graphs_prepare(const by__worker_graphs *g, by__worker_job *job,
                                    const json_t *nodes, const json_t *graph, by_error *error)
{
    graph_job *j;
    job->param = graph != NULL ? "graph" : "nodes";
    if (graph == NULL && g->classes == NULL) {
        return by_error_set(error, BY_EARG, "the model predicts whole graphs: send 'graph'");
    }
    if (graph == NULL && nodes == NULL) {
        return by_error_set(error, BY_EARG, "the model predicts nodes: send 'nodes' or 'graph'");
    }
    BY_TRY(by__alloc((void **)&j, 1, sizeof *j, "a request", error));
    job->input = j;
    job->close = close_job;
    j->job = job;
    if (graph != NULL) {
        BY_TRY(read_graph(g, j, graph, error));
    }
    if (nodes != NULL) {
        job->param = "nodes";
        if (graph != NULL && g->classes == NULL) {
            return by_error_set(error, BY_EARG, "the model predicts whole graphs, and no 'nodes'");
        }
        BY_TRY(read_wanted(j, nodes, graph != NULL ? j->nodes : g->nodes, error));
    }
    job->count = graph != NULL ? 1 : j->count;
    return BY_OK;
}

/* ---- a batch, on the batcher's thread ---- */

static void add_known(const by__worker_graphs *g, graph_job *j, size_t example)
{
    size_t node = (size_t)j->wanted[example];
    const node_class *said = &g->classes[node];
    const by_field fields[] = {
        {.name = "index", .number = (double)example, .is_whole = true},
        {.name = "node", .number = (double)node, .is_whole = true},
        {.name = "class", .number = (double)said->number, .is_whole = true},
        {.name = "label",
         .text = json_string_value(json_array_get(g->labels, (size_t)said->number))},
        {.name = "probability", .number = said->probability}};
    json_t *one = by__protocol_predicted_json(fields, BY_ARRAY_LENGTH(fields));
    j->failed = json_array_append_new(j->job->results, one) != 0 || j->failed;
}

/* Results of a graph, before those that are wanted are chosen. */
static void add_result(void *user, const by_field *fields, size_t count)
{
    graph_job *j = user;
    json_t *one = by__protocol_predicted_json(fields, count);
    j->failed = json_array_append_new(j->job->results, one) != 0 || j->failed;
}

static void choose(graph_job *j)
{
    json_t *chosen = json_array();
    for (size_t i = 0; j->wanted != NULL && i < j->count; i++) {
        json_t *one = json_array_get(j->job->results, (size_t)j->wanted[i]);
        j->failed = json_array_append(chosen, one) != 0 || j->failed;
    }
    if (j->wanted != NULL) {
        json_decref(j->job->results);
        j->job->results = chosen;
    } else {
        json_decref(chosen);
    }
}

by_status by__worker_graphs_compute(by__worker_graphs *g, const by__worker_batch_place *places,
                                    size_t count, by_error *error)
{
    for (size_t i = 0; i < count; i++) {
        graph_job *j = places[i].job->input;
        if (j->graph == NULL) {
            add_known(g, j, places[i].example);
        } else {
            const by_predictor_place place = {j->graph, 0};
            BY_TRY(by_predictor_run(g->predictor, &place, 1, add_result, j, error));
            choose(j);
        }
        if (j->failed) {
            return by_error_set(error, BY_EMEMORY, "out of memory: predictions");
        }
    }
    return BY_OK;
}
