/* A deployment where workers of both versions run already, started by whoever starts processes on
 * the hosts: the requests of a model are shifted by what the broker counts, as a supervisor does it
 * (serve_state.c). */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/deploy/golden.h"
#include "serve/deploy/model_state.h"
#include "serve/messages.h"
#include "serve/stop.h"

/* Seconds for the broker to name the model, and to take what was decided. */
#define PATIENCE 15.0
/* Seconds in which the broker takes this process for the one that decides. */
#define TAKEOVER 3.0

typedef struct shifting {
    const by_shared_deploy_options *options;
    by__log log;
    uv_loop_t loop;
    by__broker_link link;
    by__golden_run golden;
    by__rollout rollout;
    char name[BY__ID_BYTES]; /* of this process, for the broker */
    char former[65];         /* the version that serves; "": not known yet */
    double since;            /* by__now at the begin, and at the end of the rollout */
    bool ended;
    by_error failure;
} shifting;

static void give_up(shifting *s, by_status status, const char *why)
{
    (void)by_error_set(&s->failure, status, "%s", why);
    uv_stop(&s->loop);
}

/* The version, but for the new one, that gets most requests, and else that has most workers. */
static const char *former_of(const shifting *s, const json_t *model)
{
    const char *best = NULL;
    double most = 0.0;
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(model, "versions"), i, v)
    {
        const char *name = by__get_text(v, "version");
        double weight = 1e6 * by__get_number(v, "share", 0.0) + by__get_number(v, "workers", 0.0);
        if (name != NULL && strcmp(name, s->options->version) != 0 && strlen(name) < 65 &&
            weight > most) {
            best = name;
            most = weight;
        }
    }
    return best;
}

/* False: it cannot begin yet, or at all. */
static bool begin(shifting *s, const json_t *model)
{
    const by_shared_deploy_options *o = s->options;
    by__rollout_options options = {
        .hold = o->hold, .shadow = o->shadow, .errors = o->errors, .slower = o->slower};
    const json_t *own = by__state_version(model, o->version);
    const char *former = former_of(s, model);
    bool serves = by__get_number(own, "share", 0.0) >= 1.0;
    bool alone = former == NULL && by__get_integer(own, "workers") > 0;
    if (serves || (former == NULL && !alone)) {
        char text[400];
        (void)snprintf(text, sizeof text, "%s of model %s: %s", o->version, o->model,
                       serves ? "it serves already" : "the broker knows no worker of the model");
        if (serves || by__now() - s->since > PATIENCE) {
            give_up(s, BY_ESTATE, text);
        }
        return false;
    }
    by__rollout_canary(&options, o->canary);
    by__rollout_begin(&s->rollout, &options, by__now());
    s->since = by__now();
    memcpy(s->former, alone ? o->version : former, strlen(alone ? o->version : former) + 1);
    if (alone) {
        /* It has had the requests already; from here on versions that come later have none. */
        s->rollout.phase = BY__ROLLOUT_DONE;
    }
    return true;
}

static void say_route(shifting *s)
{
    const by__rollout *r = &s->rollout;
    const char *version = s->options->version;
    bool done = r->phase == BY__ROLLOUT_DONE;
    json_t *versions = json_array();
    if (by__rollout_ended(r)) {
        by__route_add(versions, done ? version : s->former, 1.0, false);
    } else {
        by__route_add(versions, s->former, 1.0 - r->share, false);
        by__route_add(versions, version, r->share, r->mirrors);
    }
    json_t *route = json_pack("{ss ss so sb}", "t", "route", "model", s->options->model, "versions",
                              versions, "elastic", 0);
    (void)by__broker_link_send(&s->link, route);
    json_decref(route);
}

static bool decides(const shifting *s, const json_t *model)
{
    const char *who = by__get_text(model, "decides");
    return (who != NULL && strcmp(who, s->name) == 0) || by__now() - s->since < TAKEOVER;
}

static size_t workers_of(const json_t *model, const char *version)
{
    return (size_t)by__get_integer(by__state_version(model, version), "workers");
}

static by__golden_target golden_of(shifting *s)
{
    return (by__golden_target){&s->link, s->options->model, s->options->version, NULL, &s->log};
}

static void step(shifting *s, const json_t *model)
{
    const by_shared_deploy_options *o = s->options;
    by__rollout *r = &s->rollout;
    bool text = json_object_get(json_object_get(model, "info"), "context") != NULL;
    size_t total = workers_of(model, s->former);
    by__rollout_input in = {.now = by__now(),
                            .total = total > 0 ? total : 1,
                            .ready = workers_of(model, o->version),
                            .golden = text ? s->golden.result : BY__GOLDEN_GOOD,
                            .golden_reason = s->golden.reason};
    by__rollout_phase phase = r->phase;
    double share = r->share;
    by__state_load(&in.before, model, s->former);
    by__state_load(&in.after, model, o->version);
    by__rollout_step(r, &in);
    if (!decides(s, model)) {
        by__rollout_fail(r, "another server, or deployment, shifts the model's requests");
    }
    if (r->phase == BY__ROLLOUT_CHECKING && text) {
        by__golden_target target = golden_of(s);
        by__golden_ask(&s->golden, &target, in.ready);
    }
    if ((phase != r->phase || share != r->share) && o->phase != NULL) {
        o->phase(o->user, by__rollout_name(r->phase), r->share);
    }
}

/* The broker has taken the last route, or somebody else decides. */
static void look_for_end(shifting *s, const json_t *model)
{
    const char *last = s->rollout.phase == BY__ROLLOUT_DONE ? s->options->version : s->former;
    bool taken = by__get_number(by__state_version(model, last), "share", 0.0) >= 1.0;
    if (taken || by__now() - s->since > PATIENCE) {
        uv_stop(&s->loop);
    }
}

static void on_state(shifting *s, const json_t *message)
{
    const json_t *model = by__state_model(message, s->options->model);
    if (s->failure.status != BY_OK || (s->former[0] == '\0' && !begin(s, model))) {
        return;
    }
    if (!s->ended) {
        step(s, model);
        s->ended = by__rollout_ended(&s->rollout);
        s->since = s->ended ? by__now() : s->since;
        say_route(s);
    } else {
        look_for_end(s, model);
    }
}

static void on_message(void *user, json_t *message)
{
    const char *kind = by__get_text(message, "t");
    if (kind != NULL && strcmp(kind, "state") == 0) {
        on_state(user, message);
    }
}

static void on_events(void *user, const char *list, size_t length)
{
    shifting *s = user;
    by__golden_target target = golden_of(s);
    by__golden_events(&s->golden, &target, list, length);
}

static void on_greet(void *user)
{
    shifting *s = user;
    json_t *hello = json_pack("{ss ss ss sI}", "t", "hello", "role", "supervisor", "name", s->name,
                              "pid", (json_int_t)getpid());
    (void)by__broker_link_send(&s->link, hello);
    json_decref(hello);
}

/* A broker that cannot be reached at the begin is named wrongly; later it is waited for. */
static void on_lost(void *user, const char *why)
{
    shifting *s = user;
    by__golden_reset(&s->golden);
    if (s->former[0] == '\0') {
        give_up(s, BY_EIO, why);
    }
}

static void on_refused(void *user, const char *why)
{
    give_up(user, BY_ESTATE, why);
}

static void on_stop(void *user, bool again)
{
    shifting *s = user;
    if (again || s->former[0] == '\0') {
        give_up(s, BY_ESTOPPED, "stopped");
    } else if (!s->ended) {
        by__rollout_fail(&s->rollout, "it was stopped");
    }
}

static by_status outcome(const shifting *s, by_error *error)
{
    if (s->failure.status != BY_OK) {
        *error = s->failure;
        return s->failure.status;
    }
    return s->rollout.phase == BY__ROLLOUT_DONE
               ? BY_OK
               : by_error_set(error, BY_ESTATE, "%s was rolled back: %s", s->options->version,
                              s->rollout.reason);
}

by_status by_deploy_shared(const by_shared_deploy_options *options, by_error *error)
{
    shifting s = {.options = options, .since = by__now()};
    by__stop *stop = NULL;
    if (!by__id_valid(options->version)) {
        return by_error_set(error, BY_EARG, "'%s' is no version: /metrics names those that run",
                            options->version);
    }
    BY_TRY(by__link_check(options->broker, error));
    BY_TRY(by__request_id(s.name, "deploy_", error));
    int code = uv_loop_init(&s.loop);
    if (code < 0) {
        return by__uv_error(error, "make", "an event loop", code);
    }
    by_status status = by__stop_open(&stop, &s.loop, false, on_stop, &s, error);
    if (status == BY_OK) {
        by__broker_link_handler handler = {.greet = on_greet,
                                           .message = on_message,
                                           .events = on_events,
                                           .refused = on_refused,
                                           .lost = on_lost,
                                           .user = &s};
        by__broker_link_open(&s.link, &s.loop, options->broker, &handler);
        (void)uv_run(&s.loop, UV_RUN_DEFAULT);
        by__broker_link_close(&s.link);
        status = outcome(&s, error);
    }
    by__stop_close(&stop);
    (void)uv_run(&s.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s.loop);
    by__golden_reset(&s.golden);
    return status;
}
