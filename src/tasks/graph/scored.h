/* The area under the receiver operating characteristic, from all scores. */
#ifndef BY_TASKS_GRAPH_SCORED_H
#define BY_TASKS_GRAPH_SCORED_H

#include <stdbool.h>
#include <stddef.h>

typedef struct by__task_scored {
    double score;
    bool is_positive;
} by__task_scored;

/* The probability that a positive example has a higher score than another one, where equal scores
 * count half (Hanley and McNeil 1982). Sorts `all`. NaN: there are none of a kind. */
double by__task_area(by__task_scored *all, size_t count);

#endif
