/* How many workers a load needs: a function of measurements alone, for the supervisor and for tests
 * that simulate a load.
 *
 * What a worker can do (its capacity, requests a second) is measured while requests wait: only then
 * is the rate at which they end that of the workers. With it, the workers that a load needs are
 * known at once, and a step in load is answered by one decision instead of many small ones. Where
 * latency alone is too high, one worker is added at a time.
 *
 * Hysteresis: workers go only when the load of the whole `calm` period would leave those that stay
 * below BY__AUTOSCALE_FULL of their capacity, and never within `calm` seconds of a change. */
#ifndef BY_SERVE_AUTOSCALE_H
#define BY_SERVE_AUTOSCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The share of its capacity at which a worker is run: a queue in front of one that is busier than
 * that is long. */
#define BY__AUTOSCALE_FULL 0.8
/* The share of refused requests that is too much: they were answered later than any target. */
#define BY__AUTOSCALE_REFUSED 0.05
/* Requests of a window whose 95th percentile counts, at least. */
#define BY__AUTOSCALE_SAMPLE 8

typedef struct by__autoscale_options {
    size_t least; /* 0: none while there are no requests */
    size_t most;
    double target; /* seconds of the 95th percentile */
    double pause;  /* seconds between two increases; 0: 2 */
    double drain;  /* seconds in which what waits too long is to be done; 0: 5 */
    double calm;   /* seconds without a need before workers go; 0: 15 */
    double idle;   /* seconds without a request before the last one goes, if least is 0; 0: 60 */
} by__autoscale_options;

/* What was measured over the last `window` seconds. */
typedef struct by__autoscale_input {
    double now; /* seconds, of a clock that does not jump */
    double window;
    size_t ready;     /* workers that take requests */
    size_t started;   /* processes, with those that are not ready yet */
    uint64_t arrived; /* requests, with those that were refused */
    uint64_t refused; /* since they would have waited too long */
    uint64_t ended;
    double p95;     /* seconds from a request to its first text; 0: none came */
    size_t waiting; /* requests in the queue */
    size_t running; /* at workers */
    double oldest;  /* seconds that the first of the queue has waited */
} by__autoscale_input;

typedef struct by__autoscale {
    by__autoscale_options options;
    size_t wanted;
    double capacity; /* requests a second of one worker; 0: not measured yet */
    double changed;  /* `now` of the last change of `wanted` */
    double needed;   /* `now` when the load last needed all workers */
    double busiest;  /* requests a second since then, the most */
    double active;   /* `now` of the last request */
    size_t ready;    /* of the last input, and since when */
    double ready_since;
} by__autoscale;

void by__autoscale_begin(by__autoscale *a, const by__autoscale_options *options, size_t workers,
                         double now);
/* Takes a measurement; returns the number of workers to run, which is also a->wanted. */
size_t by__autoscale_decide(by__autoscale *a, const by__autoscale_input *in);

#endif
