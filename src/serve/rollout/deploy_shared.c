/* Deployment when workers of both versions are already running, started by other means on any host:
 * shifts a model's requests according to the broker's counts, as a supervisor does
 * (serve_state.c). */
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/deploy_options.h"
#include "serve/rollout/golden.h"
#include "serve/rollout/interface.h"
#include "serve/rollout/model_state.h"
#include "serve/rollout/rollout_client.h"

/* Seconds to wait for the broker to name the model, and to accept a decision. */
#define PATIENCE 15.0
/* Seconds after which the broker regards this process as the one that decides. */
#define TAKEOVER_SECONDS 3.0

typedef struct shared_deploy {
    by__rollout_client client; /* first member */
    const by_shared_deploy_options *options;
    by__telemetry_log log;
    by__rollout_golden_run golden;
    by__rollout rollout;
    char version[65];    /* the version to deploy; "": not known yet, of a roll-back */
    char former[65];     /* the version that serves; "": not known yet */
    json_t *earlier;     /* the "deployment" at the beginning */
    char last_phase[64]; /* last phase that was reported */
    double since;        /* by__now at the beginning, and at the end of the rollout */
    bool roll_back_sent; /* the deciding process was asked to roll back */
    bool begun;          /* and has started */
    bool ended;
} shared_deploy;

static void report(shared_deploy *s, const char *version, const char *phase, double share)
{
    char line[64];
    (void)snprintf(line, sizeof line, "%s %.4f", phase, share);
    if (s->options->phase != NULL && strcmp(line, s->last_phase) != 0) {
        by__protocol_copy_text(s->last_phase, sizeof s->last_phase, line);
        s->options->phase(s->options->user, version, phase, share);
    }
}

static size_t workers_of(const json_t *model, const char *version)
{
    return (size_t)by__protocol_get_integer(by__rollout_state_version(model, version), "workers");
}

/* ---- start ---- */

static void fail(shared_deploy *s, const char *why)
{
    char text[400];
    (void)snprintf(text, sizeof text, "%s%sof model %s: %s", s->version,
                   s->version[0] == '\0' ? "" : " ", s->options->model, why);
    by__rollout_client_fail(&s->client, BY_ESTATE, text);
}

/* Workers may still come. */
static void await_workers(shared_deploy *s)
{
    if (by__now() - s->since > PATIENCE) {
        fail(s, "the broker knows no worker of the model");
    }
}

/* For a roll-back: finds the process that does it, and the version. Returns false if there is
 * none. */
static bool choose(shared_deploy *s, const json_t *model)
{
    const char *coming = by__rollout_state_deployment(model, "coming");
    const char *previous = by__rollout_state_deployment(model, "previous");
    const char *target = coming[0] == '\0' ? previous : by__rollout_state_serving(model, coming);
    if (target == NULL || target[0] == '\0') {
        fail(s, "there is no version before the one that serves: deploy one by its name");
        return false;
    }
    s->roll_back_sent = json_is_true(json_object_get(model, "decided"));
    by__protocol_copy_text(s->version, sizeof s->version,
                           s->roll_back_sent && coming[0] != '\0' ? coming : target);
    if (!s->roll_back_sent && workers_of(model, s->version) == 0) {
        fail(s, "no worker of it runs: start one by `banyan worker --version`");
        return false;
    }
    if (s->roll_back_sent) {
        json_t *message = json_pack("{ss ss}", "t", "rollback", "model", s->options->model);
        (void)by__link_broker_send(&s->client.link, message);
        json_decref(message);
        s->since = by__now();
        by__protocol_copy_text(s->former, sizeof s->former, s->version);
    }
    return true;
}

/* Returns false if the rollout cannot begin yet, or at all. */
static bool begin(shared_deploy *s, const json_t *model)
{
    by__rollout_options options;
    const json_t *own = by__rollout_state_version(model, s->version);
    const char *former = by__rollout_state_serving(model, s->version);
    bool serves = by__protocol_get_number(own, "share", 0.0) >= 1.0;
    bool alone = former == NULL && by__protocol_get_integer(own, "workers") > 0;
    if (serves) {
        fail(s, "it is already live");
        return false;
    }
    if (former == NULL && !alone) {
        await_workers(s);
        return false;
    }
    by__rollout_plan(&options, &s->options->how);
    by__rollout_begin(&s->rollout, &options, by__now());
    s->since = by__now();
    by__protocol_copy_text(s->former, sizeof s->former, alone ? s->version : former);
    s->earlier = json_deep_copy(json_object_get(model, "deployment"));
    if (alone) {
        /* The version already gets all requests; from now on later versions get none. */
        s->rollout.phase = BY__ROLLOUT_DONE;
    }
    return true;
}

/* Handles the first states; returns false until requests can be shifted. */
static bool await_begin(shared_deploy *s, const json_t *model)
{
    if (by__rollout_state_serving(model, "") == NULL) {
        await_workers(s);
        return false;
    }
    if (s->version[0] == '\0' && !choose(s, model)) {
        return false;
    }
    return s->roll_back_sent || begin(s, model);
}

/* ---- messages to Redis ---- */

static const char *earlier(const shared_deploy *s, const char *key)
{
    const char *text = by__protocol_get_text(s->earlier, key);
    return text == NULL ? "" : text;
}

/* What the next roll-back returns to, and the versions before it in `older` (up to
 * BY__FORMER_VERSIONS, with blanks between them): a roll-back forgets one, another deployment adds
 * the one it replaces. */
static void former_of(const shared_deploy *s, bool replaces, char previous[65], by_string *older)
{
    const char *was = earlier(s, "previous");
    const char *rest = earlier(s, "older");
    if (replaces && s->options->how.rollback) {
        size_t n = strcspn(rest, " ");
        (void)snprintf(previous, 65, "%.*s", (int)n, rest);
        by_string_format(older, "%s", rest + n + (rest[n] == ' '));
        return;
    }
    by__protocol_copy_text(previous, 65, replaces ? s->former : was);
    if (!replaces || was[0] == '\0') {
        by_string_format(older, "%s", rest);
        return;
    }
    by_string_format(older, "%s", was);
    for (int i = 2; i < BY__FORMER_VERSIONS && rest[0] != '\0'; i++) {
        size_t n = strcspn(rest, " ");
        by_string_format(older, " %.*s", (int)n, rest);
        rest += n + (rest[n] == ' ');
    }
}

static json_t *deployment_of(const shared_deploy *s)
{
    const by__rollout *r = &s->rollout;
    bool ended = by__rollout_ended(r);
    bool done = r->phase == BY__ROLLOUT_DONE;
    bool replaces = done && strcmp(s->former, s->version) != 0;
    char previous[65];
    by_string older = {0};
    former_of(s, replaces, previous, &older);
    json_t *deployment = json_pack("{ss ss ss ss ss ss ss}", "coming", ended ? "" : s->version,
                                   "phase", ended ? "" : by__rollout_name(r->phase), "previous",
                                   previous, "older", older.data == NULL ? "" : older.data, "last",
                                   ended ? s->version : earlier(s, "last"), "outcome",
                                   !ended ? earlier(s, "outcome")
                                   : done ? "deployed"
                                          : "rolled_back",
                                   "reason", ended ? r->reason : earlier(s, "reason"));
    by_string_free(&older);
    return deployment;
}

static void send_route(shared_deploy *s)
{
    const by__rollout *r = &s->rollout;
    bool done = r->phase == BY__ROLLOUT_DONE;
    json_t *versions = json_array();
    if (by__rollout_ended(r)) {
        by__rollout_route_add(versions, done ? s->version : s->former, 1.0, false);
    } else {
        by__rollout_route_add(versions, s->former, 1.0 - r->share, false);
        by__rollout_route_add(versions, s->version, r->share, r->mirrors);
    }
    json_t *route = json_pack("{ss ss so sb so?}", "t", "route", "model", s->options->model,
                              "versions", versions, "elastic", 0, "deployment", deployment_of(s));
    (void)by__link_broker_send(&s->client.link, route);
    json_decref(route);
}

/* ---- the rollout ---- */

/* A process that shifted requests, and ended prematurely, remains the one that decides for a
 * while. */
static bool decides(const shared_deploy *s, const json_t *model)
{
    const char *who = by__protocol_get_text(model, "decides");
    double patience = json_is_true(json_object_get(model, "decided")) ? TAKEOVER_SECONDS : PATIENCE;
    return (who != NULL && strcmp(who, s->client.name) == 0) || by__now() - s->since < patience;
}

static by__rollout_golden_target golden_of(shared_deploy *s)
{
    return (by__rollout_golden_target){&s->client.link, s->options->model, s->version, NULL,
                                       &s->log};
}

static void step(shared_deploy *s, const json_t *model)
{
    by__rollout *r = &s->rollout;
    char why[BY__INTERFACE_REASON];
    const json_t *info = by__rollout_state_info(model, s->version, true);
    bool differs =
        by__rollout_interface_differs(why, by__rollout_state_info(model, s->former, true),
                                      by__rollout_state_info(model, s->version, false));
    size_t total = workers_of(model, s->former);
    by__rollout_input in = {.now = by__now(),
                            .total = total > 0 ? total : 1,
                            .ready = workers_of(model, s->version),
                            .differs = differs ? why : NULL,
                            .golden = by__rollout_golden_exists(info) ? s->golden.result
                                                                      : BY__GOLDEN_GOOD,
                            .golden_reason = s->golden.reason};
    by__rollout_phase phase = r->phase;
    double share = r->share;
    by__rollout_state_load(&in.before, model, s->former);
    by__rollout_state_load(&in.after, model, s->version);
    by__rollout_step(r, &in);
    if (!decides(s, model)) {
        by__rollout_fail(r, "another server or deployment controls the model's requests");
    }
    if (r->phase == BY__ROLLOUT_CHECKING && by__rollout_golden_exists(info)) {
        by__rollout_golden_target target = golden_of(s);
        by__rollout_golden_ask(&s->golden, &target, info, in.ready);
    }
    if (phase != r->phase || share != r->share) {
        report(s, s->version, by__rollout_name(r->phase), r->share);
    }
}

/* Ends once the broker has accepted the last route, or another process decides. */
static void await_end(shared_deploy *s, const json_t *model)
{
    const char *last = s->rollout.phase == BY__ROLLOUT_DONE ? s->version : s->former;
    bool taken =
        by__protocol_get_number(by__rollout_state_version(model, last), "share", 0.0) >= 1.0;
    if (taken || by__now() - s->since > PATIENCE) {
        by__rollout_client_end(&s->client);
    }
}

/* Follows a roll-back done by another process until it has ended. */
static void follow(shared_deploy *s, const json_t *model)
{
    const char *coming = by__rollout_state_deployment(model, "coming");
    s->begun = s->begun || coming[0] != '\0';
    if (!json_is_true(json_object_get(model, "decided"))) {
        fail(s, "the process that shifts its requests has ended: ask again");
    } else if (coming[0] != '\0') {
        report(s, coming, by__rollout_state_deployment(model, "phase"),
               by__protocol_get_number(by__rollout_state_version(model, coming), "share", 0.0));
    } else if (s->begun) {
        const char *outcome = by__rollout_state_deployment(model, "outcome");
        if (strcmp(outcome, "deployed") == 0) {
            s->rollout.phase = BY__ROLLOUT_DONE;
        } else {
            by__rollout_fail(&s->rollout, by__rollout_state_deployment(model, "reason"));
        }
        by__rollout_client_end(&s->client);
    } else if (by__now() - s->since > PATIENCE) {
        fail(s, "the server that decides has not rolled it back");
    }
}

static void on_state(shared_deploy *s, const json_t *message)
{
    const json_t *model = by__rollout_state_model(message, s->options->model);
    if (s->client.failure.status != BY_OK || (s->former[0] == '\0' && !await_begin(s, model))) {
        return;
    }
    if (s->roll_back_sent) {
        follow(s, model);
    } else if (!s->ended) {
        step(s, model);
        s->ended = by__rollout_ended(&s->rollout);
        s->since = s->ended ? by__now() : s->since;
        send_route(s);
    } else {
        await_end(s, model);
    }
}

static void on_message(void *user, json_t *message)
{
    shared_deploy *s = user;
    const char *kind = by__protocol_get_text(message, "t");
    if (kind != NULL && strcmp(kind, "state") == 0) {
        on_state(s, message);
    } else if (kind != NULL && strcmp(kind, "rollback") == 0 && s->former[0] != '\0' && !s->ended) {
        by__rollout_fail(&s->rollout, "it was asked for");
    }
}

static void on_events(void *user, const char *list, size_t length)
{
    shared_deploy *s = user;
    by__rollout_golden_target target = golden_of(s);
    by__rollout_golden_events(&s->golden, &target, list, length);
}

/* A broker that was never reached is probably misspelled; a lost one is waited for. */
static void on_lost(void *user, const char *why)
{
    shared_deploy *s = user;
    by__rollout_golden_reset(&s->golden);
    if (s->former[0] == '\0') {
        by__rollout_client_fail(&s->client, BY_EIO, why);
    }
}

static void on_stop(void *user, bool again)
{
    shared_deploy *s = user;
    if (again || s->former[0] == '\0' || s->roll_back_sent) {
        by__rollout_client_fail(&s->client, BY_ESTOPPED, "stopped");
    } else if (!s->ended) {
        by__rollout_fail(&s->rollout, "it was stopped");
    }
}

by_status by_deploy_shared(const by_shared_deploy_options *options, by_error *error)
{
    shared_deploy s = {.options = options, .since = by__now()};
    const by__link_broker_handler handler = {
        .message = on_message, .events = on_events, .lost = on_lost};
    bool rollback = options->how.rollback;
    BY_TRY(by__protocol_deploy_check(&options->how, error));
    if (!rollback && !by__serve_id_valid(options->version)) {
        return by_error_set(error, BY_EARG,
                            "version '%s' does not exist: /metrics lists the running ones",
                            options->version);
    }
    by__protocol_copy_text(s.version, sizeof s.version, rollback ? "" : options->version);
    by_status status = by__rollout_client_run(&s.client, options->broker, &handler, on_stop, error);
    if (status == BY_OK && s.rollout.phase != BY__ROLLOUT_DONE) {
        status =
            by_error_set(error, BY_ESTATE, "%s was rolled back: %s", s.version, s.rollout.reason);
    }
    by__rollout_golden_reset(&s.golden);
    json_decref(s.earlier);
    return status;
}
