/* Predictions of links in a worker, for worker_predict.c: vectors of all nodes of the model's graph
 * are computed when the worker starts, and a request is scored from them. */
#ifndef BY_SERVE_WORKER_WORKER_LINKS_H
#define BY_SERVE_WORKER_WORKER_LINKS_H

#include "serve/worker/worker.h"

typedef struct by__worker_links by__worker_links;

/* Computes the vectors of all nodes of the model's graph (task.kind links). */
by_status by__worker_links_open(by__worker_links **out, const by_pretrained *pretrained,
                                by_error *error);
void by__worker_links_close(by__worker_links **links);
/* Its part of the entry in /v1/models: nodes of the graph. */
json_t *by__worker_links_info(const by__worker_links *links);
/* Fills a job from "pairs" of a request: a list of lists of two numbers of nodes. */
by_status by__worker_links_prepare(const by__worker_links *links, by__worker_job *job,
                                   const json_t *pairs, by_error *error);
/* Computes a batch, and appends the results to its jobs. */
by_status by__worker_links_compute(const by__worker_links *links,
                                   const by__worker_batch_place *places, size_t count,
                                   by_error *error);

#endif
