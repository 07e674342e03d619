/* OpenAI's API: requests for completions and chats; openai_answer.c answers them. */
#include <stdlib.h>
#include <string.h>

#include "serve/base/fields.h"
#include "serve/gateway/openai/openai_tools.h"
#include "serve/protocol/messages.h"

/* Most top tokens that are reported for each token. */
#define MAX_TOP 20

/* The fields of a request's body. */
typedef struct openai_fields {
    const char *model;
    const json_t *prompt;
    const json_t *messages;
    const json_t *tools;
    const json_t *tool_choice;
    const json_t *modalities;
    const json_t *variables;                                           /* of the chat template */
    const json_t *suffix, *functions, *function_call, *audio, *search; /* not supported */
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
    bool parallel; /* calls of functions */
    bool echo;
    bool ignore_eos;
} openai_fields;

#define ANY(name, member)                  BY__ANY(name, openai_fields, member)
#define INTEGER(name, member, least, most) BY__INTEGER(name, openai_fields, member, least, most)
#define NUMBER(name, member, least, most)  BY__NUMBER(name, openai_fields, member, least, most)
#define BOOL(name, member)                 BY__BOOL(name, openai_fields, member)

/* Fields of both kinds. guided_json and those after it are extensions that vLLM has too. */
#define SHARED(least)                                                                              \
    BY__STRING("model", openai_fields, model, 255), INTEGER("n", n, 1, BY__MAX_N),                 \
        INTEGER("max_tokens", tokens, least, 1 << 24), INTEGER("seed", seed, -9e18, 9e18),         \
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

static const by__serve_field completion_fields[] = {SHARED(0), ANY("prompt", prompt),
                                                    INTEGER("best_of", best_of, 1, BY__MAX_N),
                                                    BOOL("echo", echo), ANY("suffix", suffix)};
static const by__serve_field chat_fields[] = {
    SHARED(1),
    ANY("messages", messages),
    ANY("tools", tools),
    INTEGER("max_completion_tokens", completion_tokens, 1, 1 << 24),
    INTEGER("top_logprobs", top_logprobs, 0, MAX_TOP),
    ANY("tool_choice", tool_choice),
    BOOL("parallel_tool_calls", parallel),
    ANY("modalities", modalities),
    ANY("chat_template_kwargs", variables),
    ANY("functions", functions),
    ANY("function_call", function_call),
    ANY("audio", audio),
    ANY("web_search_options", search),
    BY__IGNORED("reasoning_effort"),
    BY__IGNORED("verbosity"),
    BY__IGNORED("prediction"),
    BY__IGNORED("metadata"),
    BY__IGNORED("store"),
    BY__IGNORED("service_tier"),
    BY__IGNORED("safety_identifier"),
    BY__IGNORED("prompt_cache_key"),
    BY__IGNORED("prompt_cache_retention"),
    BY__IGNORED("prompt_cache_options")};

/* ---- reading ---- */

/* Reads "logprobs" and "top_logprobs". */
static by_status read_logprobs(by__gateway_request *request, const openai_fields *a,
                               const char **param, by_error *error)
{
    *param = "logprobs";
    if (request->form->kind == BY__REQUEST_COMPLETION) {
        int64_t top = json_integer_value(a->logprobs);
        if (a->logprobs != NULL && (!json_is_integer(a->logprobs) || top < 0 || top > MAX_TOP)) {
            return by_error_set(error, BY_EARG, "'logprobs' must be from 0 to %d", MAX_TOP);
        }
        request->logprobs = a->logprobs != NULL;
        request->top = top;
        return BY_OK;
    }
    if (a->logprobs != NULL && !json_is_boolean(a->logprobs)) {
        return by_error_set(error, BY_EARG, "'logprobs' must be true or false");
    }
    request->logprobs = json_is_true(a->logprobs);
    request->top = a->top_logprobs;
    *param = "top_logprobs";
    return request->logprobs || request->top == 0
               ? BY_OK
               : by_error_set(error, BY_EARG, "'top_logprobs' needs 'logprobs' to be true");
}

/* Fields of OpenAI's API whose effect an answer would lack. */
static by_status refuse_others(const openai_fields *a, const char **param, by_error *error)
{
    const struct {
        const char *name;
        const json_t *value;
        const char *instead;
    } rows[] = {
        {"suffix",
         json_string_length(a->suffix) > 0 || !json_is_string(a->suffix) ? a->suffix : NULL,
         "the model continues a prompt"},
        {"functions", a->functions, "send 'tools'"},
        {"function_call", a->function_call, "send 'tool_choice'"},
        {"audio", a->audio, "the model writes text"},
        {"web_search_options", a->search, "send what is known in 'messages'"},
    };
    size_t i;
    json_t *one;
    for (i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (rows[i].value != NULL) {
            *param = rows[i].name;
            return by_error_set(error, BY_EARG, "'%s' is not supported: %s", rows[i].name,
                                rows[i].instead);
        }
    }
    *param = "modalities";
    if (a->modalities != NULL && !json_is_array(a->modalities)) {
        return by_error_set(error, BY_EARG, "'modalities' must be a list");
    }
    json_array_foreach(a->modalities, i, one)
    {
        if (!json_is_string(one) || strcmp(json_string_value(one), "text") != 0) {
            return by_error_set(error, BY_EARG,
                                "'modalities' has only text: the model writes text");
        }
    }
    *param = "chat_template_kwargs";
    return a->variables == NULL || json_is_object(a->variables)
               ? BY_OK
               : by_error_set(error, BY_EARG, "'chat_template_kwargs' must be an object");
}

/* Number of tokens requested for the answer; 0: as many as fit. */
static int64_t tokens_of(const openai_fields *a)
{
    return a->completion_tokens > 0 ? a->completion_tokens : a->tokens;
}

/* Reads "best_of". If more sequences are generated than shown, request->own is set to the
 * number shown. */
static by_status read_best(by__gateway_request *request, openai_fields *a, const char **param,
                           by_error *error)
{
    *param = "best_of";
    if (a->best_of > 0 && a->best_of < a->n) {
        return by_error_set(error, BY_EARG, "'best_of' is %lld, below 'n', %lld",
                            (long long)a->best_of, (long long)a->n);
    }
    if (a->best_of > a->n && a->stream) {
        return by_error_set(
            error, BY_EARG,
            "'best_of' above 'n' cannot be streamed, because the best are known at the "
            "end: set 'stream' to false");
    }
    if (a->best_of > a->n) {
        request->own = json_pack("{sI}", "best", (json_int_t)a->n);
        a->n = a->best_of;
        return request->own != NULL ? BY_OK
                                    : by_error_set(error, BY_EMEMORY, "out of memory: a request");
    }
    return BY_OK;
}

/* Whether a completion is its prompt alone. */
static bool is_only_prompt(const by__gateway_request *request, const openai_fields *a)
{
    return request->form->kind == BY__REQUEST_COMPLETION && a->tokens == 0;
}

/* Adds fields only if they are used: workers of the previous version refuse unknown ones. */
static bool add_rare(json_t *wanted, const by__gateway_request *request, const openai_fields *a)
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
        {"only_prompt", is_only_prompt(request, a) ? json_true() : json_null()},
        {"score", by__protocol_get_integer(request->own, "best") > 0 ? json_true() : json_null()},
        {"chat_template_kwargs",
         a->variables != NULL ? json_incref((json_t *)(uintptr_t)a->variables) : json_null()},
    };
    bool added = wanted != NULL;
    for (size_t i = 0; i < BY_ARRAY_LENGTH(rows); i++) {
        if (json_is_null(rows[i].value)) {
            continue;
        }
        added = json_object_set_new(wanted, rows[i].name, rows[i].value) == 0 && added;
    }
    return added;
}

/* Makes the constraint of the text, for a call of a function or as the client asks; NULL: none. */
static by_status make_format(json_t **out, by__gateway_request *request, openai_fields *a,
                             const char **param, by_error *error)
{
    json_t *function = NULL;
    BY_TRY(
        by__openai_tools(request, &a->tools, a->tool_choice, a->parallel, &function, param, error));
    if (function != NULL) {
        a->forms.response = NULL; /* is about texts, and the answer is a call */
    }
    by_status status = by__openai_format(out, &a->forms, param, error);
    if (function == NULL) {
        return status;
    }
    if (status == BY_OK && *out != NULL) {
        json_decref(*out);
        status =
            by_error_set(error, BY_EARG, "'%s' and a required call cannot both be given", *param);
    }
    *out = function;
    if (status != BY_OK) {
        json_decref(function);
        *out = NULL;
    }
    return status;
}

/* Makes the request for a worker (worker_generation.c), except the prompt. */
static by_status make_request(json_t **out, by__gateway_request *request, openai_fields *a,
                              const char **param, by_error *error)
{
    json_t *format;
    uint64_t seed = (uint64_t)a->seed;
    if (a->seed == INT64_MIN) {
        /* Chosen here, so that a worker that takes over draws the same numbers. */
        BY_TRY(by__serve_random_bytes(&seed, sizeof seed, error));
        seed >>= 2;
    }
    BY_TRY(make_format(&format, request, a, param, error));
    *param = NULL;
    *out = json_pack(
        "{sI sI sI sI sf sf sf sf sf sf sf sb sI sb sO* sO* sO* sO* so* ss}", "seed",
        (json_int_t)seed, "max_tokens", (json_int_t)tokens_of(a), "n", (json_int_t)a->n, "top_k",
        (json_int_t)(a->top_k < 0 ? 0 : a->top_k), "temperature", a->temperature, "top_p", a->top_p,
        "min_p", a->min_p, "typical_p", a->typical_p, "presence_penalty", a->presence,
        "frequency_penalty", a->frequency, "repetition_penalty", a->repetition, "logprobs",
        (int)request->logprobs, "top_logprobs", (json_int_t)request->top, "ignore_eos",
        (int)a->ignore_eos, "logit_bias", a->bias, "stop", a->stop, "messages", a->messages,
        "tools", a->tools, "format", format, "tenant", request->key);
    if (!add_rare(*out, request, a)) {
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

static int64_t guess_prompt(const by__gateway_request *request, size_t body)
{
    return (int64_t)(body / request->part_count / 4) + 1;
}

/* Tokens of a part and its answers, by guess: four bytes are one, of whatever field, and an answer
 * without a bound has 256. What waits, and what a client may use, is bounded by it; no answer is
 * longer than the context. */
static int64_t guess_cost(const by__gateway_request *request, size_t body, int64_t tokens)
{
    const json_t *model = by__gateway_model_state(request->state, request->model);
    int64_t context = by__protocol_get_integer(json_object_get(model, "info"), "context");
    tokens = tokens > 0 ? tokens : 256;
    tokens = context > 0 && tokens > context ? context : tokens;
    return guess_prompt(request, body) + (int64_t)request->n * tokens;
}

static by_status make_parts(by__gateway_request *request, const openai_fields *a,
                            const json_t *wanted, size_t body, by_error *error)
{
    bool chat = request->form->kind != BY__REQUEST_COMPLETION;
    request->part_count = chat ? 1 : count_prompts(a->prompt);
    if (request->part_count < 1 || request->part_count > BY__MAX_PARTS) {
        return by_error_set(error, BY_EARG, "'prompt' has at most %d prompts", BY__MAX_PARTS);
    }
    BY_TRY(by__alloc((void **)&request->parts, request->part_count, sizeof *request->parts,
                     "a request", error));
    BY_TRY(by__alloc((void **)&request->choices, request->part_count * request->n,
                     sizeof *request->choices, "a request", error));
    for (size_t i = 0; i < request->part_count; i++) {
        const json_t *prompt = chat ? NULL : prompt_at(a->prompt, i);
        json_t *own = by__protocol_copy_object(wanted);
        char id[65];
        (void)snprintf(id, sizeof id, "%.40s-%u", request->id, (unsigned)i);
        if (prompt != NULL && json_object_set(own, "prompt", (json_t *)(uintptr_t)prompt) != 0) {
            json_decref(own);
            own = NULL;
        }
        by__gateway_part *part = &request->parts[i];
        part->request = request;
        part->guess = guess_prompt(request, body);
        part->message = json_pack(
            "{ss ss ss sI sb sb sI sI so}", "t", "submit", "id", id, "model", request->model,
            "sequences", (json_int_t)request->n, "follows", i > 0, "whole", (int)!request->stream,
            "cost",
            (json_int_t)guess_cost(request, body, is_only_prompt(request, a) ? 1 : tokens_of(a)),
            "priority", (json_int_t)a->priority, "request", own);
        if (part->message == NULL) {
            return by_error_set(error, BY_EMEMORY, "out of memory: a request");
        }
    }
    return BY_OK;
}

static const by__serve_field stream_fields[] = {
    BY__BOOL("include_usage", by__gateway_request, usage),
    BY__IGNORED("include_obfuscation"),
};

static by_status read_stream_options(by__gateway_request *request, const openai_fields *a,
                                     const char **param, by_error *error)
{
    *param = "stream_options";
    if (a->stream_options == NULL) {
        return BY_OK;
    }
    if (!json_is_object(a->stream_options)) {
        return by_error_set(error, BY_EARG, "'stream_options' must be an object");
    }
    return by__serve_fields_read(request, stream_fields, BY_ARRAY_LENGTH(stream_fields),
                                 a->stream_options, NULL, error);
}

by_status by__openai_read(by__gateway_request *request, const json_t *body, size_t length,
                          const char **param, by_error *error)
{
    bool chat = request->form->kind != BY__REQUEST_COMPLETION;
    openai_fields a = {.n = 1,
                       .temperature = 1.0,
                       .top_p = 1.0,
                       .repetition = 1.0,
                       .seed = INT64_MIN,
                       .parallel = true,
                       .tokens = chat ? 0 : 16};
    json_t *wanted = NULL;
    BY_TRY(chat ? by__serve_fields_read(&a, chat_fields, BY_ARRAY_LENGTH(chat_fields), body, param,
                                        error)
                : by__serve_fields_read(&a, completion_fields, BY_ARRAY_LENGTH(completion_fields),
                                        body, param, error));
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
    BY_TRY(by__openai_messages((json_t *)(uintptr_t)a.messages, request->place, param, error));
    BY_TRY(refuse_others(&a, param, error));
    BY_TRY(read_logprobs(request, &a, param, error));
    BY_TRY(read_best(request, &a, param, error));
    *param = "max_tokens";
    if (is_only_prompt(request, &a) && !a.echo) {
        return by_error_set(error, BY_EARG,
                            "'max_tokens' is 0: without 'echo' the answer would be empty");
    }
    *param = "min_tokens";
    if ((tokens_of(&a) > 0 || is_only_prompt(request, &a)) && a.min_tokens > tokens_of(&a)) {
        return by_error_set(error, BY_EARG, "'min_tokens' is %lld, above 'max_tokens', %lld",
                            (long long)a.min_tokens, (long long)tokens_of(&a));
    }
    BY_TRY(read_stream_options(request, &a, param, error));
    *param = NULL;
    request->n = (size_t)a.n;
    request->stream = a.stream;
    request->model = by__strdup(a.model);
    if (request->model == NULL) {
        return by_error_set(error, BY_EMEMORY, "out of memory: a request");
    }
    by_status status = make_request(&wanted, request, &a, param, error);
    if (status == BY_OK) {
        status = make_parts(request, &a, wanted, length, error);
    }
    json_decref(wanted);
    return status;
}

by_status by__openai_read_text(by__gateway_request *request, const by__http_request *http,
                               const char **param, by_error *error)
{
    json_t *body;
    BY_TRY(by__gateway_body_parse(&body, http->body, http->body_length, error));
    by_status status = by__openai_read(request, body, http->body_length, param, error);
    json_decref(body);
    return status;
}
