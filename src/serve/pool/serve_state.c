/* The supervisor's use of the broker's state: worker counts and load, and the decisions on the
 * number of workers and on the versions that get requests. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/deploy/interface.h"
#include "serve/deploy/model_state.h"
#include "serve/pool/serve_processes.h"

/* Seconds after which a worker is killed that the broker knew but no longer lists: it is silent, or
 * makes no step. */
#define FORGOTTEN 2.0
/* Seconds after which the broker regards this process as the one that decides. */
#define TAKEOVER 3.0
/* Seconds between a version's last request and the end of its workers, so that requests in flight
 * reach them. */
#define LINGER 0.5

/* ---- reading a state ---- */

static by__totals totals_of(const json_t *model)
{
    by__totals t = {.now = by__now(),
                    .arrived = (uint64_t)by__get_integer(model, "arrived"),
                    .refused = (uint64_t)by__get_integer(model, "refused")};
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(model, "versions"), i, v)
    {
        t.ended += (uint64_t)by__get_integer(v, "requests");
        by__histogram_read(&t.first, json_object_get(v, "first"));
    }
    return t;
}

/* Measures the load over the window, which restarts when totals fall: after a restart of the
 * broker, or when a version is forgotten. */
static void measure(by__supervisor *s, const json_t *model, const json_t *message)
{
    by__totals t = totals_of(model);
    const by__totals *newest = &s->window[(s->window_count + BY__WINDOW - 1) % BY__WINDOW];
    size_t i;
    json_t *w;
    if (s->window_count > 0 && (t.arrived < newest->arrived || t.ended < newest->ended ||
                                t.first.count < newest->first.count)) {
        s->window_count = 0;
    }
    const by__totals *oldest =
        &s->window[s->window_count < BY__WINDOW ? 0 : s->window_count % BY__WINDOW];
    by__totals from = s->window_count == 0 ? t : *oldest;
    by__histogram first = t.first;
    by__histogram_subtract(&first, &from.first);
    s->window[s->window_count++ % BY__WINDOW] = t;
    by__autoscale_input *in = &s->load;
    *in = (by__autoscale_input){.now = t.now,
                                .window = t.now - from.now,
                                .arrived = t.arrived - from.arrived,
                                .refused = t.refused - from.refused,
                                .ended = t.ended - from.ended,
                                .p95 = by__histogram_quantile(&first, 0.95),
                                .waiting = (size_t)by__get_integer(model, "queue"),
                                .oldest = by__get_number(model, "oldest", 0.0)};
    json_array_foreach(json_object_get(message, "workers"), i, w)
    {
        const char *of = by__get_text(w, "model");
        bool own = of != NULL && strcmp(of, s->model) == 0;
        in->running += own ? (size_t)by__get_integer(w, "requests") : 0;
    }
    for (const by__group *g = s->groups; g != NULL; g = g->next) {
        bool counts = g->retire == 0.0 && g->other == NULL;
        in->ready += counts ? by__group_ready(s, g) : 0;
        in->started += counts ? by__group_running(s, g) : 0;
    }
}

static void look_at_workers(by__supervisor *s, const json_t *message)
{
    double now = by__now();
    char own[65] = "";
    size_t i;
    json_t *w;
    (void)gethostname(own, sizeof own - 1);
    json_array_foreach(json_object_get(message, "workers"), i, w)
    {
        const char *host = by__get_text(w, "host");
        int64_t pid = by__get_integer(w, "pid");
        if (host != NULL && strcmp(host, own) != 0) {
            continue;
        }
        for (by__child *c = s->workers; c != NULL; c = c->next) {
            if (c->running && c->process.pid == pid) {
                c->known = now;
                c->group->proven = true;
            }
        }
    }
    for (by__child *c = s->workers; c != NULL; c = c->next) {
        if (c->running && c->known > 0.0 && now - c->known > FORGOTTEN) {
            by__log_event(&s->log, "worker_killed", "{sI}", "pid", (json_int_t)c->process.pid);
            c->known = 0.0;
            c->killed = true;
            (void)uv_process_kill(&c->process, SIGKILL);
        }
    }
}

/* ---- which versions get requests ---- */

/* The "deployment" for Redis; NULL: nothing was deployed, and a deployment of another supervisor
 * stays recorded. */
static json_t *deployment_of(const by__supervisor *s)
{
    bool coming = s->coming != NULL;
    if (!coming && s->last[0] == '\0') {
        return NULL;
    }
    return json_pack("{ss ss ss ss ss ss}", "coming", coming ? s->coming->version.name : "",
                     "phase", coming ? by__rollout_name(s->rollout.phase) : "", "previous",
                     s->previous.path == NULL ? "" : s->previous.name, "last", s->last, "outcome",
                     s->outcome, "reason", s->reason);
}

static void send_route(by__supervisor *s)
{
    json_t *versions = json_array();
    double share = s->coming == NULL ? 0.0 : s->rollout.share;
    by__route_add(versions, s->current->version.name, 1.0 - share, false);
    if (s->coming != NULL) {
        by__route_add(versions, s->coming->version.name, share, s->rollout.mirrors);
    }
    json_t *route =
        json_pack("{ss ss so sb sO? so? sO?}", "t", "route", "model", s->model, "versions",
                  versions, "elastic", (int)(s->options.workers == 0), "info", s->info,
                  "deployment", deployment_of(s), "restarts", by__group_restarts(s, s->current));
    char *text = json_dumps(route, JSON_COMPACT | JSON_SORT_KEYS);
    bool news = text != NULL && (s->routed == NULL || strcmp(text, s->routed) != 0);
    if (news && by__broker_link_send(&s->link, route)) {
        free(s->routed);
        s->routed = text;
        text = NULL;
    }
    free(text);
    json_decref(route);
}

/* Sends the single version of every other model. */
static void send_others(by__supervisor *s)
{
    for (by__group *g = s->groups; g != NULL; g = g->next) {
        if (g->other != NULL && !g->routed) {
            json_t *versions = json_array();
            by__route_add(versions, g->version.name, 1.0, false);
            json_t *route =
                json_pack("{ss ss so sb sO?}", "t", "route", "model", g->other->name, "versions",
                          versions, "elastic", 0, "restarts", by__group_restarts(s, g));
            g->routed = by__broker_link_send(&s->link, route);
            json_decref(route);
        }
    }
}

/* ---- rollouts ---- */

by_status by__supervisor_deploy(by__supervisor *s, const by__served_version *version,
                                const by__rollout_options *options, bool back, by_error *error)
{
    if (s->coming != NULL) {
        return by_error_set(error, BY_ESTATE,
                            "version %s is being deployed (%s): wait for it, or end it with "
                            "`banyan deploy --rollback`",
                            s->coming->version.name, by__rollout_name(s->rollout.phase));
    }
    if (strcmp(version->name, s->current->version.name) == 0) {
        /* Of damaged checkpoints the newest one is named. */
        const char *why = version->skipped == NULL ? "" : version->skipped;
        return by_error_set(error, BY_ESTATE, "version %s is already live%s%.*s", version->name,
                            why[0] == '\0' ? "" : "; a newer checkpoint was skipped: ",
                            (int)strcspn(why, "\n"), why);
    }
    BY_TRY(by__group_add(s, &s->coming, version, NULL, error));
    by__rollout_begin(&s->rollout, options, by__now());
    by__golden_reset(&s->golden);
    s->rolls_back = back;
    by__log_event(&s->log, "deploy", "{ss ss ss*}", "version", version->name, "path", version->path,
                  "skipped", version->skipped);
    by__supervisor_reconcile(s);
    return BY_OK;
}

static void retire(by__group *group)
{
    group->retire = by__now() + LINGER;
}

static void end_rollout(by__supervisor *s)
{
    bool done = s->rollout.phase == BY__ROLLOUT_DONE;
    by__group *group = s->coming;
    s->coming = NULL;
    memcpy(s->last, group->version.name, sizeof s->last);
    (void)snprintf(s->outcome, sizeof s->outcome, "%s", done ? "deployed" : "rolled_back");
    (void)snprintf(s->reason, sizeof s->reason, "%s", s->rollout.reason);
    by__log_event(&s->log, done ? "deployed" : "rolled_back", "{ss ss}", "version",
                  group->version.name, "reason", s->rollout.reason);
    if (done) {
        by_error ignored = {0};
        by__served_version_free(&s->previous);
        (void)by__served_version_copy(&s->previous, &s->current->version, &ignored);
        group->wanted = s->current->wanted;
        retire(s->current);
        s->current = group;
    } else {
        retire(group);
    }
    by__golden_reset(&s->golden);
}

static by__golden_target golden_of(by__supervisor *s)
{
    return (by__golden_target){&s->link, s->model, s->coming->version.name, s->options.golden,
                               &s->log};
}

/* Returns true if this process decides which versions get requests, where others might: it has
 * claimed that when the rollout began. */
static bool decides(const by__supervisor *s, const json_t *model)
{
    const char *who = by__get_text(model, "decides");
    return who == NULL || strcmp(who, s->name) == 0 || by__now() - s->rollout.since < TAKEOVER;
}

static void tend_rollout(by__supervisor *s, const json_t *model)
{
    by__group *g = s->coming;
    if (g == NULL) {
        return;
    }
    size_t total = s->scale.wanted > 0 ? s->scale.wanted : 1;
    char why[BY__INTERFACE_REASON];
    const json_t *info = by__state_info(model, g->version.name, true);
    bool differs = by__interface_differs(why, by__state_info(model, s->current->version.name, true),
                                         by__state_info(model, g->version.name, false));
    by__state_load(&s->before, model, s->current->version.name);
    by__state_load(&s->after, model, g->version.name);
    by__rollout_input in = {.now = by__now(),
                            .total = total,
                            .ready = by__group_ready(s, g),
                            .exits = g->exits,
                            .hopeless = g->hopeless,
                            .differs = differs ? why : NULL,
                            .golden = by__golden_exists(info) ? s->golden.result : BY__GOLDEN_GOOD,
                            .golden_reason = s->golden.reason,
                            .before = s->before,
                            .after = s->after};
    by__rollout_phase phase = s->rollout.phase;
    double share = s->rollout.share;
    by__rollout_step(&s->rollout, &in);
    if (!decides(s, model)) {
        by__rollout_fail(&s->rollout, "another server or deployment controls the model's requests");
    }
    if (s->rollout.phase == BY__ROLLOUT_CHECKING && by__golden_exists(info)) {
        by__golden_target target = golden_of(s);
        by__golden_ask(&s->golden, &target, info, in.ready);
    }
    if (phase != s->rollout.phase || share != s->rollout.share) {
        by__log_event(&s->log, "deploy_phase", "{ss ss sf}", "version", g->version.name, "phase",
                      by__rollout_name(s->rollout.phase), "share", s->rollout.share);
    }
    g->wanted = by__rollout_workers(&s->rollout, total);
    if (by__rollout_ended(&s->rollout)) {
        end_rollout(s);
    }
}

static void tend_scale(by__supervisor *s)
{
    size_t before = s->scale.wanted;
    if (s->options.workers == s->options.most) {
        return;
    }
    by__autoscale_decide(&s->scale, &s->load);
    s->current->wanted = s->scale.wanted;
    if (before != s->scale.wanted) {
        by__log_event(&s->log, "scale", "{sI sI sf sI sf sf}", "from", (json_int_t)before, "to",
                      (json_int_t)s->scale.wanted, "p95", s->load.p95, "waiting",
                      (json_int_t)s->load.waiting, "arrivals",
                      s->load.window > 0.0 ? (double)s->load.arrived / s->load.window : 0.0,
                      "capacity", s->scale.capacity);
    }
}

/* ---- the link ---- */

static void on_state(by__supervisor *s, const json_t *message)
{
    const json_t *model = by__state_model(message, s->model);
    const json_t *info = json_object_get(model, "info");
    look_at_workers(s, message);
    if (json_is_object(info) && !json_equal(info, s->info)) {
        json_decref(s->info);
        s->info = json_deep_copy(info);
    }
    measure(s, model, message);
    tend_rollout(s, model);
    tend_scale(s);
    send_route(s);
    send_others(s);
    by__supervisor_reconcile(s);
}

static void on_message(void *user, json_t *message)
{
    by__supervisor *s = user;
    const char *kind = by__get_text(message, "t");
    const char *model = by__get_text(message, "model");
    if (kind != NULL && strcmp(kind, "state") == 0 && !s->ending) {
        on_state(s, message);
    } else if (kind != NULL && strcmp(kind, "rollback") == 0 && !s->ending && model != NULL &&
               strcmp(model, s->model) == 0) {
        by__control_rollback(s);
    }
}

static void on_events(void *user, const char *list, size_t length)
{
    by__supervisor *s = user;
    if (s->coming != NULL) {
        by__golden_target target = golden_of(s);
        by__golden_events(&s->golden, &target, list, length);
    }
}

static void on_greet(void *user)
{
    by__supervisor *s = user;
    json_t *hello = json_pack("{ss ss ss sI}", "t", "hello", "role", "supervisor", "name", s->name,
                              "pid", (json_int_t)getpid());
    (void)by__broker_link_send(&s->link, hello);
    json_decref(hello);
}

static void on_ready(void *user)
{
    by__supervisor *s = user;
    s->broker.proven = true;
    /* A restarted broker does not know any peer or version yet. */
    for (by__child *c = s->workers; c != NULL; c = c->next) {
        c->known = 0.0;
    }
    free(s->routed);
    s->routed = NULL;
    for (by__group *g = s->groups; g != NULL; g = g->next) {
        g->routed = false;
    }
    send_route(s);
    send_others(s);
}

static void on_lost(void *user, const char *why)
{
    BY_UNUSED(why);
    by__golden_reset(&((by__supervisor *)user)->golden);
}

static void on_refused(void *user, const char *why)
{
    by__supervisor_fail(user, why);
}

void by__supervisor_connect(by__supervisor *s)
{
    by__broker_link_handler handler = {.greet = on_greet,
                                       .ready = on_ready,
                                       .message = on_message,
                                       .events = on_events,
                                       .refused = on_refused,
                                       .lost = on_lost,
                                       .user = s};
    by__broker_link_open(&s->link, &s->loop, s->options.address, &handler);
}
