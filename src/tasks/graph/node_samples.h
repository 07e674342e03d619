/* How tasks of one graph sample it: keys, what they choose, and the sizes that a model needs. */
#ifndef BY_TASKS_GRAPH_NODE_SAMPLES_H
#define BY_TASKS_GRAPH_NODE_SAMPLES_H

#include "data/nodes/node_relations.h"
#include "data/nodes/subgraph/subgraph.h"
#include "tasks/graph/graph_data.h"

/* The first member of the own keys of each task that samples surroundings. */
typedef struct by__task_fan_keys {
    by__task_graph_keys graph;
    by_string_list fan_outs;
    char *relations;
    int64_t partition;
} by__task_fan_keys;
extern const by__config_key_list by__task_fan_key_list;

/* Reads the relations of the edges of a graph, if the keys name a file of them, and makes them part
 * of the hash of the set. within: only of the edges that the set has. */
by_status by__task_relations_open(by__nodes_relations *out, const by__task_fan_keys *keys,
                                  by__nodes_set *set, bool within, by_error *error);

/* Constant inputs of a model that reads relations. */
#define BY__TASK_RELATION_CONSTANTS 6
void by__task_relation_constants(by_array out[BY__TASK_RELATION_CONSTANTS],
                                 const by__nodes_relations *relations);

/* The same of a task that samples in other ways, too. */
typedef struct by__task_sampled_keys {
    by__task_fan_keys fan;
    char *sampling;
    int64_t sample_targets;
    int64_t walk_length;
    int64_t walk_coverage;
    int64_t clusters;
    int64_t sample_clusters;
} by__task_sampled_keys;
extern const by__config_key_list by__task_sampled_key_list;

/* One of: the whole graph, surroundings of targets, or parts of the graph. */
typedef struct by__task_samples {
    by__nodes_sampling around;      /* hops 0: no surroundings are sampled */
    by__nodes_subgraphs *subgraphs; /* NULL: no parts are */
} by__task_samples;

/* Sets hops, fan-outs and room of samples of out->targets targets. BY_ECONFIG: the fan-outs are no
 * numbers, or too many. */
by_status by__task_fan_outs_fit(by__nodes_sampling *out, const by__task_fan_keys *keys,
                                const by__nodes_set *set, by_error *error);
/* Prepares samples of a set with `count` nodes to train on. To train: as the keys say; else parts
 * of the graph are not sampled, but all of it is read. seed: of clusters and estimates. set, ids
 * and keys must outlive them. BY_ECONFIG: keys do not fit the graph or each other. */
by_status by__task_samples_open(by__task_samples *out, const by__task_sampled_keys *keys,
                                const by__nodes_set *set, const uint64_t *ids, uint64_t count,
                                by_task_purpose purpose, uint64_t seed, by_error *error);
void by__task_samples_close(by__task_samples *samples);
/* Whether the model reads the whole graph. */
bool by__task_samples_whole(const by__task_samples *samples);
/* Whether targets of samples weigh differently in the loss of a config's training. */
bool by__task_samples_weighted(const by__task_sampled_keys *keys);
/* Sets the sizes of samples. BY_ECONFIG: the model has another number of layers. */
by_status by__task_samples_sizes(by__nn_node_sizes *sizes, const by_model_config *model,
                                 const by__task_samples *samples, const by__nodes_set *set,
                                 by_error *error);
/* Opens a source of nodes (by__nodes_source_open, by__nodes_subgraph_source_open). */
by_status by__task_samples_source(by_source **out, const by__task_samples *samples,
                                  const by__nodes_set *set, const uint64_t *ids, uint64_t count,
                                  bool training, by_error *error);

#endif
