/* Parses a request for the engine: prompt, sampling, stops and constraints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "serve/base/fields.h"
#include "serve/protocol/messages.h"
#include "serve/worker/worker.h"

#define MAX_BIASES 1024
#define MAX_STOP   256

/* The fields of a request from the broker. */
typedef struct request_fields {
    const json_t *prompt;   /* a string or a list of tokens */
    const json_t *messages; /* of a conversation; exactly one of the two is given */
    const json_t *tools;
    const json_t *variables; /* of the template */
    int64_t tokens;
    int64_t n;
    int64_t top_k;
    int64_t seed;
    int64_t priority;
    const char *tenant; /* requests of the same tenant may share prefixes */
    double temperature, top_p, min_p, typical_p;
    double presence, frequency, repetition;
    const json_t *bias;
    const json_t *stop;
    const json_t *stop_ids;
    int64_t min_tokens;
    const json_t *format;
    int64_t top;
    bool logprobs;
    bool ignore_eos;
    bool echo;
    bool only_prompt;
    bool score;
} request_fields;

static const by__serve_field fields[] = {
    BY__ANY("prompt", request_fields, prompt),
    BY__ANY("messages", request_fields, messages),
    BY__ANY("tools", request_fields, tools),
    BY__ANY("chat_template_kwargs", request_fields, variables),
    BY__INTEGER("max_tokens", request_fields, tokens, 0, 1 << 24),
    BY__INTEGER("n", request_fields, n, 1, BY__MAX_N),
    BY__INTEGER("top_k", request_fields, top_k, 0, 1 << 24),
    BY__INTEGER("seed", request_fields, seed, -9e18, 9e18),
    BY__INTEGER("priority", request_fields, priority, -100, 100),
    BY__STRING("tenant", request_fields, tenant, 256),
    BY__NUMBER("temperature", request_fields, temperature, 0, 100),
    BY__NUMBER("top_p", request_fields, top_p, 0, 1),
    BY__NUMBER("min_p", request_fields, min_p, 0, 1),
    BY__NUMBER("typical_p", request_fields, typical_p, 0, 1),
    BY__NUMBER("presence_penalty", request_fields, presence, -2, 2),
    BY__NUMBER("frequency_penalty", request_fields, frequency, -2, 2),
    BY__NUMBER("repetition_penalty", request_fields, repetition, 0.01, 100),
    BY__ANY("logit_bias", request_fields, bias),
    BY__ANY("stop", request_fields, stop),
    BY__ANY("stop_token_ids", request_fields, stop_ids),
    BY__INTEGER("min_tokens", request_fields, min_tokens, 0, 1 << 24),
    BY__ANY("format", request_fields, format),
    BY__INTEGER("top_logprobs", request_fields, top, 0, BY_TOP_TOKENS),
    BY__BOOL("logprobs", request_fields, logprobs),
    BY__BOOL("ignore_eos", request_fields, ignore_eos),
    BY__BOOL("echo", request_fields, echo),
    BY__BOOL("only_prompt", request_fields, only_prompt),
    BY__BOOL("score", request_fields, score),
    BY__IGNORED("trace"), /* the worker has read it */
};

/* ---- the prompt ---- */

static by_status read_prompt(by__worker_generation *g, const by__worker_served_model *model,
                             const request_fields *a, const char **param, const char **code,
                             by_error *error)
{
    if ((a->prompt == NULL) == (a->messages == NULL)) {
        return by_error_set(error, BY_EARG, "one of 'prompt' and 'messages' is needed");
    }
    *param = a->messages != NULL ? "messages" : "prompt";
    if (a->messages != NULL) {
        return by__worker_served_messages(&g->prompt, model, a->messages, a->tools, a->variables,
                                          code, error);
    }
    if (json_is_array(a->prompt)) {
        BY_TRY(by__worker_served_ids(&g->prompt, model, a->prompt, "prompt", error));
        return by__worker_served_fits(model, g->prompt.count, code, error);
    }
    if (!json_is_string(a->prompt)) {
        return by_error_set(error, BY_EARG, "'prompt' must be a text or a list of token ids");
    }
    return by__worker_served_encode(&g->prompt, model, json_string_value(a->prompt),
                                    json_string_length(a->prompt),
                                    BY_ENCODE_ORDINARY | BY_ENCODE_ADD_BEFORE, code, error);
}

/* Sets the text of the prompt, if the answer is to begin with it. */
static by_status set_echo(by__worker_generation *g, const by__worker_served_model *model,
                          const request_fields *a, by_error *error)
{
    char *text = NULL;
    size_t length;
    if (!a->echo || a->prompt == NULL) {
        return BY_OK;
    }
    if (json_is_string(a->prompt)) {
        by_string_add(&g->echo, json_string_value(a->prompt), json_string_length(a->prompt));
    } else {
        BY_TRY(by_tokenizer_decode(model->tokenizer, g->prompt.ids, g->prompt.count, &text, &length,
                                   error));
        by__string_add_valid(&g->echo, text, length);
        g->decoded = true;
        free(text);
    }
    return g->echo.failed ? by_error_set(error, BY_EMEMORY, "out of memory: a prompt") : BY_OK;
}

/* ---- logit processing ---- */

/* Reads a token as JSON writes a whole number: without sign, blanks or leading zeros; -1: none. */
static int64_t read_token(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    bool good =
        digits > 0 && digits < 10 && name[digits] == '\0' && (name[0] != '0' || digits == 1);
    return good ? strtoll(name, NULL, 10) : -1;
}

static by_status read_biases(by__worker_generation *g, const request_fields *a,
                             by_logit_rules *rules, int64_t vocab, by_error *error)
{
    const char *name;
    json_t *value;
    if (a->bias == NULL) {
        return BY_OK;
    }
    if (!json_is_object(a->bias) || json_object_size(a->bias) > MAX_BIASES) {
        return by_error_set(error, BY_EARG, "'logit_bias' must be an object of at most %d tokens",
                            MAX_BIASES);
    }
    size_t count = json_object_size(a->bias);
    BY_TRY(by__alloc((void **)&g->bias_tokens, count + 1, sizeof(int32_t), "biases", error));
    BY_TRY(by__alloc((void **)&g->biases, count + 1, sizeof(float), "biases", error));
    json_object_foreach((json_t *)(uintptr_t)a->bias, name, value)
    {
        int64_t id = read_token(name);
        double bias = json_number_value(value);
        if (id < 0 || id >= vocab) {
            return by_error_set(error, BY_EARG,
                                "'logit_bias' has the key \"%.40s\", which is no token: a whole "
                                "number from 0 to %lld",
                                name, (long long)vocab - 1);
        }
        if (!json_is_number(value) || !(fabs(bias) <= 100.0)) {
            return by_error_set(error, BY_EARG,
                                "'logit_bias' gives token %lld something else than a number from "
                                "-100 to 100",
                                (long long)id);
        }
        g->bias_tokens[rules->bias_count] = (int32_t)id;
        /* The API's -100 forbids a token. */
        g->biases[rules->bias_count++] = bias <= -100.0 ? -INFINITY : (float)bias;
    }
    rules->bias_tokens = g->bias_tokens;
    rules->biases = g->biases;
    return BY_OK;
}

static by_status compile_format(by__worker_generation *g, by__worker_form_cache *forms,
                                const json_t *format, by_error *error)
{
    const char *type = by__protocol_get_text(format, "type");
    if (format == NULL || (type != NULL && strcmp(type, "text") == 0)) {
        return BY_OK;
    }
    if (type != NULL && strcmp(type, "json_object") == 0) {
        return by__worker_form_acquire(&g->constraint, forms, BY__FORM_OBJECT, "", 0, error);
    }
    if (type != NULL && strcmp(type, "regex") == 0 &&
        by__protocol_get_text(format, "pattern") != NULL) {
        const char *pattern = by__protocol_get_text(format, "pattern");
        return by__worker_form_acquire(&g->constraint, forms, BY__FORM_REGEX, pattern,
                                       strlen(pattern), error);
    }
    if (type != NULL && strcmp(type, "json_schema") == 0) {
        char *schema =
            by__json_dump(json_object_get(format, "schema"), JSON_COMPACT | JSON_ENCODE_ANY);
        by_status status = schema == NULL
                               ? by_error_set(error, BY_EARG, "the format has no 'schema'")
                               : by__worker_form_acquire(&g->constraint, forms, BY__FORM_SCHEMA,
                                                         schema, strlen(schema), error);
        free(schema);
        return status;
    }
    return by_error_set(error, BY_EARG, "a format is text, json_object, json_schema or regex");
}

static by_status open_process(by__worker_generation *g, const by__worker_served_model *model,
                              const request_fields *a, by_error *error)
{
    by_logit_process_options options = {
        .vocab = (int64_t)by_tokenizer_vocab(model->tokenizer),
        .n = (int32_t)a->n,
        .rules = {.repetition = a->repetition, .presence = a->presence, .frequency = a->frequency},
        .list = model->tokens,
        .ends = model->ends,
        .end_count = model->end_count,
        .min_tokens = a->min_tokens,
        .stops = g->stops,
        .stop_count = g->request.stop_count};
    BY_TRY(read_biases(g, a, &options.rules, options.vocab, error));
    g->forms = model->forms;
    BY_TRY(compile_format(g, model->forms, a->format, error));
    options.constraint = g->constraint;
    bool changes = g->constraint != NULL || options.rules.bias_count > 0 || a->presence != 0.0 ||
                   a->frequency != 0.0 || (a->repetition != 0.0 && a->repetition != 1.0) ||
                   (a->min_tokens > 0 && g->request.stop_count > 0);
    return changes ? by_logit_process_open(&g->process, &options, error) : BY_OK;
}

/* ---- stops ---- */

/* Collects the tokens that end a sequence: the model's, and those of the request. */
static by_status collect_stop_tokens(by__worker_generation *g, const by__worker_served_model *model,
                                     const request_fields *a, by_error *error)
{
    by_token_buffer ids = {0};
    size_t count = a->ignore_eos ? 0 : model->end_count;
    size_t most = BY_STOP_TOKENS - BY_END_TOKENS;
    if (a->stop_ids != NULL &&
        (!json_is_array(a->stop_ids) || json_array_size(a->stop_ids) > most)) {
        return by_error_set(error, BY_EARG, "'stop_token_ids' must be a list of at most %zu tokens",
                            most);
    }
    memcpy(g->stops, model->ends, count * sizeof *g->stops);
    by_status status = by__worker_served_ids(&ids, model, a->stop_ids, "stop_token_ids", error);
    for (size_t i = 0; i < ids.count; i++) {
        g->stops[count++] = (int32_t)ids.ids[i];
    }
    by_token_buffer_free(&ids);
    g->request.stop = g->stops;
    g->request.stop_count = count;
    return status;
}

static by_status open_streams(by__worker_generation *g, const by__worker_served_model *model,
                              const request_fields *a, by_error *error)
{
    const char *stops[BY__STOPS];
    by_text_stream_options options = {.stops = stops,
                                      .skip_special = true,
                                      .continues = a->prompt != NULL,
                                      .unstopped = a->min_tokens};
    size_t count = json_is_array(a->stop) ? json_array_size(a->stop) : a->stop != NULL;
    if (count > BY__STOPS) {
        return by_error_set(error, BY_EARG, "'stop' has at most %d texts", BY__STOPS);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *stop = json_is_array(a->stop) ? json_array_get(a->stop, i) : a->stop;
        if (json_string_length(stop) == 0 || json_string_length(stop) > MAX_STOP) {
            return by_error_set(error, BY_EARG, "'stop' must be texts of 1 to %d bytes", MAX_STOP);
        }
        if (by__json_string(stop) == NULL) {
            return by_error_set(error, BY_EARG,
                                "'stop' has a text with U+0000, which no text that is generated "
                                "holds");
        }
        stops[options.stop_count++] = json_string_value(stop);
    }
    for (int64_t i = 0; i < a->n; i++) {
        BY_TRY(by_text_stream_open(&g->streams[i], model->tokenizer, &options, error));
    }
    return BY_OK;
}

/* ---- all of it ---- */

static by_status fill(by__worker_generation *g, const by__worker_served_model *model,
                      const request_fields *a, by__worker_job *job, by_error *error)
{
    BY_TRY(read_prompt(g, model, a, &job->param, &job->code, error));
    job->param = NULL;
    BY_TRY(set_echo(g, model, a, error));
    BY_TRY(collect_stop_tokens(g, model, a, error));
    by_status status = open_process(g, model, a, error);
    job->code = status == BY_EFORMAT ? BY__UNWRITABLE : NULL;
    BY_TRY(status);
    BY_TRY(open_streams(g, model, a, error));
    g->logprobs = a->logprobs;
    g->scored = a->score;
    g->open = (int32_t)a->n;
    double left = job->deadline - by__now();
    g->request =
        (by_request){/* Ids are below 2^31, so they are the same as int32_t. */
                     .prompt = (const int32_t *)(const void *)g->prompt.ids,
                     .prompt_count = g->prompt.count,
                     .tokens = a->tokens,
                     .sampling = {.temperature = a->temperature,
                                  .top_k = a->top_k,
                                  .top_p = a->top_p > 0.0 ? a->top_p : 1e-9,
                                  .min_p = a->min_p,
                                  .typical_p = a->typical_p,
                                  .seed = (uint64_t)a->seed},
                     .n = (int32_t)a->n,
                     .top = (int32_t)a->top,
                     .score = a->echo && a->logprobs && a->prompt != NULL,
                     .only_prompt = a->only_prompt,
                     .stop = g->stops,
                     .stop_count = g->request.stop_count,
                     .deadline = job->deadline == 0.0 ? 0.0
                                 : left > 0.0         ? left
                                                      : 1e-9,
                     .priority = (int32_t)a->priority,
                     .salt = a->tenant == NULL ? 0 : by__hash64(a->tenant, strlen(a->tenant)),
                     .process = g->process == NULL ? NULL : by_logit_process_run,
                     .prepare = by_logit_process_prepare,
                     .user = g->process};
    return BY_OK;
}

by_status by__worker_generation_open(by__worker_job *job, const by__worker_served_model *model,
                                     const json_t *request, by_error *error)
{
    request_fields a = {.n = 1, .temperature = 1.0, .top_p = 1.0};
    by__worker_generation *g;
    BY_TRY(by__serve_fields_read(&a, fields, BY_ARRAY_LENGTH(fields), request, &job->param, error));
    BY_TRY(by__alloc((void **)&g, 1, sizeof *g, "a request", error));
    job->generation = g;
    return fill(g, model, &a, job, error);
}

void by__worker_generation_close(by__worker_generation **generation)
{
    by__worker_generation *g = *generation;
    if (g == NULL) {
        return;
    }
    *generation = NULL;
    for (size_t i = 0; i < BY__MAX_N; i++) {
        by_text_stream_close(&g->streams[i]);
    }
    by_logit_process_close(&g->process);
    by__worker_form_release(g->forms, g->constraint);
    by_token_buffer_free(&g->prompt);
    by_string_free(&g->echo);
    json_decref(g->prompt_scores);
    free(g->bias_tokens);
    free(g->biases);
    free(g);
}
