/* Features of nodes that are divided among ranks: each rank reads the rows of its own nodes alone,
 * and gets those of the others that its batches have by exchanges. */
#ifndef BY_TASKS_GRAPH_FEATURE_PARTS_H
#define BY_TASKS_GRAPH_FEATURE_PARTS_H

#include "data/nodes/node_set.h"
#include "tasks/graph/node_samples.h"

typedef struct by__task_parts by__task_parts;

/* Divides the features of a set among the ranks of a request to train on, if the keys say so; *out
 * is NULL if all stay on this rank. From then on, samples have the numbers of their nodes in the
 * place of features (set->partitioned). set must outlive it. BY_ECONFIG: features cannot be
 * divided, since the graph is not packed, or the model reads all of it (`whole`). */
by_status by__task_parts_open(by__task_parts **out, const by__task_fan_keys *keys,
                              by__nodes_set *set, bool whole, const by_task_request *request,
                              by_error *error);
void by__task_parts_close(by__task_parts **parts);
/* Adds the bytes of the exchange, and of the numbers of nodes in the batches that loaders of a
 * config hold, to *bytes, in the place of those that an earlier call added. parts may be NULL. */
by_status by__task_parts_count(by__task_parts *parts, uint64_t *bytes, const by_config *config,
                               by_error *error);
/* Collective: writes "nodes.x" of a batch (by_task.fetch). parts may be NULL. */
by_status by__task_parts_fetch(by__task_parts *parts, const by_batch *batch, by_error *error);

#endif
