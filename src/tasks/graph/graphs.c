/* Classes or numbers of small graphs, such as molecules. A sample is a pack of several graphs, and
 * an example one of these. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "data/loader/order.h"
#include "data/loader/row_list.h"
#include "tasks/graph/graph_tasks.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "target", BY__KEY_TEXT, BY__OWN(by__task_graphs_keys, target), "class",
     .choices = "class|number", .help = "what the label of a graph is"},
    {"data", "label_names", BY__KEY_TEXTS, BY__OWN(by__task_graphs_keys, label_names), "[]",
     .help = "names of the classes, in order from 0"},
    {"data", "train_list", BY__KEY_TEXT, BY__OWN(by__task_graphs_keys, train), "\"\"",
     .help = "file of the graphs to train on: npy, or a number a line; empty: they are drawn"},
    {"data", "valid_list", BY__KEY_TEXT, BY__OWN(by__task_graphs_keys, valid), "\"\"",
     .help = "file of the graphs to validate on, with train_list"},
    {"data", "test_list", BY__KEY_TEXT, BY__OWN(by__task_graphs_keys, test), "\"\"",
     .help = "file of the graphs to test on, with train_list"},
    {"data", "valid_graphs", BY__KEY_SHARE, BY__OWN(by__task_graphs_keys, valid_graphs), "0.1", 0,
     BY__COUNT_LIMIT, .help = "share (below 1) or number of the graphs to validate on"},
    {"data", "test_graphs", BY__KEY_SHARE, BY__OWN(by__task_graphs_keys, test_graphs), "0.1", 0,
     BY__COUNT_LIMIT, .help = "those to test on: `banyan eval RUN --test` reads them"},
    {"data", "split_seed", BY__KEY_INT, BY__OWN(by__task_graphs_keys, split_seed), "0", 0,
     BY__COUNT_LIMIT, .help = "seed of which graphs are drawn, and of what is in a pack"},
    {"data", "pack_nodes", BY__KEY_INT, BY__OWN(by__task_graphs_keys, pack_nodes), "0", 0, BY__MI24,
     .help = "nodes of a pack of graphs, of which train.batch has so many; 0: those of the largest "
             "graph, but at least 256"},
    {"data", "edge_features", BY__KEY_SWITCH, BY__OWN(by__task_graphs_keys, edge_features), "false",
     .later = true,
     .help = "read features of edges, edge-feat.csv or edge_feat, with model.kind gin"},
    {"data", "graph_features", BY__KEY_SWITCH, BY__OWN(by__task_graphs_keys, graph_features),
     "false", .later = true,
     .help = "read features of each graph as a whole, graph-feat.csv or graph_feat, which the last "
             "layer reads beside what is read out of its nodes"},
    {"data", "target_mean", BY__KEY_REAL, BY__OWN(by__task_graphs_keys, target_mean), "0", -1e30,
     1e30,
     .help = "what is subtracted from numbers; set with target_deviation from those trained on"},
    {"data", "target_deviation", BY__KEY_REAL, BY__OWN(by__task_graphs_keys, target_deviation),
     "-1", 0, 1e30, BY__ABOVE_MIN, .derived = "that of the graphs trained on",
     .help = "what numbers are divided by"},
};
/* clang-format on */
static const by__config_key_list key_list = BY__KEY_LIST(keys);

extern const by__task_row by__task_graphs;

static by__task_graphs_keys *own_keys(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_graphs.kind);
}

/* ---- graphs to train on and held out ---- */

static uint64_t number_of(double share, uint64_t all)
{
    return share < 1.0 ? (uint64_t)floor(share * (double)all) : (uint64_t)share;
}

static by_status draw(by__task_graphs_data *d, by_error *error)
{
    by__loader_order order;
    by__nodes_split *s = &d->split.lists;
    uint64_t all = (uint64_t)d->list->graphs;
    uint64_t valid = number_of(d->keys->valid_graphs, all);
    uint64_t test = number_of(d->keys->test_graphs, all);
    if (valid >= all || test >= all - valid) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: not enough of %llu graphs for %llu to validate on, %llu to test "
                            "on and some to train on",
                            d->list->set->name, (unsigned long long)all, (unsigned long long)valid,
                            (unsigned long long)test);
    }
    BY_TRY(by__alloc((void **)&s->train, all, sizeof *s->train, "graphs", error));
    BY_TRY(by__alloc((void **)&s->valid, all, sizeof *s->valid, "graphs", error));
    BY_TRY(by__alloc((void **)&s->test, all, sizeof *s->test, "graphs", error));
    by__loader_order_init(&order, all, (uint64_t)d->keys->split_seed, 0);
    for (uint64_t i = 0; i < all; i++) {
        uint64_t graph = by__loader_order_at(&order, i);
        if (s->valid_count < valid) {
            s->valid[s->valid_count++] = graph;
        } else if (s->test_count < test) {
            s->test[s->test_count++] = graph;
        } else {
            s->train[s->train_count++] = graph;
        }
    }
    return BY_OK;
}

/* Graphs without a label teach nothing. */
static by_status check_labels(by__task_graphs_data *d, const uint64_t *ids, uint64_t count,
                              by_error *error)
{
    for (uint64_t i = 0; i < count; i++) {
        double value = d->list->values == NULL ? (double)NAN : d->list->values[ids[i]];
        bool good =
            d->numbers ? !isnan(value) : value >= 0.0 && value < 1 << 20 && value == floor(value);
        if (!good) {
            return by_error_set(error, BY_ECONFIG, "%s: the label of graph %llu, %g, is no %s",
                                d->list->set->name, (unsigned long long)ids[i], value,
                                d->numbers ? "number" : "class from 0; see data.target");
        }
        d->classes = !d->numbers && value >= (double)d->classes ? (int64_t)value + 1 : d->classes;
    }
    return BY_OK;
}

static by_status find_graphs(by__task_graphs_data *d, const by_task_request *r, by_error *error)
{
    const by__task_graphs_keys *k = d->keys;
    by__task_graph_split *s = &d->split;
    uint64_t all = (uint64_t)d->list->graphs;
    if (r->path == NULL && d->purpose == BY_TASK_PREDICT) {
        return by__task_graph_choose(&s->listed, &s->listed_count, r, all, "graph",
                                     d->list->set->name, error);
    }
    if (r->path != NULL) {
        BY_TRY(by__loader_row_list_read(&s->listed, &s->listed_count, r->path, all, error));
        return d->purpose == BY_TASK_PREDICT ? BY_OK
                                             : check_labels(d, s->listed, s->listed_count, error);
    }
    BY_TRY(k->train[0] == '\0' ? draw(d, error)
                               : by__task_graph_split_read(&s->lists, k->train, k->valid, k->test,
                                                           all, "graph", error));
    BY_TRY(check_labels(d, d->split.lists.train, d->split.lists.train_count, error));
    BY_TRY(check_labels(d, d->split.lists.valid, d->split.lists.valid_count, error));
    return check_labels(d, d->split.lists.test, d->split.lists.test_count, error);
}

/* ---- opening ---- */

static void close_data(by_task_data *data)
{
    by__task_graphs_data *d = (by__task_graphs_data *)data;
    by__nodes_graph_list_close(&d->list);
    by__task_graph_split_free(&d->split);
    free(d->summary);
    free(d);
}

/* Of the numbers trained on, unless the config has them. */
static void take_scale(by__task_graphs_data *d)
{
    double sum = 0.0;
    double squares = 0.0;
    double count = (double)d->split.lists.train_count;
    if (!d->numbers || d->keys->target_deviation > 0.0 || d->split.lists.train_count == 0) {
        return;
    }
    for (uint64_t i = 0; i < d->split.lists.train_count; i++) {
        sum += d->list->values[d->split.lists.train[i]];
    }
    for (uint64_t i = 0; i < d->split.lists.train_count; i++) {
        double difference = d->list->values[d->split.lists.train[i]] - sum / count;
        squares += difference * difference;
    }
    d->keys->target_mean = sum / count;
    d->keys->target_deviation = squares > 0.0 ? sqrt(squares / count) : 1.0;
}

static by_status describe(by__task_graphs_data *d, by_error *error)
{
    by_string text = {0};
    const by__nodes_set *set = d->list->set;
    by_string_format(&text,
                     "%lld graphs with %lld nodes, %lld edges and %lld features of a node; packs "
                     "of %lld nodes and %lld edges",
                     (long long)d->list->graphs, (long long)set->nodes, (long long)set->edges,
                     (long long)set->features, (long long)d->size.nodes, (long long)d->size.edges);
    BY_TRY(by__string_release(&text, &d->summary, error));
    d->base.summary = d->summary;
    return BY_OK;
}

static by_status open_graph(const by_task_data *data, const by_task_graph *graph,
                            by_source **source, by_error *error)
{
    const by__task_graphs_data *d = (const by__task_graphs_data *)data;
    by__nodes_options options;
    BY_TRY(by__task_graph_options(&options, &d->keys->graph, "", error));
    return by__task_graph_open(source, graph, &options, d->config, error);
}

static by_status open_all(by__task_graphs_data *d, const by_task_request *r, by_error *error)
{
    const by__task_graphs_keys *k = d->keys;
    by__nodes_options options;
    uint64_t count;
    d->numbers = strcmp(k->target, "number") == 0;
    if (r->graphs) {
        return BY_OK;
    }
    BY_TRY(by__task_graph_options(&options, &k->graph, "", error));
    if (options.features[0] != '\0') {
        return by_error_set(error, BY_ECONFIG,
                            "data.features: the features of small graphs are in data.graph");
    }
    options.edge_features = k->edge_features != 0;
    options.graph_features = k->graph_features != 0;
    if (options.weighted) {
        return by_error_set(error, BY_ECONFIG,
                            "data.edge_weights: weights of the edges of small graphs are not read; "
                            "leave it out");
    }
    BY_TRY(by__nodes_graph_list_open(&d->list, &options, error));
    BY_TRY(by__nodes_pack_size_fit(&d->size, d->list, k->pack_nodes, error));
    BY_TRY(find_graphs(d, r, error));
    take_scale(d);
    (void)by__task_graph_split_held_out(&d->split, &count);
    d->base.train_examples = d->purpose == BY_TASK_TRAIN ? d->split.lists.train_count : 0;
    d->base.valid_examples = count;
    d->base.bytes = d->list->set->bytes;
    d->base.held_out = k->train[0] == '\0' ? "graphs drawn by data.split_seed" : "data.valid_list";
    if (d->purpose == BY_TASK_EVALUATE && count == 0) {
        return by_error_set(error, BY_ECONFIG, "%s: there are no graphs to %s", d->list->set->name,
                            d->split.test
                                ? "test on: set data.test_graphs or data.test_list"
                                : "evaluate on: set data.valid_graphs or data.valid_list");
    }
    return describe(d, error);
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    by__task_graphs_data *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &by__task_graphs.task;
    d->keys = own_keys(request->config);
    d->config = request->config;
    d->purpose = request->purpose;
    d->split.test = request->test;
    by_status status = open_all(d, request, error);
    if (status != BY_OK) {
        close_data(&d->base);
        return status;
    }
    *out = &d->base;
    return BY_OK;
}

static unsigned knows(const by_config *config)
{
    const by_model_config *m = &config->model;
    const by__task_graphs_keys *k = own_keys(config);
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    bool sized = m->outputs > 0 && m->channels > 0 && sizes != NULL && sizes->graphs > 0;
    bool has = k->graph.graph[0] != '\0';
    bool holds_out = k->train[0] == '\0' ? k->valid_graphs > 0.0 : k->valid[0] != '\0';
    return (sized ? (unsigned)BY_TASK_SIZES : 0) | (has ? (unsigned)BY_TASK_DATA : 0) |
           (has && holds_out ? (unsigned)BY_TASK_HOLDS_OUT : 0);
}

static void set_sizes(by__nn_node_sizes *sizes, const by__nodes_pack_size *size)
{
    sizes->own_graphs = 1;
    by__nn_node_read_whole(sizes);
    sizes->edge_weights = sizes->relations = sizes->relation_edges = 0;
    sizes->nodes = size->nodes;
    sizes->edges = size->edges;
    sizes->graphs = size->graphs;
}

/* Those of molecules with 9 features of an atom (Hu et al. 2020). */
static void assume(by_config *config)
{
    by_model_config *m = &config->model;
    m->outputs = m->outputs < 0 ? 2 : m->outputs;
    m->channels = m->channels < 0 ? 9 : m->channels;
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    if (sizes != NULL && sizes->graphs <= 0) {
        set_sizes(sizes, &(by__nodes_pack_size){.nodes = 256, .edges = 704, .graphs = 16});
    }
}

/* Features of edges, which the model was made for, or which it is made for now. */
static by_status take_edge_features(by__nn_node_sizes *sizes, const by__task_graphs_data *d,
                                    by_error *error)
{
    int64_t has = d->list->set->edge_features;
    if (has > 0 && !by__nn_node_reads_edge_features(&d->config->model)) {
        return by_error_set(
            error, BY_ECONFIG,
            "data.edge_features: model.kind %s reads no features of edges; gin does",
            d->config->model.kind);
    }
    if (d->purpose != BY_TASK_TRAIN && sizes->edge_features != has) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: edges have %lld features, and the model reads %lld of each",
                            d->list->set->name, (long long)has, (long long)sizes->edge_features);
    }
    sizes->edge_features = has;
    return BY_OK;
}

/* The same of features of graphs. */
static by_status take_graph_features(by__nn_node_sizes *sizes, const by__task_graphs_data *d,
                                     by_error *error)
{
    int64_t has = d->list->features;
    if (d->purpose != BY_TASK_TRAIN && sizes->graph_features != has) {
        return by_error_set(error, BY_ECONFIG,
                            "%s: graphs have %lld features, and the model reads %lld of each",
                            d->list->set->name, (long long)has, (long long)sizes->graph_features);
    }
    sizes->graph_features = has;
    return BY_OK;
}

static by_status complete(by_task_data *data, by_config *config, by_error *error)
{
    by__task_graphs_data *d = (by__task_graphs_data *)data;
    by_model_config *m = &config->model;
    by__task_graphs_keys *own = own_keys(config);
    int64_t outputs = d->numbers ? 1 : d->classes;
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    if (sizes == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind graphs needs a model of graphs, such as model.kind gcn, "
                            "sage or gat; model.kind %s reads %s",
                            m->kind, by_model_reads(m));
    }
    if (m->channels >= 0 && m->channels != d->list->set->features) {
        return by_error_set(error, BY_ECONFIG, "model.channels is %lld, but %s has %lld features",
                            (long long)m->channels, d->list->set->name,
                            (long long)d->list->set->features);
    }
    m->channels = d->list->set->features;
    BY_TRY(take_edge_features(sizes, d, error));
    BY_TRY(take_graph_features(sizes, d, error));
    set_sizes(sizes, &d->size);
    m->outputs = m->outputs < 0 ? outputs : m->outputs;
    if (m->outputs < outputs || m->outputs < 1 || (d->numbers && m->outputs != 1)) {
        return by_error_set(error, BY_ECONFIG, "model.outputs is %lld, but %s has %lld",
                            (long long)m->outputs, d->list->set->name, (long long)outputs);
    }
    own->target_mean = d->keys->target_mean;
    own->target_deviation = d->keys->target_deviation;
    return by_config_resolve(config, error);
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    by__task_graphs_data *d = (by__task_graphs_data *)data;
    by__nodes_pack_options o = {.size = d->size,
                                .ids = d->split.lists.train,
                                .count = d->split.lists.train_count,
                                .shuffle = training,
                                .mean = d->keys->target_mean,
                                .deviation = fabs(d->keys->target_deviation)};
    BY_UNUSED(config);
    if (!training) {
        o.ids = by__task_graph_split_held_out(&d->split, &o.count);
    }
    return by__nodes_pack_source_open(out, d->list, &o, error);
}

static by_status keep(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error)
{
    const by__task_graphs_data *d = (const by__task_graphs_data *)data;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = by__task_graph_kept(d->list->set, &d->keys->label_names);
    return BY_OK;
}

static by_status check(const by_task_data *data, const by_checkpoint *checkpoint, by_error *error)
{
    return by__task_graph_check(((const by__task_graphs_data *)data)->list->set, checkpoint,
                                "other graphs", error);
}

/* ---- loss ---- */

static bool has_numbers(const by_config *config)
{
    return strcmp(own_keys(config)->target, "number") == 0;
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(&config->model);
    if (sizes == NULL || sizes->graphs <= 0 || model->output == BY_NONE) {
        return by_error_set(error, BY_ECONFIG, "task.kind graphs needs a model of graphs");
    }
    by_shape rows = BY_SHAPE(request->batch, sizes->graphs);
    if (has_numbers(config)) {
        by_value targets = by_graph_input(graph, "targets", BY_F32, rows);
        by_value weight = by_graph_input(graph, "weight", BY_F32, rows);
        targets = by_reshape(graph, targets, BY_SHAPE(request->batch, sizes->graphs, 1));
        model->loss = by_squared_error(graph, model->output, targets, weight);
    } else {
        by_value labels = by_graph_input(graph, "labels", BY_I32, rows);
        model->loss = by_cross_entropy(graph, model->output, labels, 0.0f);
    }
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    return has_numbers(config) ? "squared error (deviations)" : "cross-entropy (nats)";
}

const by__task_row by__task_graphs = {
    .kind = {.name = "graphs",
             .help = "Classes or numbers of small graphs, such as molecules.",
             .keys = {&by__task_graph_key_list, &key_list},
             .size = sizeof(by__task_graphs_keys)},
    .task = {.name = "graphs",
             .examples = "graphs",
             .keeps_test = true,
             .metrics = by__task_graphs_metrics,
             .metric_count = BY__TASK_GRAPHS_METRICS,
             .sums = by__task_graphs_sums,
             .sum_count = BY__TASK_GRAPHS_SUMS,
             .loss_label = loss_label,
             .loss = loss,
             .measure = by__task_graphs_measure,
             .open = open_data,
             .close = close_data,
             .knows = knows,
             .assume = assume,
             .complete = complete,
             .source = source,
             .open_graph = open_graph,
             .keep = keep,
             .check = check,
             .predict = by__task_graphs_predict},
};
