/* What the state of a broker (messages.h) says of a model and of its versions, for who shifts
 * requests between them. */
#ifndef BY_SERVE_MODEL_STATE_H
#define BY_SERVE_MODEL_STATE_H

#include "serve/deploy/rollout.h"
#include "serve/serve.h"

/* The object of a model in "models"; NULL: there is none. */
const json_t *by__state_model(const json_t *state, const char *name);
/* The object of a version of a model; NULL: there is none. model may be NULL. */
const json_t *by__state_version(const json_t *model, const char *version);
/* Totals of a version; all 0 where there is none. */
void by__state_load(by__version_load *out, const json_t *model, const char *version);
/* The version that gets most requests, or else has most workers, but for `except`; NULL: there is
 * none. */
const char *by__state_serving(const json_t *model, const char *except);
/* A text of the model's "deployment" (messages.h); "" where there is none. */
const char *by__state_deployment(const json_t *model, const char *key);
/* Adds a version to "versions" of a message "route". */
void by__route_add(json_t *versions, const char *version, double share, bool shadow);

#endif
