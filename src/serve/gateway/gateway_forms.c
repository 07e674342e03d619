/* Routes that workers answer: the table of their forms, and the handling of a request until it is
 * started. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/gateway_read.h"
#include "serve/gateway/gateway_routes.h"
#include "serve/messages.h"

/* Most bytes that a message adds to a request, with the text of the message. */
#define AROUND ((size_t)1 << 16)

static const by__call_form *const forms[] = {&by__completion_form, &by__chat_form,
                                             &by__embeddings_form, &by__predict_form,
                                             &by__response_form};

const by__call_form *by__form_of_route(const char *route)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(forms) && route != NULL; i++) {
        if (strcmp(forms[i]->route, route) == 0) {
            return forms[i];
        }
    }
    return NULL;
}

const by__call_form *by__form_named(const char *name)
{
    for (size_t i = 0; i < BY_ARRAY_LENGTH(forms) && name != NULL; i++) {
        if (strcmp(forms[i]->name, name) == 0) {
            return forms[i];
        }
    }
    return NULL;
}

/* ---- a call ---- */

by_status by__call_open(by__gateway_call **out, by__gateway *gateway, const by__call_form *form,
                        const char *key, by_error *error)
{
    by__gateway_call *call = NULL;
    BY_TRY(by__alloc((void **)&call, 1, sizeof *call, "a request", error));
    *call = (by__gateway_call){.gateway = gateway,
                               .form = form,
                               .n = 1,
                               .key = key,
                               .waiter = {by__call_gone},
                               .created = (int64_t)by__wall_clock(),
                               .since = by__now()};
    by_status status = by__request_id(call->id, form->prefix, error);
    if (status != BY_OK) {
        by__call_free(call);
        return status;
    }
    memcpy(call->id + strlen(form->prefix), gateway->tag, strlen(gateway->tag));
    *out = call;
    return BY_OK;
}

by_status by__call_one_part(by__gateway_call *call, json_t *request, int64_t cost, int64_t priority,
                            by_error *error)
{
    char id[65];
    by_status status = by__alloc((void **)&call->parts, 1, sizeof *call->parts, "a request", error);
    if (status == BY_OK) {
        status =
            by__alloc((void **)&call->choices, call->n, sizeof *call->choices, "a request", error);
    }
    if (status != BY_OK) {
        json_decref(request);
        return status;
    }
    (void)snprintf(id, sizeof id, "%.40s-0", call->id);
    call->part_count = 1;
    call->parts[0].call = call;
    call->parts[0].guess = cost;
    call->parts[0].message =
        json_pack("{ss ss ss sb sI sI so}", "t", "submit", "id", id, "model", call->model, "whole",
                  (int)!call->stream, "cost", (json_int_t)cost, "priority", (json_int_t)priority,
                  "request", request);
    return call->parts[0].message == NULL
               ? by_error_set(error, BY_EMEMORY, "out of memory: a request")
               : BY_OK;
}

by_status by__call_encode(by__gateway_call *call, size_t length, by_error *error)
{
    size_t bytes = 0;
    for (size_t i = 0; i < call->part_count && length >= BY__LARGE; i++) {
        by__gateway_part *part = &call->parts[i];
        json_decref(part->text);
        part->text = by__request_text(json_object_get(part->message, "request"));
        if (part->text == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a request");
        }
        bytes += json_string_length(part->text);
        if (bytes > BY__LINK_MESSAGE - AROUND) {
            return by_error_set(error, BY_EARG,
                                "the request takes over %zu bytes for a worker: send less at a "
                                "time",
                                BY__LINK_MESSAGE - AROUND);
        }
    }
    return BY_OK;
}

void by__call_keep_best(by__gateway_call *call)
{
    size_t kept = (size_t)by__get_integer(call->own, "best");
    if (kept == 0 || kept >= call->n) {
        return;
    }
    for (size_t p = 0; p < call->part_count; p++) {
        by__gateway_choice *from = &call->choices[p * call->n];
        for (size_t k = 0; k < kept; k++) {
            size_t best = k;
            for (size_t i = k + 1; i < call->n; i++) {
                best = from[i].score > from[best].score ? i : best;
            }
            by__gateway_choice chosen = from[best];
            memmove(from + k + 1, from + k, (best - k) * sizeof *from);
            from[k] = chosen;
        }
        for (size_t i = kept; i < call->n; i++) {
            by__text_free(&from[i].text);
            json_decref(from[i].logprobs);
        }
        memmove(&call->choices[p * kept], from, kept * sizeof *from);
    }
    call->n = kept;
}

void by__call_free(by__gateway_call *call)
{
    for (size_t i = 0; i < call->part_count && call->parts != NULL; i++) {
        json_decref(call->parts[i].message);
        json_decref(call->parts[i].text);
    }
    for (size_t i = 0; call->choices != NULL && i < call->part_count * call->n; i++) {
        by__text_free(&call->choices[i].text);
        json_decref(call->choices[i].logprobs);
    }
    by__text_free(&call->head);
    json_decref(call->own);
    json_decref(call->whole);
    free(call->parts);
    free(call->choices);
    free(call->model);
    free(call);
}

/* ---- routes ---- */

/* The trace of the request that a worker continues; one that is kept as a task is not traced. */
static void add_trace(by__gateway_call *call, const char *trace)
{
    for (size_t i = 0; i < call->part_count && trace[0] != '\0'; i++) {
        if (!json_is_true(json_object_get(call->own, "background"))) {
            (void)json_object_set_new(json_object_get(call->parts[i].message, "request"), "trace",
                                      json_string(trace));
        }
    }
}

static by_status read_call(by__reading *r)
{
    const by__call_form *form = by__form_of_route(r->request.path);
    BY_TRY(by__call_open(&r->call, r->gateway, form, r->key, &r->error));
    r->call->since = r->since;
    r->call->state = r->state;
    by_status status = form->read(r->call, &r->request, &r->param, &r->error);
    if (status == BY_OK) {
        add_trace(r->call, r->trace);
        status = by__call_encode(r->call, r->request.body_length, &r->error);
    }
    r->call->state = NULL;
    return status;
}

static void answer_call(by__reading *r)
{
    by__gateway_call *call = r->call;
    if (r->status != BY_OK) {
        by__reply_refused(r->gateway, r->exchange, r->status, r->param, &r->error);
        return;
    }
    r->call = NULL;
    call->exchange = r->exchange;
    (call->form->start == NULL ? by__call_start : call->form->start)(call);
}

void by__answer_call(by__gateway *g, by__http_exchange *x, const by__http_request *r,
                     const char *key)
{
    static const by__read_kind kind = {read_call, answer_call};
    const by__call_form *form = by__form_of_route(r->path);
    if (!form->any_type && !by__gateway_takes_json(g, x, r)) {
        return;
    }
    if (g->draining) {
        by__reply_error(g, x, 503, "draining", NULL, "the server is going down; try another one");
        return;
    }
    by__request_read(g, x, r, key, &kind);
}
