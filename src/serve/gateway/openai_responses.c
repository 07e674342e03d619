/* OpenAI's API: responses. A response is a chat with one answer, stored as a task with the same
 * id. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/gateway_routes.h"
#include "serve/gateway/openai_responses.h"
#include "serve/messages.h"

/* Seconds that a response is kept. */
#define KEPT (30.0 * 24.0 * 3600.0)

/* Stores an ended response at the broker. A client's later request for it is handled after this. */
static void store(const by__call *call)
{
    if (call->gateway == NULL || !json_is_true(json_object_get(call->own, "store"))) {
        return;
    }
    const by__choice *c = &call->choices[0];
    const by__part *p = &call->parts[0];
    if (c->text.failed) {
        return; /* the client gets an error */
    }
    json_t *message = by__task_message(call, call->id, NULL, NULL, KEPT);
    json_t *result = json_pack("{s[{ss% ss}] s{sI sI}}", "choices", "text",
                               c->text.data == NULL ? "" : c->text.data, c->text.length, "reason",
                               c->reason, "usage", "prompt_tokens", (json_int_t)p->prompt_tokens,
                               "completion_tokens", (json_int_t)p->generated);
    /* Only a task that will run needs its request. */
    if (json_object_set_new(message, "result", result) == 0 &&
        json_object_set_new(message, "ref", json_integer(0)) == 0 &&
        json_object_set_new(json_object_get(message, "task"), "request", json_object()) == 0) {
        (void)by__broker_link_send(&call->gateway->broker, message);
    }
    json_decref(message);
}

static void add_answer(by__call *call, by__text *out)
{
    store(call);
    json_t *response = by__response_object(call, by__response_status(call), json_null());
    by__text_dump(out, response, JSON_COMPACT);
    json_decref(response);
}

static void add_end(by__call *call, by__text *out)
{
    store(call);
    by__response_end(call, out);
}

/* ---- routes ---- */

/* Converts a task to a response. */
static void show(by__gateway *g, by__exchange *x, const json_t *row)
{
    const json_t *task = json_object_get(row, "task");
    const char *status = by__get_text(row, "status");
    const json_t *failure = json_object_get(row, "error");
    json_t *result = json_object_get(row, "result");
    if (json_is_object(result)) {
        by__reply_json(g, x, 200, by__task_result(task, result));
        return;
    }
    by__call call = {.created = by__get_integer(task, "created"),
                     .own = json_object_get(task, "own"),
                     .model = (char *)(uintptr_t)by__get_text(task, "model")};
    (void)snprintf(call.id, sizeof call.id, "%s", by__get_text(row, "id"));
    json_t *error = json_is_object(failure)
                        ? json_pack("{sO? sO?}", "code", json_object_get(failure, "code"),
                                    "message", json_object_get(failure, "message"))
                        : json_null();
    by__reply_json(g, x, 200,
                   by__response_object(&call, status == NULL ? "failed" : status, error));
}

/* A response in the background is a task. */
static void start(by__call *call)
{
    if (!json_is_true(json_object_get(call->own, "background"))) {
        by__call_start(call);
        return;
    }
    int64_t cost = by__get_integer(call->parts[0].message, "cost");
    if (by__gateway_charge(call->gateway, call->exchange, cost)) {
        by__task_ask(call->gateway, call->exchange, show, "response",
                     by__task_message(call, call->id, NULL, NULL, KEPT));
    }
    by__call_free(call);
}

const by__call_form by__response_form = {.name = "response",
                                         .route = "/v1/responses",
                                         .prefix = "resp_",
                                         .kind = BY__CALL_RESPONSE,
                                         .keeps = true,
                                         .read = by__response_read,
                                         .start = start,
                                         .first = by__response_first,
                                         .text = by__response_text,
                                         .stop = by__response_stop,
                                         .end = add_end,
                                         .fail = by__response_fail,
                                         .answer = add_answer};

static void show_deleted(by__gateway *g, by__exchange *x, const json_t *row)
{
    by__reply_json(g, x, 200,
                   json_pack("{sO ss sb}", "id", json_object_get(row, "id"), "object",
                             "response.deleted", "deleted", 1));
}

/* Returns false, after replying, if a query asks for what these routes do not do. A client that
 * asked for a stream would read the whole response as one without events. */
static bool takes_query(by__gateway *g, by__exchange *x, const char *query)
{
    while (*query != '\0') {
        size_t length = strcspn(query, "&");
        bool whole = length == strlen("stream=false") && memcmp(query, "stream=false", length) == 0;
        if (length > 0 && !whole) {
            char name[40];
            char message[160];
            (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(query, "=&"), query);
            (void)snprintf(message, sizeof message,
                           "the query parameter '%s' is not supported: fetch the whole response "
                           "until its status is completed",
                           name);
            by__reply_error(g, x, 400, "invalid_request", name, message);
            return false;
        }
        query += length + (query[length] == '&');
    }
    return true;
}

/* Handles "/v1/responses/ID" and "/v1/responses/ID/cancel". */
void by__answer_response(by__gateway *g, by__exchange *x, const by__http_request *r,
                         const char *key)
{
    char id[65];
    const char *rest = by__path_id(id, r->path + strlen("/v1/responses/"));
    bool post = strcmp(r->method, "POST") == 0;
    bool deletes = strcmp(r->method, "DELETE") == 0;
    if (rest == NULL || strcmp(rest, post ? "/cancel" : "") != 0 || strncmp(id, "resp_", 5) != 0) {
        by__reply_error(g, x, 404, "response_not_found", NULL, "there is no such response");
        return;
    }
    if (!takes_query(g, x, r->query)) {
        return;
    }
    by__task_ask(g, x, deletes ? show_deleted : show, "response",
                 json_pack("{ss ss ss}", "t",
                           deletes ? "task_delete"
                           : post  ? "task_cancel"
                                   : "task_get",
                           "id", id, "owner", key));
}
