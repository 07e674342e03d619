/* The process of a gateway, and its link to the broker. */
#include "serve/gateway/gateway_routes.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "serve/base/stop.h"
#include "serve/gateway/core/feedback.h"
#include "serve/gateway/core/gateway_read.h"
#include "serve/gateway/core/payload_log.h"
#include "serve/gateway/gateway_admin.h"
#include "serve/gateway/gateway_sandbox.h"
#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/gateway/tasks/gateway_webhooks.h"
#include "serve/protocol/messages.h"

/* Seconds without a message of the broker after which its link counts as lost. */
#define BROKER_SILENCE 10.0
/* Milliseconds between checks for expired requests. */
#define TICK 1000
/* Milliseconds between checks of the file of keys. */
#define CHECK_MS 1000
/* Files that are no connections of clients: links, logs, what is sent to others. */
#define OWN_FILES ((rlim_t)256)

/* ---- the broker ---- */

static void on_event(void *user, const by__serve_event *event)
{
    by__gateway_request_event(user, event);
}

static void on_pause(void *user, bool pauses)
{
    by__gateway *g = user;
    g->last_message_at = by__now();
    by__link_broker_pause(&g->broker, pauses);
}

static void on_events(void *user, const char *list, size_t length)
{
    by__gateway *g = user;
    g->last_message_at = by__now();
    if (!by__link_event_queue_add(&g->events, list, length)) {
        by__link_broker_drop(&g->broker, "no memory for its events");
    }
}

static void on_message(void *user, json_t *message)
{
    by__gateway *g = user;
    const char *kind = by__protocol_get_text(message, "t");
    g->last_message_at = by__now();
    if (kind != NULL && strcmp(kind, "task") == 0) {
        by__task_answer(g, message);
    } else if (kind != NULL && strcmp(kind, "hooks") == 0) {
        by__gateway_webhooks_receive(g->webhooks, message);
    } else if (kind != NULL && strcmp(kind, "feedback") == 0) {
        by__gateway_feedback_receive(g->feedback, message);
    } else if (kind != NULL && strcmp(kind, "feedback_passed") == 0) {
        by__gateway_feedback_passed(g->feedback, message);
    } else if (kind != NULL && strcmp(kind, "state") == 0) {
        json_decref(g->state);
        g->state = json_incref(message);
        g->state_at = by__now();
    }
}

/* So that the end of the link counts as no loss. */
static void send_leaving(by__gateway *g)
{
    json_t *message = json_pack("{ss}", "t", "leaving");
    (void)by__link_broker_send(&g->broker, message);
    json_decref(message);
}

/* Before the connection is established: requests may be sent from here on. */
static void send_hello(void *user)
{
    by__gateway *g = user;
    /* Each link has a name of its own: what an earlier one was still sent goes nowhere. At Redis it
     * would arrive between the subscription and the new submission of the requests, without the
     * events before it. */
    char name[BY__ID_BYTES + 12];
    (void)snprintf(name, sizeof name, "%s-%u", g->id, ++g->links);
    json_t *hello =
        json_pack("{ss ss ss sI ss*}", "t", "hello", "role", "gateway", "name", name, "pid",
                  (json_int_t)getpid(), "tag", g->feedback == NULL ? NULL : g->tag);
    g->last_message_at = by__now();
    (void)by__link_broker_send(&g->broker, hello);
    json_decref(hello);
    if (g->draining) {
        send_leaving(g);
    }
}

static void on_ready(void *user)
{
    by__gateway_requests_again(user);
}

static void on_lost(void *user, const char *why)
{
    by__gateway *g = user;
    BY_UNUSED(why);
    by__link_event_queue_clear(&g->events); /* all unfinished requests are submitted again */
    by__tasks_lost(g);
    by__gateway_feedback_lost(g->feedback);
}

static void on_refused(void *user, const char *why)
{
    by__gateway *g = user;
    (void)by_error_set(&g->failure, BY_ESTATE, "%s", why);
    uv_stop(&g->loop);
}

/* ---- quotas ---- */

static void write_quota(uv_work_t *work)
{
    by__gateway *g = work->data;
    g->unsaved = (by_error){0};
    (void)by__file_write(g->options.quota, g->saved, strlen(g->saved), &g->unsaved);
}

static void on_saved(uv_work_t *work, int status)
{
    by__gateway *g = work->data;
    BY_UNUSED(status);
    if (g->unsaved.status != BY_OK) {
        by__telemetry_log_event(&g->log, "quota_not_written", "{ss}", "reason", g->unsaved.message);
    }
    free(g->saved);
    g->saved = NULL;
}

/* Runs on another thread, so that a stalled disk does not block the loop. */
static void save_quota(by__gateway *g)
{
    if (g->limits == NULL || g->saved != NULL) {
        return;
    }
    g->saved = by__gateway_limits_print(g->limits, by__now(), by__serve_wall_clock());
    g->saving.data = g;
    if (g->saved != NULL && uv_queue_work(&g->loop, &g->saving, write_quota, on_saved) < 0) {
        write_quota(&g->saving);
        on_saved(&g->saving, 0);
    }
}

/* ---- keys ---- */

/* The file of keys has changed: keys that were removed are no longer valid. A file that cannot be
 * read changes nothing. */
static void on_keys(uv_fs_poll_t *handle, int status, const uv_stat_t *was, const uv_stat_t *is)
{
    by__gateway *g = handle->data;
    by__gateway_keys *keys = NULL;
    by_error error = {0};
    BY_UNUSED(status); /* a missing file is reported below */
    BY_UNUSED(was);
    BY_UNUSED(is);
    by_status read = by__gateway_keys_open_again(&keys, g->keys, g->options.keys, &error);
    if (read == BY_OK && g->limits != NULL) {
        read = by__gateway_limits_extend(g->limits, &g->options.config->limits, keys, &error);
    }
    if (read == BY_OK) {
        by__gateway_keys_close(&g->keys);
        g->keys = keys;
        by__telemetry_log_exposed(&g->log, g->options.keys, "the keys of clients");
        by__telemetry_log_event(&g->log, "keys_read", "{sI}", "keys",
                                (json_int_t)by__gateway_keys_count(keys));
    } else {
        by__gateway_keys_close(&keys);
        by__telemetry_log_event(&g->log, "keys_not_read", "{ss ss}", "reason", error.message,
                                "kept", "the keys as they were");
    }
}

static void on_tick(uv_timer_t *timer)
{
    by__gateway *g = timer->data;
    char call[BY__SANDBOX_CALL];
    if (by__serve_sandbox_violation(call)) {
        by__telemetry_log_event(&g->log, "sandbox_violation", "{ss}", "call", call);
    }
    /* A link that is held may have unread messages. */
    if (!g->events.paused && by__now() - g->last_message_at > BROKER_SILENCE) {
        by__link_broker_drop(&g->broker, "it says nothing");
    }
    by__gateway_requests_expire(g);
    by__gateway_requests_comment(g);
    by__telemetry_trace_export_log(g->tracing.exports, &g->log);
    save_quota(g);
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
    if (again || g->server == NULL) {
        uv_stop(&g->loop);
        return;
    }
    g->draining = true;
    by__telemetry_log_event(&g->log, "draining", "{sI}", "requests",
                            (json_int_t)g->metrics.running);
    send_leaving(g);
    by__http_server_drain(g->server);
    (void)uv_timer_start(&g->drain, on_drain, 50, 50);
}

by_status by_gateway_check(const by_gateway_options *o, by_error *error)
{
    struct sockaddr_storage address;
    by__gateway_keys *keys = NULL;
    BY_TRY(by__http_listen_address(&address, o->listen, error));
    if (o->keys == NULL && !o->insecure && !by__http_listens_locally(o->listen)) {
        return by_error_set(error, BY_ECONFIG,
                            "%s is reachable by other machines: give a file of keys (--keys), "
                            "listen on 127.0.0.1, or add --insecure",
                            o->listen);
    }
    if (o->keys != NULL) {
        BY_TRY(by__gateway_keys_open(&keys, o->keys, error));
        by__gateway_keys_close(&keys);
    }
    if (o->traces != NULL || o->config != NULL) {
        BY_TRY(by__gateway_trace_endpoint_check(
            o->traces != NULL ? o->traces : o->config->tracing.endpoint, error));
    }
    return o->broker == NULL ? BY_OK : by__link_check(o->broker, error);
}

/* Connections of clients, for which the process may have files, and some are left for its own: a
 * gateway that could open none would not reach its broker again while clients hold them all. */
static size_t count_connections(by__gateway *g)
{
    size_t wanted = g->options.connections > 0 ? g->options.connections : BY__HTTP_CONNECTIONS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return wanted;
    }
    rlim_t needed = (rlim_t)wanted + OWN_FILES;
    if (limit.rlim_cur < needed) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
        limit.rlim_cur = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : before;
    }
    rlim_t own = limit.rlim_cur / 2 < OWN_FILES ? limit.rlim_cur / 2 : OWN_FILES;
    if (limit.rlim_cur - own < (rlim_t)wanted) {
        wanted = (size_t)(limit.rlim_cur - own);
        by__telemetry_log_event(&g->log, "connections_limited", "{sI sI}", "connections",
                                (json_int_t)wanted, "files", (json_int_t)limit.rlim_cur);
    }
    return wanted;
}

static void log_exposed(const by__gateway *g)
{
    const by_gateway_options *o = &g->options;
    by__telemetry_log_exposed(&g->log, o->keys, "the keys of clients");
    by__telemetry_log_exposed(&g->log, o->quota, "what clients have used");
    by__link_redis_log_exposed(o->broker, &g->log);
    if (o->config != NULL) {
        by__telemetry_log_exposed(&g->log, o->config->webhooks.secret, "the secrets of webhooks");
        by__telemetry_log_exposed(&g->log, o->config->features.password_file,
                                  "the password of the feature store");
    }
}

static by_status open_gateway(by__gateway *g, by_error *error)
{
    static const char prefix[] = "gateway_";
    const by_gateway_options *o = &g->options;
    by__http_options http = {.listen = o->listen,
                             .limits = {.head = (size_t)16 << 10,
                                        .body = o->body > 0 ? o->body : (size_t)8 << 20,
                                        .chunks = 65536},
                             .connections = count_connections(g),
                             .head = by__gateway_head,
                             .request = by__gateway_on_request,
                             .disconnected = by__gateway_on_disconnect,
                             .refused = by__gateway_on_refused,
                             .done = by__gateway_done,
                             .user = g};
    BY_TRY(by_gateway_check(o, error));
    g->anyone.scopes = BY__SCOPES_ALL & ~(unsigned)BY__SCOPE_ADMIN;
    if (o->keys != NULL) {
        BY_TRY(by__gateway_keys_open(&g->keys, o->keys, error));
        int code = uv_fs_poll_start(&g->key_file, on_keys, o->keys, CHECK_MS);
        if (code < 0) {
            return by__serve_uv_error(error, "watch", o->keys, code);
        }
    }
    if (o->config != NULL) {
        const by_serve_gateway_config *c = &o->config->gateway;
        http.head_seconds = c->head_timeout;
        http.body_seconds = c->body_timeout;
        http.idle_seconds = c->idle_timeout;
        http.output_seconds = c->output_timeout;
        http.output = (size_t)c->output;
        http.output_total = (size_t)c->output_total;
        BY_TRY(by__http_addresses_open(&g->addresses, (size_t)c->connections_per_address,
                                       &c->proxies, error));
        http.addresses = g->addresses;
        BY_TRY(by__gateway_limits_open(&g->limits, &o->config->limits, g->keys, o->quota, error));
        BY_TRY(by__gateway_payload_log_open(&g->payload, &g->loop, &o->config->payload, error));
        const by_serve_tracing_config *tracing = &o->config->tracing;
        g->tracing.fraction = tracing->fraction;
        BY_TRY(by__telemetry_trace_export_open(&g->tracing.exports,
                                               o->traces != NULL ? o->traces : tracing->endpoint,
                                               tracing->service, (size_t)tracing->queue, error));
        BY_TRY(by__gateway_feedback_open(&g->feedback, g, &o->config->feedback, error));
        BY_TRY(by__gateway_webhooks_open(&g->webhooks, g, &o->config->webhooks, error));
        BY_TRY(by__features_open(&g->features, &g->loop, o->config, &g->log, error));
    }
    log_exposed(g);
    BY_TRY(by__serve_request_id(g->id, prefix, error));
    memcpy(g->tag, g->id + strlen(prefix), BY__TAG);
    return by__http_server_open(&g->server, &g->loop, &http, error);
}

/* Answers requests until the process is told to stop. */
static by_status run_loop(by__gateway *g, by_error *error)
{
    by__link_broker_handler handler = {.hello = send_hello,
                                       .ready = on_ready,
                                       .message = on_message,
                                       .events = on_events,
                                       .refused = on_refused,
                                       .lost = on_lost,
                                       .user = g,
                                       .log = &g->log};
    by__link_broker_open(&g->broker, &g->loop, g->options.broker, NULL, &handler);
    (void)uv_timer_start(&g->tick, on_tick, TICK, TICK);
    by__telemetry_log_event(&g->log, "gateway_ready", "{ss}", "url",
                            by__http_server_url(g->server));
    if (g->options.ready != NULL) {
        g->options.ready(g->options.user, by__http_server_url(g->server));
    }
    (void)uv_run(&g->loop, UV_RUN_DEFAULT);
    if (g->failure.status != BY_OK) {
        *error = g->failure;
    }
    return g->failure.status;
}

by_status by_gateway_run(const by_gateway_options *options, by_error *error)
{
    by__gateway g = {
        .options = *options, .forms = by__gateway_forms, .log = {options->log, options->user}};
    by__serve_stop *stop = NULL;
    by__serve_sandbox sandbox;
    int landlock = -1;
    if (by__link_redis_is_address(options->broker)) {
        by__link_redis_address address;
        BY_TRY(by__link_redis_address_read(&address, options->broker, error));
    }
    BY_TRY(by__gateway_sandbox_prepare(&sandbox, &landlock, options, error));
    by__telemetry_log_landlock(&g.log, landlock, "the gateway can open every file of its user");
    g.options.drain_seconds = options->drain_seconds > 0.0 ? options->drain_seconds : 45.0;
    g.options.deadline = options->deadline > 0.0 ? options->deadline : 600.0;
    int code = uv_loop_init(&g.loop);
    if (code < 0) {
        return by__serve_uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&g.loop, &g.drain);
    (void)uv_timer_init(&g.loop, &g.tick);
    (void)uv_timer_init(&g.loop, &g.watching);
    (void)uv_fs_poll_init(&g.loop, &g.key_file);
    g.drain.data = g.tick.data = g.key_file.data = &g;
    by__link_event_queue_open(
        &g.events, &g.loop,
        &(by__link_event_handler){.event = on_event, .pause = on_pause, .user = &g});
    by_status status = open_gateway(&g, error);
    if (status == BY_OK) {
        status = by__serve_stop_open(&stop, &g.loop, options->child, on_stop, &g, error);
    }
    if (status == BY_OK && !options->open) {
        status = by__serve_sandbox_enter(&sandbox, error);
    }
    if (status == BY_OK) {
        status = run_loop(&g, error);
    }
    by__gateway_admin_close(&g);
    (void)uv_timer_stop(&g.drain); /* what is closed below turns the loop */
    by__http_server_close(&g.server);
    by__gateway_readings_close(&g);
    while (g.readers > 0) { /* their threads use the rules of webhooks, which are freed below */
        (void)uv_run(&g.loop, UV_RUN_ONCE);
    }
    if (g.broker.loop != NULL) {
        by__link_broker_close(&g.broker);
    }
    by__tasks_lost(&g);
    by__gateway_payload_log_close(&g.payload);
    by__gateway_feedback_close(&g.feedback);
    by__gateway_webhooks_close(&g.webhooks);
    by__features_close(&g.features);
    by__serve_stop_close(&stop);
    by__link_event_queue_close(&g.events);
    uv_close((uv_handle_t *)&g.drain, NULL);
    uv_close((uv_handle_t *)&g.tick, NULL);
    uv_close((uv_handle_t *)&g.watching, NULL);
    uv_close((uv_handle_t *)&g.key_file, NULL);
    (void)uv_run(&g.loop, UV_RUN_DEFAULT);
    save_quota(&g); /* includes tokens that the last requests did not use */
    (void)uv_run(&g.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&g.loop);
    by__telemetry_trace_export_close(&g.tracing.exports, &g.log);
    by_string_free(&g.frame);
    by__serve_id_table_free(&g.parts);
    by__http_addresses_close(&g.addresses);
    by__telemetry_model_metrics_free(&g.models);
    by__gateway_limits_close(&g.limits);
    by__gateway_keys_close(&g.keys);
    json_decref(g.state);
    return status;
}
