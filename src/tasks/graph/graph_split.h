/* Which nodes or graphs a task trains on, and which are held out or named by a request. */
#ifndef BY_TASKS_GRAPH_GRAPH_SPLIT_H
#define BY_TASKS_GRAPH_GRAPH_SPLIT_H

#include "data/nodes/node_set.h"
#include "tasks/tasks.h"

typedef struct by__task_graph_split {
    by__nodes_split lists;
    uint64_t *listed; /* to evaluate or to predict instead of what is held out; NULL: none */
    uint64_t listed_count;
    bool test; /* the test's are held out */
} by__task_graph_split;

void by__task_graph_split_free(by__task_graph_split *split);
/* Reads the lists of the files, of `all` examples that are called `what`; "": there is none.
 * BY_ECONFIG: one to train on is held out, too. */
by_status by__task_graph_split_read(by__nodes_split *out, const char *train, const char *valid,
                                    const char *test, uint64_t all, const char *what,
                                    by_error *error);
/* Lists what a request chooses, or all. *ids is freed with free(). BY_EARG: `name` has no such
 * example. */
by_status by__task_graph_choose(uint64_t **ids, uint64_t *count, const by_task_request *request,
                                uint64_t all, const char *what, const char *name, by_error *error);
/* What is held out, or listed. */
const uint64_t *by__task_graph_split_held_out(const by__task_graph_split *split, uint64_t *count);

#endif
