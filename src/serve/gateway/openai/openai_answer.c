/* OpenAI's API: answers to completions and chats, and the frames of streams. */
#include <string.h>

#include "serve/gateway/openai/openai_tools.h"
#include "serve/protocol/messages.h"

static void add_head(const by__gateway_request *request, const char *object, by_string *out)
{
    by_string_format(out,
                     "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", request->id,
                     object, (long long)request->created);
    by_string_json(out, request->model, strlen(request->model));
}

static const char *chunk_of(const by__gateway_request *request)
{
    return request->form->kind == BY__REQUEST_CHAT ? "chat.completion.chunk" : "text_completion";
}

/* Prints log-probabilities in the format of the kind. */
static void add_logprobs(const by__gateway_request *request, const json_t *list, by_string *out)
{
    if (!request->logprobs || json_array_size(list) == 0) {
        by__string_append(out, "null");
        return;
    }
    if (request->form->kind == BY__REQUEST_CHAT) {
        by__string_append(out, "{\"content\":");
        by__openai_tokens(list, out);
        by__string_append(out, ",\"refusal\":null}");
        return;
    }
    by__openai_places(list, request->top > 0, out);
}

/* Everything except the index of the choice is the same in each frame of a stream, and is printed
 * once. */
static void begin_frame(by__gateway_request *request, size_t choice, by_string *out)
{
    char digits[8];
    size_t at = sizeof digits;
    if (request->head.length == 0) {
        by__string_append(&request->head, "data: ");
        add_head(request, chunk_of(request), &request->head);
        by__string_append(&request->head, ",\"choices\":[{\"index\":");
    }
    out->failed = out->failed || request->head.failed;
    digits[--at] = ',';
    do {
        digits[--at] = (char)('0' + choice % 10);
        choice /= 10;
    } while (choice > 0 && at > 0);
    if (!out->failed) {
        by_string_add(out, request->head.data, request->head.length);
    }
    by_string_add(out, digits + at, sizeof digits - at);
}

static void end_frame(const by__gateway_request *request, by_string *out)
{
    by__string_append(out, request->usage ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

static void first(by__gateway_request *request, size_t choice, by_string *out)
{
    by__openai_calling kind = by__openai_calls_as(request);
    if (request->form->kind != BY__REQUEST_CHAT) {
        return;
    }
    begin_frame(request, choice, out);
    by__string_append(out, "\"delta\":{\"role\":\"assistant\",\"content\":");
    if (kind == BY__CALLS_NAMED) {
        const char *name = by__protocol_get_text(request->own, "function");
        const by__openai_called called = {.choice = choice,
                                          .streams = true,
                                          .name = name,
                                          .name_length = strlen(name),
                                          .arguments = ""};
        by__string_append(out, "null,\"tool_calls\":[");
        by__openai_add_call(request, &called, out);
        by__string_append(out, "]");
    } else {
        by__string_append(out, kind == BY__CALLS_CHOSEN ? "null" : "\"\"");
    }
    by__string_append(out, "},\"logprobs\":null,\"finish_reason\":null");
    end_frame(request, out);
}

/* A frame of a chat with a part of its content. */
static void add_content(by__gateway_request *request, size_t choice, const char *text,
                        size_t length, const json_t *logprobs, by_string *out)
{
    begin_frame(request, choice, out);
    by__string_append(out, "\"delta\":{\"content\":");
    by_string_json(out, text, length);
    by__string_append(out, "},\"logprobs\":");
    add_logprobs(request, logprobs, out);
    by__string_append(out, ",\"finish_reason\":null");
    end_frame(request, out);
}

/* A piece of a text that has calls: the arguments of one function are passed on, others wait for
 * their end. */
static void add_piece_of_call(by__gateway_request *request, size_t choice, const char *text,
                              size_t length, const json_t *logprobs, by_string *out)
{
    by__gateway_choice *c = &request->choices[choice];
    by__openai_calling kind = by__openai_calls_as(request);
    if (kind == BY__CALLS_NAMED) {
        begin_frame(request, choice, out);
        by__string_append(out,
                          "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":");
        by_string_json(out, text, length);
        by__string_append(out, "}}]},\"logprobs\":");
        add_logprobs(request, logprobs, out);
        by__string_append(out, ",\"finish_reason\":null");
        end_frame(request, out);
        return;
    }
    size_t shown = kind == BY__CALLS_MARKED ? by__openai_shown(&c->text) : 0;
    if (shown > c->shown || request->logprobs) {
        add_content(request, choice, c->text.data + c->shown, shown - c->shown, logprobs, out);
        c->shown = shown;
    }
}

static void add_piece(by__gateway_request *request, size_t choice, const char *text, size_t length,
                      const json_t *logprobs, by_string *out)
{
    if (by__openai_calls_as(request) != BY__CALLS_NONE) {
        add_piece_of_call(request, choice, text, length, logprobs, out);
        return;
    }
    if (request->form->kind == BY__REQUEST_CHAT) {
        add_content(request, choice, text, length, logprobs, out);
        return;
    }
    begin_frame(request, choice, out);
    by__string_append(out, "\"text\":");
    by_string_json(out, text, length);
    by__string_append(out, ",\"logprobs\":");
    add_logprobs(request, logprobs, out);
    by__string_append(out, ",\"finish_reason\":null");
    end_frame(request, out);
}

/* Why a sequence ended, given the number of its calls. */
static const char *finish_of(const char *reason, size_t calls)
{
    return calls > 0 && strcmp(reason, "stop") == 0 ? "tool_calls" : reason;
}

/* What has waited for the end of a text that has calls. Returns their number. */
static size_t add_rest(by__gateway_request *request, size_t choice, by_string *out)
{
    by__gateway_choice *c = &request->choices[choice];
    by_string list = {0};
    by_string message_text = {0};
    size_t count;
    if (by__openai_calls_as(request) == BY__CALLS_NAMED) {
        return 1;
    }
    count = by__openai_add_calls(request, choice, true, &list, &message_text);
    out->failed = out->failed || list.failed || c->text.failed;
    if (!out->failed && message_text.length > c->shown) {
        add_content(request, choice, message_text.data + c->shown, message_text.length - c->shown,
                    NULL, out);
        c->shown = message_text.length;
    }
    by_string_free(&message_text);
    if (!out->failed && count > 0) {
        begin_frame(request, choice, out);
        by__string_append(out, "\"delta\":{\"tool_calls\":[");
        by_string_add(out, list.data, list.length);
        by__string_append(out, "]},\"logprobs\":null,\"finish_reason\":null");
        end_frame(request, out);
    }
    by_string_free(&list);
    return count;
}

static void add_stop(by__gateway_request *request, size_t choice, const char *reason,
                     by_string *out)
{
    size_t calls =
        by__openai_calls_as(request) == BY__CALLS_NONE ? 0 : add_rest(request, choice, out);
    begin_frame(request, choice, out);
    by_string_format(out, "%s,\"logprobs\":null,\"finish_reason\":\"%s\"",
                     request->form->kind == BY__REQUEST_CHAT ? "\"delta\":{}" : "\"text\":\"\"",
                     finish_of(reason, calls));
    end_frame(request, out);
}

static void add_usage(const by__gateway_request *request, by_string *out)
{
    int64_t prompt = 0;
    int64_t generated = 0;
    for (size_t i = 0; i < request->part_count; i++) {
        prompt += request->parts[i].prompt_tokens;
        generated += request->parts[i].generated;
    }
    by_string_format(out,
                     "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                     "\"total_tokens\":%lld}",
                     (long long)prompt, (long long)generated, (long long)(prompt + generated));
}

static void add_end(by__gateway_request *request, by_string *out)
{
    if (request->usage) {
        by__string_append(out, "data: ");
        add_head(request, chunk_of(request), out);
        by__string_append(out, ",\"choices\":[],");
        add_usage(request, out);
        by__string_append(out, "}\n\n");
    }
    by__string_append(out, "data: [DONE]\n\n");
}

static void add_failure(by__gateway_request *request, int status, const char *code,
                        const char *param, const char *message, by_string *out)
{
    BY_UNUSED(request);
    by__string_append(out, "data: ");
    by__gateway_openai_error(out, status, code, param, message);
    by__string_append(out, "\n\ndata: [DONE]\n\n");
}

/* The message of a chat. Returns the number of its calls. */
static size_t add_message(const by__gateway_request *request, size_t choice, by_string *out)
{
    by_string list = {0};
    by_string message_text = {0};
    size_t calls = by__openai_add_calls(request, choice, false, &list, &message_text);
    by__string_append(out, "\"message\":{\"role\":\"assistant\",\"content\":");
    if (calls > 0 && message_text.length == 0) {
        by__string_append(out, "null");
    } else {
        by_string_json(out, message_text.data, message_text.length);
    }
    by_string_free(&message_text);
    by__string_append(out, ",\"refusal\":null");
    out->failed = out->failed || list.failed;
    if (calls > 0 && !list.failed) {
        by__string_append(out, ",\"tool_calls\":[");
        by_string_add(out, list.data, list.length);
        by__string_append(out, "]");
    }
    by__string_append(out, "},\"logprobs\":");
    by_string_free(&list);
    return calls;
}

static void add_answer(by__gateway_request *request, by_string *out)
{
    bool chat = request->form->kind == BY__REQUEST_CHAT;
    add_head(request, chat ? "chat.completion" : "text_completion", out);
    by__string_append(out, ",\"choices\":[");
    for (size_t i = 0; i < request->part_count * request->n; i++) {
        const by__gateway_choice *c = &request->choices[i];
        by_string_format(out, "%s{\"index\":%zu,", i > 0 ? "," : "", i);
        size_t calls = 0;
        out->failed = out->failed || c->text.failed;
        if (chat) {
            calls = add_message(request, i, out);
        } else {
            by__string_append(out, "\"text\":");
            by_string_json(out, c->text.data == NULL ? "" : c->text.data, c->text.length);
            by__string_append(out, ",\"logprobs\":");
        }
        add_logprobs(request, c->logprobs, out);
        by_string_format(out, ",\"finish_reason\":\"%s\"}", finish_of(c->reason, calls));
    }
    by__string_append(out, "],");
    add_usage(request, out);
    by__string_append(out, "}");
}

/* ---- the forms ---- */

/* Common to both kinds. */
#define FORM                                                                                       \
    .read = by__openai_read_text, .first = first, .text = add_piece, .stop = add_stop,             \
    .end = add_end, .fail = add_failure, .answer = add_answer, .apart = true

const by__gateway_request_form by__openai_completion_form = {.name = "completion",
                                                             .route = "/v1/completions",
                                                             .prefix = "cmpl-",
                                                             .kind = BY__REQUEST_COMPLETION,
                                                             FORM};
const by__gateway_request_form by__openai_chat_form = {.name = "chat",
                                                       .route = "/v1/chat/completions",
                                                       .prefix = "chatcmpl-",
                                                       .kind = BY__REQUEST_CHAT,
                                                       FORM};
