/* OpenAI's API: the events of a response in a stream.
 *
 * A message begins with the stream, unless functions may be called: then with its first text. Calls
 * follow it at the end, as a whole, except the call of the only function that must be called, which
 * begins with the stream, and whose arguments come in pieces.
 *
 * Of a response in the background no pieces are kept. Its events are made from its state, in which
 * they are a function of it: the text is one piece, and a client can resume behind any of them. */
#include <string.h>

#include "serve/gateway/openai/openai_responses.h"
#include "serve/gateway/openai/openai_tools.h"
#include "serve/protocol/messages.h"

/* Prints one event, unless the client has it; data is taken; NULL: memory is exhausted. */
static void add_event(by__gateway_request *request, const char *type, json_t *data, by_string *out)
{
    uint64_t number = request->frames++;
    if (number < request->skipped) {
        json_decref(data);
        return;
    }
    if (json_object_set_new(data, "type", json_string(type)) != 0 ||
        json_object_set_new(data, "sequence_number", json_integer((json_int_t)number)) != 0) {
        out->failed = true;
    }
    by_string_format(out, "event: %s\ndata: ", type);
    by__json_write(out, data, JSON_COMPACT);
    json_decref(data);
    by__string_append(out, "\n\n");
}

/* Prints an event with the response in a state; error is taken. */
static void add_state(by__gateway_request *request, const char *type, const char *status,
                      json_t *error, by_string *out)
{
    add_event(request, type,
              json_pack("{so}", "response", by__openai_response_object(request, status, error)),
              out);
}

/* Makes an event about an item, which is taken. */
static json_t *item_event(size_t index, json_t *item)
{
    return json_pack("{sI so}", "output_index", (json_int_t)index, "item", item);
}

/* ---- the message ---- */

/* Makes an event about the text, with one more member; value is taken. */
static json_t *text_event(const by__gateway_request *request, const char *key, json_t *value)
{
    char id[BY__ITEM_BYTES];
    return json_pack("{ss si si so}", "item_id", by__openai_response_message_id(request, id),
                     "output_index", 0, "content_index", 0, key, value);
}

static void begin_message(by__gateway_request *request, by_string *out)
{
    const by_string nothing = {0};
    json_t *item = by__openai_response_message(request, "in_progress", json_array());
    add_event(request, "response.output_item.added", item_event(0, item), out);
    add_event(request, "response.content_part.added",
              text_event(request, "part", by__openai_response_part(request, &nothing)), out);
}

static void add_text(by__gateway_request *request, const char *text, size_t length,
                     const json_t *logprobs, by_string *out)
{
    json_t *event = text_event(request, "delta", json_stringn(text, length));
    if (json_object_set_new(event, "logprobs", by__openai_response_tokens(request, logprobs)) !=
        0) {
        out->failed = true;
    }
    add_event(request, "response.output_text.delta", event, out);
}

/* Passes on the first `end` bytes of the message of an answer that may call functions. */
static void add_text_up_to(by__gateway_request *request, const by_string *message_text, size_t end,
                           by_string *out)
{
    by__gateway_choice *c = &request->choices[0];
    if (c->text.failed || message_text->failed) {
        out->failed = true;
    } else if (end > c->shown) {
        if (c->shown == 0) {
            begin_message(request, out);
        }
        add_text(request, message_text->data + c->shown, end - c->shown, NULL, out);
        c->shown = end;
    }
}

static void end_message(by__gateway_request *request, const by_string *message_text, by_string *out)
{
    json_t *part = by__openai_response_part(request, message_text);
    json_t *event = text_event(request, "text", json_incref(json_object_get(part, "text")));
    if (json_object_set(event, "logprobs", json_object_get(part, "logprobs")) != 0) {
        out->failed = true;
    }
    add_event(request, "response.output_text.done", event, out);
    add_event(request, "response.content_part.done", text_event(request, "part", json_incref(part)),
              out);
    json_t *item = by__openai_response_message(request, by__openai_response_status(request),
                                               json_pack("[o]", part));
    add_event(request, "response.output_item.done", item_event(0, item), out);
}

/* ---- calls of functions ---- */

/* Makes an event about the arguments of a call; value is taken. */
static json_t *arguments_event(const by__gateway_request *request, size_t index, size_t k,
                               const char *key, json_t *value)
{
    char id[BY__ITEM_BYTES];
    return json_pack("{ss sI so}", "item_id", by__openai_response_call_id(request, k, id),
                     "output_index", (json_int_t)index, key, value);
}

static void begin_call(by__gateway_request *request, const by__openai_response_items *items,
                       size_t index, size_t k, by_string *out)
{
    json_t *item = by__openai_response_call(request, items, k, "in_progress", false);
    add_event(request, "response.output_item.added", item_event(index, item), out);
}

static void add_arguments(by__gateway_request *request, size_t index, size_t k, json_t *piece,
                          by_string *out)
{
    add_event(request, "response.function_call_arguments.delta",
              arguments_event(request, index, k, "delta", piece), out);
}

static void end_call(by__gateway_request *request, const by__openai_response_items *items,
                     size_t index, size_t k, by_string *out)
{
    json_t *item =
        by__openai_response_call(request, items, k, by__openai_response_status(request), true);
    json_t *event = arguments_event(request, index, k, "arguments",
                                    json_incref(json_object_get(item, "arguments")));
    if (json_object_set(event, "name", json_object_get(item, "name")) != 0) {
        out->failed = true;
    }
    add_event(request, "response.function_call_arguments.done", event, out);
    add_event(request, "response.output_item.done", item_event(index, item), out);
}

/* ---- the stream ---- */

/* Begins what begins with the stream. */
static void begin_items(by__gateway_request *request, by_string *out)
{
    by__openai_calling kind = by__openai_calls_as(request);
    if (kind == BY__CALLS_NONE) {
        begin_message(request, out);
    } else if (kind == BY__CALLS_NAMED) {
        by__openai_response_items items = by__openai_response_items_of(request);
        begin_call(request, &items, 0, 0, out);
        by__openai_response_items_free(&items);
    }
}

void by__openai_response_first(by__gateway_request *request, size_t choice, by_string *out)
{
    BY_UNUSED(choice);
    add_state(request, "response.created", "in_progress", json_null(), out);
    add_state(request, "response.in_progress", "in_progress", json_null(), out);
    begin_items(request, out);
}

void by__openai_response_text(by__gateway_request *request, size_t choice, const char *text,
                              size_t length, const json_t *logprobs, by_string *out)
{
    by__openai_calling kind = by__openai_calls_as(request);
    BY_UNUSED(choice);
    if (kind == BY__CALLS_NONE) {
        add_text(request, text, length, logprobs, out);
    } else if (kind == BY__CALLS_NAMED) {
        add_arguments(request, 0, 0, json_stringn(text, length), out);
    } else if (kind == BY__CALLS_MARKED) {
        const by_string *all = &request->choices[0].text;
        add_text_up_to(request, all, by__openai_shown(all), out);
    }
}

void by__openai_response_stop(by__gateway_request *request, size_t choice, const char *reason,
                              by_string *out)
{
    by__openai_calling kind = by__openai_calls_as(request);
    by__openai_response_items items = by__openai_response_items_of(request);
    size_t first = items.message ? 1 : 0;
    BY_UNUSED(choice);
    BY_UNUSED(reason);
    out->failed = out->failed || items.calls == NULL;
    if (items.message && kind == BY__CALLS_MARKED) {
        if (items.message_text.length == 0) {
            begin_message(request, out);
        }
        add_text_up_to(request, &items.message_text, items.message_text.length, out);
    }
    if (items.message) {
        end_message(request, &items.message_text, out);
    }
    for (size_t k = 0; k < json_array_size(items.calls); k++) {
        if (kind != BY__CALLS_NAMED) {
            const json_t *function = json_object_get(json_array_get(items.calls, k), "function");
            begin_call(request, &items, first + k, k, out);
            add_arguments(request, first + k, k,
                          json_incref(json_object_get(function, "arguments")), out);
        }
        end_call(request, &items, first + k, k, out);
    }
    by__openai_response_items_free(&items);
}

void by__openai_response_end(by__gateway_request *request, by_string *out)
{
    const char *status = by__openai_response_status(request);
    add_state(request,
              strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
              status, json_null(), out);
}

void by__openai_response_fail(by__gateway_request *request, int status, const char *code,
                              const char *param, const char *message, by_string *out)
{
    BY_UNUSED(status);
    BY_UNUSED(param);
    add_state(request, "response.failed", "failed",
              json_pack("{ss ss}", "code", code, "message", message), out);
}

void by__openai_response_replay(by__gateway_request *request, const char *status, json_t *error,
                                by_string *out)
{
    const by__gateway_choice *c = &request->choices[0];
    bool queued = strcmp(status, "queued") == 0;
    add_state(request, "response.created", "queued", json_null(), out);
    add_state(request, "response.queued", "queued", json_null(), out);
    if (!queued) {
        add_state(request, "response.in_progress", "in_progress", json_null(), out);
    }
    if (queued || strcmp(status, "in_progress") == 0) {
        json_decref(error);
    } else if (strcmp(status, "completed") != 0) {
        add_state(request, "response.failed", status, error, out);
    } else {
        json_decref(error);
        begin_items(request, out);
        by__openai_response_text(request, 0, c->text.data == NULL ? "" : c->text.data,
                                 c->text.length, NULL, out);
        by__openai_response_stop(request, 0, c->reason, out);
        by__openai_response_end(request, out);
    }
}
