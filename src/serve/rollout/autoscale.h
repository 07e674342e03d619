/* How many workers the loads of a server's models need: a function of measurements alone, for the
 * supervisor and for tests that simulate a load.
 *
 * A worker's capacity (requests a second) is measured while requests wait: only then is the rate of
 * completions that of the workers. With it, the number of workers that a load needs is known at
 * once, and a step in load is answered by one decision instead of many small ones. Where only
 * latency is too high, one worker is added at a time.
 *
 * Hysteresis: workers are removed only when the load of the whole `calm` period would leave the
 * remaining ones below BY__AUTOSCALE_FULL of their capacity, and never within `calm` seconds of a
 * change.
 *
 * Each model is decided for by its own measurements. Only where the models together need more
 * workers than the server may run do they compete: then all get the same number, except those that
 * need fewer. */
#ifndef BY_SERVE_ROLLOUT_AUTOSCALE_H
#define BY_SERVE_ROLLOUT_AUTOSCALE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Target utilisation of a worker: above it, queues grow long. */
#define BY__AUTOSCALE_FULL 0.8
/* The share of refused requests that counts as overload. */
#define BY__AUTOSCALE_REFUSED 0.05
/* Least number of requests in a window for its 95th percentile to count. */
#define BY__AUTOSCALE_SAMPLE 8

typedef struct by__rollout_autoscale_options {
    size_t least; /* least number of workers; 0: none while there are no requests */
    size_t most;
    double target; /* of the 95th percentile, in seconds */
    double pause;  /* seconds between two increases; 0: 2 */
    double drain;  /* seconds in which a backlog is to be worked off; 0: 5 */
    double calm;   /* seconds of low load before workers are removed; 0: 15 */
    /* seconds without a request before the last worker is removed, if least is 0; 0: 60 */
    double idle;
} by__rollout_autoscale_options;

/* Measurements over the last `window` seconds. */
typedef struct by__rollout_autoscale_input {
    double now; /* seconds, of a clock that does not jump */
    double window;
    size_t ready;     /* workers that accept requests */
    uint64_t arrived; /* requests, including refused ones */
    uint64_t refused; /* requests refused because they would have waited too long */
    uint64_t ended;
    double p95;     /* seconds from a request to its first text; 0: no sample */
    size_t waiting; /* requests in the queue */
    size_t running; /* requests at workers */
    double oldest;  /* seconds that the oldest queued request has waited */
} by__rollout_autoscale_input;

typedef struct by__rollout_autoscale {
    by__rollout_autoscale_options options;
    size_t needed;   /* workers that the load needs, from `least` to `most` */
    size_t wanted;   /* workers to run: `needed`, or fewer if the server's total is too small */
    double capacity; /* requests a second of one worker; 0: not measured yet */
    double changed;  /* `now` of the last change of `wanted` */
    double used;     /* `now` when the load last needed all workers */
    double busiest;  /* most requests a second since then */
    double active;   /* `now` of the last request */
    size_t ready;    /* `ready` of the last input, and since when it has been so */
    double ready_since;
} by__rollout_autoscale;

void by__rollout_autoscale_begin(by__rollout_autoscale *a,
                                 const by__rollout_autoscale_options *options, size_t workers,
                                 double now);
/* Takes a measurement of one model and sets `needed`. */
void by__rollout_autoscale_decide(by__rollout_autoscale *a, const by__rollout_autoscale_input *in);
/* Sets `wanted` of a server's models from what they need. `total`: maximum of their sum, at least
 * the sum of `least`; 0: no limit. */
void by__rollout_autoscale_divide(by__rollout_autoscale *all, size_t count, size_t total,
                                  double now);

#endif
