/* The golden request: a fixed prompt that every worker of a new version answers greedily before
 * clients reach it. Its log-probabilities must be finite, all workers must give one answer, and it
 * must be the one that the version gave when it was first used on this machine. */
#ifndef BY_SERVE_GOLDEN_H
#define BY_SERVE_GOLDEN_H

#include "serve/deploy/rollout.h"
#include "serve/link/broker_link.h"
#include "serve/observe/log.h"

typedef struct by__golden_run {
    bool sent;
    size_t asked; /* one request for each worker */
    size_t answered;
    json_t *answers; /* by id: {"text", "logprobs"} */
    by__golden result;
    char reason[160];
} by__golden_run;

/* Who is asked, and by what. */
typedef struct by__golden_target {
    by__broker_link *link;
    const char *model;
    const char *version;
    const char *known; /* file of the answers of earlier uses; NULL: none are kept */
    const by__log *log;
} by__golden_target;

/* Asks the version, if it has not been asked. */
void by__golden_ask(by__golden_run *run, const by__golden_target *target, size_t workers);
/* A list of events (event_list.h) of the broker, of these requests or of others. */
void by__golden_events(by__golden_run *run, const by__golden_target *target, const char *list,
                       size_t length);
void by__golden_reset(by__golden_run *run);

#endif
