/* OpenAI's API: responses. A response is a chat with one answer, stored as a task with the same
 * id. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/openai/openai_responses.h"
#include "serve/gateway/tasks/gateway_tasks.h"
#include "serve/protocol/messages.h"

/* Seconds that a response is kept. */
#define LIFETIME (30.0 * 24.0 * 3600.0)

/* Stores an ended response at the broker. A client's later request for it is handled after this. */
static void store(const by__gateway_request *request)
{
    if (request->gateway == NULL || !json_is_true(json_object_get(request->own, "store"))) {
        return;
    }
    const by__gateway_choice *c = &request->choices[0];
    const by__gateway_part *p = &request->parts[0];
    if (c->text.failed) {
        return; /* the client gets an error */
    }
    json_t *message = by__task_message(request, request->id, NULL, NULL, LIFETIME);
    json_t *result = json_pack("{s[{ss% ss}] s{sI sI}}", "choices", "text",
                               c->text.data == NULL ? "" : c->text.data, c->text.length, "reason",
                               c->reason, "usage", "prompt_tokens", (json_int_t)p->prompt_tokens,
                               "completion_tokens", (json_int_t)p->generated);
    /* Only a task that will run needs its request. */
    if (json_object_set_new(message, "result", result) == 0 &&
        json_object_set_new(message, "ref", json_integer(0)) == 0 &&
        json_object_set_new(json_object_get(message, "task"), "request", json_object()) == 0) {
        (void)by__link_broker_send(&request->gateway->broker, message);
    }
    json_decref(message);
}

static void add_answer(by__gateway_request *request, by_string *out)
{
    store(request);
    json_t *response =
        by__openai_response_object(request, by__openai_response_status(request), json_null());
    by__json_write(out, response, JSON_COMPACT);
    json_decref(response);
}

static void add_end(by__gateway_request *request, by_string *out)
{
    store(request);
    by__openai_response_end(request, out);
}

/* ---- stored responses ---- */

/* The error of a task; null if it has none. */
static json_t *error_of(const json_t *row)
{
    const json_t *failure = json_object_get(row, "error");
    return json_is_object(failure)
               ? json_pack("{sO? sO?}", "code", json_object_get(failure, "code"), "message",
                           json_object_get(failure, "message"))
               : json_null();
}

/* Converts a task to a response. */
static void show(by__gateway *g, by__http_connection *x, const json_t *row)
{
    const json_t *task = json_object_get(row, "task");
    const char *status = by__protocol_get_text(row, "status");
    json_t *result = json_object_get(row, "result");
    by__task_request t;
    if (json_is_object(result) || !by__task_request_open(&t, g, task, NULL)) {
        by__gateway_reply_json(g, x, 200, by__task_result(g, task, result));
        return;
    }
    by__gateway_reply_json(
        g, x, 200,
        by__openai_response_object(&t.request, status == NULL ? "failed" : status, error_of(row)));
    by__task_request_close(&t);
}

/* The events of another response, which were numbered as they came, are not kept. */
static const char *refuse_stream(const json_t *row)
{
    const json_t *own = json_object_get(json_object_get(row, "task"), "own");
    return json_is_true(json_object_get(own, "background"))
               ? NULL
               : "the response was not made with 'background': fetch it without 'stream'";
}

static long long print_events(const by__gateway *g, const json_t *row, long long after, bool *last,
                              by_string *out)
{
    const char *status = by__protocol_get_text(row, "status");
    by__task_request t;
    *last = by__task_ended(row);
    if (!by__task_request_open(&t, g, json_object_get(row, "task"),
                               json_object_get(row, "result"))) {
        return after;
    }
    t.request.skipped = (uint64_t)(after + 1);
    by__openai_response_replay(&t.request, status == NULL ? "failed" : status, error_of(row), out);
    long long number = (long long)t.request.frames - 1;
    by__task_request_close(&t);
    return number;
}

static const by__gateway_watch_kind watched = {
    .what = "response", .refuse = refuse_stream, .print = print_events};

static void follow(by__gateway *g, by__http_connection *x, const json_t *row)
{
    by__task_watch(g, x, &watched, by__protocol_get_text(row, "id"), by__gateway_key(x), -1);
}

/* A response in the background is a task. */
static void start(by__gateway_request *request)
{
    if (!json_is_true(json_object_get(request->own, "background"))) {
        by__gateway_request_start(request);
        return;
    }
    int64_t cost = by__protocol_get_integer(request->parts[0].message, "cost");
    if (by__gateway_charge(request->gateway, request->connection, cost)) {
        by__task_ask(request->gateway, request->connection, request->stream ? follow : show,
                     "response", by__task_message(request, request->id, NULL, NULL, LIFETIME));
    }
    by__gateway_request_free(request);
}

const by__gateway_request_form by__openai_response_form = {.name = "response",
                                                           .route = "/v1/responses",
                                                           .prefix = "resp_",
                                                           .kind = BY__REQUEST_RESPONSE,
                                                           .keeps = true,
                                                           .read = by__openai_response_read,
                                                           .start = start,
                                                           .first = by__openai_response_first,
                                                           .text = by__openai_response_text,
                                                           .stop = by__openai_response_stop,
                                                           .end = add_end,
                                                           .fail = by__openai_response_fail,
                                                           .answer = add_answer};

static void show_deleted(by__gateway *g, by__http_connection *x, const json_t *row)
{
    by__gateway_reply_json(g, x, 200,
                           json_pack("{sO ss sb}", "id", json_object_get(row, "id"), "object",
                                     "response.deleted", "deleted", 1));
}

/* What a query asks for. */
typedef struct response_query {
    bool stream;
    long long after; /* number of an event; -1: none */
} response_query;

/* Returns false if a parameter, of `length` bytes, is unknown. */
static bool read_parameter(response_query *a, const char *text, size_t length)
{
    static const char after[] = "starting_after=";
    size_t skip = strlen(after);
    if (length > skip && memcmp(text, after, skip) == 0) {
        a->after = by__task_event_number(text + skip, length - skip);
        return a->after >= 0;
    }
    bool streams = length == strlen("stream=true") && memcmp(text, "stream=true", length) == 0;
    a->stream = a->stream || streams;
    return streams || length == 0 ||
           (length == strlen("stream=false") && memcmp(text, "stream=false", length) == 0);
}

/* Returns false, after replying, if a query asks for what the route does not do. */
static bool read_query(by__gateway *g, by__http_connection *x, const by__http_request *r,
                       response_query *a)
{
    *a = (response_query){.after = -1};
    for (const char *query = r->query; *query != '\0'; query += *query == '&') {
        size_t length = strcspn(query, "&");
        if (!read_parameter(a, query, length) || (a->stream && strcmp(r->method, "GET") != 0)) {
            char name[40];
            char message[192];
            (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(query, "=&"), query);
            (void)snprintf(message, sizeof message,
                           "the query parameter '%s' is not supported, or not with this value: GET "
                           "takes stream=true, and with it starting_after=N",
                           name);
            by__gateway_reply_error(g, x, 400, "invalid_request", name, message);
            return false;
        }
        query += length;
    }
    if (a->after >= 0 && !a->stream) {
        by__gateway_reply_error(g, x, 400, "invalid_request", "starting_after",
                                "'starting_after' is a place in a stream: it needs stream=true");
        return false;
    }
    return true;
}

/* Handles "/v1/responses/ID" and "/v1/responses/ID/cancel". */
void by__openai_answer_response(by__gateway *g, by__http_connection *x, const by__http_request *r,
                                const char *key)
{
    char id[65];
    response_query a;
    const char *rest = by__serve_path_id(id, r->path + strlen("/v1/responses/"));
    bool post = strcmp(r->method, "POST") == 0;
    bool deletes = strcmp(r->method, "DELETE") == 0;
    if (rest == NULL || strcmp(rest, post ? "/cancel" : "") != 0 || strncmp(id, "resp_", 5) != 0) {
        by__gateway_reply_error(g, x, 404, "response_not_found", NULL, "there is no such response");
        return;
    }
    if (!read_query(g, x, r, &a)) {
        return;
    }
    if (a.stream) {
        by__task_watch(g, x, &watched, id, key, a.after);
        return;
    }
    by__task_ask(g, x, deletes ? show_deleted : show, "response",
                 json_pack("{ss ss ss}", "t",
                           deletes ? "task_delete"
                           : post  ? "task_cancel"
                                   : "task_get",
                           "id", id, "owner", key));
}
