/* OpenAI's API: what a response consists of. */
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "serve/gateway/openai/openai_responses.h"
#include "serve/gateway/openai/openai_tools.h"
#include "serve/protocol/messages.h"

static const char *digits_of(const by__gateway_request *request)
{
    const char *digits = strchr(request->id, '_');
    return digits == NULL ? request->id : digits + 1;
}

const char *by__openai_response_message_id(const by__gateway_request *request,
                                           char id[BY__ITEM_BYTES])
{
    (void)snprintf(id, BY__ITEM_BYTES, "msg_%.40s", digits_of(request));
    return id;
}

const char *by__openai_response_call_id(const by__gateway_request *request, size_t k,
                                        char id[BY__ITEM_BYTES])
{
    (void)snprintf(id, BY__ITEM_BYTES, "fc_%.40s_%zu", digits_of(request), k);
    return id;
}

/* ---- items ---- */

by__openai_response_items by__openai_response_items_of(const by__gateway_request *request)
{
    by__openai_response_items items = {0};
    by_string list = {0};
    by__openai_calling kind = by__openai_calls_as(request);
    by__string_append(&list, "[");
    size_t count = by__openai_add_calls(request, 0, false, &list, &items.message_text);
    by__string_append(&list, "]");
    items.calls = list.failed || items.message_text.failed || request->choices[0].text.failed
                      ? NULL
                      : by_json_load(list.data, list.length, JSON_ALLOW_NUL, NULL);
    by_string_free(&list);
    items.message = items.message_text.length > 0 ||
                    (count == 0 && (kind == BY__CALLS_NONE || kind == BY__CALLS_MARKED));
    return items;
}

void by__openai_response_items_free(by__openai_response_items *items)
{
    json_decref(items->calls);
    by_string_free(&items->message_text);
    *items = (by__openai_response_items){0};
}

json_t *by__openai_response_tokens(const by__gateway_request *request, const json_t *list)
{
    by_string text = {0};
    if (!request->logprobs || json_array_size(list) == 0) {
        return json_array();
    }
    by__openai_tokens(list, &text);
    json_t *out = text.failed ? NULL : by_json_load(text.data, text.length, JSON_ALLOW_NUL, NULL);
    by_string_free(&text);
    return out;
}

/* The tokens of the first bytes of a text. */
static json_t *tokens_within(const json_t *list, const char *text, size_t length)
{
    int64_t characters = (int64_t)by__utf8_count(text, length); /* which offsets count */
    size_t i;
    json_t *token;
    json_t *out = json_array();
    json_array_foreach(list, i, token)
    {
        if (by__protocol_get_integer(token, "offset") < characters &&
            json_array_append(out, token) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

json_t *by__openai_response_part(const by__gateway_request *request, const by_string *message_text)
{
    const by__gateway_choice *c = &request->choices[0];
    if (c->text.failed || message_text->failed) {
        return NULL;
    }
    size_t same = 0; /* bytes before the first call */
    while (same < message_text->length && same < c->text.length &&
           message_text->data[same] == c->text.data[same]) {
        same++;
    }
    json_t *within = same < c->text.length ? tokens_within(c->logprobs, c->text.data, same)
                                           : json_incref(c->logprobs);
    json_t *out =
        json_pack("{ss ss% s[] so}", "type", "output_text", "text",
                  message_text->data == NULL ? "" : message_text->data, message_text->length,
                  "annotations", "logprobs", by__openai_response_tokens(request, within));
    json_decref(within);
    return out;
}

json_t *by__openai_response_message(const by__gateway_request *request, const char *status,
                                    json_t *content)
{
    char id[BY__ITEM_BYTES];
    return json_pack("{ss ss ss ss so}", "id", by__openai_response_message_id(request, id), "type",
                     "message", "role", "assistant", "status", status, "content", content);
}

json_t *by__openai_response_call(const by__gateway_request *request,
                                 const by__openai_response_items *items, size_t k,
                                 const char *status, bool whole)
{
    const json_t *one = json_array_get(items->calls, k);
    const json_t *function = json_object_get(one, "function");
    json_t *arguments =
        whole ? json_incref(json_object_get(function, "arguments")) : json_string("");
    char id[BY__ITEM_BYTES];
    return json_pack("{ss ss ss sO sO so}", "id", by__openai_response_call_id(request, k, id),
                     "type", "function_call", "status", status, "call_id",
                     json_object_get(one, "id"), "name", json_object_get(function, "name"),
                     "arguments", arguments);
}

/* ---- the object ---- */

const char *by__openai_response_status(const by__gateway_request *request)
{
    return strcmp(request->choices[0].reason, "length") == 0 ? "incomplete" : "completed";
}

static json_t *output_of(const by__gateway_request *request, const char *status)
{
    by__openai_response_items items = by__openai_response_items_of(request);
    json_t *out = json_array();
    int code = items.calls == NULL ? -1 : 0;
    if (items.message) {
        json_t *content = json_pack("[o]", by__openai_response_part(request, &items.message_text));
        code |= json_array_append_new(out, by__openai_response_message(request, status, content));
    }
    for (size_t k = 0; k < json_array_size(items.calls); k++) {
        code |=
            json_array_append_new(out, by__openai_response_call(request, &items, k, status, true));
    }
    by__openai_response_items_free(&items);
    if (code != 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}

json_t *by__openai_response_object(const by__gateway_request *request, const char *status,
                                   json_t *error)
{
    bool whole = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0;
    json_t *output = whole ? output_of(request, status) : json_array();
    json_t *usage = json_null();
    if (whole) {
        const by__gateway_part *p = &request->parts[0];
        usage = json_pack("{sI s{si si} sI s{si} sI}", "input_tokens", (json_int_t)p->prompt_tokens,
                          "input_tokens_details", "cached_tokens", 0, "cache_write_tokens", 0,
                          "output_tokens", (json_int_t)p->generated, "output_tokens_details",
                          "reasoning_tokens", 0, "total_tokens",
                          (json_int_t)(p->prompt_tokens + p->generated));
    }
    json_t *why = strcmp(status, "incomplete") == 0
                      ? json_pack("{ss}", "reason", "max_output_tokens")
                      : json_null();
    json_t *own = json_pack("{ss ss sI ss ss so so so so}", "id", request->id, "object", "response",
                            "created_at", (json_int_t)request->created, "status", status, "model",
                            request->model, "output", output, "usage", usage, "incomplete_details",
                            why, "error", error);
    json_t *out = by__protocol_copy_object(request->own);
    by__openai_calls_remove(out);
    if (own == NULL || out == NULL || json_object_update(out, own) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(own);
    return out;
}
