/* A gateway's side of a link to Redis, and that of a supervisor, which decides which versions get
 * requests. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/link/redis/redis_link.h"
#include "serve/protocol/admission.h"

/* Measurements of a model. */
typedef struct model_measurements {
    char model[256];
    by__protocol_admission admission;
    struct model_measurements *next;
} model_measurements;

typedef struct gateway {
    model_measurements *models;
    bool looking;   /* a request for the state is unanswered */
    json_t *routes; /* of a supervisor: its last "route" for each model */
    unsigned ticks;
} gateway;

/* Ticks between repetitions of a supervisor's routes: Redis may have refused them because another
 * one decides, or have lost them. */
#define ROUTE_TICKS 4

static model_measurements *find(const gateway *g, const char *model)
{
    model_measurements *m = g->models;
    while (m != NULL && strcmp(m->model, model) != 0) {
        m = m->next;
    }
    return m;
}

/* ---- requests ---- */

/* Each level is a stream: no client is connected for a task, so it comes after the requests of its
 * priority. */
static int64_t level_of(const json_t *request, bool task)
{
    int64_t priority = by__protocol_get_integer(request, "priority");
    int64_t level = (priority > 0 ? 1 : priority < 0 ? 3 : 2) + (task ? 1 : 0);
    return level > 3 ? 3 : level;
}

/* Adds the limits of the queue. left: seconds until it expires; 0: never. */
static void add_limits(const by__redis_link *l, by__redis_call *call, const char *model,
                       const json_t *request, double left, bool task)
{
    const model_measurements *m = find(l->own, model);
    const by__protocol_admission none = {0};
    by__protocol_admission_rule rule = by__protocol_admission_rule_of(
        m == NULL ? &none : &m->admission, l->address.wait, left, task);
    /* The other prompts of a request were admitted together with the first one. */
    bool follows = json_is_true(json_object_get(request, "follows"));
    by__redis_add_integer(call, l->address.queue);
    by__redis_add_integer(call, l->address.queue_tokens);
    by__redis_add_integer(call, follows ? INT64_MAX : rule.limit);
    by__redis_add_text(call, rule.why);
}

/* Redis is up but cannot write: its memory or disk is full, or it has become a replica. */
static bool is_full(const redisReply *reply)
{
    static const char *const kinds[] = {"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS "};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(kinds); i++) {
        if (reply != NULL && reply->type == REDIS_REPLY_ERROR &&
            strncmp(reply->str, kinds[i], strlen(kinds[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The reason for refusing a request; NULL: it was accepted. *seconds: delay before a retry. */
static const by__protocol_refusal *refusal_of(const by__redis_link *l, const redisReply *reply,
                                              const char *model, double *seconds)
{
    const gateway *g = l->own;
    if (is_full(reply)) {
        *seconds = 1.0;
        return by__protocol_refusal_of("broker_full");
    }
    const by__protocol_refusal *refusal = by__protocol_refusal_of(by__redis_text(reply, 0));
    *seconds = refusal != NULL && refusal->status == 503 ? 1.0 : 0.0;
    if (refusal != NULL && refusal->status == 429) {
        const model_measurements *m = find(g, model);
        int64_t ahead = (int64_t)by__redis_number(reply, 1);
        *seconds = strcmp(refusal->why, "stored") == 0
                       ? BY__STORED_RETRY
                       : by__protocol_retry_after(
                             m == NULL ? 0.0 : by__protocol_admission_wait(&m->admission, ahead));
    }
    return refusal;
}

/* about: the id, followed by the model. */
static void on_submitted(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    char id[65];
    double seconds;
    if (!is_full(reply) && by__redis_bad(l, reply)) {
        return;
    }
    size_t length = strcspn(about, " ");
    const by__protocol_refusal *why =
        refusal_of(l, reply, about[length] == '\0' ? "" : about + length + 1, &seconds);
    if (why != NULL && length < sizeof id) {
        memcpy(id, about, length);
        id[length] = '\0';
        by__redis_deliver_event(l, by__protocol_event_refused(id, why, seconds));
    }
}

static const char *request_of(const json_t *message)
{
    const char *text = by__protocol_get_text(message, "request");
    return text == NULL ? "" : text;
}

static void submit(by__redis_link *l, const json_t *m)
{
    by__redis_call call = {0};
    const char *id = by__protocol_get_text(m, "id");
    const char *model = by__protocol_get_text(m, "model");
    const char *version = by__protocol_get_text(m, "version");
    bool again = json_is_true(json_object_get(m, "again"));
    double left = by__protocol_get_number(m, "left", 0.0);
    char about[BY__REDIS_ABOUT];
    if (id == NULL || model == NULL) {
        return;
    }
    by__redis_add_text(&call, "submit");
    by__redis_add_text(&call, id);
    by__redis_add_text(&call, model);
    by__redis_add_integer(&call, level_of(m, false));
    by__redis_add_integer(&call, by__protocol_get_integer(m, "cost"));
    by__redis_add_integer(&call, by__protocol_sequences_of(m));
    by__redis_add_integer(&call, (int64_t)(left * 1000.0));
    by__redis_add_text(&call, l->name);
    by__redis_add_text(&call, json_is_true(json_object_get(m, "seen")) ? "1" : "0");
    by__redis_add_text(&call, again ? "1" : "0");
    add_limits(l, &call, model, m, left, false);
    by__redis_add_text(&call, version == NULL ? "" : version);
    by__redis_add_text(&call, json_is_true(json_object_get(m, "whole")) ? "1" : "0");
    by__redis_add_text(&call, request_of(m));
    (void)snprintf(about, sizeof about, "%s %s", id, model);
    by__redis_execute(l->redis, &call, !again, on_submitted, l, about);
}

static void cancel(by__redis_link *l, const json_t *m)
{
    by__redis_call call = {0};
    const char *id = by__protocol_get_text(m, "id");
    by__redis_add_text(&call, "cancel");
    by__redis_add_text(&call, id == NULL ? "" : id);
    by__redis_add_text(&call, l->name);
    by__redis_execute(l->redis, &call, false, by__redis_ignore, l, "");
}

/* ---- tasks ---- */

static json_t *json_at(const redisReply *reply, size_t i)
{
    const char *text = by__redis_text(reply, i);
    json_t *value = *text == '\0' ? NULL : by__json_read(text, JSON_ALLOW_NUL, NULL);
    return value == NULL ? json_null() : value;
}

static json_t *task_of(const redisReply *reply)
{
    const char *hook = by__redis_text(reply, 9);
    json_t *task = json_pack(
        "{ss ss sf sf sI so so so}", "id", by__redis_text(reply, 1), "status",
        by__redis_text(reply, 2), "created_at", by__redis_number(reply, 3) * 1e-3, "expires_at",
        by__redis_number(reply, 4) * 1e-3, "attempts", (json_int_t)by__redis_number(reply, 5),
        "task", json_at(reply, 6), "result", json_at(reply, 7), "error", json_at(reply, 8));
    if (hook[0] != '\0') {
        (void)json_object_set_new(task, "hook",
                                  json_pack("{ss sI}", "status", hook, "attempts",
                                            (json_int_t)by__redis_number(reply, 10)));
    }
    return task;
}

/* about: the question's number, followed by the model. */
static void on_task(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    const char *model = strchr(about, ' ');
    double seconds;
    if (!is_full(reply) && by__redis_bad(l, reply)) {
        return;
    }
    const by__protocol_refusal *why =
        refusal_of(l, reply, model == NULL ? "" : model + 1, &seconds);
    json_t *task = json_null();
    if (why == NULL && strcmp(by__redis_text(reply, 0), "task") == 0) {
        task = task_of(reply);
    }
    json_t *answer = json_pack("{ss sI so}", "t", "task", "ref",
                               (json_int_t)strtoll(about, NULL, 10), "task", task);
    if (why != NULL) {
        json_t *refused = by__protocol_task_refused(answer, why, seconds);
        json_decref(answer);
        answer = refused;
    }
    by__redis_deliver(l, answer);
}

static void add_task(const by__redis_link *l, by__redis_call *call, const json_t *m)
{
    const json_t *task = json_object_get(m, "task");
    const char *key = by__protocol_get_text(m, "key");
    const char *model = by__protocol_get_text(task, "model");
    double left = by__protocol_get_number(m, "expires", 0.0) - by__serve_wall_clock();
    by__redis_add_text(call, key == NULL ? "" : key);
    by__redis_add_text(call, model == NULL ? "" : model);
    by__redis_add_integer(call, level_of(task, true));
    by__redis_add_integer(call, by__protocol_get_integer(task, "cost"));
    by__redis_add_integer(call, by__protocol_sequences_of(task));
    by__redis_add_integer(call, left > 0.001 ? (int64_t)(left * 1000.0) : 1);
    by__redis_add_text(call, json_is_true(json_object_get(m, "seen")) ? "1" : "0");
    add_limits(l, call, model == NULL ? "" : model, task, left, true);
    by__redis_add_integer(call, l->address.stored);
    by__redis_add_integer(call, l->address.stored_bytes);
    /* The request is stored separately, and deleted when the task ends. */
    json_t *rest = json_copy((json_t *)(uintptr_t)task);
    (void)json_object_del(rest, "request");
    by__redis_add_json(call, rest);
    json_decref(rest);
    by__redis_add_text(call, request_of(task));
    by__redis_add_text(call, by__protocol_get_text(task, "webhook") == NULL ? "0" : "1");
}

static void task_keep_call(const by__redis_link *l, by__redis_call *call, const json_t *m)
{
    double left = by__protocol_get_number(m, "expires", 0.0) - by__serve_wall_clock();
    by__redis_add_integer(call, left > 0.001 ? (int64_t)(left * 1000.0) : 1);
    by__redis_add_integer(call, l->address.stored);
    by__redis_add_integer(call, l->address.stored_bytes);
    by__redis_add_json(call, json_object_get(m, "task"));
    by__redis_add_json(call, json_object_get(m, "result"));
}

static void ask_task(by__redis_link *l, const char *kind, const json_t *m)
{
    by__redis_call call = {0};
    const char *id = by__protocol_get_text(m, "id");
    const char *owner = by__protocol_get_text(m, "owner");
    const char *model = by__protocol_get_text(json_object_get(m, "task"), "model");
    bool keeps = json_is_object(json_object_get(m, "result"));
    bool adds = strcmp(kind, "task_add") == 0;
    char about[BY__REDIS_ABOUT];
    by__redis_add_text(&call, adds && keeps ? "task_keep" : kind);
    by__redis_add_text(&call, id == NULL ? "" : id);
    by__redis_add_text(&call, owner == NULL ? "" : owner);
    if (adds && keeps) {
        task_keep_call(l, &call, m);
    } else if (adds) {
        add_task(l, &call, m);
    }
    (void)snprintf(about, sizeof about, "%lld %s", (long long)by__protocol_get_integer(m, "ref"),
                   model == NULL ? "" : model);
    by__redis_execute(l->redis, &call, adds, on_task, l, about);
}

/* ---- webhooks ---- */

static void on_hooks(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    BY_UNUSED(about);
    if (by__redis_bad(l, reply)) {
        return;
    }
    json_t *hooks = json_array();
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *h = by__redis_array(reply, i);
        if (h != NULL) {
            (void)json_array_append_new(
                hooks,
                json_pack("{ss ss sf sf sI so so sf sI}", "id", by__redis_text(h, 0), "status",
                          by__redis_text(h, 1), "created_at", by__redis_number(h, 2) * 1e-3,
                          "expires_at", by__redis_number(h, 3) * 1e-3, "attempts",
                          (json_int_t)by__redis_number(h, 4), "task", json_at(h, 5), "error",
                          json_at(h, 6), "ended_at", by__redis_number(h, 7) * 1e-3, "tries",
                          (json_int_t)by__redis_number(h, 8)));
        }
    }
    by__redis_deliver(l, json_pack("{ss so}", "t", "hooks", "hooks", hooks));
}

static void ask_hooks(by__redis_link *l, const json_t *m)
{
    by__redis_call call = {0};
    by__redis_add_text(&call, "task_hooks");
    by__redis_add_integer(&call, (int64_t)(by__protocol_get_number(m, "lease", 10.0) * 1e3));
    by__redis_add_integer(&call, by__protocol_get_integer(m, "most"));
    by__redis_execute(l->redis, &call, false, on_hooks, l, "");
}

static void send_outcome(by__redis_link *l, const json_t *m)
{
    by__redis_call call = {0};
    const char *id = by__protocol_get_text(m, "id");
    const char *state = by__protocol_get_text(m, "state");
    by__redis_add_text(&call, "task_hook");
    by__redis_add_text(&call, id == NULL ? "" : id);
    by__redis_add_integer(&call, by__protocol_get_integer(m, "try"));
    by__redis_add_text(&call, state == NULL ? "failed" : state);
    by__redis_add_integer(&call, (int64_t)(by__protocol_get_number(m, "delay", 0.0) * 1e3));
    by__redis_execute(l->redis, &call, false, by__redis_ignore, l, "");
}

/* ---- the state ---- */

static const model_measurements *measure(gateway *g, const char *model,
                                         const by__protocol_admission_sample *sample)
{
    model_measurements *m = find(g, model);
    by_error ignored = {0};
    if (m == NULL) {
        if (strlen(model) >= sizeof m->model ||
            by__alloc((void **)&m, 1, sizeof *m, "a model", &ignored) != BY_OK) {
            return NULL;
        }
        memcpy(m->model, model, strlen(model) + 1);
        m->next = g->models;
        g->models = m;
    }
    by__protocol_admission_add(&m->admission, sample);
    return m;
}

static bool is_worker_of(const json_t *worker, const char *model)
{
    const char *of = by__protocol_get_text(worker, "model");
    return of != NULL && strcmp(of, model) == 0;
}

/* Redis' counts of versions, with the workers that each has. */
static json_t *versions_of(const redisReply *m, const json_t *workers)
{
    json_t *versions = json_at(m, 9);
    size_t i;
    size_t at;
    json_t *v;
    json_t *w;
    json_array_foreach(versions, i, v)
    {
        const char *name = by__protocol_get_text(v, "version");
        int64_t count = 0;
        json_array_foreach(workers, at, w)
        {
            const char *version = by__protocol_get_text(w, "version");
            count += is_worker_of(w, by__redis_text(m, 0)) && version != NULL && name != NULL &&
                     strcmp(version, name) == 0;
        }
        (void)json_object_set_new(v, "workers", json_integer((json_int_t)count));
    }
    return versions;
}

/* Returns true if new requests go to a worker: a version without a share gets none. */
static bool is_open(const json_t *worker, const json_t *versions, bool routed)
{
    const char *version = by__protocol_get_text(worker, "version");
    bool shares = false;
    size_t i;
    json_t *v;
    json_array_foreach(versions, i, v)
    {
        const char *name = by__protocol_get_text(v, "version");
        shares = shares || (version != NULL && name != NULL && strcmp(version, name) == 0 &&
                            by__protocol_get_number(v, "share", 0.0) > 0.0);
    }
    return (shares || !routed) && !json_is_true(json_object_get(worker, "leaving"));
}

/* Converts a row of the script's "state". */
static json_t *model_of(gateway *g, const redisReply *row, const json_t *workers)
{
    const char *id = by__redis_text(row, 0);
    json_t *versions = versions_of(row, workers);
    by__protocol_admission_sample sample = {.now = by__now(),
                                            .ended = (int64_t)by__redis_number(row, 4),
                                            .arrived = (int64_t)by__redis_number(row, 6),
                                            .refused = (int64_t)by__redis_number(row, 11),
                                            .at_workers = (int64_t)by__redis_number(row, 12)};
    int64_t count = 0;
    size_t i;
    json_t *w;
    json_array_foreach(workers, i, w)
    {
        if (is_worker_of(w, id)) {
            bool open = is_open(w, versions, by__redis_number(row, 10) > 0.0);
            count++;
            sample.sessions += open ? by__protocol_get_integer(w, "sessions") : 0;
        }
    }
    const model_measurements *m = measure(g, id, &sample);
    int64_t ahead = sample.at_workers + (int64_t)by__redis_number(row, 13);
    double wait = m == NULL ? 0.0 : by__protocol_admission_wait(&m->admission, ahead);
    return json_pack(
        "{ss so sI sI sI sf sI sf sI sI sb ss so so sb so}", "id", id, "info", json_at(row, 1),
        "workers", (json_int_t)count, "queue", (json_int_t)by__redis_number(row, 2), "queue_tokens",
        (json_int_t)by__redis_number(row, 3), "oldest", by__redis_number(row, 5) * 1e-3, "sessions",
        (json_int_t)sample.sessions, "wait", wait, "arrived", (json_int_t)sample.arrived, "refused",
        (json_int_t)sample.refused, "elastic", (int)(by__redis_number(row, 7) > 0.0), "decides",
        by__redis_text(row, 8), "versions", versions, "deployment", json_at(row, 14), "decided",
        (int)(by__redis_number(row, 15) > 0.0), "restarts", json_at(row, 16));
}

static json_t *models_of(gateway *g, const redisReply *list, const json_t *workers)
{
    json_t *models = json_array();
    for (size_t i = 0; list != NULL && i < list->elements; i++) {
        const redisReply *row = by__redis_array(list, i);
        if (row != NULL) {
            (void)json_array_append_new(models, model_of(g, row, workers));
        }
    }
    return models;
}

static void on_state(void *user, const char *about, const redisReply *reply)
{
    by__redis_link *l = user;
    gateway *g = l->own;
    BY_UNUSED(about);
    g->looking = false;
    if (by__redis_bad(l, reply)) {
        return;
    }
    const redisReply *list = by__redis_array(reply, 0);
    json_t *workers = json_array();
    for (size_t i = 0; list != NULL && i < list->elements; i++) {
        const redisReply *w = by__redis_array(list, i);
        json_t *record = w == NULL ? json_null() : json_at(w, 0);
        if (json_is_object(record)) {
            (void)json_object_set_new(record, "silent", json_real(by__redis_number(w, 1) * 1e-3));
            (void)json_array_append(workers, record);
        }
        json_decref(record);
    }
    json_t *models = models_of(g, by__redis_array(reply, 1), workers);
    const redisReply *counters = by__redis_array(reply, 2);
    double counts[3] = {0};
    for (size_t i = 0; i < BY_ARRAY_LENGTH(counts) && counters != NULL; i++) {
        counts[i] = by__redis_number(counters, i);
    }
    by__redis_deliver(l, json_pack("{ss so so sI sI sI}", "t", "state", "workers", workers,
                                   "models", models, "retried", (json_int_t)counts[0], "expired",
                                   (json_int_t)counts[1], "dead", (json_int_t)counts[2]));
}

static void request_state(by__redis_link *l)
{
    gateway *g = l->own;
    by__redis_call call = {0};
    if (g->looking) {
        return;
    }
    g->looking = true;
    by__redis_add_text(&call, "state");
    by__redis_add_text(&call, l->name);
    by__redis_add_integer(&call, (int64_t)(l->address.silence * 1000.0));
    by__redis_execute(l->redis, &call, false, on_state, l, "");
}

/* ---- routes of a supervisor ---- */

static void send_route(by__redis_link *l, const char *model, const json_t *m)
{
    by__redis_call call = {0};
    const json_t *info = json_object_get(m, "info");
    static const char *const more[] = {"deployment", "restarts"};
    json_t *route = json_pack("{sO sb}", "versions", json_object_get(m, "versions"), "elastic",
                              (int)json_is_true(json_object_get(m, "elastic")));
    if (route == NULL) {
        return;
    }
    for (size_t i = 0; i < BY_ARRAY_LENGTH(more); i++) {
        json_t *value = json_object_get(m, more[i]);
        if (json_is_object(value)) {
            (void)json_object_set(route, more[i], value);
        }
    }
    by__redis_add_text(&call, "route");
    by__redis_add_text(&call, model);
    by__redis_add_text(&call, l->name);
    by__redis_add_json(&call, route);
    if (json_is_object(info)) {
        by__redis_add_json(&call, info);
    } else {
        by__redis_add_text(&call, "");
    }
    json_decref(route);
    by__redis_execute(l->redis, &call, false, by__redis_ignore, l, "");
}

static void set_route(by__redis_link *l, const json_t *m)
{
    gateway *g = l->own;
    const char *model = by__protocol_get_text(m, "model");
    if (model != NULL && json_array_size(json_object_get(m, "versions")) > 0) {
        g->routes = g->routes == NULL ? json_object() : g->routes;
        (void)json_object_set_new(g->routes, model, json_deep_copy(m));
        send_route(l, model, m);
    }
}

static void ask_rollback(by__redis_link *l, const json_t *m)
{
    by__redis_call call = {0};
    const char *model = by__protocol_get_text(m, "model");
    by__redis_add_text(&call, "rollback");
    by__redis_add_text(&call, model == NULL ? "" : model);
    by__redis_execute(l->redis, &call, false, by__redis_ignore, l, "");
}

static void supervise(by__redis_link *l)
{
    gateway *g = l->own;
    const char *model;
    json_t *m;
    request_state(l);
    if (++g->ticks % ROUTE_TICKS == 0) {
        json_object_foreach(g->routes, model, m)
        {
            send_route(l, model, m);
        }
    }
}

/* ---- the roles ---- */

static by_status open_gateway(by__redis_link *l, const json_t *hello, by_error *error)
{
    BY_UNUSED(hello);
    return by__alloc(&l->own, 1, sizeof(gateway), "a link", error);
}

static void send_message(by__redis_link *l, const char *kind, const json_t *m)
{
    if (strcmp(kind, "submit") == 0) {
        submit(l, m);
    } else if (strcmp(kind, "cancel") == 0) {
        cancel(l, m);
    } else if (strcmp(kind, "route") == 0) {
        set_route(l, m);
    } else if (strcmp(kind, "rollback") == 0) {
        ask_rollback(l, m);
    } else if (strcmp(kind, "task_hooks") == 0) {
        ask_hooks(l, m);
    } else if (strcmp(kind, "task_hook") == 0) {
        send_outcome(l, m);
    } else if (strcmp(kind, "feedback") == 0) {
        by__redis_feedback(l, m);
    } else if (strncmp(kind, "task_", 5) == 0) {
        ask_task(l, kind, m);
    }
}

static void on_published(by__redis_link *l, json_t *message)
{
    if (message != NULL) {
        by__redis_deliver(l, json_incref(message));
    }
}

static void free_gateway(by__redis_link *l)
{
    gateway *g = l->own;
    while (g != NULL && g->models != NULL) {
        model_measurements *m = g->models;
        g->models = m->next;
        free(m);
    }
    json_decref(g == NULL ? NULL : g->routes);
    free(g);
}

const by__redis_role by__redis_gateway = {
    .name = "gateway",
    .open = open_gateway,
    .ready = request_state,
    .send = send_message,
    .published = on_published,
    .tick = request_state,
    .free = free_gateway,
};

const by__redis_role by__redis_supervisor = {
    .name = "supervisor",
    .open = open_gateway,
    .ready = request_state,
    .send = send_message,
    .published = on_published,
    .tick = supervise,
    .free = free_gateway,
};
