#include "tasks/graph/node_samples.h"

#include <math.h>
#include <string.h>

#include "data/nodes/node_source.h"

#define OWN(field) BY__OWN(by__task_sampled_keys, field)

/* clang-format off: one row a key */
static const by__config_key fan_keys[] = {
    {"data", "fan_outs", BY__KEY_TEXTS, BY__OWN(by__task_fan_keys, fan_outs), "[]",
     .help = "how many edges of a target, and of nodes 1, 2, ... hops from it, a sample of its "
             "surroundings has, a number for each layer; empty: the whole graph is read"},
    {"data", "relations", BY__KEY_TEXT, BY__OWN(by__task_fan_keys, relations), "\"\"",
     .later = true,
     .help =
         "file of the relation of each edge in a text of edges, from 0, in the same order: npy, "
         "or a number a line; edges that lead back have relations of their own"},
    {"data", "partition_features", BY__KEY_SWITCH, BY__OWN(by__task_fan_keys, partition), "false",
     .later = true,
     .help = "each rank reads the features of its share of a packed graph's nodes, and gets those "
             "of its samples from the other ranks; false: every rank reads all features"},
};
static const by__config_key keys[] = {
    {"data", "sampling", BY__KEY_TEXT, OWN(sampling), "neighbours",
     .choices = "neighbours|walks|clusters", .later = true,
     .help = "how a large graph is sampled to train on: the surroundings of targets (fan_outs), "
             "or parts of the graph with the edges between their nodes: those of random walks "
             "(GraphSAINT), or clusters with few edges between them (Cluster-GCN)"},
    {"data", "sample_targets", BY__KEY_INT, OWN(sample_targets), "1", 1, BY__MI20,
     .help = "targets of a sample, which have common surroundings, or nodes that its walks begin "
             "at; train.batch counts samples"},
    {"data", "walk_length", BY__KEY_INT, OWN(walk_length), "2", 1, 64, .later = true,
     .help = "edges of a walk"},
    {"data", "walk_coverage", BY__KEY_INT, OWN(walk_coverage), "20", 0, 10000, .later = true,
     .help =
         "samples with a node, on average, from which it is estimated before the first step how "
         "often nodes and edges are in one: sums over edges and the loss are divided by that; "
         "0: they are not"},
    {"data", "clusters", BY__KEY_INT, OWN(clusters), "0", 0, INT32_MAX - 1, .later = true,
     .help = "clusters that the graph is cut into, for sampling clusters"},
    {"data", "sample_clusters", BY__KEY_INT, OWN(sample_clusters), "1", 1, BY__MI20, .later = true,
     .help = "clusters of a sample, drawn anew in every epoch"},
};
/* clang-format on */
const by__config_key_list by__task_fan_key_list = BY__KEY_LIST(fan_keys);
const by__config_key_list by__task_sampled_key_list = BY__KEY_LIST(keys);

by_status by__task_relations_open(by__nodes_relations *out, const by__task_fan_keys *k,
                                  by__nodes_set *set, bool within, by_error *error)
{
    if (k->relations[0] == '\0') {
        return BY_OK;
    }
    BY_TRY(by__nodes_relations_open(out, k->graph.graph, k->relations, set, within,
                                    k->graph.symmetric != 0, error));
    return by__nodes_relations_hash(out, set->hash, error);
}

void by__task_relation_constants(by_array out[BY__TASK_RELATION_CONSTANTS],
                                 const by__nodes_relations *r)
{
    by_shape edges = BY_SHAPE(1, r->edges);
    by_shape pairs = BY_SHAPE(1, r->nodes * r->relations + 1);
    const by_array constants[BY__TASK_RELATION_CONSTANTS] = {
        {"relations.offsets", BY_I32, BY_SHAPE(1, r->nodes + 1), r->offsets},
        {"relations.sources", BY_I32, edges, r->sources},
        {"relations.weights", BY_F32, BY_SHAPE(1, r->edges, 1), r->weights},
        {"relations.back_offsets", BY_I32, pairs, r->back_offsets},
        {"relations.back_sources", BY_I32, edges, r->back_sources},
        {"relations.back_edges", BY_I32, edges, r->back_edges}};
    memcpy(out, constants, sizeof constants);
}

static bool takes_neighbours(const by__task_sampled_keys *k)
{
    return strcmp(k->sampling, "neighbours") == 0;
}

by_status by__task_fan_outs_fit(by__nodes_sampling *out, const by__task_fan_keys *k,
                                const by__nodes_set *set, by_error *error)
{
    const by_string_list *list = &k->fan_outs;
    if (list->count > BY__NODES_HOPS) {
        return by_error_set(error, BY_ECONFIG, "data.fan_outs: %zu hops are more than %d",
                            list->count, BY__NODES_HOPS);
    }
    for (size_t i = 0; i < list->count; i++) {
        double number;
        if (!by__parse_f64(list->items[i], &number) || !(number >= 1.0 && number <= 1e9) ||
            number != floor(number)) {
            return by_error_set(error, BY_ECONFIG,
                                "data.fan_outs: '%s' is not a number of edges, from 1 on",
                                list->items[i]);
        }
        out->fan_outs[i] = (int32_t)number;
    }
    out->hops = (int)list->count;
    return list->count == 0 ? BY_OK : by__nodes_sampling_fit(out, set, error);
}

static by_status open_subgraphs(by__task_samples *out, const by__task_sampled_keys *k,
                                const by__nodes_set *set, const uint64_t *ids, uint64_t count,
                                uint64_t seed, by_error *error)
{
    bool packed = by__nodes_is_packed(k->fan.graph.graph);
    const by__nodes_subgraph_options o = {.kind = k->sampling,
                                          .roots = k->sample_targets,
                                          .length = k->walk_length,
                                          .coverage = k->walk_coverage,
                                          .clusters = k->clusters,
                                          .together = k->sample_clusters,
                                          .directory = packed ? k->fan.graph.graph : NULL,
                                          .seed = seed};
    BY_TRY(by__nodes_subgraphs_open(&out->subgraphs, set, ids, count, &o, error));
    out->around.targets = out->subgraphs->nodes;
    return BY_OK;
}

by_status by__task_samples_open(by__task_samples *out, const by__task_sampled_keys *k,
                                const by__nodes_set *set, const uint64_t *ids, uint64_t count,
                                by_task_purpose purpose, uint64_t seed, by_error *error)
{
    bool neighbours = takes_neighbours(k);
    *out = (by__task_samples){.around = {.targets = 1}};
    if (!neighbours && k->fan.fan_outs.count > 0) {
        return by_error_set(error, BY_ECONFIG,
                            "data.fan_outs are of data.sampling neighbours; it is %s: leave them "
                            "out",
                            k->sampling);
    }
    if (neighbours) {
        out->around.targets = purpose == BY_TASK_PREDICT ? 1 : k->sample_targets;
        return by__task_fan_outs_fit(&out->around, &k->fan, set, error);
    }
    return purpose == BY_TASK_TRAIN ? open_subgraphs(out, k, set, ids, count, seed, error) : BY_OK;
}

void by__task_samples_close(by__task_samples *samples)
{
    by__nodes_subgraphs_close(&samples->subgraphs);
}

bool by__task_samples_whole(const by__task_samples *s)
{
    return s->subgraphs == NULL && (s->around.hops == 0 || s->around.covers);
}

bool by__task_samples_weighted(const by__task_sampled_keys *k)
{
    const by__nodes_strategy *strategy = by__nodes_strategy_find(k->sampling);
    return strategy != NULL && strategy->estimates && k->walk_coverage > 0;
}

by_status by__task_samples_sizes(by__nn_node_sizes *sizes, const by_model_config *m,
                                 const by__task_samples *samples, const by__nodes_set *set,
                                 by_error *error)
{
    const by__nodes_sampling *s = &samples->around;
    const by__nodes_subgraphs *parts = samples->subgraphs;
    bool whole = by__task_samples_whole(samples);
    if (s->hops > 0 && s->hops != m->layers) {
        return by_error_set(error, BY_ECONFIG,
                            "data.fan_outs: %d hops, but the model has %lld layers: give a number "
                            "for each layer",
                            s->hops, (long long)m->layers);
    }
    sizes->sample_nodes = parts != NULL ? parts->nodes : whole ? 0 : s->nodes;
    sizes->sample_edges = parts != NULL ? parts->edges : whole ? 0 : s->edges;
    sizes->sample_targets = s->targets;
    sizes->sample_weights =
        !whole && (set->weights != NULL || (parts != NULL && parts->edge_factors != NULL));
    return by__nn_node_set_hops(sizes, s->hop_nodes, s->hop_edges, whole ? 0 : s->hops, error);
}

by_status by__task_samples_source(by_source **out, const by__task_samples *samples,
                                  const by__nodes_set *set, const uint64_t *ids, uint64_t count,
                                  bool training, by_error *error)
{
    return samples->subgraphs != NULL
               ? by__nodes_subgraph_source_open(out, samples->subgraphs, ids, count, training,
                                                error)
               : by__nodes_source_open(out, set, ids, count, training, &samples->around, error);
}
