/* Keys, constants and sizes that the tasks of graphs share. */
#include <string.h>

#include "tasks/graph/graph_data.h"

/* clang-format off: one row a key */
static const by__config_key keys[] = {
    {"data", "graph", BY__KEY_TEXT, BY__OWN(by__task_graph_keys, graph), "\"\"",
     .help =
         "npz file with scipy's matrices adj_* of edges and attr_* of features (or attr_matrix) "
         "and labels; or a text of edges, two numbers of nodes a line; of task nodes also a "
         "directory of `banyan pack --graph`, which may have the nodes to train on and held out"},
    {"data", "features", BY__KEY_TEXT, BY__OWN(by__task_graph_keys, features), "\"\"",
     .help = "npy file of features, a row for each node; empty: those of the npz file"},
    {"data", "symmetric", BY__KEY_SWITCH, BY__OWN(by__task_graph_keys, symmetric), "true",
     .help = "edges lead in both directions"},
    {"data", "self_loops", BY__KEY_SWITCH, BY__OWN(by__task_graph_keys, self_loops), "false",
     .help = "each node has an edge to itself, as gcn and gat are published; false: none has"},
    {"data", "normalize", BY__KEY_SWITCH, BY__OWN(by__task_graph_keys, normalize), "false",
     .help = "divide the features of a node by the sum of their magnitudes"},
    {"data", "edge_weights", BY__KEY_SWITCH, BY__OWN(by__task_graph_keys, weighted), "false",
     .later = true,
     .help =
         "edges have weights, from 0 on: the third number of a line, or edge_weight or adj_data "
         "of an npz file; a packed graph has those that it was packed with"},
};
/* clang-format on */
const by__config_key_list by__task_graph_key_list = BY__KEY_LIST(keys);

by_status by__task_graph_options(by__nodes_options *out, const by__task_graph_keys *k,
                                 const char *labels, by_error *error)
{
    *out = (by__nodes_options){.graph = k->graph,
                               .features = k->features,
                               .labels = labels,
                               .symmetric = k->symmetric != 0,
                               .self_loops = k->self_loops != 0,
                               .normalize = k->normalize != 0,
                               .weighted = k->weighted != 0};
    return k->graph[0] != '\0' ? BY_OK
                               : by_error_set(error, BY_ECONFIG, "no data: set data.graph=FILE");
}

void by__task_graph_constants(by_array out[BY__TASK_GRAPH_CONSTANTS], const by__nodes_set *s)
{
    const by__nodes_whole *w = &s->whole;
    by_shape offsets = BY_SHAPE(1, s->nodes + 1);
    by_shape edges = BY_SHAPE(1, s->edges);
    by_shape column = BY_SHAPE(1, s->nodes, 1);
    const by_array constants[BY__TASK_GRAPH_CONSTANTS] = {
        {"nodes.x", BY_F32, BY_SHAPE(1, s->nodes, s->features), w->x},
        {"nodes.inverse_root", BY_F32, column, w->inverse_root},
        {"nodes.inverse_degree", BY_F32, column, w->inverse_degree},
        {"edges.offsets", BY_I32, offsets, w->offsets},
        {"edges.sources", BY_I32, edges, s->sources},
        {"edges.back_offsets", BY_I32, offsets, w->back_offsets},
        {"edges.back_sources", BY_I32, edges, w->back_sources},
        {"edges.back_edges", BY_I32, edges, w->back_edges},
        {"edges.weights", BY_F32, BY_SHAPE(1, s->edges, 1), s->weights}};
    memcpy(out, constants, sizeof constants);
}

by_status by__task_graph_open(by_source **out, const by_task_graph *graph,
                              const by__nodes_options *options, const by_config *config,
                              by_error *error)
{
    static const uint64_t first = 0;
    const by_model_config *m = &config->model;
    const by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    by__nodes_graph_list *list;
    if ((int64_t)graph->width != m->channels || graph->nodes < 1 ||
        (int64_t)graph->nodes > sizes->nodes) {
        return by_error_set(error, BY_EARG,
                            "a graph of %zu nodes with %zu features; the model reads %lld, and has "
                            "room for %lld nodes",
                            graph->nodes, graph->width, (long long)m->channels,
                            (long long)sizes->nodes);
    }
    if ((int64_t)graph->edge_width != sizes->edge_features && graph->edge_count > 0) {
        return by_error_set(error, BY_EARG, "edges with %zu features; the model reads %lld of each",
                            graph->edge_width, (long long)sizes->edge_features);
    }
    if ((int64_t)graph->graph_width != sizes->graph_features) {
        return by_error_set(error, BY_EARG, "a graph with %zu features; the model reads %lld of it",
                            graph->graph_width, (long long)sizes->graph_features);
    }
    const by__nodes_graph one = {.x = graph->features,
                                 .nodes = (int64_t)graph->nodes,
                                 .features = (int64_t)graph->width,
                                 .pairs = graph->edges,
                                 .count = graph->edge_count,
                                 .edge_x = graph->edge_features,
                                 .edge_features = sizes->edge_features,
                                 .graph_x = graph->graph_features,
                                 .graph_features = sizes->graph_features};
    BY_TRY(by__nodes_graph_list_make(&list, &one, options, error));
    const by__nodes_pack_options o = {.size = {.nodes = sizes->nodes,
                                               .edges = sizes->edges,
                                               .graphs = sizes->graphs > 0 ? sizes->graphs : 1},
                                      .ids = &first,
                                      .count = 1,
                                      .deviation = 1.0,
                                      .owns = true};
    by_status status = list->set->edges <= sizes->edges
                           ? by__nodes_pack_source_open(out, list, &o, error)
                           : by_error_set(error, BY_EARG,
                                          "a graph of %lld edges, with those that are added; the "
                                          "model has room for %lld",
                                          (long long)list->set->edges, (long long)sizes->edges);
    if (status != BY_OK) {
        by__nodes_graph_list_close(&list);
    }
    return status;
}

static by_status take_size(int64_t *key, const char *name, int64_t size, const by__nodes_set *set,
                           bool fixed, by_error *error)
{
    if (fixed && *key >= 0 && *key != size) {
        return by_error_set(error, BY_ECONFIG, "model.%s is %lld, but %s has %lld; leave it out",
                            name, (long long)*key, set->name, (long long)size);
    }
    *key = size;
    return BY_OK;
}

by_status by__task_graph_sizes(by_config *config, const by__nodes_set *set,
                               const by__nodes_relations *relations, bool fixed, by_error *error)
{
    by_model_config *m = &config->model;
    by__nn_node_sizes *sizes = by__nn_node_sizes_of(m);
    if (sizes == NULL) {
        return by_error_set(error, BY_ECONFIG,
                            "task.kind %s needs a model of graphs, such as model.kind gcn, sage or "
                            "gat; model.kind %s reads %s",
                            config->task.kind, m->kind, by_model_reads(m));
    }
    by__nn_node_read_whole(sizes);
    sizes->edge_weights = set->weights != NULL;
    BY_TRY(by__nn_node_set_hops(sizes, NULL, NULL, 0, error));
    BY_TRY(take_size(&m->channels, "channels", set->features, set, true, error));
    BY_TRY(take_size(&sizes->relations, "relations", relations->relations, set, true, error));
    BY_TRY(
        take_size(&sizes->relation_edges, "relation_edges", relations->edges, set, fixed, error));
    BY_TRY(take_size(&sizes->nodes, "nodes", set->nodes, set, fixed, error));
    return take_size(&sizes->edges, "edges", set->edges, set, fixed, error);
}

by_task_kept by__task_graph_kept(const by__nodes_set *set, const by_string_list *labels)
{
    return (by_task_kept){
        .values = {{.key = "train_hash", .kind = BY_VALUE_STRING, .as.string = set->hash}},
        .value_count = 1,
        .labels = labels == NULL ? NULL : (const char *const *)labels->items,
        .label_count = labels == NULL ? 0 : labels->count,
        .eos = -1};
}

by_status by__task_graph_check(const by__nodes_set *set, const by_checkpoint *checkpoint,
                               const char *what, by_error *error)
{
    const char *content;
    BY_TRY(by_checkpoint_value_string(checkpoint, "train_hash", &content, error));
    return strcmp(content, set->hash) == 0
               ? BY_OK
               : by_error_set(error, BY_ECONFIG,
                              "%s was trained on %s than %s has now; restore the file, or start a "
                              "new run",
                              by_checkpoint_path(checkpoint), what, set->name);
}
