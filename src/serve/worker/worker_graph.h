/* Predictions of a model of graphs, for worker_predict.c. */
#ifndef BY_SERVE_WORKER_WORKER_GRAPH_H
#define BY_SERVE_WORKER_WORKER_GRAPH_H

#include "serve/worker/worker.h"

typedef struct by__worker_graphs by__worker_graphs;

/* Computes all nodes of the model's graph (task.kind nodes), and opens a program for graphs of
 * requests. */
by_status by__worker_graphs_open(by__worker_graphs **out, const by_pretrained *pretrained,
                                 int threads, by_error *error);
void by__worker_graphs_close(by__worker_graphs **graphs);
/* Its part of the entry in /v1/models: features of a node, and the largest graph of a request. */
json_t *by__worker_graphs_info(const by__worker_graphs *graphs);
/* Fills a job from "nodes" and "graph" of a request, of which one may be NULL. */
by_status by__worker_graphs_prepare(const by__worker_graphs *graphs, by__worker_job *job,
                                    const json_t *nodes, const json_t *graph, by_error *error);
/* Computes a batch, and appends the results to its jobs. */
by_status by__worker_graphs_compute(by__worker_graphs *graphs, const by__worker_batch_place *places,
                                    size_t count, by_error *error);

#endif
