/* OpenAI's API: requests for completions and chats, their answers, and the frames of streams. */
#include <stdlib.h>
#include <string.h>

#include "serve/fields.h"
#include "serve/gateway/gateway.h"
#include "serve/messages.h"

/* Most levels of nesting in a body. */
/* Most top tokens that are reported for each token. */
#define MOST_TOP 20

/* The fields of a request's body. */
typedef struct asked {
    const char *model;
    const json_t *prompt;
    const json_t *messages;
    const json_t *tools;
    const json_t *stop;
    const json_t *bias;
    const json_t *stop_ids;
    by__openai_forms forms;
    const json_t *stream_options;
    const json_t *logprobs;
    int64_t tokens;
    int64_t completion_tokens;
    int64_t min_tokens;
    int64_t n;
    int64_t best_of;
    int64_t seed;
    int64_t top_k;
    int64_t top_logprobs;
    int64_t priority;
    double temperature, top_p, min_p, typical_p, presence, frequency, repetition;
    bool stream;
    bool echo;
    bool ignore_eos;
} asked;

#define ANY(name, member)                  BY__ANY(name, asked, member)
#define INTEGER(name, member, least, most) BY__INTEGER(name, asked, member, least, most)
#define NUMBER(name, member, least, most)  BY__NUMBER(name, asked, member, least, most)
#define BOOL(name, member)                 BY__BOOL(name, asked, member)

/* Fields of both kinds. guided_json and those after it are extensions that vLLM has too. */
#define SHARED                                                                                     \
    BY__STRING("model", asked, model, 255), INTEGER("n", n, 1, BY__MOST_N),                        \
        INTEGER("max_tokens", tokens, 1, 1 << 24), INTEGER("seed", seed, -9e18, 9e18),             \
        NUMBER("temperature", temperature, 0, 2), NUMBER("top_p", top_p, 0, 1),                    \
        NUMBER("presence_penalty", presence, -2, 2),                                               \
        NUMBER("frequency_penalty", frequency, -2, 2), ANY("logit_bias", bias), ANY("stop", stop), \
        BOOL("stream", stream), ANY("stream_options", stream_options), ANY("logprobs", logprobs),  \
        ANY("response_format", forms.response), ANY("guided_json", forms.json),                    \
        ANY("guided_regex", forms.regex), ANY("guided_choice", forms.choice),                      \
        ANY("structured_outputs", forms.structured), ANY("stop_token_ids", stop_ids),              \
        INTEGER("min_tokens", min_tokens, 0, 1 << 24), BY__IGNORED("user"),                        \
        INTEGER("top_k", top_k, -1, 1 << 24), NUMBER("min_p", min_p, 0, 1),                        \
        NUMBER("typical_p", typical_p, 0, 1), NUMBER("repetition_penalty", repetition, 0.01, 100), \
        BOOL("ignore_eos", ignore_eos), INTEGER("priority", priority, -100, 100)

static const by__field completion_fields[] = {SHARED, ANY("prompt", prompt),
                                              INTEGER("best_of", best_of, 1, BY__MOST_N),
                                              BOOL("echo", echo), BY__IGNORED("suffix")};
static const by__field chat_fields[] = {
    SHARED,
    ANY("messages", messages),
    ANY("tools", tools),
    INTEGER("max_completion_tokens", completion_tokens, 1, 1 << 24),
    INTEGER("top_logprobs", top_logprobs, 0, MOST_TOP),
    BY__IGNORED("tool_choice"),
    BY__IGNORED("parallel_tool_calls"),
    BY__IGNORED("metadata"),
    BY__IGNORED("store"),
    BY__IGNORED("service_tier"),
    BY__IGNORED("safety_identifier"),
    BY__IGNORED("prompt_cache_key")};

/* ---- reading ---- */

/* Reads "logprobs" and "top_logprobs". */
static by_status read_logprobs(by__call *call, const asked *a, const char **param, by_error *error)
{
    *param = "logprobs";
    if (call->form->kind == BY__CALL_COMPLETION) {
        int64_t top = json_integer_value(a->logprobs);
        if (a->logprobs != NULL && (!json_is_integer(a->logprobs) || top < 0 || top > MOST_TOP)) {
            return by_error_set(error, BY_EARG, "'logprobs' must be from 0 to %d", MOST_TOP);
        }
        call->logprobs = a->logprobs != NULL;
        call->top = top;
        return BY_OK;
    }
    if (a->logprobs != NULL && !json_is_boolean(a->logprobs)) {
        return by_error_set(error, BY_EARG, "'logprobs' must be true or false");
    }
    call->logprobs = json_is_true(a->logprobs);
    call->top = a->top_logprobs;
    *param = "top_logprobs";
    return call->logprobs || call->top == 0
               ? BY_OK
               : by_error_set(error, BY_EARG, "'top_logprobs' needs 'logprobs' to be true");
}

/* Number of tokens requested for the answer; 0: as many as fit. */
static int64_t tokens_of(const asked *a)
{
    return a->completion_tokens > 0 ? a->completion_tokens : a->tokens;
}

/* Reads "echo" and "best_of". If more sequences are generated than shown, call->own is set to the
 * number shown. */
static by_status read_best(by__call *call, asked *a, const char **param, by_error *error)
{
    *param = "echo";
    if (a->echo && call->logprobs) {
        return by_error_set(error, BY_EARG,
                            "'echo' with 'logprobs' is not supported: the tokens of a prompt have "
                            "no log-probabilities");
    }
    *param = "best_of";
    if (a->best_of > 0 && a->best_of < a->n) {
        return by_error_set(error, BY_EARG, "'best_of' is %lld, below 'n', %lld",
                            (long long)a->best_of, (long long)a->n);
    }
    if (a->best_of > a->n && a->stream) {
        return by_error_set(error, BY_EARG,
                            "'best_of' above 'n' is no stream: the best are known at the end");
    }
    if (a->best_of > a->n) {
        call->own = json_pack("{sI}", "best", (json_int_t)a->n);
        a->n = a->best_of;
        return call->own != NULL ? BY_OK
                                 : by_error_set(error, BY_EMEMORY, "out of memory: a request");
    }
    return BY_OK;
}

/* Adds fields only if they are used: workers of the previous version refuse unknown ones. */
static bool add_rare(json_t *request, const by__call *call, const asked *a)
{
    const struct {
        const char *name;
        json_t *value;
    } rows[] = {
        {"min_tokens", a->min_tokens > 0 ? json_integer(a->min_tokens) : json_null()},
        {"stop_token_ids",
         a->stop_ids != NULL ? json_incref((json_t *)(uintptr_t)a->stop_ids) : json_null()},
        {"priority", a->priority != 0 ? json_integer(a->priority) : json_null()},
        {"echo", a->echo ? json_true() : json_null()},
        {"score", call->own != NULL ? json_true() : json_null()},
    };
    bool added = request != NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (json_is_null(rows[i].value)) {
            continue;
        }
        added = json_object_set_new(request, rows[i].name, rows[i].value) == 0 && added;
    }
    return added;
}

/* Makes the request for a worker (worker_request.c), except the prompt. */
static by_status make_request(json_t **out, by__call *call, const asked *a, const char **param,
                              by_error *error)
{
    json_t *format;
    uint64_t seed = (uint64_t)a->seed;
    if (a->seed == INT64_MIN) {
        /* Chosen here, so that a worker that takes over draws the same numbers. */
        BY_TRY(by__random_bytes(&seed, sizeof seed, error));
        seed >>= 2;
    }
    BY_TRY(by__openai_format(&format, &a->forms, param, error));
    *param = NULL;
    *out = json_pack(
        "{sI sI sI sI sf sf sf sf sf sf sf sb sI sb sO* sO* sO* sO* so* ss}", "seed",
        (json_int_t)seed, "max_tokens", (json_int_t)tokens_of(a), "n", (json_int_t)a->n, "top_k",
        (json_int_t)(a->top_k < 0 ? 0 : a->top_k), "temperature", a->temperature, "top_p", a->top_p,
        "min_p", a->min_p, "typical_p", a->typical_p, "presence_penalty", a->presence,
        "frequency_penalty", a->frequency, "repetition_penalty", a->repetition, "logprobs",
        (int)call->logprobs, "top_logprobs", (json_int_t)call->top, "ignore_eos",
        (int)a->ignore_eos, "logit_bias", a->bias, "stop", a->stop, "messages", a->messages,
        "tools", a->tools, "format", format, "tenant", call->key);
    if (!add_rare(*out, call, a)) {
        json_decref(*out);
        *out = NULL;
        return by_error_set(error, BY_EMEMORY, "out of memory: a request");
    }
    return BY_OK;
}

/* Number of prompts in: a text, a list of tokens, or a list of either. */
static size_t count_prompts(const json_t *prompt)
{
    const json_t *first = json_array_get(prompt, 0);
    bool many = json_is_string(first) || json_is_array(first);
    return many ? json_array_size(prompt) : 1;
}

static const json_t *prompt_at(const json_t *prompt, size_t i)
{
    const json_t *first = json_array_get(prompt, 0);
    return json_is_string(first) || json_is_array(first) ? json_array_get(prompt, i) : prompt;
}

/* Tokens of a part and its answers, by guess: four bytes are one, of whatever field, and an answer
 * without a bound has 256. What waits, and what a client may use, is bounded by it; no answer is
 * longer than the context. */
static int64_t guess_cost(const by__call *call, size_t body, int64_t tokens)
{
    const json_t *model =
        call->gateway == NULL ? NULL : by__gateway_model(call->gateway, call->model);
    int64_t context = by__get_integer(json_object_get(model, "info"), "context");
    tokens = tokens > 0 ? tokens : 256;
    tokens = context > 0 && tokens > context ? context : tokens;
    return (int64_t)(body / call->part_count / 4) + 1 + (int64_t)call->n * tokens;
}

static by_status make_parts(by__call *call, const asked *a, const json_t *request, size_t body,
                            by_error *error)
{
    bool chat = call->form->kind != BY__CALL_COMPLETION;
    call->part_count = chat ? 1 : count_prompts(a->prompt);
    if (call->part_count < 1 || call->part_count > BY__MOST_PARTS) {
        return by_error_set(error, BY_EARG, "'prompt' has at most %d prompts", BY__MOST_PARTS);
    }
    BY_TRY(by__alloc((void **)&call->parts, call->part_count, sizeof *call->parts, "a request",
                     error));
    BY_TRY(by__alloc((void **)&call->choices, call->part_count * call->n, sizeof *call->choices,
                     "a request", error));
    for (size_t i = 0; i < call->part_count; i++) {
        const json_t *prompt = chat ? NULL : prompt_at(a->prompt, i);
        json_t *own = by__copy_object(request);
        char id[65];
        (void)snprintf(id, sizeof id, "%.40s-%u", call->id, (unsigned)i);
        if (prompt != NULL && json_object_set(own, "prompt", (json_t *)(uintptr_t)prompt) != 0) {
            json_decref(own);
            own = NULL;
        }
        by__part *part = &call->parts[i];
        part->call = call;
        part->message =
            json_pack("{ss ss ss sI sb sb sI sI so}", "t", "submit", "id", id, "model", call->model,
                      "sequences", (json_int_t)call->n, "follows", i > 0, "whole",
                      (int)!call->stream, "cost", (json_int_t)guess_cost(call, body, tokens_of(a)),
                      "priority", (json_int_t)a->priority, "request", own);
        if (part->message == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a request");
        }
    }
    return BY_OK;
}

static const by__field stream_fields[] = {
    BY__BOOL("include_usage", by__call, usage),
    BY__IGNORED("include_obfuscation"),
};

static by_status read_stream_options(by__call *call, const asked *a, const char **param,
                                     by_error *error)
{
    *param = "stream_options";
    if (a->stream_options == NULL) {
        return BY_OK;
    }
    if (!json_is_object(a->stream_options)) {
        return by_error_set(error, BY_EARG, "'stream_options' must be an object");
    }
    return by__fields_read(call, stream_fields, BY_ARRAY_LENGTH(stream_fields), a->stream_options,
                           NULL, error);
}

by_status by__openai_read(by__call *call, const json_t *body, size_t length, const char **param,
                          by_error *error)
{
    bool chat = call->form->kind != BY__CALL_COMPLETION;
    asked a = {.n = 1,
               .temperature = 1.0,
               .top_p = 1.0,
               .repetition = 1.0,
               .seed = INT64_MIN,
               .tokens = chat ? 0 : 16};
    json_t *request = NULL;
    BY_TRY(chat ? by__fields_read(&a, chat_fields, BY_ARRAY_LENGTH(chat_fields), body, param, error)
                : by__fields_read(&a, completion_fields, BY_ARRAY_LENGTH(completion_fields), body,
                                  param, error));
    *param = "model";
    if (a.model == NULL) {
        return by_error_set(error, BY_EARG, "'model' is missing");
    }
    *param = chat ? "messages" : "prompt";
    if (chat ? !json_is_array(a.messages) || json_array_size(a.messages) == 0 : a.prompt == NULL) {
        return by_error_set(error, BY_EARG,
                            chat ? "'messages' must be a list with at least one message"
                                 : "'prompt' is missing");
    }
    BY_TRY(read_logprobs(call, &a, param, error));
    BY_TRY(read_best(call, &a, param, error));
    *param = "min_tokens";
    if (tokens_of(&a) > 0 && a.min_tokens > tokens_of(&a)) {
        return by_error_set(error, BY_EARG, "'min_tokens' is %lld, above 'max_tokens', %lld",
                            (long long)a.min_tokens, (long long)tokens_of(&a));
    }
    BY_TRY(read_stream_options(call, &a, param, error));
    *param = NULL;
    call->n = (size_t)a.n;
    call->stream = a.stream;
    call->model = by__strdup(a.model);
    if (call->model == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a request");
    }
    by_status status = make_request(&request, call, &a, param, error);
    if (status == BY_OK) {
        status = make_parts(call, &a, request, length, error);
    }
    json_decref(request);
    return status;
}

/* ---- answering ---- */

static void add_head(const by__call *call, const char *object, by__text *out)
{
    by__text_format(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", call->id,
                    object, (long long)call->created);
    by__text_json(out, call->model, strlen(call->model));
}

static const char *chunk_of(const by__call *call)
{
    return call->form->kind == BY__CALL_CHAT ? "chat.completion.chunk" : "text_completion";
}

/* Prints log-probabilities in the format of the kind. */
static void add_logprobs(const by__call *call, const json_t *list, by__text *out)
{
    if (!call->logprobs || json_array_size(list) == 0) {
        by__text_add(out, "null");
        return;
    }
    if (call->form->kind == BY__CALL_CHAT) {
        by__text_add(out, "{\"content\":");
        by__openai_tokens(list, out);
        by__text_add(out, ",\"refusal\":null}");
        return;
    }
    by__openai_places(list, call->top > 0, out);
}

/* Everything except the index of the choice is the same in each frame of a stream, and is printed
 * once. */
static void begin_frame(by__call *call, size_t choice, by__text *out)
{
    char digits[8];
    size_t at = sizeof digits;
    if (call->head.length == 0) {
        by__text_add(&call->head, "data: ");
        add_head(call, chunk_of(call), &call->head);
        by__text_add(&call->head, ",\"choices\":[{\"index\":");
    }
    out->failed = out->failed || call->head.failed;
    digits[--at] = ',';
    do {
        digits[--at] = (char)('0' + choice % 10);
        choice /= 10;
    } while (choice > 0 && at > 0);
    if (!out->failed) {
        by__text_add_bytes(out, call->head.data, call->head.length);
    }
    by__text_add_bytes(out, digits + at, sizeof digits - at);
}

static void end_frame(const by__call *call, by__text *out)
{
    by__text_add(out, call->usage ? "}],\"usage\":null}\n\n" : "}]}\n\n");
}

static void first(by__call *call, size_t choice, by__text *out)
{
    if (call->form->kind == BY__CALL_CHAT) {
        begin_frame(call, choice, out);
        by__text_add(out, "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
                          "\"finish_reason\":null");
        end_frame(call, out);
    }
}

static void add_piece(by__call *call, size_t choice, const char *text, size_t length,
                      const json_t *logprobs, by__text *out)
{
    begin_frame(call, choice, out);
    by__text_add(out, call->form->kind == BY__CALL_CHAT ? "\"delta\":{\"content\":" : "\"text\":");
    by__text_json(out, text, length);
    by__text_add(out, call->form->kind == BY__CALL_CHAT ? "},\"logprobs\":" : ",\"logprobs\":");
    add_logprobs(call, logprobs, out);
    by__text_add(out, ",\"finish_reason\":null");
    end_frame(call, out);
}

static void add_stop(by__call *call, size_t choice, const char *reason, by__text *out)
{
    begin_frame(call, choice, out);
    by__text_format(out, "%s,\"logprobs\":null,\"finish_reason\":\"%s\"",
                    call->form->kind == BY__CALL_CHAT ? "\"delta\":{}" : "\"text\":\"\"", reason);
    end_frame(call, out);
}

static void add_usage(const by__call *call, by__text *out)
{
    int64_t prompt = 0;
    int64_t generated = 0;
    for (size_t i = 0; i < call->part_count; i++) {
        prompt += call->parts[i].prompt_tokens;
        generated += call->parts[i].generated;
    }
    by__text_format(out,
                    "\"usage\":{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,"
                    "\"total_tokens\":%lld}",
                    (long long)prompt, (long long)generated, (long long)(prompt + generated));
}

static void add_end(by__call *call, by__text *out)
{
    if (call->usage) {
        by__text_add(out, "data: ");
        add_head(call, chunk_of(call), out);
        by__text_add(out, ",\"choices\":[],");
        add_usage(call, out);
        by__text_add(out, "}\n\n");
    }
    by__text_add(out, "data: [DONE]\n\n");
}

static void add_failure(by__call *call, int status, const char *code, const char *param,
                        const char *message, by__text *out)
{
    BY_UNUSED(call);
    by__text_add(out, "data: ");
    by__openai_error(out, status, code, param, message);
    by__text_add(out, "\n\ndata: [DONE]\n\n");
}

static void add_answer(by__call *call, by__text *out)
{
    bool chat = call->form->kind == BY__CALL_CHAT;
    add_head(call, chat ? "chat.completion" : "text_completion", out);
    by__text_add(out, ",\"choices\":[");
    for (size_t i = 0; i < call->part_count * call->n; i++) {
        const by__choice *c = &call->choices[i];
        by__text_format(out, "%s{\"index\":%zu,", i > 0 ? "," : "", i);
        by__text_add(out, chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
        by__text_json(out, c->text.data == NULL ? "" : c->text.data, c->text.length);
        out->failed = out->failed || c->text.failed;
        by__text_add(out, chat ? ",\"refusal\":null},\"logprobs\":" : ",\"logprobs\":");
        add_logprobs(call, c->logprobs, out);
        by__text_format(out, ",\"finish_reason\":\"%s\"}", c->reason);
    }
    by__text_add(out, "],");
    add_usage(call, out);
    by__text_add(out, "}");
}

void by__openai_error(by__text *out, int status, const char *code, const char *param,
                      const char *message)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 403 ? "permission_error"
                       : status == 404 ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status == 503 ? "unavailable_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    by__text_add(out, "{\"error\":{\"message\":");
    by__text_json(out, message, strlen(message));
    by__text_format(out, ",\"type\":\"%s\",\"param\":", type);
    if (param == NULL) {
        by__text_add(out, "null");
    } else {
        by__text_json(out, param, strlen(param));
    }
    by__text_add(out, ",\"code\":");
    by__text_json(out, code, strlen(code));
    by__text_add(out, "}}");
}

/* ---- the forms ---- */

static by_status read_text(by__call *call, const by__http_request *request, const char **param,
                           by_error *error)
{
    json_t *body;
    BY_TRY(by__openai_parse(&body, request->body, request->body_length, error));
    by_status status = by__openai_read(call, body, request->body_length, param, error);
    json_decref(body);
    return status;
}

/* Common to both kinds. */
#define FORM                                                                                       \
    .read = read_text, .first = first, .text = add_piece, .stop = add_stop, .end = add_end,        \
    .fail = add_failure, .answer = add_answer, .apart = true

const by__call_form by__completion_form = {.name = "completion",
                                           .route = "/v1/completions",
                                           .prefix = "cmpl-",
                                           .kind = BY__CALL_COMPLETION,
                                           FORM};
const by__call_form by__chat_form = {.name = "chat",
                                     .route = "/v1/chat/completions",
                                     .prefix = "chatcmpl-",
                                     .kind = BY__CALL_CHAT,
                                     FORM};
