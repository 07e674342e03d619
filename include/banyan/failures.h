/* Failures of a job, and how often to save because of them. */
#ifndef BANYAN_FAILURES_H
#define BANYAN_FAILURES_H

#include "banyan/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What checkpoints and failures of a job take, in seconds. */
typedef struct by_failures {
    double save;    /* that training stands still for a checkpoint */
    double written; /* from then until it is on disk and counts, while training goes on */
    double restart; /* from a failure until steps go on, without what is computed again */
    double mean;    /* between two failures of the job; INFINITY: there are none */
} by_failures;

/* Seconds between two checkpoints, from the end of one to the begin of the next: sqrt(2 save mean)
 * (Young 1974), ... */
BY_API double by_interval_young(const by_failures *f);
/* ... the expansion of Daly 2006 (A higher order estimate of the optimum checkpoint interval for
 * restart dumps, equation 37), ... */
BY_API double by_interval_daly(const by_failures *f);
/* ... and where by_goodput is largest. All are INFINITY without failures. */
BY_API double by_interval_best(const by_failures *f);
/* The share of time that is useful with checkpoints every so many seconds and failures at random
 * (Poisson): every / (mean exp(restart / mean) (exp((every + save) / mean) - 1)), exact (Daly 2006,
 * equation 13), with failures during saves and restarts too. `written` is as much more of a
 * restart: steps up to a checkpoint that a failure keeps from the disk are lost with it. */
BY_API double by_goodput(const by_failures *f, double every);

#ifdef __cplusplus
}
#endif

#endif
