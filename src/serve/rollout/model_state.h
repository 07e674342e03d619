/* Accessors for what the state of a broker (messages.h) says of a model and its versions. Used by
 * the code that shifts requests between versions. */
#ifndef BY_SERVE_ROLLOUT_MODEL_STATE_H
#define BY_SERVE_ROLLOUT_MODEL_STATE_H

#include "serve/base/serve.h"
#include "serve/rollout/rollout.h"

/* A model's object in "models"; NULL: there is none. */
const json_t *by__rollout_state_model(const json_t *state, const char *name);
/* A version's object in a model; NULL: there is none. model may be NULL. */
const json_t *by__rollout_state_version(const json_t *model, const char *version);
/* Totals of a version; all 0 if there is no such version. */
void by__rollout_state_load(by__rollout_version_load *out, const json_t *model,
                            const char *version);
/* What the workers of a version report of it ("info"). Of one that has told nothing yet, NULL, or,
 * with `or_model`, what the model answers now. */
const json_t *by__rollout_state_info(const json_t *model, const char *version, bool or_model);
/* The version with the largest share of requests, or else the most workers, other than `except`;
 * NULL: there is none. */
const char *by__rollout_state_serving(const json_t *model, const char *except);
/* A string of the model's "deployment" (messages.h); "" if it is missing. */
const char *by__rollout_state_deployment(const json_t *model, const char *key);
/* Adds a version to "versions" of a message "route". */
void by__rollout_route_add(json_t *versions, const char *version, double share, bool shadow);

#endif
