/* Routes that workers answer: the table of their forms, and the handling of a request until it is
 * started. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/core/gateway_read.h"
#include "serve/gateway/gateway_routes.h"
#include "serve/gateway/openai/openai.h"
#include "serve/protocol/messages.h"

const by__gateway_request_form *const by__gateway_forms[] = {
    &by__openai_completion_form, &by__openai_chat_form,     &by__openai_embeddings_form,
    &by__openai_predict_form,    &by__openai_response_form, NULL};

/* The trace of the request that a worker continues; one that is kept as a task is not traced. */
static void add_trace(by__gateway_request *request, const char *trace)
{
    for (size_t i = 0; i < request->part_count && trace[0] != '\0'; i++) {
        if (!json_is_true(json_object_get(request->own, "background"))) {
            (void)json_object_set_new(json_object_get(request->parts[i].message, "request"),
                                      "trace", json_string(trace));
        }
    }
}

static by_status read_request(by__gateway_reading *r)
{
    const by__gateway_request_form *form = by__gateway_form_of_route(r->gateway, r->http.path);
    BY_TRY(by__gateway_request_open(&r->request, r->gateway, form, r->key, &r->error));
    r->request->since = r->since;
    r->request->state = r->state;
    by_status status = form->read(r->request, &r->http, &r->param, &r->error);
    if (status == BY_OK) {
        add_trace(r->request, r->trace);
        status = by__gateway_request_encode(r->request, r->http.body_length, &r->error);
    }
    r->request->state = NULL;
    return status;
}

static void answer_request(by__gateway_reading *r)
{
    by__gateway_request *request = r->request;
    if (r->status != BY_OK) {
        by__gateway_reply_refused(r->gateway, r->connection, r->status, r->param, &r->error);
        return;
    }
    r->request = NULL;
    request->connection = r->connection;
    (request->form->start == NULL ? by__gateway_request_start : request->form->start)(request);
}

void by__gateway_answer(by__gateway *g, by__http_connection *x, const by__http_request *r,
                        const char *key)
{
    static const by__gateway_read_kind kind = {read_request, answer_request};
    const by__gateway_request_form *form = by__gateway_form_of_route(g, r->path);
    if (!form->any_type && !by__gateway_takes_json(g, x, r)) {
        return;
    }
    if (g->draining) {
        by__gateway_reply_error(g, x, 503, "draining", NULL,
                                "the server is going down; try another one");
        return;
    }
    by__gateway_read(g, x, r, key, &kind);
}
