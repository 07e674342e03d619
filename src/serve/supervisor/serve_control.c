/* The control socket of a supervisor: operators' requests (banyan deploy), both the supervisor's
 * and the operator's side. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "serve/link/link_connect.h"
#include "serve/protocol/deploy_options.h"
#include "serve/supervisor/serve_processes.h"

/* An operator's request while its weights are being found. */
struct by__serve_request_to {
    by__serve_model *model;
    char *path;
    char *adapter; /* NULL: none */
    by__rollout_options options;
    by__protocol_served_version version;
    by_status status;
    by_error error;
    char *settings; /* NULL: none */
    pthread_mutex_t lock;
    /* Under the lock: */
    bool done;
    bool abandoned; /* nobody waits for the thread any more: it frees this */
    uv_async_t *wake;
};

/* Seconds that a search for weights may take. A mount that hangs must not stop deployments, or the
 * end of the server, for ever. */
#define SEARCH_SECONDS 600

/* ---- the supervisor's side ---- */

static void answer(by__link *link, const by_error *error)
{
    json_t *message = error->status == BY_OK
                          ? json_pack("{ss}", "t", "ok")
                          : json_pack("{ss si ss}", "t", "error", "status", (int)error->status,
                                      "message", error->message);
    if (link != NULL) {
        (void)by__link_send(link, message);
    }
    json_decref(message);
}

static void free_request(struct by__serve_request_to *r)
{
    if (r != NULL) {
        by__protocol_served_version_free(&r->version);
        (void)pthread_mutex_destroy(&r->lock);
        free(r->path);
        free(r->adapter);
        free(r->settings);
        free(r);
    }
}

/* On a thread of its own, because verifying a large checkpoint takes seconds, and more where a
 * mount hangs: libuv would wait for a thread of its pool at the end of the program. */
static void *find(void *user)
{
    struct by__serve_request_to *r = user;
    r->status =
        by__protocol_served_version_find(&r->version, r->path, r->adapter, r->settings, &r->error);
    (void)pthread_mutex_lock(&r->lock);
    bool abandoned = r->abandoned;
    r->done = true;
    if (!abandoned) {
        (void)uv_async_send(r->wake);
    }
    (void)pthread_mutex_unlock(&r->lock);
    if (abandoned) {
        free_request(r);
    }
    return NULL;
}

static by_status start_search(struct by__serve_request_to *r, by_error *error)
{
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a thread");
    }
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int code = pthread_create(&thread, &attributes, find, r);
    (void)pthread_attr_destroy(&attributes);
    return code == 0 ? BY_OK
                     : by_error_set(error, BY_ESTATE, "cannot start a thread: %s", strerror(code));
}

static void reload_next(by__supervisor *s);

/* Takes the request that is in progress, if its search has ended; *running: it has not. */
static struct by__serve_request_to *finish_search(by__supervisor *s, bool abandon, bool *running)
{
    struct by__serve_request_to *r = s->request;
    *running = false;
    if (r == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&r->lock);
    *running = !r->done;
    r->abandoned = !r->done && abandon;
    (void)pthread_mutex_unlock(&r->lock);
    if (*running) {
        s->request = abandon ? NULL : s->request;
        return NULL;
    }
    s->request = NULL;
    return r;
}

static void on_found(uv_async_t *async)
{
    by__supervisor *s = async->data;
    bool running;
    struct by__serve_request_to *r = finish_search(s, false, &running);
    if (r == NULL) {
        return;
    }
    (void)uv_timer_stop(&s->late);
    if (r->status == BY_OK && !s->ending) {
        r->status = by__serve_model_deploy(r->model, &r->version, &r->options, &r->error);
    }
    if (r->status != BY_OK) {
        by__telemetry_log_event(&s->log, "not_deployed", "{ss ss ss}", "model", r->model->name,
                                "path", r->path, "reason", r->error.message);
    }
    answer(s->waiting_operator, &r->error);
    s->waiting_operator = NULL;
    free_request(r);
    reload_next(s);
}

static void on_search_late(uv_timer_t *timer)
{
    by__supervisor *s = timer->data;
    by_error error = {0};
    bool running;
    (void)by_error_set(&error, BY_EIO, "the weights were not read within %d s", SEARCH_SECONDS);
    struct by__serve_request_to *r = finish_search(s, true, &running);
    if (running) {
        by__telemetry_log_event(&s->log, "not_deployed", "{ss}", "reason", error.message);
        answer(s->waiting_operator, &error);
        s->waiting_operator = NULL;
        reload_next(s);
    } else if (r != NULL) { /* it has ended just now */
        s->request = r;
        on_found(&s->found);
    }
}

static void find_weights(by__serve_model *m, by__link *link, const by_deploy_options *options)
{
    by__supervisor *s = m->all;
    const by__protocol_served_version *now = &m->current->version;
    const char *path = options->path == NULL ? now->path : options->path;
    const char *adapter =
        options->path == NULL && options->adapter == NULL ? now->adapter : options->adapter;
    by_error error = {0};
    struct by__serve_request_to *r = NULL;
    by_status status = s->request != NULL
                           ? by_error_set(&error, BY_ESTATE, "another deployment has just started")
                           : by__alloc((void **)&r, 1, sizeof *r, "a deployment", &error);
    if (status == BY_OK) {
        by__rollout_plan(&r->options, options);
        r->model = m;
        r->wake = &s->found;
        r->settings = m->settings == NULL ? NULL : by__strdup(m->settings);
        r->path = by__strdup(path);
        r->adapter = adapter == NULL ? NULL : by__strdup(adapter);
        bool lacks = r->path == NULL || (r->adapter == NULL) != (adapter == NULL) ||
                     (r->settings == NULL) != (m->settings == NULL) ||
                     pthread_mutex_init(&r->lock, NULL) != 0;
        status = lacks ? by_error_set(&error, BY_EMEMORY, "out of memory: a deployment")
                       : start_search(r, &error);
        if (status == BY_OK) {
            s->request = r;
            s->waiting_operator = link;
            (void)uv_timer_start(&s->late, on_search_late, (uint64_t)SEARCH_SECONDS * 1000, 0);
        } else {
            free_request(r);
        }
    }
    if (status != BY_OK) {
        answer(link, &error);
    }
}

/* Goes on with a SIGHUP: one search for weights runs at a time. */
static void reload_next(by__supervisor *s)
{
    by_deploy_options options;
    by_deploy_defaults(&options);
    if (s->reloaded < s->model_count && s->request == NULL && !s->ending) {
        find_weights(&s->models[s->reloaded++], NULL, &options);
    }
}

void by__serve_control_reload(by__supervisor *s)
{
    s->reloaded = 0;
    reload_next(s);
}

static void roll_back(by__serve_model *m, by__link *link)
{
    by_deploy_options how;
    by__rollout_options options;
    by_error error = {0};
    by_deploy_defaults(&how);
    how.rollback = true;
    by__rollout_plan(&options, &how);
    if (m->coming != NULL) {
        by__rollout_fail(&m->rollout, "it was asked for");
    } else if (m->former_count == 0) {
        (void)by_error_set(&error, BY_ESTATE,
                           "this server has served no version before %s: deploy one by its path",
                           m->current->version.name);
    } else {
        by__protocol_served_version back = {0};
        if (by__protocol_served_version_copy(&back, &m->former[0], &error) == BY_OK) {
            (void)by__serve_model_deploy(m, &back, &options, &error);
            m->returns = error.status == BY_OK;
        }
        by__protocol_served_version_free(&back);
    }
    answer(link, &error);
}

void by__serve_control_rollback(by__serve_model *model)
{
    roll_back(model, NULL);
}

/* What a version was deployed from, RUN or RUN+ADAPTER; a new reference, NULL for NULL. */
static json_t *origin_of(const by__protocol_served_version *version)
{
    return version == NULL            ? NULL
           : version->adapter == NULL ? json_string(version->path)
                                      : json_sprintf("%s+%s", version->path, version->adapter);
}

static void send_status(by__serve_model *m, by__link *link)
{
    const by__serve_group *coming = m->coming;
    const by__protocol_served_version *former = m->former_count == 0 ? NULL : &m->former[0];
    json_t *message = json_pack(
        "{ss ss ss so* ss? so* sI sI sI sI sI sI sf sf ss ss ss sb}", "t", "status", "model",
        m->name, "version", m->current->version.name, "path", origin_of(&m->current->version),
        "previous", former == NULL ? NULL : former->name, "previous_path", origin_of(former),
        "wanted", (json_int_t)m->current->wanted, "needed", (json_int_t)m->scale->needed, "ready",
        (json_int_t)by__serve_group_ready(m->all, m->current), "least", (json_int_t)m->least,
        "most", (json_int_t)m->most, "waiting", (json_int_t)m->load.waiting, "p95", m->load.p95,
        "capacity", m->scale->capacity, "last", m->last, "outcome", m->outcome, "reason", m->reason,
        "routed", (int)m->is_routed);
    if (coming != NULL) {
        (void)json_object_set_new(
            message, "coming",
            json_pack("{ss so* ss sf sI sI sI sI sI sI}", "version", coming->version.name, "path",
                      origin_of(&coming->version), "phase", by__rollout_name(m->rollout.phase),
                      "share", m->rollout.share, "ready",
                      (json_int_t)by__serve_group_ready(m->all, coming), "requests",
                      (json_int_t)m->after.requests, "errors", (json_int_t)m->after.errors, "same",
                      (json_int_t)m->after.same, "different", (json_int_t)m->after.different,
                      "failed", (json_int_t)m->after.failed));
    }
    (void)by__link_send(link, message);
    json_decref(message);
}

/* The model that a message names, which a server of one model need not. NULL: an error. */
static by__serve_model *choose(by__supervisor *s, const json_t *message, by_error *error)
{
    const char *name = by__protocol_get_text(message, "model");
    by_string names = {0};
    if (name == NULL && s->model_count == 1) {
        return s->models;
    }
    by__serve_model *m = name == NULL ? NULL : by__supervisor_model(s, name);
    if (m != NULL) {
        return m;
    }
    for (size_t i = 0; i < s->model_count; i++) {
        by_string_format(&names, "%s%s", i == 0 ? "" : ", ", s->models[i].name);
    }
    const char *list = names.data == NULL ? "" : names.data;
    if (name == NULL) {
        (void)by_error_set(
            error, BY_EARG,
            "several models are served: name one of %s (--name NAME, or \"model\" over HTTP)",
            list);
    } else {
        (void)by_error_set(error, BY_EARG, "no model %s is served: there are %s", name, list);
    }
    by_string_free(&names);
    return NULL;
}

static void on_message(void *user, by__link *link, json_t *message)
{
    const char *kind = by__protocol_get_text(message, "t");
    by_deploy_options options;
    by_error error = {0};
    by__serve_model *m = choose(user, message, &error);
    kind = kind == NULL ? "" : kind;
    if (m == NULL) {
        answer(link, &error);
    } else if (strcmp(kind, "deploy") == 0) {
        if (by__protocol_deploy_read(&options, message, &error) == BY_OK) {
            find_weights(m, link, &options);
        } else {
            answer(link, &error);
        }
    } else if (strcmp(kind, "rollback") == 0) {
        roll_back(m, link);
    } else if (strcmp(kind, "status") == 0) {
        send_status(m, link);
    } else {
        (void)by_error_set(&error, BY_EARG,
                           "unknown control message '%.60s'; one of deploy, rollback, status",
                           kind);
        answer(link, &error);
    }
}

static void on_lost(void *user, by__link *link, const char *why)
{
    by__supervisor *s = user;
    BY_UNUSED(why);
    s->waiting_operator = s->waiting_operator == link ? NULL : s->waiting_operator;
    for (size_t i = 0; i < BY__OPERATORS; i++) {
        s->operators[i] = s->operators[i] == link ? NULL : s->operators[i];
    }
}

static void on_accepted(void *user, by__link *link)
{
    by__supervisor *s = user;
    for (size_t i = 0; i < BY__OPERATORS; i++) {
        if (s->operators[i] == NULL) {
            s->operators[i] = link;
            return;
        }
    }
    by__link_close(&link);
}

by_status by__serve_control_open(by__supervisor *s, by_error *error)
{
    by__link_handler handler = {.message = on_message, .lost = on_lost, .user = s};
    (void)uv_timer_init(&s->loop, &s->late); /* cannot fail */
    s->late.data = s->found.data = s;
    int code = uv_async_init(&s->loop, &s->found, on_found);
    if (code < 0) {
        return by__serve_uv_error(error, "watch", "a thread", code);
    }
    uv_unref((uv_handle_t *)&s->found);
    if (s->options.control == NULL) {
        return BY_OK;
    }
    return by__link_listen(&s->control, &s->loop, s->options.control, on_accepted, &handler, error);
}

void by__serve_control_close(by__supervisor *s)
{
    bool running;
    by__link_listener_close(&s->control);
    free_request(finish_search(s, true, &running));
    if (s->found.loop != NULL) {
        uv_close((uv_handle_t *)&s->found, NULL);
    }
    if (s->late.loop != NULL) {
        uv_close((uv_handle_t *)&s->late, NULL);
    }
    /* Closed links do not notify: the search for weights must not report to this one. */
    s->waiting_operator = NULL;
    for (size_t i = 0; i < BY__OPERATORS; i++) {
        by__link_close(&s->operators[i]);
    }
}

/* ---- the operator's side ---- */

typedef struct control_question {
    uv_loop_t loop;
    uv_timer_t timer;
    by__link *link;
    const json_t *message;
    json_t *reply;
} control_question;

static void on_reply(void *user, by__link *link, json_t *message)
{
    control_question *q = user;
    BY_UNUSED(link);
    json_decref(q->reply);
    q->reply = json_incref(message);
    uv_stop(&q->loop);
}

static void on_end(void *user, by__link *link, const char *why)
{
    control_question *q = user;
    BY_UNUSED(link);
    BY_UNUSED(why);
    q->link = NULL;
    uv_stop(&q->loop);
}

static void on_connected(void *user, by__link *link)
{
    const control_question *q = user;
    (void)by__link_send(link, q->message);
}

static void on_late(uv_timer_t *timer)
{
    uv_stop(timer->loop);
}

/* Sends a message and returns the answer, which the caller owns. */
static by_status ask(json_t **out, const char *control, const json_t *message, by_error *error)
{
    control_question q = {.message = message};
    by__link_handler handler = {
        .message = on_reply, .lost = on_end, .ready = on_connected, .user = &q};
    int code = uv_loop_init(&q.loop);
    if (code < 0) {
        return by__serve_uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&q.loop, &q.timer);
    by_status status = by__link_connect(&q.link, &q.loop, control, NULL, &handler, error);
    if (status == BY_OK) {
        (void)uv_timer_start(&q.timer, on_late, 120000, 0);
        (void)uv_run(&q.loop, UV_RUN_DEFAULT);
    }
    by__link_close(&q.link);
    uv_close((uv_handle_t *)&q.timer, NULL);
    (void)uv_run(&q.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&q.loop);
    if (status == BY_OK && q.reply == NULL) {
        status = by_error_set(error, BY_EIO,
                              "no `banyan serve` answers at %s: is it running, and is --dir its "
                              "directory?",
                              control);
    }
    const char *kind = by__protocol_get_text(q.reply, "t");
    if (status == BY_OK && kind != NULL && strcmp(kind, "error") == 0) {
        const char *text = by__protocol_get_text(q.reply, "message");
        status = by_error_set(error, BY_ESTATE, "%s", text == NULL ? "it was refused" : text);
    }
    if (status != BY_OK) {
        json_decref(q.reply);
        return status;
    }
    *out = q.reply;
    return BY_OK;
}

static void copy_text(char *out, size_t size, const json_t *from, const char *key)
{
    by__protocol_copy_text(out, size, by__protocol_get_text(from, key));
}

by_status by_deploy_status_now(by_deploy_status *out, const char *control, const char *model,
                               by_error *error)
{
    json_t *reply = NULL;
    json_t *message = json_pack("{ss ss*}", "t", "status", "model", model);
    if (message == NULL) {
        return by_error_set(error, BY_EARG, "the name of a model must be UTF-8");
    }
    by_status status = ask(&reply, control, message, error);
    json_decref(message);
    BY_TRY(status);
    const json_t *coming = json_object_get(reply, "coming");
    *out = (by_deploy_status){.workers = (size_t)by__protocol_get_integer(reply, "wanted"),
                              .needed = (size_t)by__protocol_get_integer(reply, "needed"),
                              .ready = (size_t)by__protocol_get_integer(reply, "ready"),
                              .least = (size_t)by__protocol_get_integer(reply, "least"),
                              .most = (size_t)by__protocol_get_integer(reply, "most"),
                              .waiting = (size_t)by__protocol_get_integer(reply, "waiting"),
                              .p95 = by__protocol_get_number(reply, "p95", 0.0),
                              .coming_ready = (size_t)by__protocol_get_integer(coming, "ready"),
                              .share = by__protocol_get_number(coming, "share", 0.0),
                              .same = (uint64_t)by__protocol_get_integer(coming, "same"),
                              .different = (uint64_t)by__protocol_get_integer(coming, "different"),
                              .failed = (uint64_t)by__protocol_get_integer(coming, "failed")};
    out->routed = json_is_true(json_object_get(reply, "routed"));
    copy_text(out->model, sizeof out->model, reply, "model");
    copy_text(out->version, sizeof out->version, reply, "version");
    copy_text(out->path, sizeof out->path, reply, "path");
    copy_text(out->previous, sizeof out->previous, reply, "previous");
    copy_text(out->previous_path, sizeof out->previous_path, reply, "previous_path");
    copy_text(out->coming, sizeof out->coming, coming, "version");
    copy_text(out->coming_path, sizeof out->coming_path, coming, "path");
    copy_text(out->phase, sizeof out->phase, coming, "phase");
    copy_text(out->last, sizeof out->last, reply, "last");
    copy_text(out->outcome, sizeof out->outcome, reply, "outcome");
    copy_text(out->reason, sizeof out->reason, reply, "reason");
    json_decref(reply);
    return BY_OK;
}

by_status by_deploy(const by_deploy_options *options, by_error *error)
{
    json_t *reply = NULL;
    BY_TRY(by__protocol_deploy_check(options, error));
    json_t *message = by__protocol_deploy_message(options);
    if (message == NULL) {
        return by_error_set(error, BY_EARG, "paths and the name of a model must be UTF-8");
    }
    by_status status = ask(&reply, options->control, message, error);
    json_decref(message);
    json_decref(reply);
    return status;
}
