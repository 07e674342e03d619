/* What a call consists of: its form, its parts and its choices. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/core/gateway.h"
#include "serve/protocol/messages.h"

/* Most bytes that a message adds to a request, with the text of the message. */
#define AROUND ((size_t)1 << 16)

/* ---- forms ---- */

const by__gateway_call_form *by__gateway_form_of_route(const by__gateway *g, const char *route)
{
    for (size_t i = 0; g->forms != NULL && g->forms[i] != NULL && route != NULL; i++) {
        if (strcmp(g->forms[i]->route, route) == 0) {
            return g->forms[i];
        }
    }
    return NULL;
}

const by__gateway_call_form *by__gateway_form_named(const by__gateway *g, const char *name)
{
    for (size_t i = 0; g->forms != NULL && g->forms[i] != NULL && name != NULL; i++) {
        if (strcmp(g->forms[i]->name, name) == 0) {
            return g->forms[i];
        }
    }
    return NULL;
}

/* ---- records ---- */

by_status by__gateway_call_one_part(by__gateway_call *call, json_t *request, int64_t cost,
                                    int64_t priority, by_error *error)
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

by_status by__gateway_call_encode(by__gateway_call *call, size_t length, by_error *error)
{
    size_t bytes = 0;
    for (size_t i = 0; i < call->part_count && length >= BY__LARGE; i++) {
        by__gateway_part *part = &call->parts[i];
        json_decref(part->text);
        part->text = by__protocol_request_text(json_object_get(part->message, "request"));
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

void by__gateway_call_keep_best(by__gateway_call *call)
{
    size_t kept = (size_t)by__protocol_get_integer(call->own, "best");
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
            by_string_free(&from[i].text);
            json_decref(from[i].logprobs);
        }
        memmove(&call->choices[p * kept], from, kept * sizeof *from);
    }
    call->n = kept;
}

void by__gateway_call_free(by__gateway_call *call)
{
    for (size_t i = 0; i < call->part_count && call->parts != NULL; i++) {
        json_decref(call->parts[i].message);
        json_decref(call->parts[i].text);
    }
    for (size_t i = 0; call->choices != NULL && i < call->part_count * call->n; i++) {
        by_string_free(&call->choices[i].text);
        json_decref(call->choices[i].logprobs);
    }
    by_string_free(&call->head);
    json_decref(call->own);
    json_decref(call->whole);
    free(call->parts);
    free(call->choices);
    free(call->model);
    free(call);
}
