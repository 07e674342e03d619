/* The gateway: its process, the routes, and who may use them. */
#include "serve/gateway.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/messages.h"
#include "serve/stop.h"

/* Seconds without a word of the broker, or of a worker, after which it does not count. */
#define SILENCE 5.0
/* Seconds without a word of the broker after which its link counts as lost. */
#define BROKER_SILENCE 10.0
/* Milliseconds between two looks at what has waited too long. */
#define TICK 1000

/* ---- answers ---- */

void by__reply_error(by__gateway *g, by__exchange *x, int status, const char *code,
                     const char *param, const char *message)
{
    by__text out = {0};
    by__openai_error(&out, status, code, param, message);
    g->metrics.requests[status / 100 < 6 ? status / 100 : 5]++;
    by__exchange_set(x, NULL);
    by__exchange_reply(x, status, "application/json", out.failed ? "{}" : out.data,
                       out.failed ? 2 : out.length);
    by__text_free(&out);
}

void by__reply_json(by__gateway *g, by__exchange *x, int status, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    json_decref(value);
    g->metrics.requests[status / 100]++;
    by__exchange_reply(x, status, "application/json", text == NULL ? "{}" : text,
                       text == NULL ? 2 : strlen(text));
    free(text);
}

/* ---- health ---- */

/* Workers that answer: health is what they do, never that this process lives. */
static size_t count_workers(const by__gateway *g)
{
    size_t i;
    json_t *w;
    size_t count = 0;
    if (g->broker.link == NULL || g->state == NULL || by__now() - g->stated > SILENCE) {
        return 0;
    }
    json_array_foreach(json_object_get(g->state, "workers"), i, w)
    {
        count += by__get_number(w, "silent", 0.0) < SILENCE &&
                 !json_is_true(json_object_get(w, "leaving"));
    }
    return count;
}

static void answer_live(by__gateway *g, by__exchange *x, const by__http_request *r, const char *key)
{
    BY_UNUSED(r);
    BY_UNUSED(key);
    by__reply_json(g, x, 200, json_pack("{ss}", "status", "live"));
}

static void answer_ready(by__gateway *g, by__exchange *x, const by__http_request *r,
                         const char *key)
{
    size_t workers = g->draining ? 0 : count_workers(g);
    const char *reason = g->draining              ? "the gateway is draining"
                         : g->broker.link == NULL ? "the broker is not reached"
                         : workers == 0           ? "no worker answers"
                                                  : NULL;
    BY_UNUSED(r);
    BY_UNUSED(key);
    by__reply_json(g, x, workers > 0 ? 200 : 503,
                   json_pack("{ss sI ss?}", "status", workers > 0 ? "ready" : "not ready",
                             "workers", (json_int_t)workers, "reason", reason));
}

/* ---- models ---- */

const json_t *by__gateway_model(const by__gateway *g, const char *name)
{
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(g->state, "models"), i, m)
    {
        const char *id = by__get_text(m, "id");
        if (id != NULL && strcmp(id, name) == 0 && json_is_object(json_object_get(m, "info"))) {
            return m;
        }
    }
    return NULL;
}

static json_t *model_of(const json_t *m)
{
    return json_pack("{sO ss si ss sO?}", "id", json_object_get(m, "id"), "object", "model",
                     "created", 0, "owned_by", "banyan", "info", json_object_get(m, "info"));
}

static void answer_models(by__gateway *g, by__exchange *x, const by__http_request *r,
                          const char *key)
{
    json_t *data = json_array();
    size_t i;
    json_t *m;
    BY_UNUSED(r);
    BY_UNUSED(key);
    json_array_foreach(json_object_get(g->state, "models"), i, m)
    {
        if (json_is_object(json_object_get(m, "info"))) {
            (void)json_array_append_new(data, model_of(m));
        }
    }
    by__reply_json(g, x, 200, json_pack("{ss so}", "object", "list", "data", data));
}

static void answer_model(by__gateway *g, by__exchange *x, const by__http_request *r,
                         const char *key)
{
    BY_UNUSED(key);
    const json_t *model = by__gateway_model(g, r->path + strlen("/v1/models/"));
    if (model != NULL) {
        by__reply_json(g, x, 200, model_of(model));
        return;
    }
    by__reply_error(g, x, 404, "model_not_found", "model", "no model of this name is served here");
}

/* ---- metrics ---- */

static void print_workers(const by__gateway *g, by__text *out)
{
    static const struct {
        const char *name;
        const char *key;
        const char *help;
        const char *type;
    } rows[] = {
        {"banyan_engine_running", "running", "Sequences that run.", "gauge"},
        {"banyan_engine_waiting", "waiting", "Sequences that wait in the engine.", "gauge"},
        {"banyan_cache_pages", "pages", "Pages of keys and values.", "gauge"},
        {"banyan_cache_pages_used", "pages_used", "Pages of running sequences.", "gauge"},
        {"banyan_engine_preemptions_total", "preemptions", "Sequences that lost their pages.",
         "counter"},
    };
    const json_t *workers = json_object_get(g->state, "workers");
    for (size_t row = 0; row < BY_ARRAY_LENGTH(rows); row++) {
        size_t i;
        json_t *w;
        by__text_format(out, "# HELP %s %s\n# TYPE %s %s\n", rows[row].name, rows[row].help,
                        rows[row].name, rows[row].type);
        json_array_foreach(workers, i, w)
        {
            by__text label = {0};
            by__text_add(&label, "model=\"");
            by__metrics_label(&label, by__get_text(w, "model"));
            by__text_format(&label, "\",version=\"%s\",worker=\"%s\"", by__get_text(w, "version"),
                            by__get_text(w, "name"));
            if (!label.failed) {
                by__metrics_sample(
                    out, rows[row].name, label.data,
                    by__get_number(json_object_get(w, "engine"), rows[row].key, 0.0));
            }
            by__text_free(&label);
        }
    }
}

static void answer_metrics(by__gateway *g, by__exchange *x, const by__http_request *r,
                           const char *key)
{
    by__text out = {0};
    int64_t queue = 0;
    size_t i;
    json_t *m;
    BY_UNUSED(r);
    BY_UNUSED(key);
    json_array_foreach(json_object_get(g->state, "models"), i, m)
    {
        queue += by__get_integer(m, "queue");
    }
    by__metrics_print(&out, &g->metrics);
    by__metrics_counter(&out, "banyan_queue_requests", "Requests that wait for a worker.", "gauge",
                        NULL, (double)queue);
    by__metrics_counter(&out, "banyan_workers_ready", "Workers that answer.", "gauge", NULL,
                        (double)count_workers(g));
    by__metrics_counter(&out, "banyan_connections", "Connections of clients.", "gauge", NULL,
                        (double)by__http_server_connections(g->server));
    print_workers(g, &out);
    g->metrics.requests[2]++;
    by__exchange_reply(x, 200, "text/plain; version=0.0.4; charset=utf-8",
                       out.failed ? "" : out.data, out.failed ? 0 : out.length);
    by__text_free(&out);
}

/* ---- generation ---- */

static void answer_call(by__gateway *g, by__exchange *x, const by__http_request *r, const char *key,
                        by__call_kind kind, const char *prefix)
{
    const char *type = by__http_header_of(r, "content-type");
    const char *param = NULL;
    by__call *call = NULL;
    by_error error = {0};
    if (type == NULL || strncasecmp(type, "application/json", 16) != 0) {
        by__reply_error(g, x, 415, "not_json", NULL, "Content-Type must be application/json");
        return;
    }
    if (g->draining) {
        by__exchange_header(x, "Retry-After", "1");
        by__reply_error(g, x, 503, "draining", NULL, "the server is going down; try another one");
        return;
    }
    by_status status = by__alloc((void **)&call, 1, sizeof *call, "a request", &error);
    if (status == BY_OK) {
        *call = (by__call){.gateway = g,
                           .exchange = x,
                           .kind = kind,
                           .n = 1,
                           .key = key,
                           .waiter = {by__call_gone},
                           .created = (int64_t)by__wall_clock(),
                           .since = by__now()};
        status = by__request_id(call->id, prefix, &error);
    }
    if (status == BY_OK) {
        status = by__openai_read(call, r->body, r->body_length, &param, &error);
    }
    if (status == BY_OK) {
        by__call_start(call);
        return;
    }
    if (call != NULL) {
        by__call_free(call);
    }
    bool theirs = status == BY_EARG || status == BY_EFORMAT;
    by__reply_error(g, x, theirs ? 400 : 503, theirs ? "invalid_request" : "out_of_memory", param,
                    error.message);
}

static void answer_chat(by__gateway *g, by__exchange *x, const by__http_request *r, const char *key)
{
    answer_call(g, x, r, key, BY__CALL_CHAT, "chatcmpl-");
}

static void answer_completion(by__gateway *g, by__exchange *x, const by__http_request *r,
                              const char *key)
{
    answer_call(g, x, r, key, BY__CALL_COMPLETION, "cmpl-");
}

/* ---- routes ---- */

typedef struct route {
    const char *method;
    const char *path; /* ends with '/': what follows is a name */
    bool is_public;   /* without a key */
    void (*answer)(by__gateway *g, by__exchange *x, const by__http_request *r, const char *key);
} route;

static const route routes[] = {
    {"GET", "/health/live", true, answer_live},
    {"GET", "/health/ready", true, answer_ready},
    {"GET", "/metrics", false, answer_metrics},
    {"GET", "/v1/models", false, answer_models},
    {"GET", "/v1/models/", false, answer_model},
    {"POST", "/v1/completions", false, answer_completion},
    {"POST", "/v1/chat/completions", false, answer_chat},
    {"POST", "/v1/tasks", false, by__answer_task_new},
    {"GET", "/v1/tasks/", false, by__answer_task},
    {"DELETE", "/v1/tasks/", false, by__answer_task_cancel},
    {"POST", "/v1/tasks/", false, by__answer_task_cancel},
};

static bool fits(const route *row, const char *path)
{
    size_t length = strlen(row->path);
    return row->path[length - 1] == '/' ? strncmp(path, row->path, length) == 0 && path[length] != 0
                                        : strcmp(path, row->path) == 0;
}

/* The name of the client's key; NULL: it has none that counts. */
static const char *key_of(const by__gateway *g, const by__http_request *r)
{
    const char *bearer = by__http_header_of(r, "authorization");
    const char *plain = by__http_header_of(r, "x-api-key");
    if (g->keys == NULL) {
        return "";
    }
    if (bearer != NULL && strncasecmp(bearer, "bearer ", 7) == 0) {
        return by__keys_name(g->keys, bearer + 7);
    }
    return plain == NULL ? NULL : by__keys_name(g->keys, plain);
}

static void on_request(void *user, by__exchange *x, const by__http_request *r)
{
    by__gateway *g = user;
    const route *found = NULL;
    const char *allowed = NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(routes); i++) {
        if (fits(&routes[i], r->path)) {
            allowed = routes[i].method;
            if (strcmp(r->method, allowed) == 0) {
                found = &routes[i];
            }
        }
    }
    const char *key = found != NULL && found->is_public ? "" : key_of(g, r);
    if (key == NULL) {
        g->metrics.rejected_key++;
        by__exchange_header(x, "WWW-Authenticate", "Bearer");
        by__reply_error(g, x, 401, "invalid_api_key", NULL,
                        "a key is needed: Authorization: Bearer KEY");
    } else if (found != NULL) {
        found->answer(g, x, r, key);
    } else if (allowed != NULL) {
        by__exchange_header(x, "Allow", allowed);
        by__reply_error(g, x, 405, "method_not_allowed", NULL, "this route has another method");
    } else {
        by__reply_error(g, x, 404, "route_not_found", NULL, "there is no such route");
    }
}

static void on_gone(void *user, by__exchange *x)
{
    by__waiter *waiter = by__exchange_get(x);
    BY_UNUSED(user);
    if (waiter != NULL) {
        waiter->gone(waiter);
    }
}

/* ---- the broker ---- */

static void on_message(void *user, json_t *message)
{
    by__gateway *g = user;
    const char *kind = by__get_text(message, "t");
    size_t i;
    json_t *event;
    g->heard = by__now();
    if (kind != NULL && strcmp(kind, "events") == 0) {
        json_array_foreach(json_object_get(message, "events"), i, event)
        {
            by__call_event(g, event);
        }
    } else if (kind != NULL && strcmp(kind, "task") == 0) {
        by__task_answer(g, message);
    } else if (kind != NULL && strcmp(kind, "state") == 0) {
        json_decref(g->state);
        g->state = json_incref(message);
        g->stated = by__now();
    }
}

/* Before the connection stands: requests may be sent at once. */
static void on_greet(void *user)
{
    by__gateway *g = user;
    json_t *hello = json_pack("{ss ss ss sI}", "t", "hello", "role", "gateway", "name", g->id,
                              "pid", (json_int_t)getpid());
    g->heard = by__now();
    (void)by__broker_link_send(&g->broker, hello);
    json_decref(hello);
}

static void on_ready(void *user)
{
    by__calls_again(user);
}

static void on_lost(void *user, const char *why)
{
    by__gateway *g = user;
    if (g->state != NULL) {
        by__log_event(&g->log, "broker_lost", "{ss}", "reason", why);
    }
    by__tasks_lost(g);
}

static void on_tick(uv_timer_t *timer)
{
    by__gateway *g = timer->data;
    if (by__now() - g->heard > BROKER_SILENCE) {
        by__broker_link_drop(&g->broker, "it says nothing");
    }
    by__calls_expire(g);
}

/* ---- the process ---- */

static void on_drain(uv_timer_t *timer)
{
    by__gateway *g = timer->data;
    g->options.drain_seconds -= 0.05;
    if (!by__http_server_busy(g->server) || g->options.drain_seconds <= 0.0) {
        uv_stop(&g->loop);
    }
}

static void on_stop(void *user, bool again)
{
    by__gateway *g = user;
    if (again) {
        uv_stop(&g->loop);
        return;
    }
    g->draining = true;
    by__log_event(&g->log, "draining", "{sI}", "requests", (json_int_t)g->metrics.running);
    by__http_server_drain(g->server);
    (void)uv_timer_start(&g->drain, on_drain, 50, 50);
}

/* Whether an address is of this machine alone. */
static bool is_local(const char *listen)
{
    return strncmp(listen, "unix:", 5) == 0 || strncmp(listen, "127.", 4) == 0 ||
           strncmp(listen, "localhost:", 10) == 0 || strncmp(listen, "[::1]:", 6) == 0;
}

static by_status open_gateway(by__gateway *g, by_error *error)
{
    const by_gateway_options *o = &g->options;
    by__http_options http = {.listen = o->listen,
                             .limits = {.head = (size_t)16 << 10,
                                        .body = o->body > 0 ? o->body : (size_t)8 << 20,
                                        .chunks = 65536},
                             .connections = o->connections,
                             .request = on_request,
                             .gone = on_gone,
                             .user = g};
    if (o->keys == NULL && !o->insecure && !is_local(o->listen)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is reachable by others: give a file of keys (--keys), listen on "
                            "127.0.0.1, or say --insecure",
                            o->listen);
    }
    if (o->keys != NULL) {
        BY_TRY(by__keys_open(&g->keys, o->keys, error));
    }
    BY_TRY(by__request_id(g->id, "gateway_", error));
    return by__http_server_open(&g->server, &g->loop, &http, error);
}

by_status by_gateway_run(const by_gateway_options *options, by_error *error)
{
    by__gateway g = {.options = *options, .log = {options->log, options->user}};
    by__stop *stop = NULL;
    g.options.drain_seconds = options->drain_seconds > 0.0 ? options->drain_seconds : 45.0;
    g.options.deadline = options->deadline > 0.0 ? options->deadline : 600.0;
    int code = uv_loop_init(&g.loop);
    if (code < 0) {
        return by__uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&g.loop, &g.drain);
    (void)uv_timer_init(&g.loop, &g.tick);
    g.drain.data = g.tick.data = &g;
    by_status status = open_gateway(&g, error);
    if (status == BY_OK) {
        status = by__stop_open(&stop, &g.loop, options->child, on_stop, &g, error);
    }
    if (status == BY_OK) {
        by__broker_link_handler handler = {.greet = on_greet,
                                           .ready = on_ready,
                                           .message = on_message,
                                           .lost = on_lost,
                                           .user = &g};
        by__broker_link_open(&g.broker, &g.loop, g.options.socket, &handler);
        (void)uv_timer_start(&g.tick, on_tick, TICK, TICK);
        by__log_event(&g.log, "gateway_ready", "{ss}", "url", by__http_server_url(g.server));
        if (options->ready != NULL) {
            options->ready(options->user, by__http_server_url(g.server));
        }
        (void)uv_run(&g.loop, UV_RUN_DEFAULT);
    }
    by__http_server_close(&g.server);
    if (g.broker.loop != NULL) {
        by__broker_link_close(&g.broker);
    }
    by__tasks_lost(&g);
    by__stop_close(&stop);
    uv_close((uv_handle_t *)&g.drain, NULL);
    uv_close((uv_handle_t *)&g.tick, NULL);
    (void)uv_run(&g.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&g.loop);
    by__id_table_free(&g.parts);
    by__keys_close(&g.keys);
    json_decref(g.state);
    return status;
}
