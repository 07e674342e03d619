/* The broker's process: its socket, its loop and its timer. */
#include "serve/broker/broker.h"

#include <stdlib.h>

#include "serve/base/sandbox_paths.h"
#include "serve/base/stop.h"

static void on_message(void *user, by__link *link, json_t *message)
{
    by__broker_message(user, by__link_get(link), message);
}

static void on_events(void *user, by__link *link, const char *list, size_t length)
{
    by__broker_event_list(user, by__link_get(link), list, length);
}

static void on_lost(void *user, by__link *link, const char *why)
{
    by__broker_remove_peer(user, by__link_get(link), why);
}

static void on_accepted(void *user, by__link *link)
{
    if (!by__broker_add_peer(user, link)) {
        by__link_close(&link);
    }
}

static void on_timer(uv_timer_t *timer)
{
    by__broker *b = timer->data;
    char call[BY__SANDBOX_CALL];
    if (by__serve_sandbox_violation(call)) {
        by__telemetry_log_event(&b->log, "sandbox_violation", "{ss}", "call", call);
    }
    by__broker_check_workers(b);
    by__broker_measure(b);
    by__broker_expire(b);
    by__broker_tasks_maintain(b);
    by__broker_versions_maintain(b);
    json_t *state = by__broker_state(b);
    for (by__broker_peer *p = b->peers; p != NULL; p = p->next) {
        if (p->role == BY__GATEWAY || p->role == BY__SUPERVISOR) {
            (void)by__link_send(p->link, state);
        }
    }
    json_decref(state);
}

static void on_check(uv_check_t *check)
{
    by__broker_commit(check->data);
    by__broker_flush(check->data);
    by__broker_free_peers(check->data);
}

/* ---- the process ---- */

static void on_stop(void *user, bool again)
{
    by__broker *b = user;
    /* Gateways and workers, which end before the broker, handle accepted requests: the broker does
     * not wait for anything. */
    BY_UNUSED(again);
    uv_stop(&b->loop);
}

/* Describes the sandbox and takes files away: before there is a loop or a thread. */
static by_status prepare_sandbox(by__serve_sandbox *out, const by_broker_options *o,
                                 const by__telemetry_log *log, by_error *error)
{
    int landlock = -1;
    by__serve_sandbox_paths paths = {0};
    *out = (by__serve_sandbox){.kind = BY__SANDBOX_BROKER};
    if (o->open) {
        return BY_OK;
    }
    by__serve_sandbox_paths_add_system(&paths, false);
    by__serve_sandbox_paths_add_file(&paths, o->socket, true);
    by__serve_sandbox_paths_add_file(&paths, o->tasks, true);
    BY_TRY(by__serve_sandbox_paths_prepare(out, &paths, &landlock, error));
    by__telemetry_log_landlock(log, landlock, "the broker can open every file of its user");
    return BY_OK;
}

static void set_defaults(by_broker_options *o)
{
    o->queue_requests = o->queue_requests > 0 ? o->queue_requests : 1024;
    o->queue_tokens = o->queue_tokens > 0 ? o->queue_tokens : 4000000;
    o->stored = o->stored > 0 ? o->stored : 100000;
    o->stored_bytes = o->stored_bytes > 0 ? o->stored_bytes : INT64_C(256) << 20;
    o->attempts = o->attempts > 0 ? o->attempts : 3;
    o->silence_seconds = o->silence_seconds > 0.0 ? o->silence_seconds : 5.0;
    o->hang_seconds = o->hang_seconds > 0.0 ? o->hang_seconds : 60.0;
}

by_status by_broker_run(const by_broker_options *options, by_error *error)
{
    by__broker b = {.options = *options, .log = {options->log, options->user}, .began = by__now()};
    by__link_handler handler = {
        .message = on_message, .events = on_events, .lost = on_lost, .user = &b};
    by__serve_stop *stop = NULL;
    by__serve_sandbox sandbox;
    set_defaults(&b.options);
    b.checked = b.began;
    BY_TRY(prepare_sandbox(&sandbox, options, &b.log, error));
    int code = uv_loop_init(&b.loop);
    if (code < 0) {
        return by__serve_uv_error(error, "make", "an event loop", code);
    }
    (void)uv_timer_init(&b.loop, &b.timer);
    (void)uv_check_init(&b.loop, &b.check);
    b.timer.data = b.check.data = &b;
    by_status status =
        by__link_listen(&b.listener, &b.loop, options->socket, on_accepted, &handler, error);
    if (status == BY_OK) {
        status = by__broker_tasks_load(&b, error);
    }
    if (status == BY_OK) {
        status = by__serve_stop_open(&stop, &b.loop, b.options.child, on_stop, &b, error);
    }
    if (status == BY_OK && !options->open) {
        status = by__serve_sandbox_enter(&sandbox, error);
    }
    if (status == BY_OK) {
        (void)uv_timer_start(&b.timer, on_timer, BY__BEAT, BY__BEAT);
        (void)uv_check_start(&b.check, on_check);
        by__telemetry_log_event(&b.log, "broker_ready", "{ss}", "socket", options->socket);
        (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    }
    by__serve_stop_close(&stop);
    by__link_listener_close(&b.listener);
    by__broker_release(&b);
    uv_close((uv_handle_t *)&b.timer, NULL);
    uv_close((uv_handle_t *)&b.check, NULL);
    (void)uv_run(&b.loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&b.loop);
    return status;
}
