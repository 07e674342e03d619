/* OpenAI's API: reads a request for a response as one for a chat. */
#include <string.h>

#include "base/utf8.h"
#include "serve/base/fields.h"
#include "serve/gateway/openai/openai_responses.h"
#include "serve/gateway/openai/openai_tools.h"
#include "serve/protocol/content_parts.h"
#include "serve/protocol/messages.h"

typedef struct response_fields {
    const char *model, *instructions, *previous, *truncation;
    const json_t *input, *text, *tools, *tool_choice, *metadata, *include, *conversation, *prompt;
    const json_t *seed, *top_k, *min_p, *priority; /* in the format of chats */
    int64_t tokens, top_logprobs;
    double temperature, top_p;
    bool stream, background, store, parallel;
} response_fields;

/* seed, top_k, min_p and priority are extensions, as for chats. */
static const by__serve_field fields[] = {
    BY__STRING("model", response_fields, model, 255),
    BY__ANY("input", response_fields, input),
    BY__STRING("instructions", response_fields, instructions, 1 << 24),
    BY__STRING("previous_response_id", response_fields, previous, 64),
    BY__ANY("conversation", response_fields, conversation),
    BY__ANY("prompt", response_fields, prompt),
    BY__STRING("truncation", response_fields, truncation, 16),
    BY__ANY("text", response_fields, text),
    BY__ANY("tools", response_fields, tools),
    BY__ANY("tool_choice", response_fields, tool_choice),
    BY__BOOL("parallel_tool_calls", response_fields, parallel),
    BY__ANY("metadata", response_fields, metadata),
    BY__ANY("include", response_fields, include),
    BY__INTEGER("max_output_tokens", response_fields, tokens, 1, 1 << 24),
    BY__INTEGER("top_logprobs", response_fields, top_logprobs, 0, 20),
    BY__NUMBER("temperature", response_fields, temperature, 0, 2),
    BY__NUMBER("top_p", response_fields, top_p, 0, 1),
    BY__BOOL("stream", response_fields, stream),
    BY__BOOL("background", response_fields, background),
    BY__BOOL("store", response_fields, store),
    BY__ANY("seed", response_fields, seed),
    BY__ANY("top_k", response_fields, top_k),
    BY__ANY("min_p", response_fields, min_p),
    BY__ANY("priority", response_fields, priority),
    BY__IGNORED("user"),
    BY__IGNORED("stream_options"),
    BY__IGNORED("max_tool_calls"),
    BY__IGNORED("reasoning"),
    BY__IGNORED("service_tier"),
    BY__IGNORED("safety_identifier"),
    BY__IGNORED("prompt_cache_key"),
    BY__IGNORED("prompt_cache_retention"),
    BY__IGNORED("prompt_cache_options"),
};

/* ---- the conversation ---- */

/* The messages of a chat that are made from items. */
typedef struct conversation {
    json_t *messages;
    json_t *calls; /* an object whose keys are the ids of the calls so far */
} conversation;

static by_status lacks_memory(by_error *error)
{
    return by_error_set(error, BY_EMEMORY, "out of memory: a conversation");
}

/* content is taken. */
static by_status add_message(conversation *c, const char *role, json_t *content, by_error *error)
{
    json_t *message = json_pack("{ss so}", "role", role, "content", content);
    return json_array_append_new(c->messages, message) == 0 ? BY_OK : lacks_memory(error);
}

static by_status add_said(conversation *c, const json_t *item, by_error *error)
{
    static const char *const roles[] = {"user", "assistant", "system", "developer"};
    const char *role = by__protocol_get_text(item, "role");
    json_t *content;
    size_t r = 0;
    while (r < BY_ARRAY_LENGTH(roles) && (role == NULL || strcmp(role, roles[r]) != 0)) {
        r++;
    }
    if (r == BY_ARRAY_LENGTH(roles)) {
        return by_error_set(error, BY_EARG,
                            "a message must have a role (user, assistant, system or developer) and "
                            "a content");
    }
    const json_t *given = json_object_get(item, "content");
    if (r == 1 && (given == NULL || json_is_null(given))) {
        content = json_string("");
    } else {
        BY_TRY(by__protocol_content_text(&content, given, error));
    }
    /* Templates know the role "developer" as "system". */
    return add_message(c, r == 3 ? "system" : role, content, error);
}

/* The calls of the last message, which is the assistant's; what follows a text or a call of the
 * assistant belongs to the same message. NULL: memory is exhausted. */
static json_t *calls_of_last(conversation *c)
{
    size_t count = json_array_size(c->messages);
    json_t *last = count == 0 ? NULL : json_array_get(c->messages, count - 1);
    const char *role = by__protocol_get_text(last, "role");
    if (role == NULL || strcmp(role, "assistant") != 0) {
        /* Templates add other texts to an empty one, but not to null. */
        last = json_pack("{ss ss}", "role", "assistant", "content", "");
        if (json_array_append_new(c->messages, last) != 0) {
            return NULL;
        }
    }
    if (json_object_get(last, "tool_calls") == NULL &&
        json_object_set_new(last, "tool_calls", json_array()) != 0) {
        return NULL;
    }
    return json_object_get(last, "tool_calls");
}

static by_status add_call(conversation *c, const json_t *item, by_error *error)
{
    const char *id = by__protocol_get_text(item, "call_id");
    json_t *name = json_object_get(item, "name");
    json_t *arguments = json_object_get(item, "arguments");
    if (id == NULL || !json_is_string(name) || !json_is_string(arguments)) {
        return by_error_set(error, BY_EARG,
                            "a function_call must have a 'call_id', a 'name' and 'arguments', "
                            "which are a text of JSON");
    }
    json_t *calls = calls_of_last(c);
    json_t *call = json_pack("{ss ss s{sO sO}}", "id", id, "type", "function", "function", "name",
                             name, "arguments", arguments);
    return json_array_append_new(calls, call) == 0 &&
                   json_object_set_new(c->calls, id, json_true()) == 0
               ? BY_OK
               : lacks_memory(error);
}

static by_status add_output(conversation *c, const json_t *item, by_error *error)
{
    const char *id = by__protocol_get_text(item, "call_id");
    const json_t *output = json_object_get(item, "output");
    json_t *content;
    if (id == NULL || (!json_is_string(output) && !json_is_array(output))) {
        return by_error_set(error, BY_EARG,
                            "a function_call_output must have a 'call_id' and an 'output', a text "
                            "or a list of parts");
    }
    if (json_object_get(c->calls, id) == NULL) {
        return by_error_set(error, BY_EARG,
                            "the call_id '%.64s' is of no function_call before this output: send "
                            "the items of the response that has the call, too",
                            id);
    }
    BY_TRY(by__protocol_content_text(&content, output, error));
    json_t *message =
        json_pack("{ss ss so}", "role", "tool", "tool_call_id", id, "content", content);
    return json_array_append_new(c->messages, message) == 0 ? BY_OK : lacks_memory(error);
}

static by_status add_item(conversation *c, const json_t *item, by_error *error)
{
    const char *type = by__protocol_get_text(item, "type");
    if (type == NULL || strcmp(type, "message") == 0) {
        return add_said(c, item, error);
    }
    if (strcmp(type, "function_call") == 0) {
        return add_call(c, item, error);
    }
    if (strcmp(type, "function_call_output") == 0) {
        return add_output(c, item, error);
    }
    if (strcmp(type, "reasoning") == 0) { /* of another model's answer: the text is what counts */
        return BY_OK;
    }
    return by_error_set(error, BY_EARG,
                        "the type '%.64s' is not supported: an item is a message, a function_call "
                        "or a function_call_output",
                        type);
}

static by_status read_input(conversation *c, const json_t *input, char place[BY__PLACE_BYTES],
                            const char **param, by_error *error)
{
    size_t i;
    json_t *item;
    if (json_is_string(input)) {
        return add_message(c, "user", json_incref((json_t *)(uintptr_t)input), error);
    }
    if (!json_is_array(input) || json_array_size(input) == 0) {
        return by_error_set(error, BY_EARG, "'input' must be a text or a list of items");
    }
    json_array_foreach(input, i, item)
    {
        by_status status = add_item(c, item, error);
        if (status != BY_OK) {
            (void)snprintf(place, BY__PLACE_BYTES, "input[%zu]", i);
            *param = place;
            return by_error_prefix(error, status, "item %zu", i);
        }
    }
    return BY_OK;
}

/* ---- functions ---- */

/* A tool, or the choice of one, as chats have it: {"type": "function", "function": ...}. A new
 * reference; NULL: memory is exhausted. What is no function remains as it is, to be refused. */
static json_t *nested(const json_t *tool)
{
    const char *type = by__protocol_get_text(tool, "type");
    if (type == NULL || strcmp(type, "function") != 0) {
        return json_incref((json_t *)(uintptr_t)tool);
    }
    json_t *function = by__protocol_copy_object(tool);
    (void)json_object_del(function, "type");
    return json_pack("{ss so}", "type", "function", "function", function);
}

/* The same of a list, and of what is none. */
static json_t *nested_list(const json_t *tools)
{
    size_t i;
    json_t *tool;
    if (tools == NULL) {
        return json_null();
    }
    if (!json_is_array(tools)) {
        return json_incref((json_t *)(uintptr_t)tools);
    }
    json_t *out = json_array();
    json_array_foreach(tools, i, tool)
    {
        if (json_array_append_new(out, nested(tool)) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static json_t *nested_choice(const json_t *choice)
{
    const char *type = by__protocol_get_text(choice, "type");
    if (choice == NULL) {
        return json_null();
    }
    if (type != NULL && strcmp(type, "allowed_tools") == 0) {
        return json_pack("{ss s{sO? so}}", "type", type, "allowed_tools", "mode",
                         json_object_get(choice, "mode"), "tools",
                         nested_list(json_object_get(choice, "tools")));
    }
    return nested(choice);
}

/* ---- the chat ---- */

/* text.format in the format of chats, null for plain text; NULL: memory is exhausted. */
static json_t *format_of(const json_t *text)
{
    const json_t *format = json_object_get(text, "format");
    const char *type = by__protocol_get_text(format, "type");
    if (format == NULL || (type != NULL && strcmp(type, "text") == 0)) {
        return json_null();
    }
    if (type != NULL && strcmp(type, "json_schema") == 0) {
        return json_pack("{ss s{sO?}}", "type", type, "json_schema", "schema",
                         json_object_get(format, "schema"));
    }
    return json_incref((json_t *)(uintptr_t)format);
}

static bool wants_logprobs(const response_fields *a)
{
    size_t i;
    json_t *item;
    bool wants = a->top_logprobs > 0;
    json_array_foreach(a->include, i, item)
    {
        const char *name = by__json_string(item);
        wants = wants || (name != NULL && strcmp(name, "message.output_text.logprobs") == 0);
    }
    return wants;
}

/* OpenAI's limits of "metadata", which is kept with a response. */
#define MAX_PAIRS 16
#define MAX_NAME  64
#define MAX_VALUE 512

static size_t characters(const char *text)
{
    return by__utf8_count(text, strlen(text));
}

static by_status check_metadata(const json_t *metadata, const char **param, by_error *error)
{
    const char *name;
    json_t *value;
    bool good =
        metadata == NULL || (json_is_object(metadata) && json_object_size(metadata) <= MAX_PAIRS);
    json_object_foreach((json_t *)(uintptr_t)metadata, name, value)
    {
        good = good && characters(name) <= MAX_NAME && json_is_string(value) &&
               strlen(json_string_value(value)) == json_string_length(value) &&
               characters(json_string_value(value)) <= MAX_VALUE;
    }
    *param = "metadata";
    return good ? BY_OK
                : by_error_set(error, BY_EARG,
                               "'metadata' must be an object of at most %d texts: names of at most "
                               "%d characters, values of at most %d",
                               MAX_PAIRS, MAX_NAME, MAX_VALUE);
}

static by_status refuse_others(const response_fields *a, const char **param, by_error *error)
{
    BY_TRY(check_metadata(a->metadata, param, error));
    *param = "previous_response_id";
    if (a->previous != NULL || a->conversation != NULL || a->prompt != NULL) {
        *param = a->previous != NULL       ? "previous_response_id"
                 : a->conversation != NULL ? "conversation"
                                           : "prompt";
        return by_error_set(error, BY_EARG,
                            "'%s' is not supported: send the messages so far as 'input'", *param);
    }
    *param = "truncation";
    if (a->truncation != NULL && strcmp(a->truncation, "disabled") != 0) {
        return by_error_set(error, BY_EARG, "'truncation' must be disabled");
    }
    *param = "background";
    return !a->background || a->store ? BY_OK
                                      : by_error_set(error, BY_EARG,
                                                     "'background' needs 'store': the response is "
                                                     "fetched later");
}

/* Makes the body of the chat. */
static by_status make_chat(json_t **out, const response_fields *a, char place[BY__PLACE_BYTES],
                           const char **param, by_error *error)
{
    conversation c = {.messages = json_array(), .calls = json_object()};
    by_status status = BY_OK;
    if (a->instructions != NULL) {
        status = add_message(&c, "system", json_string(a->instructions), error);
    }
    if (status == BY_OK) {
        status = read_input(&c, a->input, place, param, error);
    }
    json_decref(c.calls);
    if (status != BY_OK) {
        json_decref(c.messages);
        return status;
    }
    bool logprobs = wants_logprobs(a);
    json_t *format = format_of(a->text);
    json_t *tokens = a->tokens > 0 ? json_integer((json_int_t)a->tokens) : json_null();
    *out = json_pack("{ss so so sf sf sO? sO? sO? sO? sb sb sI so so so sb}", "model",
                     a->model == NULL ? "" : a->model, "messages", c.messages,
                     "max_completion_tokens", tokens, "temperature", a->temperature, "top_p",
                     a->top_p, "seed", a->seed, "top_k", a->top_k, "min_p", a->min_p, "priority",
                     a->priority, "stream", (int)a->stream, "logprobs", (int)logprobs,
                     "top_logprobs", (json_int_t)a->top_logprobs, "response_format", format,
                     "tools", nested_list(a->tools), "tool_choice", nested_choice(a->tool_choice),
                     "parallel_tool_calls", (int)a->parallel);
    return *out == NULL ? by_error_set(error, BY_EMEMORY, "out of memory: a response") : BY_OK;
}

/* The part of the response that repeats its request. */
static json_t *head_of(const response_fields *a)
{
    const json_t *text = a->text;
    json_t *format = json_is_object(json_object_get(text, "format"))
                         ? json_incref(json_object_get(text, "format"))
                         : json_pack("{ss}", "type", "text");
    json_t *tools = a->tools == NULL ? json_array() : json_incref((json_t *)(uintptr_t)a->tools);
    json_t *choice = a->tool_choice == NULL ? json_string("auto")
                                            : json_incref((json_t *)(uintptr_t)a->tool_choice);
    return json_pack("{sb sb ss? so sO? sb sn s{sn sn} sf s{so} so so sI sf ss}", "background",
                     (int)a->background, "store", (int)a->store, "instructions", a->instructions,
                     "max_output_tokens",
                     a->tokens > 0 ? json_integer((json_int_t)a->tokens) : json_null(), "metadata",
                     a->metadata, "parallel_tool_calls", (int)a->parallel, "previous_response_id",
                     "reasoning", "effort", "summary", "temperature", a->temperature, "text",
                     "format", format, "tool_choice", choice, "tools", tools, "top_logprobs",
                     (json_int_t)a->top_logprobs, "top_p", a->top_p, "truncation", "disabled");
}

/* Adds the head to what the chat keeps of its calls. */
static by_status add_head(by__gateway_request *request, const response_fields *a, by_error *error)
{
    json_t *head = head_of(a);
    if (request->own == NULL) {
        request->own = json_object();
    }
    bool added = head != NULL && json_object_update(request->own, head) == 0;
    json_decref(head);
    return added ? BY_OK : by_error_set(error, BY_EMEMORY, "out of memory: a response");
}

by_status by__openai_response_read(by__gateway_request *request, const by__http_request *http,
                                   const char **param, by_error *error)
{
    response_fields a = {.temperature = 1.0, .top_p = 1.0, .store = true, .parallel = true};
    json_t *body;
    json_t *chat = NULL;
    BY_TRY(by__gateway_body_parse(&body, http->body, http->body_length, error));
    by_status status =
        by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), body, param, error);
    if (status == BY_OK) {
        status = refuse_others(&a, param, error);
    }
    if (status == BY_OK) {
        *param = "input";
        status = make_chat(&chat, &a, request->place, param, error);
    }
    if (status == BY_OK) {
        status = by__openai_read(request, chat, http->body_length, param, error);
    }
    if (status == BY_OK) {
        status = add_head(request, &a, error);
    }
    json_decref(chat);
    json_decref(body);
    return status;
}
