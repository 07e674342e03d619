/* Detects ranks that are persistently slower than others with the same work.
 *
 * Ranks are compared by their own time of a step, excluding waits for others: with those, all ranks
 * take equally long. */
#ifndef BY_JOB_STRAGGLERS_H
#define BY_JOB_STRAGGLERS_H

#include "base/base.h"

/* Kinds of a rank's own time. */
typedef enum by__job_own_part {
    BY__OWN_COMPUTE = 0, /* and everything not listed below */
    BY__OWN_DATA,
    BY__OWN_SAVING,
    BY__OWN_PARTS
} by__job_own_part;

/* Seconds of a step by kind. */
typedef struct by__job_own_time {
    float part[BY__OWN_PARTS];
} by__job_own_time;

/* Means over the steps in which a rank was slow. */
typedef struct by__job_straggler {
    int rank;
    int64_t steps;
    double seconds;   /* of the rank */
    double median;    /* over the ranks with the same work */
    const char *part; /* kind with the largest loss: "computing", ... */
} by__job_straggler;

typedef struct by__job_stragglers by__job_stragglers;

/* Ranks with equal `work` are compared with each other. */
by_status by__job_stragglers_open(by__job_stragglers **out, const int *work, int ranks,
                                  by_error *error);
void by__job_stragglers_close(by__job_stragglers **stragglers);
/* Adds a step. A rank is reported when it was more than a fifth (and a millisecond) slower than the
 * median in each of the last 20 steps, and again after every further 1000. `named` has room for all
 * ranks; returns the number reported. */
int by__job_stragglers_add(by__job_stragglers *stragglers, const by__job_own_time *times,
                           by__job_straggler *named);

#endif
