#include "serve/gateway/tasks/gateway_webhooks.h"

#include <stdlib.h>
#include <string.h>

#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/gateway/tasks/webhook_send.h"
#include "serve/protocol/messages.h"

/* Seconds beyond a message's timeout until a leased one is due again. */
#define LEASE 1.0
/* Seconds without an answer of the broker after which it is asked again. */
#define ANSWER_SECONDS 5.0
/* Limit on a receiver's Retry-After. */
#define MAX_WAIT 3600.0

struct by__gateway_webhooks {
    by__gateway *gateway;
    const by_serve_webhooks_config *config;
    by__gateway_webhook_rules *rules;
    by__gateway_webhook_sender *sender;
    uv_timer_t *timer;
    size_t busy;     /* number of messages in flight */
    double asked_at; /* by__now of a question to the broker without an answer; 0: none */
    uint64_t delivered;
    uint64_t retried;
    uint64_t given_up;
};

/* ---- messages ---- */

/* Prints the task without its result, which only its key may read. */
static char *print_body(const by__gateway *g, const json_t *row)
{
    char type[32];
    char time_text[24];
    json_t *task = by__task_view(g, row);
    (void)json_object_del(task, "result");
    (void)json_object_del(task, "webhook");
    (void)snprintf(type, sizeof type, "task.%s", by__protocol_get_text(row, "status"));
    by__utc(time_text, by__protocol_get_number(row, "ended_at", 0.0));
    json_t *body = json_pack("{ss ss so}", "type", type, "timestamp", time_text, "data", task);
    by_string text = {0};
    char *out = NULL;
    by__json_write(&text, body, JSON_COMPACT);
    json_decref(body);
    (void)by__string_release(&text, &out, NULL);
    return out;
}

/* NULL: memory is exhausted. */
static by__gateway_webhook_message *make_message(const by__gateway *g, const json_t *row,
                                                 const char *url)
{
    by__gateway_webhook_message *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return NULL;
    }
    m->url = by__strdup(url);
    m->body = print_body(g, row);
    if (m->url == NULL || m->body == NULL) {
        by__gateway_webhook_message_free(m);
        return NULL;
    }
    return m;
}

/* ---- outcomes ---- */

/* Reports an outcome: "delivered", "failed" or "pending", which is due again in `delay` seconds. */
static void report_outcome(by__gateway_webhooks *w, const by__gateway_webhook_message *m,
                           const char *state, double delay)
{
    json_t *message = json_pack("{ss ss sI ss sf}", "t", "task_hook", "id", m->id, "try",
                                (json_int_t)m->tries, "state", state, "delay", delay);
    (void)by__link_broker_send(&w->gateway->broker, message);
    json_decref(message);
}

static double pause_of(const by__gateway_webhooks *w, const by__gateway_webhook_message *m)
{
    uint16_t random = 0;
    (void)by__serve_random_bytes(&random, sizeof random, NULL);
    double pause = by__gateway_webhook_pause(w->config->pause, m->tries, random / 65535.0);
    double asked_at = m->retry_after < MAX_WAIT ? m->retry_after : MAX_WAIT;
    return asked_at > pause ? asked_at : pause;
}

/* Handles the outcome of a message. hopeless: another attempt would fail too. */
static void conclude(by__gateway_webhooks *w, const by__gateway_webhook_message *m, bool permanent)
{
    bool delivered = m->status >= 200 && m->status < 300;
    bool ends = delivered || permanent || m->tries >= w->config->attempts;
    double delay = ends ? 0.0 : pause_of(w, m);
    const char *outcome = delivered ? "delivered" : ends ? "failed" : "pending";
    w->delivered += delivered;
    w->given_up += ends && !delivered;
    w->retried += !ends;
    by__telemetry_log_event(&w->gateway->log, "webhook", "{ss ss sI sI ss sf}", "task", m->id,
                            "outcome", outcome, "try", (json_int_t)m->tries, "status",
                            (json_int_t)m->status, "reason", m->reason, "again", delay);
    report_outcome(w, m, outcome, delay);
}

static void on_ended(void *user, by__gateway_webhook_message *message)
{
    by__gateway_webhooks *w = user;
    w->busy--;
    conclude(w, message, message->permanent);
    by__gateway_webhook_message_free(message);
}

/* ---- messages of the broker ---- */

static void ask(by__gateway_webhooks *w)
{
    json_t *message =
        json_pack("{ss sf sI}", "t", "task_hooks", "lease", w->config->timeout + LEASE, "most",
                  (json_int_t)(BY__WEBHOOKS_CONCURRENT - w->busy));
    if (by__link_broker_send(&w->gateway->broker, message)) {
        w->asked_at = by__now();
    }
    json_decref(message);
}

static void on_timer(uv_timer_t *timer)
{
    by__gateway_webhooks *w = timer->data;
    const by__gateway *g = w->gateway;
    bool waits = w->asked_at > 0.0 && by__now() - w->asked_at < ANSWER_SECONDS;
    if (!waits && !g->draining && g->broker.ready && w->busy < BY__WEBHOOKS_CONCURRENT) {
        ask(w);
    }
}

/* Every attempt that the broker counts must get an outcome, even one for which memory was
 * exhausted. */
static void receive_row(by__gateway_webhooks *w, const json_t *row)
{
    const char *id = by__protocol_get_text(row, "id");
    const char *url = by__protocol_get_text(json_object_get(row, "task"), "webhook");
    by__gateway_webhook_message attempt = {.tries = by__protocol_get_integer(row, "tries")};
    by_error error = {0};
    if (id == NULL || !by__serve_id_valid(id) || url == NULL ||
        by__protocol_get_text(row, "status") == NULL) {
        return;
    }
    memcpy(attempt.id, id, strlen(id) + 1);
    if (by__gateway_webhook_check_url(w->rules, url, &error) != BY_OK) {
        /* It was listed when the task was created. */
        (void)snprintf(attempt.reason, sizeof attempt.reason, "its origin is not listed any more");
        conclude(w, &attempt, true);
        return;
    }
    by__gateway_webhook_message *m = make_message(w->gateway, row, url);
    if (m == NULL) {
        (void)snprintf(attempt.reason, sizeof attempt.reason, "out of memory");
        conclude(w, &attempt, false);
        return;
    }
    memcpy(m->id, attempt.id, sizeof m->id);
    m->tries = attempt.tries;
    w->busy++;
    by__gateway_webhook_send(w->sender, m);
}

void by__gateway_webhooks_receive(by__gateway_webhooks *webhooks, const json_t *message)
{
    by__gateway_webhooks *w = webhooks;
    size_t i;
    json_t *row;
    if (w == NULL) {
        return;
    }
    w->asked_at = 0.0;
    json_array_foreach(json_object_get(message, "hooks"), i, row)
    {
        receive_row(w, row);
    }
}

by_status by__gateway_webhooks_check(const by__gateway_webhooks *webhooks, const char *url,
                                     by_error *error)
{
    return by__gateway_webhook_check_url(webhooks == NULL ? NULL : webhooks->rules, url, error);
}

void by__gateway_webhooks_print(const by__gateway_webhooks *webhooks, by_string *out)
{
    const by__gateway_webhooks *w = webhooks;
    if (w == NULL) {
        return;
    }
    by__telemetry_metrics_family(out, "banyan_webhooks_total", "Attempts to deliver a webhook.",
                                 "counter");
    by__telemetry_metrics_sample(out, "banyan_webhooks_total", "outcome=\"delivered\"",
                                 (double)w->delivered);
    by__telemetry_metrics_sample(out, "banyan_webhooks_total", "outcome=\"retried\"",
                                 (double)w->retried);
    by__telemetry_metrics_sample(out, "banyan_webhooks_total", "outcome=\"given_up\"",
                                 (double)w->given_up);
}

/* ---- opening ---- */

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle);
}

by_status by__gateway_webhooks_open(by__gateway_webhooks **out, by__gateway *g,
                                    const by_serve_webhooks_config *config, by_error *error)
{
    by__gateway_webhook_rules *rules = NULL;
    by__gateway_webhooks *w = NULL;
    *out = NULL;
    BY_TRY(by__gateway_webhook_rules_open(&rules, config, error));
    if (rules == NULL) {
        return BY_OK;
    }
    by_status status = by__alloc((void **)&w, 1, sizeof *w, "webhooks", error);
    if (status != BY_OK) {
        by__gateway_webhook_rules_close(&rules);
        return status;
    }
    w->gateway = g;
    w->config = config;
    w->rules = rules;
    status = by__alloc((void **)&w->timer, 1, sizeof *w->timer, "webhooks", error);
    if (status == BY_OK) {
        status = by__gateway_webhook_sender_open(&w->sender, &g->loop, rules, config, on_ended, w,
                                                 error);
    }
    if (status != BY_OK) {
        free(w->timer);
        by__gateway_webhook_rules_close(&w->rules);
        free(w);
        return status;
    }
    (void)uv_timer_init(&g->loop, w->timer); /* cannot fail */
    w->timer->data = w;
    (void)uv_timer_start(w->timer, on_timer, BY__BEAT, BY__BEAT);
    *out = w;
    return BY_OK;
}

void by__gateway_webhooks_close(by__gateway_webhooks **webhooks)
{
    by__gateway_webhooks *w = *webhooks;
    if (w == NULL) {
        return;
    }
    *webhooks = NULL;
    by__gateway_webhook_sender_close(&w->sender);
    uv_close((uv_handle_t *)w->timer, on_timer_closed);
    by__gateway_webhook_rules_close(&w->rules);
    free(w);
}
