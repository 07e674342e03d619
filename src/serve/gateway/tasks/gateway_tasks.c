/* Tasks over HTTP: a request that the broker keeps on disk is answered with 202 and an id at once;
 * its result can be fetched later from any gateway, even after restarts. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/base/fields.h"
#include "serve/gateway/core/gateway_read.h"
#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/gateway/tasks/gateway_webhooks.h"
#include "serve/protocol/messages.h"

/* Default and largest number of seconds that a task is kept. */
#define DEFAULT_LIFETIME (24.0 * 3600.0)
#define MAX_LIFETIME     (30.0 * 24.0 * 3600.0)

/* A question to the broker for which a client waits. */
struct by__gateway_ask {
    by__gateway_waiter waiter;
    by__gateway *gateway;
    by__http_connection *connection; /* NULL: the client has disconnected */
    struct by__gateway_ask *next;
    uint64_t ref;
    by__task_show *show;
    const char *what; /* that is asked for: "task" */
    /* Of a new task: */
    char id[BY__ID_BYTES];
    char model[256];
    char digest[65]; /* of what was asked for, with a key of idempotency; "": none */
};

static void on_disconnect(by__gateway_waiter *waiter)
{
    ((struct by__gateway_ask *)(void *)waiter)->connection = NULL;
}

void by__task_ask(by__gateway *g, by__http_connection *x, by__task_show *show, const char *what,
                  json_t *message)
{
    struct by__gateway_ask *a = NULL;
    by_error error = {0};
    if (g->broker.link == NULL || g->draining) {
        by__gateway_used(x, 0);
        by__gateway_reply_error(g, x, 503, "unavailable", NULL, "the broker is not reached");
    } else if (message == NULL ||
               by__alloc((void **)&a, 1, sizeof *a, "a question", &error) != BY_OK) {
        by__gateway_used(x, 0);
        by__gateway_reply_error(g, x, 503, "out_of_memory", NULL, "no memory for a request");
    } else {
        a->waiter.disconnected = on_disconnect;
        a->gateway = g;
        a->connection = x;
        a->show = show;
        a->what = what;
        const json_t *task = json_object_get(message, "task");
        by__protocol_copy_text(a->id, sizeof a->id,
                               task == NULL ? NULL : by__protocol_get_text(message, "id"));
        by__protocol_copy_text(a->model, sizeof a->model, by__protocol_get_text(task, "model"));
        by__protocol_copy_text(a->digest, sizeof a->digest, by__protocol_get_text(task, "digest"));
        a->ref = ++g->next_ref;
        a->next = g->asks;
        g->asks = a;
        by__http_connection_set(x, &a->waiter);
        (void)json_object_set_new(message, "ref", json_integer((json_int_t)a->ref));
        (void)by__link_broker_send(&g->broker, message);
    }
    json_decref(message);
}

/* ---- tasks as clients see them ---- */

/* Fills the sequences of a request from the broker's gathered answer. */
static void fill_choices(by__gateway_request *request, const json_t *list)
{
    for (size_t i = 0; i < request->n; i++) {
        const json_t *c = json_array_get(list, i);
        const json_t *text = json_object_get(c, "text");
        const char *reason = by__protocol_get_text(c, "reason");
        request->choices[i].score = by__protocol_get_number(c, "score", 0.0);
        by_string_add(&request->choices[i].text,
                      json_is_string(text) ? json_string_value(text) : "",
                      json_string_length(text));
        (void)snprintf(request->choices[i].reason, sizeof request->choices[i].reason, "%s",
                       reason != NULL && strcmp(reason, "length") == 0 ? "length" : "stop");
    }
}

bool by__task_request_open(by__task_request *out, const by__gateway *g, const json_t *task,
                           const json_t *result)
{
    const json_t *list = json_object_get(result, "choices");
    const json_t *usage = json_object_get(result, "usage");
    const char *id = by__protocol_get_text(task, "call");
    by__gateway_request *request = &out->request;
    *out = (by__task_request){
        .request = {.form = by__gateway_form_named(g, by__protocol_get_text(task, "kind")),
                    .created = by__protocol_get_integer(task, "created"),
                    .model = (char *)(uintptr_t)by__protocol_get_text(task, "model"),
                    .own = json_object_get(task, "own"),
                    .whole = json_object_get(result, "result"),
                    .n = list == NULL ? 1 : json_array_size(list),
                    .part_count = 1},
        .part = {.prompt_tokens = by__protocol_get_integer(usage, "prompt_tokens"),
                 .generated = by__protocol_get_integer(usage, "completion_tokens")}};
    if (request->n < 1 || request->n > BY__MAX_N || id == NULL || request->model == NULL ||
        request->form == NULL) {
        return false;
    }
    request->parts = &out->part;
    request->choices = out->choices;
    (void)snprintf(request->id, sizeof request->id, "%s", id);
    fill_choices(request, list);
    return true;
}

void by__task_request_close(by__task_request *t)
{
    for (size_t i = 0; i < t->request.n; i++) {
        by_string_free(&t->choices[i].text);
    }
}

json_t *by__task_result(const by__gateway *g, const json_t *task, const json_t *result)
{
    by__task_request t;
    by_string out = {0};
    if (!by__task_request_open(&t, g, task, result)) {
        return json_null();
    }
    by__gateway_request_choose_best(&t.request);
    t.request.form->answer(&t.request, &out);
    json_t *value = out.failed ? NULL : by_json_load(out.data, out.length, JSON_ALLOW_NUL, NULL);
    by_string_free(&out);
    by__task_request_close(&t);
    return value;
}

bool by__task_ended(const json_t *row)
{
    const char *status = by__protocol_get_text(row, "status");
    return status == NULL || (strcmp(status, "queued") != 0 && strcmp(status, "in_progress") != 0);
}

json_t *by__task_view(const by__gateway *g, const json_t *row)
{
    const json_t *result = json_object_get(row, "result");
    json_t *out =
        json_pack("{sO ss sO sI sI sO sO}", "id", json_object_get(row, "id"), "object", "task",
                  "status", json_object_get(row, "status"), "created_at",
                  (json_int_t)by__protocol_get_number(row, "created_at", 0.0), "expires_at",
                  (json_int_t)by__protocol_get_number(row, "expires_at", 0.0), "attempts",
                  json_object_get(row, "attempts"), "error", json_object_get(row, "error"));
    json_t *hook = json_object_get(row, "hook");
    if (hook != NULL && json_object_set(out, "webhook", hook) != 0) {
        json_decref(out);
        return NULL;
    }
    json_t *answer = json_is_object(result)
                         ? by__task_result(g, json_object_get(row, "task"), result)
                         : json_null();
    if (json_object_set_new(out, "result", answer) != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* Whether the task is one that its key of idempotency stood for already, and another one. */
static bool conflicts(const struct by__gateway_ask *a, const json_t *row)
{
    const char *known = by__protocol_get_text(json_object_get(row, "task"), "digest");
    return a->digest[0] != '\0' && known != NULL && strcmp(known, a->digest) != 0;
}

void by__task_refuse(by__gateway *g, by__http_connection *x, const char *model, const json_t *error)
{
    int status = (int)by__protocol_get_integer(error, "status");
    const char *code = by__protocol_get_text(error, "code");
    const char *text = by__protocol_get_text(error, "message");
    by__telemetry_model_metrics *counts = by__gateway_counts(g, model);
    by__telemetry_metrics_refused(g->metrics.rejected, code);
    if (counts != NULL) {
        by__telemetry_metrics_refused(counts->rejected, code);
    }
    if (code != NULL && strcmp(code, "model_not_found") == 0) {
        by__gateway_reply_no_model(g, x, model);
        return;
    }
    by__gateway_retry_after(x, by__protocol_get_number(error, "retry_after", 0.0));
    by__gateway_reply_error(g, x, status < 400 || status > 599 ? 500 : status,
                            code == NULL ? "server_error" : code, NULL, text == NULL ? "" : text);
}

void by__task_missing(by__gateway *g, by__http_connection *x, const char *what)
{
    char unknown[64];
    char sentence[64];
    (void)snprintf(unknown, sizeof unknown, "%s_not_found", what);
    (void)snprintf(sentence, sizeof sentence, "there is no such %s", what);
    by__gateway_reply_error(g, x, 404, unknown, NULL, sentence);
}

static void answer(struct by__gateway_ask *a, const json_t *message)
{
    by__gateway *g = a->gateway;
    const json_t *row = json_object_get(message, "task");
    const json_t *error = json_object_get(message, "error");
    if (json_is_object(error)) {
        by__gateway_used(a->connection, 0);
        by__task_refuse(g, a->connection, a->model, error);
        return;
    }
    if (by__protocol_get_text(row, "id") == NULL) {
        by__task_missing(g, a->connection, a->what);
        return;
    }
    if (a->id[0] != '\0' && strcmp(by__protocol_get_text(row, "id"), a->id) != 0) {
        by__gateway_used(a->connection, 0); /* it was charged when it was new */
    }
    if (conflicts(a, row)) {
        by__gateway_reply_error(
            g, a->connection, 409, "idempotency_conflict", NULL,
            "this Idempotency-Key stands for a task that was asked for otherwise");
        return;
    }
    by__http_connection_set(a->connection, NULL);
    a->show(g, a->connection, row);
}

static void show_task(by__gateway *g, by__http_connection *x, const json_t *row)
{
    by__gateway_reply_json(g, x, 200, by__task_view(g, row));
}

static void show_new(by__gateway *g, by__http_connection *x, const json_t *row)
{
    char location[96];
    (void)snprintf(location, sizeof location, "/v1/tasks/%.64s", by__protocol_get_text(row, "id"));
    by__http_connection_header(x, "Location", location);
    by__http_connection_header(x, "Retry-After", "1");
    by__gateway_reply_json(g, x, 202, by__task_view(g, row));
}

void by__task_answer(by__gateway *g, const json_t *message)
{
    uint64_t ref = (uint64_t)by__protocol_get_integer(message, "ref");
    for (struct by__gateway_ask **at = &g->asks; *at != NULL; at = &(*at)->next) {
        struct by__gateway_ask *a = *at;
        if (a->ref == ref) {
            *at = a->next;
            if (a->connection != NULL) {
                answer(a, message);
            }
            free(a);
            return;
        }
    }
    by__gateway_watch_answer(g, message);
}

void by__tasks_lost(by__gateway *g)
{
    while (g->asks != NULL) {
        struct by__gateway_ask *a = g->asks;
        g->asks = a->next;
        if (a->connection != NULL) {
            /* The task may have been written: with an idempotency key a retry is safe. */
            by__gateway_reply_error(g, a->connection, 503, "unavailable", NULL,
                                    "the broker was lost before it answered");
        }
        free(a);
    }
    by__gateway_watches_lost(g);
}

/* ---- routes ---- */

typedef struct task_fields {
    const char *endpoint;
    const json_t *body;
    const char *webhook;
    double expires;
} task_fields;

static const by__serve_field fields[] = {
    BY__STRING("endpoint", task_fields, endpoint, 64),
    BY__ANY("body", task_fields, body),
    BY__STRING("webhook", task_fields, webhook, BY__WEBHOOK_URL),
    BY__NUMBER("expires_after", task_fields, expires, 1, MAX_LIFETIME),
};

/* Makes the message on any thread; state: the broker's last one, NULL if there was none. */
static json_t *make_message(const by__gateway_request *request, const json_t *state, const char *id,
                            const char *idempotency, const char *webhook, double expires)
{
    const json_t *m = request->parts[0].message;
    json_t *text = request->parts[0].text != NULL
                       ? json_incref(request->parts[0].text)
                       : by__protocol_request_text(json_object_get(m, "request"));
    double now = by__serve_wall_clock();
    return json_pack("{ss ss ss ss? sf sb s{ss ss ss sI sI sO sO so sO? ss*}}", "t", "task_add",
                     "id", id, "owner", request->key, "key", idempotency, "expires", now + expires,
                     "seen", (int)(by__gateway_model_state(state, request->model) != NULL), "task",
                     "kind", request->form->name, "call", request->id, "model", request->model,
                     "created", (json_int_t)request->created, "sequences", (json_int_t)request->n,
                     "cost", json_object_get(m, "cost"), "priority", json_object_get(m, "priority"),
                     "request", text, "own", request->own, "webhook", webhook);
}

json_t *by__task_message(const by__gateway_request *request, const char *id,
                         const char *idempotency, const char *webhook, double expires)
{
    return make_message(request, request->gateway->state, id, idempotency, webhook, expires);
}

/* Reads the body of a task as its own route would. */
static by_status read_body(by__gateway_reading *r, const task_fields *a, by__gateway_request **out)
{
    const by__gateway_request_form *form = by__gateway_form_of_route(r->gateway, a->endpoint);
    by_string body = {0};
    by__json_write(&body, a->body, JSON_COMPACT);
    if (body.failed) {
        by_string_free(&body);
        return by_error_set(&r->error, BY_EMEMORY, "out of memory: a task");
    }
    by_status status = by__gateway_request_open(out, r->gateway, form, r->key, &r->error);
    if (status == BY_OK) {
        const by__http_request request = {.method = "POST",
                                          .path = a->endpoint,
                                          .query = "",
                                          .headers = {{"content-type", "application/json"}},
                                          .header_count = 1,
                                          .body = body.data,
                                          .body_length = body.length};
        (*out)->state = r->state;
        status = form->read(*out, &request, &r->param, &r->error);
        if (status == BY_OK && by__gateway_reading_knows_not(r, (*out)->model)) {
            status = by_error_set(&r->error, BY_EARG, "the model is not served");
        }
        if (status == BY_OK) {
            status = by__gateway_request_encode(*out, body.length, &r->error);
        }
    }
    by_string_free(&body);
    return status;
}

/* What a task cannot be. */
static by_status check_call(by__gateway_reading *r, const by__gateway_request *request)
{
    if (request->part_count != 1 || request->stream || request->logprobs) {
        r->param = request->stream ? "stream" : request->logprobs ? "logprobs" : "prompt";
        return by_error_set(&r->error, BY_EARG,
                            request->stream     ? "a task cannot be streamed: set 'stream' to false"
                            : request->logprobs ? "a task has no 'logprobs'"
                                                : "a task has one prompt: send a task for each");
    }
    if (request->fetches) {
        r->param = "entities";
        return by_error_set(&r->error, BY_EARG, "a task has 'rows', and no 'entities'");
    }
    return BY_OK;
}

/* Makes the message that adds a task from a body that its own route would accept. */
static by_status make_task(by__gateway_reading *r, const task_fields *a, const char *idempotency)
{
    char id[BY__ID_BYTES];
    if (a->webhook != NULL) {
        r->param = "webhook";
        BY_TRY(by__gateway_webhooks_check(r->gateway->webhooks, a->webhook, &r->error));
    }
    r->param = "endpoint";
    if (by__gateway_form_of_route(r->gateway, a->endpoint) == NULL) {
        return by_error_set(&r->error, BY_EARG,
                            "'endpoint' must be a route that computes, such as /v1/completions");
    }
    r->param = "body";
    if (!json_is_object(a->body)) {
        return by_error_set(&r->error, BY_EARG,
                            "'body' must be an object: what the endpoint would be sent");
    }
    r->param = NULL;
    BY_TRY(by__serve_request_id(id, "task_", &r->error));
    by__gateway_request *request = NULL;
    by_status status = read_body(r, a, &request);
    if (status == BY_OK) {
        status = check_call(r, request);
    }
    if (status == BY_OK) {
        r->message = make_message(request, r->state, id, idempotency, a->webhook, a->expires);
    }
    if (request != NULL) {
        if (status != BY_OK && r->param == request->place) {
            memcpy(r->place, request->place, sizeof r->place); /* which outlives the request */
            r->param = r->place;
        }
        by__gateway_request_free(request);
    }
    return status;
}

/* Adds the digest that distinguishes a repeated request from another one with the same key. It is
 * of the client's body, because a task has more than that, such as a seed. */
static by_status add_digest(json_t *message, const json_t *body, by_error *error)
{
    char digest[65];
    char *text = by__json_dump(body, JSON_COMPACT | JSON_SORT_KEYS);
    bool added = text != NULL;
    if (added) {
        by__gateway_sha256_hex(digest, text);
        added = json_object_set_new(json_object_get(message, "task"), "digest",
                                    json_string(digest)) == 0;
    }
    free(text);
    return added ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a task");
}

static by_status read_task(by__gateway_reading *r)
{
    task_fields a = {.expires = DEFAULT_LIFETIME};
    const char *idempotency = by__http_header_of(&r->http, "idempotency-key");
    json_t *body;
    BY_TRY(by__gateway_body_parse(&body, r->http.body, r->http.body_length, &r->error));
    by_status status =
        by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), body, &r->param, &r->error);
    if (status == BY_OK && idempotency != NULL &&
        (idempotency[0] == '\0' || strlen(idempotency) > 255 ||
         !by__utf8_valid(idempotency, strlen(idempotency)))) {
        status = by_error_set(&r->error, BY_EARG, "Idempotency-Key is not 1 to 255 bytes of UTF-8");
    }
    if (status == BY_OK) {
        status = make_task(r, &a, idempotency);
    }
    if (status == BY_OK && idempotency != NULL) {
        status = add_digest(r->message, body, &r->error);
    }
    json_decref(body);
    return status;
}

static void answer_task(by__gateway_reading *r)
{
    json_t *message = r->message;
    if (r->status != BY_OK) {
        by__gateway_reply_refused(r->gateway, r->connection, r->status, r->param, &r->error);
        return;
    }
    r->message = NULL;
    if (by__gateway_charge(r->gateway, r->connection,
                           by__protocol_get_integer(json_object_get(message, "task"), "cost"))) {
        by__task_ask(r->gateway, r->connection, show_new, "task", message);
    } else {
        json_decref(message);
    }
}

void by__gateway_answer_task_new(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                 const char *key)
{
    static const by__gateway_read_kind kind = {read_task, answer_task};
    if (by__gateway_takes_json(g, x, r)) {
        by__gateway_read(g, x, r, key, &kind);
    }
}

/* Handles "/v1/tasks/ID", "/v1/tasks/ID/events" and "/v1/tasks/ID/cancel". */
static void answer_named(by__gateway *g, by__http_connection *x, const by__http_request *r,
                         const char *key, const char *question)
{
    char id[65];
    const char *rest = by__serve_path_id(id, r->path + strlen("/v1/tasks/"));
    bool post = strcmp(r->method, "POST") == 0;
    bool follows = rest != NULL && strcmp(rest, "/events") == 0 && strcmp(r->method, "GET") == 0;
    if (rest == NULL || (!follows && strcmp(rest, post ? "/cancel" : "") != 0)) {
        by__gateway_reply_error(g, x, 404, "task_not_found", NULL, "there is no such task");
        return;
    }
    if (follows) {
        by__gateway_answer_task_events(g, x, r, id, key);
        return;
    }
    by__task_ask(g, x, show_task, "task",
                 json_pack("{ss ss ss}", "t", question, "id", id, "owner", key));
}

void by__gateway_answer_task(by__gateway *g, by__http_connection *x, const by__http_request *r,
                             const char *key)
{
    answer_named(g, x, r, key, "task_get");
}

void by__gateway_answer_task_cancel(by__gateway *g, by__http_connection *x,
                                    const by__http_request *r, const char *key)
{
    answer_named(g, x, r, key, strcmp(r->method, "POST") == 0 ? "task_cancel" : "task_drop");
}
