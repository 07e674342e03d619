/* Reports which versions serve a model through Redis, and its deployments, from what gateways,
 * workers and the deciding supervisor have stored in Redis. */
#include <stdio.h>
#include <string.h>

#include "serve/rollout/model_state.h"
#include "serve/rollout/rollout_client.h"

/* Seconds over which times are measured, and to wait for the broker to name the model. */
#define WINDOW   1.0
#define PATIENCE 5.0

typedef struct status_query {
    by__rollout_client client; /* first member */
    by_deploy_status *out;
    const char *model;
    by__telemetry_histogram before; /* histogram of times to first text at `since` */
    double began;
    double since; /* 0: the model has not been named yet */
} status_query;

static by__telemetry_histogram times_of(const json_t *model)
{
    by__telemetry_histogram first = {0};
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(model, "versions"), i, v)
    {
        by__telemetry_histogram_read(&first, json_object_get(v, "first"));
    }
    return first;
}

static void read_status(const status_query *l, const json_t *model)
{
    by_deploy_status *out = l->out;
    const char *coming = by__rollout_state_deployment(model, "coming");
    const char *serving = by__rollout_state_serving(model, coming);
    const json_t *new = by__rollout_state_version(model, coming);
    by__telemetry_histogram first = times_of(model);
    by__rollout_version_load load;
    /* Others start the workers: the number wanted is the number present. */
    size_t workers = (size_t)by__protocol_get_integer(
        serving == NULL ? NULL : by__rollout_state_version(model, serving), "workers");
    by__telemetry_histogram_subtract(&first, &l->before);
    by__rollout_state_load(&load, model, coming);
    *out =
        (by_deploy_status){.workers = workers,
                           .needed = workers,
                           .ready = workers,
                           .least = workers,
                           .most = workers,
                           .waiting = (size_t)by__protocol_get_integer(model, "queue"),
                           .p95 = by__telemetry_histogram_quantile(&first, 0.95),
                           .share = new == NULL ? 0.0 : by__protocol_get_number(new, "share", 0.0),
                           .coming_ready = (size_t)by__protocol_get_integer(new, "workers"),
                           .same = load.same,
                           .different = load.different,
                           .failed = load.failed};
    bool left = coming[0] != '\0' && !json_is_true(json_object_get(model, "decided"));
    by__protocol_copy_text(out->model, sizeof out->model, l->model);
    by__protocol_copy_text(out->version, sizeof out->version, serving);
    by__protocol_copy_text(out->previous, sizeof out->previous,
                           by__rollout_state_deployment(model, "previous"));
    by__protocol_copy_text(out->coming, sizeof out->coming, coming);
    by__protocol_copy_text(out->phase, sizeof out->phase,
                           left ? "abandoned" : by__rollout_state_deployment(model, "phase"));
    by__protocol_copy_text(out->last, sizeof out->last,
                           by__rollout_state_deployment(model, "last"));
    by__protocol_copy_text(out->outcome, sizeof out->outcome,
                           by__rollout_state_deployment(model, "outcome"));
    by__protocol_copy_text(out->reason, sizeof out->reason,
                           by__rollout_state_deployment(model, "reason"));
}

static void on_message(void *user, json_t *message)
{
    status_query *l = user;
    const char *kind = by__protocol_get_text(message, "t");
    if (kind == NULL || strcmp(kind, "state") != 0) {
        return;
    }
    const json_t *model = by__rollout_state_model(message, l->model);
    double now = by__now();
    if (model == NULL && now - l->began > PATIENCE) {
        char text[320];
        (void)snprintf(text, sizeof text, "the broker knows no model %s", l->model);
        by__rollout_client_fail(&l->client, BY_ESTATE, text);
    } else if (model != NULL && l->since == 0.0) {
        l->since = now;
        l->before = times_of(model);
    } else if (model != NULL && now - l->since > WINDOW) {
        read_status(l, model);
        by__rollout_client_end(&l->client);
    }
}

static void on_lost(void *user, const char *why)
{
    by__rollout_client_fail(user, BY_EIO, why);
}

static void on_stop(void *user, bool again)
{
    BY_UNUSED(again);
    by__rollout_client_fail(user, BY_ESTOPPED, "stopped");
}

by_status by_deploy_shared_status(by_deploy_status *out, const char *broker, const char *model,
                                  by_error *error)
{
    status_query l = {.out = out, .model = model, .began = by__now()};
    const by__link_broker_handler handler = {.message = on_message, .lost = on_lost};
    return by__rollout_client_run(&l.client, broker, &handler, on_stop, error);
}
