/* The supervisor's use of the broker's state: worker counts and load, and the decisions on the
 * number of workers and on the versions that get requests. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "serve/rollout/interface.h"
#include "serve/rollout/model_state.h"
#include "serve/supervisor/serve_processes.h"

/* Seconds after which a worker is killed that the broker knew but no longer lists: it is silent, or
 * makes no step. */
#define UNLISTED_SECONDS 2.0
/* Seconds after which the broker regards this process as the one that decides. */
#define TAKEOVER_SECONDS 3.0
/* Seconds between a version's last request and the end of its workers, so that requests in flight
 * reach them. */
#define LINGER_SECONDS 0.5

/* ---- reading a state ---- */

static by__serve_totals totals_of(const json_t *model)
{
    by__serve_totals t = {.now = by__now(),
                          .arrived = (uint64_t)by__protocol_get_integer(model, "arrived"),
                          .refused = (uint64_t)by__protocol_get_integer(model, "refused")};
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(model, "versions"), i, v)
    {
        t.ended += (uint64_t)by__protocol_get_integer(v, "requests");
        by__telemetry_histogram_read(&t.first, json_object_get(v, "first"));
    }
    return t;
}

/* Measures the load over the window, which restarts when totals fall: after a restart of the
 * broker, or when a version is forgotten. */
static void measure(by__serve_model *m, const json_t *model, const json_t *message)
{
    by__serve_totals t = totals_of(model);
    const by__serve_totals *newest = &m->window[(m->window_count + BY__WINDOW - 1) % BY__WINDOW];
    size_t i;
    json_t *w;
    if (m->window_count > 0 && (t.arrived < newest->arrived || t.ended < newest->ended ||
                                t.first.count < newest->first.count)) {
        m->window_count = 0;
    }
    const by__serve_totals *oldest =
        &m->window[m->window_count < BY__WINDOW ? 0 : m->window_count % BY__WINDOW];
    by__serve_totals from = m->window_count == 0 ? t : *oldest;
    by__telemetry_histogram first = t.first;
    by__telemetry_histogram_subtract(&first, &from.first);
    m->window[m->window_count++ % BY__WINDOW] = t;
    by__rollout_autoscale_input *in = &m->load;
    *in = (by__rollout_autoscale_input){.now = t.now,
                                        .window = t.now - from.now,
                                        .arrived = t.arrived - from.arrived,
                                        .refused = t.refused - from.refused,
                                        .ended = t.ended - from.ended,
                                        .p95 = by__telemetry_histogram_quantile(&first, 0.95),
                                        .waiting = (size_t)by__protocol_get_integer(model, "queue"),
                                        .oldest = by__protocol_get_number(model, "oldest", 0.0)};
    json_array_foreach(json_object_get(message, "workers"), i, w)
    {
        const char *of = by__protocol_get_text(w, "model");
        bool own = of != NULL && strcmp(of, m->name) == 0;
        in->running += own ? (size_t)by__protocol_get_integer(w, "requests") : 0;
    }
    for (const by__serve_group *g = m->all->groups; g != NULL; g = g->next) {
        bool counts = g->retire == 0.0 && g->model == m;
        in->ready += counts ? by__serve_group_ready(m->all, g) : 0;
    }
}

static void check_workers(by__supervisor *s, const json_t *message)
{
    double now = by__now();
    char own[65] = "";
    size_t i;
    json_t *w;
    (void)gethostname(own, sizeof own - 1);
    json_array_foreach(json_object_get(message, "workers"), i, w)
    {
        const char *host = by__protocol_get_text(w, "host");
        int64_t pid = by__protocol_get_integer(w, "pid");
        if (host != NULL && strcmp(host, own) != 0) {
            continue;
        }
        for (by__serve_child *c = s->workers; c != NULL; c = c->next) {
            if (c->process.running && c->process.pid == pid) {
                c->known = now;
                c->served = true;
                c->group->was_ready = true;
            }
        }
    }
    for (by__serve_child *c = s->workers; c != NULL; c = c->next) {
        if (c->process.running && c->known > 0.0 && now - c->known > UNLISTED_SECONDS) {
            by__telemetry_log_event(&s->log, "worker_killed", "{sI}", "pid",
                                    (json_int_t)c->process.pid);
            c->known = 0.0;
            c->silent = true;
            by__process_kill(&c->process);
        }
    }
}

/* ---- which versions get requests ---- */

/* The "deployment" for Redis; NULL: nothing was deployed, and a deployment of another supervisor
 * stays recorded. */
static json_t *deployment_of(const by__serve_model *m)
{
    bool coming = m->coming != NULL;
    if (!coming && m->last[0] == '\0') {
        return NULL;
    }
    by_string older = {0};
    for (size_t i = 1; i < m->former_count; i++) {
        by_string_format(&older, "%s%s", i == 1 ? "" : " ", m->former[i].name);
    }
    json_t *deployment =
        json_pack("{ss ss ss ss ss ss ss}", "coming", coming ? m->coming->version.name : "",
                  "phase", coming ? by__rollout_name(m->rollout.phase) : "", "previous",
                  m->former_count == 0 ? "" : m->former[0].name, "older",
                  older.data == NULL ? "" : older.data, "last", m->last, "outcome", m->outcome,
                  "reason", m->reason);
    by_string_free(&older);
    return deployment;
}

static void send_route(by__serve_model *m)
{
    json_t *versions = json_array();
    double share = m->coming == NULL ? 0.0 : m->rollout.share;
    by__rollout_route_add(versions, m->current->version.name, 1.0 - share, false);
    if (m->coming != NULL) {
        by__rollout_route_add(versions, m->coming->version.name, share, m->rollout.mirrors);
    }
    json_t *route =
        json_pack("{ss ss so sb sO? so? sO?}", "t", "route", "model", m->name, "versions", versions,
                  "elastic", (int)(m->least == 0), "info", m->info, "deployment", deployment_of(m),
                  "restarts", by__serve_model_restarts(m));
    char *text = by__json_dump(route, JSON_COMPACT | JSON_SORT_KEYS);
    bool changed = text != NULL && (m->routed == NULL || strcmp(text, m->routed) != 0);
    if (changed && by__link_broker_send(&m->all->link, route)) {
        free(m->routed);
        m->routed = text;
        text = NULL;
    }
    free(text);
    json_decref(route);
}

/* ---- rollouts ---- */

by_status by__serve_model_deploy(by__serve_model *m, const by__protocol_served_version *version,
                                 const by__rollout_options *options, by_error *error)
{
    if (m->coming != NULL) {
        return by_error_set(error, BY_ESTATE,
                            "version %s is being deployed (%s): wait for it, or end it with "
                            "`banyan deploy --rollback`",
                            m->coming->version.name, by__rollout_name(m->rollout.phase));
    }
    if (strcmp(version->name, m->current->version.name) == 0) {
        /* Of damaged checkpoints the newest one is named. */
        const char *why = version->skipped == NULL ? "" : version->skipped;
        return by_error_set(error, BY_ESTATE, "version %s is already live%s%.*s", version->name,
                            why[0] == '\0' ? "" : "; a newer checkpoint was skipped: ",
                            (int)strcspn(why, "\n"), why);
    }
    BY_TRY(by__serve_group_add(m, &m->coming, version, error));
    m->returns = false;
    by__rollout_begin(&m->rollout, options, by__now());
    by__rollout_golden_reset(&m->golden);
    by__telemetry_log_event(&m->all->log, "deploy", "{ss ss ss ss*}", "model", m->name, "version",
                            version->name, "path", version->path, "skipped", version->skipped);
    by__supervisor_reconcile(m->all);
    return BY_OK;
}

static void retire(by__serve_group *group)
{
    group->retire = by__now() + LINGER_SECONDS;
}

void by__serve_model_drop_former(by__serve_model *m)
{
    by_error ignored = {0};
    by__protocol_served_version_free(&m->former[0]);
    m->former_count--;
    memmove(m->former, m->former + 1, m->former_count * sizeof *m->former);
    m->former[m->former_count] = (by__protocol_served_version){0};
    if (m->former_count > 0 && by__serve_version_lease(&m->former[0], &ignored) != BY_OK) {
        by__serve_model_drop_former(m); /* removed since: the one before is next */
    }
}

/* Puts the version that is replaced before those that roll-backs return to. */
static void keep_former(by__serve_model *m)
{
    by_error ignored = {0};
    by__protocol_served_version version = {0};
    if (by__protocol_served_version_copy(&version, &m->current->version, &ignored) != BY_OK) {
        return;
    }
    if (m->former_count == BY__FORMER_VERSIONS) {
        by__protocol_served_version_free(&m->former[--m->former_count]);
    }
    if (m->former_count > 0) {
        by__serve_version_release(&m->former[0]);
    }
    memmove(m->former + 1, m->former, m->former_count * sizeof *m->former);
    m->former[0] = version;
    m->former_count++;
}

static void end_rollout(by__serve_model *m)
{
    bool done = m->rollout.phase == BY__ROLLOUT_DONE;
    by__serve_group *group = m->coming;
    m->coming = NULL;
    memcpy(m->last, group->version.name, sizeof m->last);
    (void)snprintf(m->outcome, sizeof m->outcome, "%s", done ? "deployed" : "rolled_back");
    (void)snprintf(m->reason, sizeof m->reason, "%s", m->rollout.reason);
    by__telemetry_log_event(&m->all->log, done ? "deployed" : "rolled_back", "{ss ss ss}", "model",
                            m->name, "version", group->version.name, "reason", m->rollout.reason);
    if (done) {
        if (m->returns) {
            by__serve_model_drop_former(m);
        } else {
            keep_former(m);
        }
        group->wanted = m->current->wanted;
        retire(m->current);
        m->current = group;
        m->is_routed = false;
    } else {
        retire(group);
    }
    by__rollout_golden_reset(&m->golden);
}

static by__rollout_golden_target golden_of(by__serve_model *m)
{
    return (by__rollout_golden_target){&m->all->link, m->name, m->coming->version.name,
                                       m->all->options.golden, &m->all->log};
}

/* Returns true if this process decides which versions get requests, where others might: it has
 * claimed that when the rollout began. */
static bool decides(const by__serve_model *m, const json_t *model)
{
    const char *who = by__protocol_get_text(model, "decides");
    return who == NULL || strcmp(who, m->all->name) == 0 ||
           by__now() - m->rollout.since < TAKEOVER_SECONDS;
}

static void update_rollout(by__serve_model *m, const json_t *model)
{
    by__serve_group *g = m->coming;
    if (g == NULL) {
        return;
    }
    size_t total = m->scale->wanted > 0 ? m->scale->wanted : 1;
    char why[BY__INTERFACE_REASON];
    const json_t *info = by__rollout_state_info(model, g->version.name, true);
    bool differs = by__rollout_interface_differs(
        why, by__rollout_state_info(model, m->current->version.name, true),
        by__rollout_state_info(model, g->version.name, false));
    by__rollout_state_load(&m->before, model, m->current->version.name);
    by__rollout_state_load(&m->after, model, g->version.name);
    by__rollout_input in = {.now = by__now(),
                            .total = total,
                            .ready = by__serve_group_ready(m->all, g),
                            .exits = g->exits,
                            .config_error = g->config_error,
                            .why = g->why,
                            .differs = differs ? why : NULL,
                            .golden = by__rollout_golden_exists(info) ? m->golden.result
                                                                      : BY__GOLDEN_GOOD,
                            .golden_reason = m->golden.reason,
                            .before = m->before,
                            .after = m->after};
    by__rollout_phase phase = m->rollout.phase;
    double share = m->rollout.share;
    by__rollout_step(&m->rollout, &in);
    if (!decides(m, model)) {
        by__rollout_fail(&m->rollout, "another server or deployment controls the model's requests");
    }
    if (m->rollout.phase == BY__ROLLOUT_CHECKING && by__rollout_golden_exists(info)) {
        by__rollout_golden_target target = golden_of(m);
        by__rollout_golden_ask(&m->golden, &target, info, in.ready);
    }
    if (phase != m->rollout.phase || share != m->rollout.share) {
        by__telemetry_log_event(&m->all->log, "deploy_phase", "{ss ss ss sf}", "model", m->name,
                                "version", g->version.name, "phase",
                                by__rollout_name(m->rollout.phase), "share", m->rollout.share);
    }
    g->wanted = by__rollout_workers(&m->rollout, total);
    if (by__rollout_ended(&m->rollout)) {
        end_rollout(m);
    }
}

static void scale(by__serve_model *m)
{
    size_t before = m->current->wanted;
    size_t wanted = m->scale->wanted;
    m->current->wanted = wanted;
    if (before != wanted) {
        by__telemetry_log_event(
            &m->all->log, "scale", "{ss sI sI sI sf sI sf sf}", "model", m->name, "from",
            (json_int_t)before, "to", (json_int_t)wanted, "needed", (json_int_t)m->scale->needed,
            "p95", m->load.p95, "waiting", (json_int_t)m->load.waiting, "arrivals",
            m->load.window > 0.0 ? (double)m->load.arrived / m->load.window : 0.0, "capacity",
            m->scale->capacity);
    }
}

by__serve_model *by__supervisor_model(by__supervisor *s, const char *name)
{
    for (size_t i = 0; i < s->model_count; i++) {
        if (strcmp(s->models[i].name, name) == 0) {
            return &s->models[i];
        }
    }
    return NULL;
}

/* ---- the link ---- */

/* What the broker told this process it has told the gateways, which show it as metrics. */
static bool is_routed(const by__serve_model *m, const json_t *model)
{
    size_t i;
    const json_t *version;
    json_array_foreach(json_object_get(model, "versions"), i, version)
    {
        const char *name = by__protocol_get_text(version, "version");
        if (name != NULL && strcmp(name, m->current->version.name) == 0) {
            return m->coming == NULL && by__protocol_get_number(version, "share", 0.0) >= 1.0;
        }
    }
    return false;
}

static void update_model(by__serve_model *m, const json_t *message)
{
    const json_t *model = by__rollout_state_model(message, m->name);
    m->is_routed = is_routed(m, model);
    const json_t *info = json_object_get(model, "info");
    if (json_is_object(info) && !json_equal(info, m->info)) {
        json_decref(m->info);
        m->info = json_deep_copy(info);
    }
    measure(m, model, message);
    update_rollout(m, model);
    by__rollout_autoscale_decide(m->scale, &m->load);
    send_route(m);
}

static void on_state(by__supervisor *s, const json_t *message)
{
    s->broker.was_ready = true; /* it listens before it has read its tasks, which may fail */
    check_workers(s, message);
    for (size_t i = 0; i < s->model_count; i++) {
        update_model(&s->models[i], message);
    }
    by__rollout_autoscale_divide(s->scales, s->model_count, s->options.total, by__now());
    for (size_t i = 0; i < s->model_count; i++) {
        scale(&s->models[i]);
    }
    by__supervisor_reconcile(s);
}

static void on_message(void *user, json_t *message)
{
    by__supervisor *s = user;
    const char *kind = by__protocol_get_text(message, "t");
    const char *name = by__protocol_get_text(message, "model");
    by__serve_model *m = name == NULL ? NULL : by__supervisor_model(s, name);
    if (kind != NULL && strcmp(kind, "state") == 0 && !s->ending) {
        on_state(s, message);
    } else if (kind != NULL && strcmp(kind, "rollback") == 0 && !s->ending && m != NULL) {
        by__serve_control_rollback(m);
    }
}

static void on_events(void *user, const char *list, size_t length)
{
    by__supervisor *s = user;
    for (size_t i = 0; i < s->model_count; i++) {
        by__serve_model *m = &s->models[i];
        if (m->coming != NULL) {
            by__rollout_golden_target target = golden_of(m);
            by__rollout_golden_events(&m->golden, &target, list, length);
        }
    }
}

static void send_hello(void *user)
{
    by__supervisor *s = user;
    json_t *hello = json_pack("{ss ss ss sI}", "t", "hello", "role", "supervisor", "name", s->name,
                              "pid", (json_int_t)getpid());
    (void)by__link_broker_send(&s->link, hello);
    json_decref(hello);
}

static void on_ready(void *user)
{
    by__supervisor *s = user;
    /* A restarted broker does not know any peer or version yet. */
    for (by__serve_child *c = s->workers; c != NULL; c = c->next) {
        c->known = 0.0;
    }
    for (size_t i = 0; i < s->model_count; i++) {
        by__serve_model *m = &s->models[i];
        free(m->routed);
        m->routed = NULL;
        send_route(m);
    }
}

static void on_lost(void *user, const char *why)
{
    by__supervisor *s = user;
    BY_UNUSED(why);
    for (size_t i = 0; i < s->model_count; i++) {
        by__rollout_golden_reset(&s->models[i].golden);
    }
}

static void on_refused(void *user, const char *why)
{
    by__supervisor_fail(user, why);
}

void by__supervisor_connect(by__supervisor *s)
{
    by__link_broker_handler handler = {.hello = send_hello,
                                       .ready = on_ready,
                                       .message = on_message,
                                       .events = on_events,
                                       .refused = on_refused,
                                       .lost = on_lost,
                                       .user = s};
    by__link_broker_open(&s->link, &s->loop, s->options.address, NULL, &handler);
}
