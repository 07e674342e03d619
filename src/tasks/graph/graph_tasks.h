/* Small graphs as examples: what the files of this task share. */
#ifndef BY_TASKS_GRAPH_GRAPHS_H
#define BY_TASKS_GRAPH_GRAPHS_H

#include "data/nodes/graph_list.h"
#include "tasks/graph/graph_data.h"
#include "tasks/graph/graph_split.h"

typedef struct by__task_graphs_keys {
    by__task_graph_keys graph;
    char *target;
    by_string_list label_names;
    char *train;
    char *valid;
    char *test;
    double valid_graphs;
    double test_graphs;
    int64_t split_seed;
    int64_t pack_nodes;
    int64_t edge_features;
    int64_t graph_features;
    double target_mean;
    double target_deviation;
} by__task_graphs_keys;

typedef struct by__task_graphs_data {
    by_task_data base;
    by__task_graphs_keys *keys; /* of the config that was opened, which must outlive it */
    const by_config *config;    /* that one */
    by__nodes_graph_list *list;
    by__task_graph_split split;
    by__nodes_pack_size size;
    by_task_purpose purpose;
    bool numbers;
    int64_t classes;
    char *summary;
} by__task_graphs_data;

/* ---- graphs_metrics.c ---- */

#define BY__TASK_GRAPHS_SUMS    5
#define BY__TASK_GRAPHS_METRICS 4
extern const by_task_sum by__task_graphs_sums[BY__TASK_GRAPHS_SUMS];
extern const by_metric by__task_graphs_metrics[BY__TASK_GRAPHS_METRICS];
/* Functions of by_task. */
void by__task_graphs_measure(const by_task_data *data, double *const *sums, const by_batch *batch,
                             const float *values, size_t width);
by_status by__task_graphs_predict(by_task_data *data, const by_batch *batch, double sum,
                                  const float *values, size_t width, by_predicted *report,
                                  void *user, by_error *error);

#endif
