/* Classes of the nodes of one graph. The graph is a constant of a run: a model reads all of it, and
 * an example is a node whose class is wanted. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "banyan/ops.h"
#include "data/loader/row_list.h"
#include "data/nodes/node_entries.h"
#include "tasks/graph/feature_parts.h"
#include "tasks/graph/graph_split.h"
#include "tasks/graph/node_samples.h"

typedef struct nodes_keys {
    by__task_sampled_keys sampled;
    char *labels;
    by_string_list label_names;
    char *train;
    char *valid;
    char *test;
    int64_t per_class;
    int64_t valid_nodes;
    int64_t test_nodes;
    int64_t split_seed;
} nodes_keys;

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "labels", BY__KEY_TEXT, BY__OWN(nodes_keys, labels), "\"\"",
     .help = "npy file of the class of each node, -1 for none; empty: those of the npz file"},
    {"data", "label_names", BY__KEY_TEXTS, BY__OWN(nodes_keys, label_names), "[]",
     .help = "names of the classes, in order from 0"},
    {"data", "train_list", BY__KEY_TEXT, BY__OWN(nodes_keys, train), "\"\"",
     .help = "file of the nodes to train on: npy, or a number a line; empty: they are drawn"},
    {"data", "valid_list", BY__KEY_TEXT, BY__OWN(nodes_keys, valid), "\"\"",
     .help = "file of the nodes to validate on, with train_list"},
    {"data", "test_list", BY__KEY_TEXT, BY__OWN(nodes_keys, test), "\"\"",
     .help = "file of the nodes to test on, with train_list"},
    {"data", "per_class", BY__KEY_INT, BY__OWN(nodes_keys, per_class), "20", 0, BY__COUNT_LIMIT,
     .help = "nodes of each class to train on that are drawn; 0: all that are not held out"},
    {"data", "valid_nodes", BY__KEY_INT, BY__OWN(nodes_keys, valid_nodes), "500", 0,
     BY__COUNT_LIMIT, .help = "nodes to validate on that are drawn"},
    {"data", "test_nodes", BY__KEY_INT, BY__OWN(nodes_keys, test_nodes), "1000", 0, BY__COUNT_LIMIT,
     .help = "nodes to test on that are drawn: `banyan eval RUN --test` reads them"},
    {"data", "split_seed", BY__KEY_INT, BY__OWN(nodes_keys, split_seed), "0", 0, BY__COUNT_LIMIT,
     .help = "seed of which nodes are drawn"},
};
/* clang-format on */
static const by__config_key_list key_list = BY__KEY_LIST(keys);

#define CONSTANTS (BY__TASK_GRAPH_CONSTANTS + BY__TASK_RELATION_CONSTANTS + 6)

typedef struct nodes_data {
    by_task_data base;
    const nodes_keys *keys;  /* of the config that was opened, which must outlive it */
    const by_config *config; /* that one */
    by__nodes_set *set;      /* NULL: graphs of requests are read */
    by__task_graph_split split;
    bool packed_split; /* it is that of a packed graph */
    by__task_samples samples;
    by__task_parts *parts;     /* NULL: all features are here */
    by__nodes_entries entries; /* count 0: all features are read */
    by__nodes_relations relations;
    by_task_purpose purpose;
    by_array constants[CONSTANTS];
    size_t constant_count;
    char *summary;
} nodes_data;

extern const by__task_row by__task_nodes;

static const nodes_keys *own_keys(const by_config *config)
{
    return by__config_kind_own(config->task.own, &by__task_nodes.kind);
}

/* ---- nodes to train on and held out ---- */

/* Nodes without a label teach nothing. */
static by_status check_labels(const nodes_data *d, const uint64_t *ids, uint64_t count,
                              by_error *error)
{
    for (uint64_t i = 0; i < count; i++) {
        if (d->set->labels == NULL || d->set->labels[ids[i]] < 0) {
            return by_error_set(error, BY_ECONFIG, "%s: node %llu of a list has no label",
                                d->set->name, (unsigned long long)ids[i]);
        }
    }
    return BY_OK;
}

static by_status check_lists(const nodes_data *d, by_error *error)
{
    BY_TRY(check_labels(d, d->split.lists.train, d->split.lists.train_count, error));
    BY_TRY(check_labels(d, d->split.lists.valid, d->split.lists.valid_count, error));
    return check_labels(d, d->split.lists.test, d->split.lists.test_count, error);
}

static by_status find_nodes(nodes_data *d, const by_task_request *r, by_error *error)
{
    const nodes_keys *k = d->keys;
    by__task_graph_split *s = &d->split;
    uint64_t all = (uint64_t)d->set->nodes;
    if (r->path == NULL && (r->chosen != NULL || d->purpose == BY_TASK_PREDICT)) {
        return by__task_graph_choose(&s->listed, &s->listed_count, r, all, "node", d->set->name,
                                     error);
    }
    if (r->path != NULL) {
        BY_TRY(by__loader_row_list_read(&s->listed, &s->listed_count, r->path, all, error));
        return d->purpose == BY_TASK_PREDICT ? BY_OK
                                             : check_labels(d, s->listed, s->listed_count, error);
    }
    if (k->train[0] == '\0' && d->set->split.train_count > 0) {
        s->lists = d->set->split;
        d->packed_split = true;
        d->set->split = (by__nodes_split){0};
        return check_lists(d, error);
    }
    if (k->train[0] == '\0') {
        return by__nodes_split_draw(&s->lists, d->set, (uint64_t)k->per_class,
                                    (uint64_t)k->valid_nodes, (uint64_t)k->test_nodes,
                                    (uint64_t)k->split_seed, error);
    }
    BY_TRY(by__task_graph_split_read(&s->lists, k->train, k->valid, k->test, all, "node", error));
    return check_lists(d, error);
}

/* ---- opening ---- */

static void close_data(by_task_data *data)
{
    nodes_data *d = (nodes_data *)data;
    by__task_samples_close(&d->samples);
    by__task_parts_close(&d->parts);
    by__nodes_set_close(&d->set);
    by__task_graph_split_free(&d->split);
    by__nodes_entries_free(&d->entries);
    by__nodes_relations_free(&d->relations);
    free(d->summary);
    free(d);
}

static void list_constants(nodes_data *d)
{
    const by__nodes_set *s = d->set;
    by_shape offsets = BY_SHAPE(1, s->nodes + 1);
    const by__nodes_entries *f = &d->entries;
    by_shape entries = BY_SHAPE(1, f->count);
    const by_array own[] = {
        {"features.values", BY_F32, BY_SHAPE(1, f->count, 1), f->values},
        {"features.offsets", BY_I32, offsets, f->offsets},
        {"features.columns", BY_I32, entries, f->columns},
        {"features.back_offsets", BY_I32, BY_SHAPE(1, s->features + 1), f->back_offsets},
        {"features.back_rows", BY_I32, entries, f->back_rows},
        {"features.back_entries", BY_I32, entries, f->back_entries}};
    _Static_assert(BY__TASK_GRAPH_CONSTANTS + BY__TASK_RELATION_CONSTANTS +
                           sizeof own / sizeof own[0] ==
                       CONSTANTS,
                   "room");
    by__task_graph_constants(d->constants, s);
    by__task_relation_constants(d->constants + BY__TASK_GRAPH_CONSTANTS, &d->relations);
    memcpy(d->constants + (CONSTANTS - BY_ARRAY_LENGTH(own)), own, sizeof own);
}

/* The whole graph is uploaded, unless samples are read. */
static by_status take_whole(nodes_data *d, by_error *error)
{
    if (!by__task_samples_whole(&d->samples)) {
        return BY_OK;
    }
    const nodes_keys *k = d->keys;
    BY_TRY(by__nodes_set_whole(d->set, error));
    BY_TRY(by__nodes_entries_make(&d->entries, d->set, error));
    BY_TRY(by__task_relations_open(&d->relations, &k->sampled.fan, d->set, false, error));
    list_constants(d);
    d->constant_count = CONSTANTS;
    return BY_OK;
}

static by_status describe(nodes_data *d, by_error *error)
{
    by_string text = {0};
    by_string_format(&text, "a graph of %lld nodes with %lld features, and %lld edges",
                     (long long)d->set->nodes, (long long)d->set->features,
                     (long long)d->set->edges);
    BY_TRY(by__string_release(&text, &d->summary, error));
    d->base.summary = d->summary;
    return BY_OK;
}

static by_status open_graph(const by_task_data *data, const by_task_graph *graph,
                            by_source **source, by_error *error)
{
    const nodes_data *d = (const nodes_data *)data;
    by__nodes_options options;
    BY_TRY(by__task_graph_options(&options, &d->keys->sampled.fan.graph, d->keys->labels, error));
    return by__task_graph_open(source, graph, &options, d->config, error);
}

static by_status open_all(nodes_data *d, const by_task_request *r, by_error *error)
{
    const nodes_keys *k = d->keys;
    by__nodes_options options;
    uint64_t count;
    if (r->graphs) {
        return BY_OK;
    }
    BY_TRY(by__task_graph_options(&options, &k->sampled.fan.graph, k->labels, error));
    BY_TRY(by__nodes_set_open(&d->set, &options, error));
    BY_TRY(find_nodes(d, r, error));
    BY_TRY(by__task_samples_open(&d->samples, &k->sampled, d->set, d->split.lists.train,
                                 d->split.lists.train_count, d->purpose, (uint64_t)k->split_seed,
                                 error));
    BY_TRY(take_whole(d, error));
    BY_TRY(by__task_parts_open(&d->parts, &k->sampled.fan, d->set,
                               by__task_samples_whole(&d->samples), r, error));
    (void)by__task_graph_split_held_out(&d->split, &count);
    d->base.train_examples = d->purpose == BY_TASK_TRAIN ? d->split.lists.train_count : 0;
    d->base.valid_examples = count;
    d->base.held_out = k->train[0] != '\0' ? "data.valid_list"
                       : d->packed_split   ? "the split of data.graph"
                                           : "nodes drawn by data.split_seed";
    if (d->purpose == BY_TASK_EVALUATE && count == 0) {
        return by_error_set(error, BY_ECONFIG, "%s: there are no nodes to %s", d->set->name,
                            d->split.test ? "test on: set data.test_nodes or data.test_list"
                                          : "evaluate on: set data.valid_nodes or data.valid_list");
    }
    d->base.bytes = d->set->bytes + d->entries.bytes + d->relations.bytes +
                    (d->samples.subgraphs == NULL ? 0 : d->samples.subgraphs->bytes);
    return describe(d, error);
}

static by_status open_data(by_task_data **out, const by_task_request *request, by_error *error)
{
    nodes_data *d;
    BY_TRY(by__alloc((void **)&d, 1, sizeof *d, "the data", error));
    d->base.task = &by__task_nodes.task;
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
    const nodes_keys *k = own_keys(config);
    bool holds_out = k->train[0] == '\0' ? k->valid_nodes > 0 : k->valid[0] != '\0';
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    bool sized =
        m->outputs > 0 && m->channels > 0 && sizes != NULL && sizes->nodes > 0 && sizes->edges > 0;
    return (sized ? (unsigned)BY_TASK_SIZES : 0) |
           (k->sampled.fan.graph.graph[0] != '\0' ? (unsigned)BY_TASK_DATA : 0) |
           (k->sampled.fan.graph.graph[0] != '\0' && holds_out ? (unsigned)BY_TASK_HOLDS_OUT : 0);
}

/* The sizes of Cora (Sen et al. 2008), with edges to each node itself. */
static void assume(by_config *config)
{
    by_model_config *m = &config->model;
    m->outputs = m->outputs < 0 ? 7 : m->outputs;
    m->channels = m->channels < 0 ? 1433 : m->channels;
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    if (sizes != NULL) {
        sizes->nodes = sizes->nodes < 0 ? 2708 : sizes->nodes;
        sizes->edges = sizes->edges < 0 ? 13264 : sizes->edges;
        sizes->sample_nodes = sizes->sample_nodes < 0 ? 0 : sizes->sample_nodes;
        sizes->sample_edges = sizes->sample_edges < 0 ? 0 : sizes->sample_edges;
        sizes->sample_targets = sizes->sample_targets < 0 ? 1 : sizes->sample_targets;
        sizes->sample_weights = sizes->sample_weights < 0 ? 0 : sizes->sample_weights;
        sizes->feature_entries = sizes->feature_entries < 0 ? 0 : sizes->feature_entries;
        sizes->edge_weights = sizes->edge_weights < 0 ? 0 : sizes->edge_weights;
        sizes->relations = sizes->relations < 0 ? 1 : sizes->relations;
        sizes->relation_edges = sizes->relation_edges < 0 ? sizes->edges : sizes->relation_edges;
    }
}

/* Weights do not depend on how many nodes and edges there are: only a run in training goes on with
 * the graph that it began with, unless it began with the weights of another model. */
static by_status take_size(int64_t *key, const char *name, int64_t size, const nodes_data *d,
                           by_error *error)
{
    bool of_weights = strcmp(name, "channels") == 0 || strcmp(name, "relations") == 0;
    bool begins = d->purpose == BY_TASK_TRAIN && d->config->model.from[0] == '\0';
    bool any = !begins && !of_weights;
    if (*key >= 0 && *key != size && !any) {
        return by_error_set(error, BY_ECONFIG, "model.%s is %lld, but %s has %lld; leave it out",
                            name, (long long)*key, d->set->name, (long long)size);
    }
    *key = size;
    return BY_OK;
}

static by_status complete(by_task_data *data, by_config *config, by_error *error)
{
    nodes_data *d = (nodes_data *)data;
    by_model_config *m = &config->model;
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    if (sizes == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind nodes needs a model of the nodes of a graph, such as "
                            "model.kind gcn, sage or gat; model.kind %s reads %s",
                            m->kind, by_model_reads(m));
    }
    BY_TRY(take_size(&m->channels, "channels", d->set->features, d, error));
    BY_TRY(take_size(&sizes->nodes, "nodes", d->set->nodes, d, error));
    BY_TRY(take_size(&sizes->edges, "edges", d->set->edges, d, error));
    /* How the graph is sampled is no property of the weights. */
    BY_TRY(by__task_samples_sizes(sizes, m, &d->samples, d->set, error));
    if (sizes->feature_entries != 0) {
        BY_TRY(take_size(&sizes->feature_entries, "feature_entries", d->entries.count, d, error));
    }
    BY_TRY(take_size(&sizes->edge_weights, "edge_weights", d->set->weights != NULL, d, error));
    BY_TRY(take_size(&sizes->relations, "relations", d->relations.relations, d, error));
    BY_TRY(take_size(&sizes->relation_edges, "relation_edges", d->relations.edges, d, error));
    if (m->outputs < 0) {
        m->outputs = d->set->classes;
    }
    if (m->outputs < d->set->classes || m->outputs < 1) {
        return by_error_set(error, BY_ECONFIG, "model.outputs is %lld, but %s has %lld classes",
                            (long long)m->outputs, d->set->name, (long long)d->set->classes);
    }
    if (d->keys->label_names.count > (size_t)m->outputs) {
        return by_error_set(error, BY_ECONFIG, "data.label_names are %zu names of %lld classes",
                            d->keys->label_names.count, (long long)m->outputs);
    }
    BY_TRY(by_config_resolve(config, error));
    return by__task_parts_count(d->parts, &d->base.bytes, config, error);
}

static by_status fetch(by_task_data *data, const by_batch *batch, by_error *error)
{
    return by__task_parts_fetch(((nodes_data *)data)->parts, batch, error);
}

static by_status source(by_source **out, by_task_data *data, const by_config *config, bool training,
                        by_error *error)
{
    nodes_data *d = (nodes_data *)data;
    uint64_t count = d->split.lists.train_count;
    const uint64_t *ids =
        training ? d->split.lists.train : by__task_graph_split_held_out(&d->split, &count);
    BY_UNUSED(config);
    return by__task_samples_source(out, &d->samples, d->set, ids, count, training, error);
}

static by_status constants(by_task_data *data, const by_config *config, const by_array **out,
                           size_t *count, by_error *error)
{
    nodes_data *d = (nodes_data *)data;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = d->constants;
    *count = d->constant_count;
    return BY_OK;
}

static by_status keep(by_task_data *data, const by_config *config, by_task_kept *out,
                      by_error *error)
{
    nodes_data *d = (nodes_data *)data;
    BY_UNUSED(config);
    BY_UNUSED(error);
    *out = by__task_graph_kept(d->set, &d->keys->label_names);
    return BY_OK;
}

static by_status check(const by_task_data *data, const by_checkpoint *checkpoint, by_error *error)
{
    return by__task_graph_check(((const nodes_data *)data)->set, checkpoint, "another graph",
                                error);
}

/* ---- loss and metrics ---- */

static int64_t targets_of(const by__nn_node_sizes *sizes)
{
    return sizes != NULL && sizes->sample_targets > 1 ? sizes->sample_targets : 1;
}

static int64_t per_sample(const by_config *config)
{
    return targets_of(by__nn_node_sizes_of(&config->model));
}

static by_status loss(const by_config *config, const by_model_request *request, by_graph *graph,
                      by_model *model, by_error *error)
{
    if (model->output == BY_NONE || strcmp(by_model_reads(&config->model), "nodes") != 0) {
        return by_error_set(error, BY_ECONFIG, "task.kind nodes needs a model of nodes");
    }
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(&config->model);
    if (sizes != NULL && sizes->own_graphs > 0) { /* only predictions have such */
        model->loss = by_fill(graph, BY_F32, BY_SHAPE(1), 0.0f);
        model->evaluated = model->output;
        return BY_OK;
    }
    int64_t each = targets_of(sizes);
    by_shape rows = BY_SHAPE(request->batch * each);
    by_value labels;
    if (sizes != NULL && (sizes->sample_nodes > 0 || each > 1)) {
        labels = by_graph_input(graph, "labels", BY_I32, BY_SHAPE(request->batch, each));
        labels = by_reshape(graph, labels, rows);
    } else {
        labels = by_graph_input(graph, "labels", BY_I32, rows);
    }
    by_value logits =
        each == 1 ? model->output
                  : by_reshape(graph, model->output, BY_SHAPE(rows.dim[0], config->model.outputs));
    if (sizes != NULL && sizes->sample_nodes > 0 &&
        by__task_samples_weighted(&own_keys(config)->sampled)) {
        by_value weights = by_graph_input(graph, "weight", BY_F32, BY_SHAPE(request->batch, each));
        weights = by_reshape(graph, weights, rows);
        model->loss = by_weighted_cross_entropy(graph, logits, labels, weights, 0.0f);
    } else {
        model->loss = by_cross_entropy(graph, logits, labels, 0.0f);
    }
    model->evaluated = request->mode == BY_MODEL_TRAIN ? BY_NONE : model->output;
    return BY_OK;
}

static const char *loss_label(const by_config *config)
{
    BY_UNUSED(config);
    return "cross-entropy (nats)";
}

enum { SUM_COUNT, SUM_CORRECT };
static const by_task_sum sums_of[] = {
    [SUM_COUNT] = {.name = "count"}, [SUM_CORRECT] = {.name = "correct"}};

static size_t best_of(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return best;
}

static void measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                    const float *values, size_t width)
{
    const by_array *labels = by_batch_array(batch, "labels");
    BY_UNUSED(data);
    size_t each = labels != NULL && labels->shape.rank == 2 ? (size_t)labels->shape.dim[1] : 1;
    size_t classes = width / each;
    for (size_t i = 0; labels != NULL && i < batch->batch * each; i++) {
        int32_t label = ((const int32_t *)labels->data)[i];
        if (label >= 0) {
            *sums[SUM_COUNT] += 1.0;
            *sums[SUM_CORRECT] +=
                best_of(values + i * classes, classes) == (size_t)label ? 1.0 : 0.0;
        }
    }
}

static double accuracy(const by_task_data *data, const double *const *sums, const by_evaluation *e)
{
    BY_UNUSED(data);
    BY_UNUSED(e);
    return *sums[SUM_CORRECT] / *sums[SUM_COUNT];
}

static const by_metric metrics[] = {{"accuracy", true, 4, accuracy}};

static void name_example(const by_task_data *data, uint64_t index, by_example_name *out)
{
    const nodes_data *d = (const nodes_data *)data;
    uint64_t count;
    const uint64_t *ids = by__task_graph_split_held_out(&d->split, &count);
    *out = (by_example_name){.index = index < count ? ids[index] : index};
}

static void predict_one(const nodes_data *d, int32_t node, const float *logits, size_t classes,
                        by_predicted *report, void *user)
{
    const by_string_list *names = &d->keys->label_names;
    size_t best = best_of(logits, classes);
    double all = 0.0;
    char label[32];
    for (size_t c = 0; c < classes; c++) {
        all += exp((double)logits[c] - (double)logits[best]);
    }
    (void)snprintf(label, sizeof label, "%zu", best);
    const by_field fields[] = {
        {.name = "node", .number = (double)node, .is_whole = true},
        {.name = "class", .number = (double)best, .is_whole = true},
        {.name = "label", .text = best < names->count ? names->items[best] : label},
        {.name = "probability", .number = 1.0 / all}};
    report(user, fields, BY_ARRAY_LENGTH(fields));
}

/* All nodes of graphs of requests. */
static void predict_graphs(const nodes_data *d, const by_batch *batch, const float *values,
                           size_t width, by_predicted *report, void *user)
{
    const by_array *offsets = by_batch_array(batch, "graphs.offsets");
    size_t classes = (size_t)d->config->model.outputs;
    for (size_t i = 0; offsets != NULL && i < batch->batch; i++) {
        const int32_t *row = (const int32_t *)offsets->data + i * (size_t)offsets->shape.dim[1];
        for (int32_t node = 0; node < row[1]; node++) {
            predict_one(d, node, values + i * width + (size_t)node * classes, classes, report,
                        user);
        }
    }
}

static by_status predict(by_task_data *data, const by_batch *batch, double sum, const float *values,
                         size_t width, by_predicted *report, void *user, by_error *error)
{
    const nodes_data *d = (const nodes_data *)data;
    const by_array *ids = by_batch_array(batch, "ids");
    const by_array *weight = by_batch_array(batch, "weight");
    BY_UNUSED(sum);
    BY_UNUSED(error);
    if (d->set == NULL) {
        predict_graphs(d, batch, values, width, report, user);
        return BY_OK;
    }
    for (size_t i = 0; ids != NULL && weight != NULL && i < batch->batch; i++) {
        if (((const float *)weight->data)[i] > 0.0f) {
            predict_one(d, ((const int32_t *)ids->data)[i], values + i * width, width, report,
                        user);
        }
    }
    return BY_OK;
}

const by__task_row by__task_nodes = {
    .kind = {.name = "nodes",
             .help = "Classification of the nodes of a graph.",
             .keys = {&by__task_graph_key_list, &by__task_fan_key_list, &by__task_sampled_key_list,
                      &key_list},
             .size = sizeof(nodes_keys)},
    .task = {.name = "nodes",
             .examples = "nodes",
             .metrics = metrics,
             .metric_count = BY_ARRAY_LENGTH(metrics),
             .sums = sums_of,
             .sum_count = BY_ARRAY_LENGTH(sums_of),
             .keeps_test = true,
             .best_by_metric = true,
             .loss_label = loss_label,
             .open = open_data,
             .close = close_data,
             .per_sample = per_sample,
             .knows = knows,
             .assume = assume,
             .complete = complete,
             .source = source,
             .fetch = fetch,
             .constants = constants,
             .keep = keep,
             .check = check,
             .loss = loss,
             .measure = measure,
             .predict = predict,
             .open_graph = open_graph,
             .name_example = name_example},
};
