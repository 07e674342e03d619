/* What the tasks of one graph share: keys of its files, and what models read of all of it. */
#ifndef BY_TASKS_GRAPH_GRAPH_DATA_H
#define BY_TASKS_GRAPH_GRAPH_DATA_H

#include "data/nodes/graph_list.h"
#include "data/nodes/node_relations.h"
#include "nn/nn.h"
#include "tasks/tasks.h"

/* Where the graph is and how it is read: the first member of the own keys of each such task. */
typedef struct by__task_graph_keys {
    char *graph;
    char *features;
    int64_t symmetric;
    int64_t self_loops;
    int64_t normalize;
    int64_t weighted;
} by__task_graph_keys;
extern const by__config_key_list by__task_graph_key_list;

/* labels: their file; "": those of the graph's. BY_ECONFIG: no graph is named. */
by_status by__task_graph_options(by__nodes_options *out, const by__task_graph_keys *keys,
                                 const char *labels, by_error *error);

/* Constant inputs of a model that reads the whole graph. */
#define BY__TASK_GRAPH_CONSTANTS 9
void by__task_graph_constants(by_array out[BY__TASK_GRAPH_CONSTANTS], const by__nodes_set *set);

/* Opens a graph in memory as a sample of a model with room for `size` (by_task.open_graph). */
by_status by__task_graph_open(by_source **out, const by_task_graph *graph,
                              const by__nodes_options *options, const by_config *config,
                              by_error *error);

/* Sets the sizes of a model that the graph has: channels, nodes, edges and relations. fixed: nodes
 * and edges that the config names must be these. BY_ECONFIG: the model reads no graph, or it has
 * other sizes. */
by_status by__task_graph_sizes(by_config *config, const by__nodes_set *set,
                               const by__nodes_relations *relations, bool fixed, by_error *error);

/* What a run keeps of its graph: its hash, and names of classes; NULL: there are none. */
by_task_kept by__task_graph_kept(const by__nodes_set *set, const by_string_list *labels);
/* BY_ECONFIG: a run was trained on something else, `what`. */
by_status by__task_graph_check(const by__nodes_set *set, const by_checkpoint *checkpoint,
                               const char *what, by_error *error);

#endif
