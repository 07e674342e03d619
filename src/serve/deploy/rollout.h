/* How a new version of a model comes into use: a function of measurements, for the supervisor.
 *
 *     STARTING -> CHECKING -> (SHADOWING) -> HOLDING a share, step by step -> DONE
 *                        any of them -> FAILED: the former version keeps, or gets back, everything
 *
 * A version fails when its workers end while they start, or do not become ready in time, when the
 * golden request has a wrong answer, and when at one of its shares more of its requests fail, or
 * they take longer, than those of the former version in the same time. */
#ifndef BY_SERVE_ROLLOUT_H
#define BY_SERVE_ROLLOUT_H

#include "serve/observe/metrics.h"

#define BY__ROLLOUT_STEPS 8

typedef enum by__rollout_phase {
    BY__ROLLOUT_STARTING,
    BY__ROLLOUT_CHECKING,
    BY__ROLLOUT_SHADOWING,
    BY__ROLLOUT_HOLDING,
    BY__ROLLOUT_DONE,
    BY__ROLLOUT_FAILED
} by__rollout_phase;

typedef struct by__rollout_options {
    double shares[BY__ROLLOUT_STEPS]; /* of new requests, ascending, the last one is 1 */
    size_t share_count;
    double hold;       /* seconds of each share below 1, and of shadow traffic; 0: 30 */
    bool shadow;       /* copies of requests before any share */
    double start;      /* seconds that workers have to be ready; 0: 300 */
    double check;      /* seconds for the golden request; 0: 60 */
    uint64_t requests; /* of the new version, before which it is not judged; 0: 20 */
    double errors;     /* that its error rate may be above the former one's; 0: 0.02 */
    double slower;     /* times the former 95th percentile that its own may be; 0: 1.5 */
} by__rollout_options;

/* Totals of a version. */
typedef struct by__version_load {
    uint64_t requests;
    uint64_t errors;
    by__histogram first;
    uint64_t same; /* copies of requests, by what their answers were */
    uint64_t different;
    uint64_t failed;
} by__version_load;

typedef enum by__golden { BY__GOLDEN_PENDING, BY__GOLDEN_GOOD, BY__GOLDEN_BAD } by__golden;

typedef struct by__rollout_input {
    double now;
    size_t total;  /* workers that all requests need */
    size_t ready;  /* workers of the new version */
    size_t exits;  /* of them, since they were started */
    bool hopeless; /* one has said that a restart is no help */
    by__golden golden;
    const char *golden_reason; /* of BY__GOLDEN_BAD */
    by__version_load before;   /* of the former version */
    by__version_load after;    /* of the new one */
} by__rollout_input;

typedef struct by__rollout {
    by__rollout_options options;
    by__rollout_phase phase;
    size_t step;
    double since;            /* `now` at the beginning of the phase, or of the share */
    double share;            /* that the new version gets */
    bool mirrors;            /* it gets copies */
    by__version_load before; /* at `since` */
    by__version_load after;
    char reason[160]; /* of BY__ROLLOUT_FAILED */
} by__rollout;

/* The shares of a version that gets `canary` first: that, 25 %, 50 % and all; 0: all at once. */
void by__rollout_canary(by__rollout_options *options, double canary);
/* "starting", "checking", "shadow", "canary", "done", "failed". Static. */
const char *by__rollout_name(by__rollout_phase phase);
void by__rollout_begin(by__rollout *r, const by__rollout_options *options, double now);
/* Takes a measurement; the phase, the share and `mirrors` follow. */
void by__rollout_step(by__rollout *r, const by__rollout_input *in);
/* Ends it: the former version is used again. */
void by__rollout_fail(by__rollout *r, const char *reason);
bool by__rollout_ended(const by__rollout *r);
/* Workers of the new version that this phase needs of `total`: at least one. */
size_t by__rollout_workers(const by__rollout *r, size_t total);

#endif
