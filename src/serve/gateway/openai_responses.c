/* OpenAI's API: responses. A response is a chat with one answer, stored as a task with the same
 * id. */
#include <stdlib.h>
#include <string.h>

#include "serve/content_parts.h"
#include "serve/fields.h"
#include "serve/gateway/gateway_routes.h"
#include "serve/messages.h"

/* Seconds that a response is kept. */
#define KEPT (30.0 * 24.0 * 3600.0)

typedef struct asked {
    const char *model, *instructions, *previous, *truncation;
    const json_t *input, *text, *tools, *metadata, *include, *conversation, *prompt;
    const json_t *seed, *top_k, *min_p, *priority; /* in the format of chats */
    int64_t tokens, top_logprobs;
    double temperature, top_p;
    bool stream, background, store;
} asked;

/* seed, top_k, min_p and priority are extensions, as for chats. */
static const by__field fields[] = {
    BY__STRING("model", asked, model, 255),
    BY__ANY("input", asked, input),
    BY__STRING("instructions", asked, instructions, 1 << 24),
    BY__STRING("previous_response_id", asked, previous, 64),
    BY__ANY("conversation", asked, conversation),
    BY__ANY("prompt", asked, prompt),
    BY__STRING("truncation", asked, truncation, 16),
    BY__ANY("text", asked, text),
    BY__ANY("tools", asked, tools),
    BY__ANY("metadata", asked, metadata),
    BY__ANY("include", asked, include),
    BY__INTEGER("max_output_tokens", asked, tokens, 1, 1 << 24),
    BY__INTEGER("top_logprobs", asked, top_logprobs, 0, 20),
    BY__NUMBER("temperature", asked, temperature, 0, 2),
    BY__NUMBER("top_p", asked, top_p, 0, 1),
    BY__BOOL("stream", asked, stream),
    BY__BOOL("background", asked, background),
    BY__BOOL("store", asked, store),
    BY__ANY("seed", asked, seed),
    BY__ANY("top_k", asked, top_k),
    BY__ANY("min_p", asked, min_p),
    BY__ANY("priority", asked, priority),
    BY__IGNORED("user"),
    BY__IGNORED("stream_options"),
    BY__IGNORED("tool_choice"),
    BY__IGNORED("parallel_tool_calls"),
    BY__IGNORED("max_tool_calls"),
    BY__IGNORED("reasoning"),
    BY__IGNORED("service_tier"),
    BY__IGNORED("safety_identifier"),
    BY__IGNORED("prompt_cache_key"),
    BY__IGNORED("prompt_cache_retention"),
    BY__IGNORED("prompt_cache_options"),
};

/* ---- reading: a response as a chat ---- */

static by_status bad_input(by_error *error)
{
    return by_error_set(error, BY_EARG,
                        "'input' must be a text or a list of messages, each with a role (user, "
                        "assistant, system or developer) and a content");
}

static by_status add_message(json_t *messages, const char *role, json_t *content, by_error *error)
{
    return json_array_append_new(messages,
                                 json_pack("{ss so}", "role", role, "content", content)) == 0
               ? BY_OK
               : by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

static by_status read_input(json_t *messages, const json_t *input, by_error *error)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    size_t i;
    json_t *item;
    if (json_is_string(input)) {
        return add_message(messages, "user", json_incref((json_t *)(uintptr_t)input), error);
    }
    if (!json_is_array(input) || json_array_size(input) == 0) {
        return bad_input(error);
    }
    json_array_foreach(input, i, item)
    {
        const char *type = by__get_text(item, "type");
        const char *role = by__get_text(item, "role");
        json_t *content;
        size_t r = 0;
        while (r < BY_ARRAY_LENGTH(roles) && (role == NULL || strcmp(role, roles[r]) != 0)) {
            r++;
        }
        if (r == BY_ARRAY_LENGTH(roles) || (type != NULL && strcmp(type, "message") != 0)) {
            return bad_input(error);
        }
        BY_TRY(by__content_text(&content, json_object_get(item, "content"), error));
        /* Templates know the role "developer" as "system". */
        BY_TRY(add_message(messages, r == 3 ? "system" : role, content, error));
    }
    return BY_OK;
}

/* text.format in the format of chats, null for plain text; NULL: memory is exhausted. */
static json_t *format_of(const json_t *text)
{
    const json_t *format = json_object_get(text, "format");
    const char *type = by__get_text(format, "type");
    if (format == NULL || (type != NULL && strcmp(type, "text") == 0)) {
        return json_null();
    }
    if (type != NULL && strcmp(type, "json_schema") == 0) {
        return json_pack("{ss s{sO?}}", "type", type, "json_schema", "schema",
                         json_object_get(format, "schema"));
    }
    return json_incref((json_t *)(uintptr_t)format);
}

static bool wants_logprobs(const asked *a)
{
    size_t i;
    json_t *item;
    bool wants = a->top_logprobs > 0;
    json_array_foreach(a->include, i, item)
    {
        const char *name = json_string_value(item);
        wants = wants || (name != NULL && strcmp(name, "message.output_text.logprobs") == 0);
    }
    return wants;
}

static by_status refuse_others(const asked *a, const char **param, by_error *error)
{
    *param = "previous_response_id";
    if (a->previous != NULL || a->conversation != NULL || a->prompt != NULL) {
        *param = a->previous != NULL       ? "previous_response_id"
                 : a->conversation != NULL ? "conversation"
                                           : "prompt";
        return by_error_set(error, BY_EARG,
                            "'%s' is not supported: send the messages so far as 'input'", *param);
    }
    *param = "tools";
    if (json_array_size(a->tools) > 0) {
        return by_error_set(error, BY_EARG, "'tools' are not supported: ask /v1/chat/completions");
    }
    *param = "truncation";
    if (a->truncation != NULL && strcmp(a->truncation, "disabled") != 0) {
        return by_error_set(error, BY_EARG, "'truncation' must be disabled");
    }
    *param = "stream";
    if (a->background && a->stream) {
        return by_error_set(error, BY_EARG, "'background' and 'stream' cannot both be true");
    }
    *param = "background";
    return !a->background || a->store ? BY_OK
                                      : by_error_set(error, BY_EARG,
                                                     "'background' needs 'store': the response is "
                                                     "fetched later");
}

/* Makes the body of the chat. */
static by_status make_chat(json_t **out, const asked *a, by_error *error)
{
    json_t *messages = json_array();
    by_status status = BY_OK;
    if (a->instructions != NULL) {
        status = add_message(messages, "system", json_string(a->instructions), error);
    }
    if (status == BY_OK) {
        status = read_input(messages, a->input, error);
    }
    if (status != BY_OK) {
        json_decref(messages);
        return status;
    }
    bool logprobs = wants_logprobs(a);
    json_t *format = format_of(a->text);
    json_t *tokens = a->tokens > 0 ? json_integer((json_int_t)a->tokens) : json_null();
    *out = json_pack("{ss so so sf sf sO? sO? sO? sO? sb sb sI so}", "model",
                     a->model == NULL ? "" : a->model, "messages", messages,
                     "max_completion_tokens", tokens, "temperature", a->temperature, "top_p",
                     a->top_p, "seed", a->seed, "top_k", a->top_k, "min_p", a->min_p, "priority",
                     a->priority, "stream", (int)a->stream, "logprobs", (int)logprobs,
                     "top_logprobs", (json_int_t)a->top_logprobs, "response_format", format);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a response") : BY_OK;
}

/* The part of the response that repeats its request. */
static json_t *head_of(const asked *a)
{
    const json_t *text = a->text;
    json_t *format = json_is_object(json_object_get(text, "format"))
                         ? json_incref(json_object_get(text, "format"))
                         : json_pack("{ss}", "type", "text");
    return json_pack("{sb sb ss? so sO? sb sn s{sn sn} sf s{so} ss s[] sI sf ss}", "background",
                     (int)a->background, "store", (int)a->store, "instructions", a->instructions,
                     "max_output_tokens",
                     a->tokens > 0 ? json_integer((json_int_t)a->tokens) : json_null(), "metadata",
                     a->metadata, "parallel_tool_calls", 1, "previous_response_id", "reasoning",
                     "effort", "summary", "temperature", a->temperature, "text", "format", format,
                     "tool_choice", "auto", "tools", "top_logprobs", (json_int_t)a->top_logprobs,
                     "top_p", a->top_p, "truncation", "disabled");
}

static by_status read_body(by__call *call, const by__http_request *request, const char **param,
                           by_error *error)
{
    asked a = {.temperature = 1.0, .top_p = 1.0, .store = true};
    json_t *body;
    json_t *chat = NULL;
    BY_TRY(by__body_parse(&body, request->body, request->body_length, error));
    by_status status = by__fields_read(&a, fields, BY_ARRAY_LENGTH(fields), body, param, error);
    if (status == BY_OK) {
        status = refuse_others(&a, param, error);
    }
    if (status == BY_OK) {
        *param = "input";
        status = make_chat(&chat, &a, error);
    }
    if (status == BY_OK) {
        status = by__openai_read(call, chat, request->body_length, param, error);
    }
    if (status == BY_OK) {
        call->own = head_of(&a);
        status = call->own == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a response")
                                   : BY_OK;
    }
    json_decref(chat);
    json_decref(body);
    return status;
}

/* ---- the response ---- */

static const char *item_of(const by__call *call, char id[BY__ID_BYTES])
{
    const char *digits = strchr(call->id, '_');
    (void)snprintf(id, BY__ID_BYTES, "msg_%.40s", digits == NULL ? call->id : digits + 1);
    return id;
}

/* The following functions that make JSON return NULL if memory is exhausted, also for a part. */

static json_t *tokens_of(const by__call *call, const json_t *list)
{
    by__text text = {0};
    if (!call->logprobs || json_array_size(list) == 0) {
        return json_array();
    }
    by__openai_tokens(list, &text);
    json_t *out = text.failed ? NULL : json_loadb(text.data, text.length, 0, NULL);
    by__text_free(&text);
    return out;
}

/* The text so far, as a part of the output. */
static json_t *part_of(const by__call *call)
{
    const by__choice *c = &call->choices[0];
    return c->text.failed ? NULL
                          : json_pack("{ss ss% s[] so}", "type", "output_text", "text",
                                      c->text.data == NULL ? "" : c->text.data, c->text.length,
                                      "annotations", "logprobs", tokens_of(call, c->logprobs));
}

/* The output message; content is taken. */
static json_t *message_of(const by__call *call, const char *status, json_t *content)
{
    char id[BY__ID_BYTES];
    return json_pack("{ss ss ss ss so}", "id", item_of(call, id), "type", "message", "role",
                     "assistant", "status", status, "content", content);
}

static const char *status_of(const by__call *call)
{
    return strcmp(call->choices[0].reason, "length") == 0 ? "incomplete" : "completed";
}

/* Status "completed" and "incomplete" include the output. error is taken. */
static json_t *response_of(const by__call *call, const char *status, json_t *error)
{
    bool whole = strcmp(status, "completed") == 0 || strcmp(status, "incomplete") == 0;
    json_t *output = json_array();
    json_t *usage = json_null();
    if (whole) {
        const by__part *p = &call->parts[0];
        json_decref(output);
        output = json_pack("[o]", message_of(call, status, json_pack("[o]", part_of(call))));
        usage = json_pack("{sI s{si si} sI s{si} sI}", "input_tokens", (json_int_t)p->prompt_tokens,
                          "input_tokens_details", "cached_tokens", 0, "cache_write_tokens", 0,
                          "output_tokens", (json_int_t)p->generated, "output_tokens_details",
                          "reasoning_tokens", 0, "total_tokens",
                          (json_int_t)(p->prompt_tokens + p->generated));
    }
    json_t *why = strcmp(status, "incomplete") == 0
                      ? json_pack("{ss}", "reason", "max_output_tokens")
                      : json_null();
    json_t *own =
        json_pack("{ss ss sI ss ss so so so so}", "id", call->id, "object", "response",
                  "created_at", (json_int_t)call->created, "status", status, "model", call->model,
                  "output", output, "usage", usage, "incomplete_details", why, "error", error);
    json_t *out = by__copy_object(call->own);
    if (own == NULL || out == NULL || json_object_update(out, own) != 0) {
        json_decref(out);
        out = NULL;
    }
    json_decref(own);
    return out;
}

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

/* value is taken; NULL: memory is exhausted. */
static void add_json(by__text *out, json_t *value)
{
    by__text_dump(out, value, JSON_COMPACT);
    json_decref(value);
}

static void add_answer(by__call *call, by__text *out)
{
    store(call);
    add_json(out, response_of(call, status_of(call), json_null()));
}

/* ---- streams ---- */

/* Prints one event; data is taken; NULL: memory is exhausted. */
static void add_event(by__call *call, const char *type, json_t *data, by__text *out)
{
    if (json_object_set_new(data, "type", json_string(type)) != 0 ||
        json_object_set_new(data, "sequence_number", json_integer((json_int_t)call->frames++)) !=
            0) {
        out->failed = true;
    }
    by__text_format(out, "event: %s\ndata: ", type);
    add_json(out, data);
    by__text_add(out, "\n\n");
}

static json_t *whole_event(json_t *response)
{
    return json_pack("{so}", "response", response);
}

/* Makes an event about the text, with one more member; value is taken. */
static json_t *text_event(const by__call *call, const char *key, json_t *value)
{
    char id[BY__ID_BYTES];
    return json_pack("{ss si si so}", "item_id", item_of(call, id), "output_index", 0,
                     "content_index", 0, key, value);
}

/* Makes an event about the output message; content is taken. */
static json_t *item_event(const by__call *call, const char *status, json_t *content)
{
    return json_pack("{si so}", "output_index", 0, "item", message_of(call, status, content));
}

static void first(by__call *call, size_t choice, by__text *out)
{
    static const char *const types[] = {"response.created", "response.in_progress"};
    BY_UNUSED(choice);
    for (size_t i = 0; i < BY_ARRAY_LENGTH(types); i++) {
        add_event(call, types[i], whole_event(response_of(call, "in_progress", json_null())), out);
    }
    add_event(call, "response.output_item.added", item_event(call, "in_progress", json_array()),
              out);
    add_event(call, "response.content_part.added", text_event(call, "part", part_of(call)), out);
}

static void add_delta(by__call *call, size_t choice, const char *text, size_t length,
                      const json_t *logprobs, by__text *out)
{
    json_t *event = text_event(call, "delta", json_stringn(text, length));
    BY_UNUSED(choice);
    if (json_object_set_new(event, "logprobs", tokens_of(call, logprobs)) != 0) {
        out->failed = true;
    }
    add_event(call, "response.output_text.delta", event, out);
}

static void add_stop(by__call *call, size_t choice, const char *reason, by__text *out)
{
    json_t *part = part_of(call);
    json_t *event = text_event(call, "text", json_incref(json_object_get(part, "text")));
    BY_UNUSED(choice);
    BY_UNUSED(reason);
    if (json_object_set(event, "logprobs", json_object_get(part, "logprobs")) != 0) {
        out->failed = true;
    }
    add_event(call, "response.output_text.done", event, out);
    add_event(call, "response.content_part.done", text_event(call, "part", json_incref(part)), out);
    add_event(call, "response.output_item.done",
              item_event(call, status_of(call), json_pack("[o]", part)), out);
}

static void add_end(by__call *call, by__text *out)
{
    const char *status = status_of(call);
    store(call);
    add_event(call, strcmp(status, "completed") == 0 ? "response.completed" : "response.incomplete",
              whole_event(response_of(call, status, json_null())), out);
}

static void add_failure(by__call *call, int status, const char *code, const char *param,
                        const char *message, by__text *out)
{
    BY_UNUSED(status);
    BY_UNUSED(param);
    json_t *error = json_pack("{ss ss}", "code", code, "message", message);
    add_event(call, "response.failed", whole_event(response_of(call, "failed", error)), out);
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
    by__reply_json(g, x, 200, response_of(&call, status == NULL ? "failed" : status, error));
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
                                         .read = read_body,
                                         .start = start,
                                         .first = first,
                                         .text = add_delta,
                                         .stop = add_stop,
                                         .end = add_end,
                                         .fail = add_failure,
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
