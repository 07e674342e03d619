/* The golden request: a fixed prompt that every worker of a new version answers greedily before
 * clients reach it. Its log-probabilities must be finite, all workers must give the same answer,
 * and it must equal the answer that the version gave when it was first used on this machine. */
#ifndef BY_SERVE_GOLDEN_H
#define BY_SERVE_GOLDEN_H

#include "serve/deploy/rollout.h"
#include "serve/link/broker_link.h"
#include "serve/observe/log.h"

typedef struct by__golden_run {
    bool sent;
    size_t asked; /* number of requests sent, one for each worker */
    size_t answered;
    json_t *answers; /* by id: {"text", "logprobs"} */
    by__golden result;
    char reason[160];
} by__golden_run;

/* The version under test, and how to reach it. */
typedef struct by__golden_target {
    by__broker_link *link;
    const char *model;
    const char *version;
    const char *known; /* file of the answers of earlier uses; NULL: not kept */
    const by__log *log;
} by__golden_target;

/* Sends the golden requests to the version, once. */
void by__golden_ask(by__golden_run *run, const by__golden_target *target, size_t workers);
/* Handles a list of events (event_list.h) of the broker; those of other requests are ignored. */
void by__golden_events(by__golden_run *run, const by__golden_target *target, const char *list,
                       size_t length);
void by__golden_reset(by__golden_run *run);

#endif
