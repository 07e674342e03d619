/* The golden request, which every worker of a new version answers before clients reach it: a fixed
 * prompt, decoded greedily, or a row of which every cell is missing. The log-probabilities or
 * predictions must be finite, all workers must give the same answer, and it must equal the answer
 * that the version gave when it was first used on this machine. */
#ifndef BY_SERVE_ROLLOUT_GOLDEN_H
#define BY_SERVE_ROLLOUT_GOLDEN_H

#include "serve/link/broker_link.h"
#include "serve/rollout/rollout.h"
#include "serve/telemetry/log.h"

typedef struct by__rollout_golden_run {
    bool sent;
    size_t requested; /* number of requests sent, one for each worker */
    size_t answered;
    json_t *answers; /* by id: {"text", "logprobs"}, or {"result"} */
    by__rollout_golden result;
    char reason[160];
} by__rollout_golden_run;

/* The version under test, and how to reach it. */
typedef struct by__rollout_golden_target {
    by__link_broker *link;
    const char *model;
    const char *version;
    const char *known; /* file of the answers of earlier uses; NULL: not kept */
    const by__telemetry_log *log;
} by__rollout_golden_target;

/* Returns true if there is a golden request for models of this kind (`info`, messages.h): for all
 * but those that read images. */
bool by__rollout_golden_exists(const json_t *info);
/* Sends the golden requests to the version, which `info` describes, once. */
void by__rollout_golden_ask(by__rollout_golden_run *run, const by__rollout_golden_target *target,
                            const json_t *info, size_t workers);
/* Handles a list of events (event_list.h) of the broker; those of other requests are ignored. */
void by__rollout_golden_events(by__rollout_golden_run *run, const by__rollout_golden_target *target,
                               const char *list, size_t length);
void by__rollout_golden_reset(by__rollout_golden_run *run);

#endif
