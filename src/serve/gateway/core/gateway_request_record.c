/* What a request consists of: its form, its parts and its choices. */
#include <stdlib.h>
#include <string.h>

#include "serve/gateway/core/gateway.h"
#include "serve/protocol/messages.h"

/* Most bytes that a message adds to a request, with the text of the message. */
#define CONTEXT_BYTES ((size_t)1 << 16)

/* ---- forms ---- */

const by__gateway_request_form *by__gateway_form_of_route(const by__gateway *g, const char *route)
{
    for (size_t i = 0; g->forms != NULL && g->forms[i] != NULL && route != NULL; i++) {
        if (strcmp(g->forms[i]->route, route) == 0) {
            return g->forms[i];
        }
    }
    return NULL;
}

const by__gateway_request_form *by__gateway_form_named(const by__gateway *g, const char *name)
{
    for (size_t i = 0; g->forms != NULL && g->forms[i] != NULL && name != NULL; i++) {
        if (strcmp(g->forms[i]->name, name) == 0) {
            return g->forms[i];
        }
    }
    return NULL;
}

/* ---- records ---- */

by_status by__gateway_request_one_part(by__gateway_request *request, const char *model,
                                       json_t *wanted, size_t length, int64_t priority,
                                       by_error *error)
{
    char id[65];
    int64_t cost = (int64_t)(length / 4) + 1;
    request->model = by__strdup(model);
    bool lacks =
        request->model == NULL || wanted == NULL || (request->fetches && request->own == NULL);
    by_status status =
        lacks ? by_error_set(error, BY_EMEMORY, "out of memory: a request")
              : by__alloc((void **)&request->parts, 1, sizeof *request->parts, "a request", error);
    if (status == BY_OK) {
        status = by__alloc((void **)&request->choices, request->n, sizeof *request->choices,
                           "a request", error);
    }
    if (status != BY_OK) {
        json_decref(wanted);
        return status;
    }
    (void)snprintf(id, sizeof id, "%.40s-0", request->id);
    request->part_count = 1;
    request->parts[0].request = request;
    request->parts[0].guess = cost;
    request->parts[0].message =
        json_pack("{ss ss ss sb sI sI so}", "t", "submit", "id", id, "model", request->model,
                  "whole", (int)!request->stream, "cost", (json_int_t)cost, "priority",
                  (json_int_t)priority, "request", wanted);
    return request->parts[0].message == NULL
               ? by_error_set(error, BY_EMEMORY, "out of memory: a request")
               : BY_OK;
}

by_status by__gateway_request_encode(by__gateway_request *request, size_t length, by_error *error)
{
    size_t bytes = 0;
    for (size_t i = 0; i < request->part_count && length >= BY__LARGE; i++) {
        by__gateway_part *part = &request->parts[i];
        json_decref(part->text);
        part->text = by__protocol_request_text(json_object_get(part->message, "request"));
        if (part->text == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a request");
        }
        bytes += json_string_length(part->text);
        if (bytes > BY__LINK_MESSAGE - CONTEXT_BYTES) {
            return by_error_set(error, BY_EARG,
                                "the request takes over %zu bytes for a worker: send less at a "
                                "time",
                                BY__LINK_MESSAGE - CONTEXT_BYTES);
        }
    }
    return BY_OK;
}

void by__gateway_request_choose_best(by__gateway_request *request)
{
    size_t recorded = (size_t)by__protocol_get_integer(request->own, "best");
    if (recorded == 0 || recorded >= request->n) {
        return;
    }
    for (size_t p = 0; p < request->part_count; p++) {
        by__gateway_choice *from = &request->choices[p * request->n];
        for (size_t k = 0; k < recorded; k++) {
            size_t best = k;
            for (size_t i = k + 1; i < request->n; i++) {
                best = from[i].score > from[best].score ? i : best;
            }
            by__gateway_choice chosen = from[best];
            memmove(from + k + 1, from + k, (best - k) * sizeof *from);
            from[k] = chosen;
        }
        for (size_t i = recorded; i < request->n; i++) {
            by_string_free(&from[i].text);
            json_decref(from[i].logprobs);
        }
        memmove(&request->choices[p * recorded], from, recorded * sizeof *from);
    }
    request->n = recorded;
}

void by__gateway_request_free(by__gateway_request *request)
{
    for (size_t i = 0; i < request->part_count && request->parts != NULL; i++) {
        json_decref(request->parts[i].message);
        json_decref(request->parts[i].text);
    }
    for (size_t i = 0; request->choices != NULL && i < request->part_count * request->n; i++) {
        by_string_free(&request->choices[i].text);
        json_decref(request->choices[i].logprobs);
    }
    by_string_free(&request->head);
    json_decref(request->own);
    json_decref(request->whole);
    free(request->parts);
    free(request->choices);
    free(request->model);
    free(request);
}
