/* Ranks that are slower than others with the same work, step after step.
 *
 * What is compared is a rank's own time of a step, without what it stood still for others: with
 * that, all ranks take equally long. */
#ifndef BY_TRAIN_STRAGGLERS_H
#define BY_TRAIN_STRAGGLERS_H

#include "base/base.h"

/* What a rank does of its own. */
typedef enum by__own_part {
    BY__OWN_COMPUTE = 0, /* and all else that is not below */
    BY__OWN_DATA,
    BY__OWN_SAVING,
    BY__OWN_PARTS
} by__own_part;

/* Seconds of a step. */
typedef struct by__own_time {
    float part[BY__OWN_PARTS];
} by__own_time;

/* Means of the steps in which a rank was slow. */
typedef struct by__straggler {
    int rank;
    int64_t steps;
    double seconds;   /* its own */
    double median;    /* of the ranks with the same work */
    const char *part; /* in which it loses most: "computing", ... */
} by__straggler;

typedef struct by__stragglers by__stragglers;

/* Ranks with equal `work` are compared with each other. */
by_status by__stragglers_open(by__stragglers **out, const int *work, int ranks, by_error *error);
void by__stragglers_close(by__stragglers **stragglers);
/* Takes in a step. A rank is named when it was more than a fifth (and a millisecond) slower than
 * the median in each of the last 20 steps, and again after each 1000 of them. `named` has room for
 * all ranks; returns how many there are in it. */
int by__stragglers_add(by__stragglers *stragglers, const by__own_time *times, by__straggler *named);

#endif
