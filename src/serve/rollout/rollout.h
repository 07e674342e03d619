/* rollout: which version of a model serves, and on how many workers. This file has the rollout of a
 * new version: a state machine that depends on measurements alone, run by the supervisor.
 *
 *     STARTING -> CHECKING -> (SHADOWING) -> HOLDING a share, step by step -> DONE
 *                        any of them -> FAILED: the former version keeps, or gets back, everything
 *
 * A version fails when its workers exit during their start or are not ready in time, when it
 * answers other requests than the former one, when the golden request (golden.h) has a wrong
 * answer, or when at one of its shares more of its requests fail, or they are slower, than those of
 * the former version in the same period.
 *
 * Types: by__rollout, the state; by__rollout_input, a measurement; by__rollout_version_load, the
 * totals of a version. autoscale.h has the same for the number of workers.
 *
 * Who owns what: the records belong to the caller and own nothing.
 *
 * Never put here: processes, links, clocks: measurements contain the time, so that tests can
 * simulate any load. */
#ifndef BY_SERVE_ROLLOUT_ROLLOUT_H
#define BY_SERVE_ROLLOUT_ROLLOUT_H

#include "serve/telemetry/metrics.h"

#define BY__ROLLOUT_STEPS 8
/* Most versions that roll-backs return to, one after the other. */
#define BY__FORMER_VERSIONS 8

typedef enum by__rollout_phase {
    BY__ROLLOUT_STARTING,
    BY__ROLLOUT_CHECKING,
    BY__ROLLOUT_SHADOWING,
    BY__ROLLOUT_HOLDING,
    BY__ROLLOUT_DONE,
    BY__ROLLOUT_FAILED
} by__rollout_phase;

typedef struct by__rollout_options {
    double shares[BY__ROLLOUT_STEPS]; /* shares of new requests, ascending; the last one is 1 */
    size_t share_count;
    double hold;       /* seconds at each share below 1, and of shadow traffic */
    bool shadow;       /* copies of requests are sent to it before it gets a share */
    bool force;        /* it may answer other requests than the former version */
    double start;      /* seconds for workers to become ready */
    double check;      /* seconds for the golden request */
    uint64_t requests; /* requests of the new version before it is judged */
    double errors;     /* how much its error rate may exceed the former one's */
    double slower;     /* allowed ratio of its 95th percentile to the former one's */
} by__rollout_options;

/* Totals of a version. */
typedef struct by__rollout_version_load {
    uint64_t requests;
    uint64_t errors;
    by__telemetry_histogram first;
    uint64_t same; /* copies of requests, by how their answers compared */
    uint64_t different;
    uint64_t failed;
} by__rollout_version_load;

typedef enum by__rollout_golden {
    BY__GOLDEN_PENDING,
    BY__GOLDEN_GOOD,
    BY__GOLDEN_BAD
} by__rollout_golden;

typedef struct by__rollout_input {
    double now;
    size_t total;      /* workers that all requests need */
    size_t ready;      /* workers of the new version */
    size_t exits;      /* exits of those workers since they were started */
    bool config_error; /* a worker has reported that a restart cannot help */
    const char *why;   /* what the last one said of its end; NULL or "": nothing */
    /* why it refuses requests that the former version answers (interface.h); NULL: it does not */
    const char *differs;
    by__rollout_golden golden;
    const char *golden_reason;       /* of BY__GOLDEN_BAD */
    by__rollout_version_load before; /* of the former version */
    by__rollout_version_load after;  /* of the new one */
} by__rollout_input;

typedef struct by__rollout {
    by__rollout_options options;
    by__rollout_phase phase;
    size_t step;
    double since;                    /* `now` at the beginning of the phase or share */
    double share;                    /* share of requests of the new version */
    bool mirrors;                    /* the new version gets copies of requests */
    by__rollout_version_load before; /* totals at `since` */
    by__rollout_version_load after;
    char reason[512]; /* of BY__ROLLOUT_FAILED */
} by__rollout;

/* Converts the options of a deployment, which are in their ranges. With a canary, the version gets
 * that share, then 25 %, 50 % and all. A roll-back returns to what the model answered before,
 * whatever that was. */
void by__rollout_plan(by__rollout_options *out, const by_deploy_options *options);
/* "starting", "checking", "shadow", "canary", "done", "failed". Static. */
const char *by__rollout_name(by__rollout_phase phase);
void by__rollout_begin(by__rollout *r, const by__rollout_options *options, double now);
/* Takes a measurement and updates the phase, the share and `mirrors`. */
void by__rollout_step(by__rollout *r, const by__rollout_input *in);
/* Ends the rollout: the former version is used again. */
void by__rollout_fail(by__rollout *r, const char *reason);
bool by__rollout_ended(const by__rollout *r);
/* Workers of the new version that this phase needs if all requests need `total`: at least one. */
size_t by__rollout_workers(const by__rollout *r, size_t total);

#endif
